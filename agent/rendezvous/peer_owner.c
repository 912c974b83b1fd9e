/* Asked by inet_diag; a kernel without it lists the same in /proc/net/tcp.
 *
 * A socket that its process has closed, and which lives on for what is still on its way, belongs to nobody:
 * the kernel says user 0 and inode 0. Taken at its word, anybody who sends and closes would be root. */
#include "agent/rendezvous/peer_owner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct ends { /* of the peer's socket: its own address first */
    struct sockaddr_in own, remote;
};

static int send_query(struct peer_owner *p, const struct ends *ends)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } query = {.head = {.nlmsg_len = sizeof query,
                        .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                        .nlmsg_flags = NLM_F_REQUEST,
                        .nlmsg_seq = ++p->asked},
               .body = {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u}};
    query.body.id.idiag_sport = ends->own.sin_port;
    query.body.id.idiag_dport = ends->remote.sin_port;
    query.body.id.idiag_src[0] = ends->own.sin_addr.s_addr;
    query.body.id.idiag_dst[0] = ends->remote.sin_addr.s_addr;
    query.body.id.idiag_cookie[0] = query.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return send(p->netlink, &query, sizeof query, 0) == (ssize_t)sizeof query ? 0 : -1;
}

/* 1: found; 0: this kernel cannot say; -1: it knows no such socket. */
static int ask_kernel(struct peer_owner *p, const struct ends *ends, uid_t *uid)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    struct inet_diag_msg m;
    if (!p->open) {
        p->netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        p->open = p->netlink >= 0;
    }
    /* The kernel has answered before send returns. */
    ssize_t n =
        p->open && send_query(p, ends) == 0 ? recv(p->netlink, &answer, sizeof answer, MSG_DONTWAIT) : -1;
    if (n < (ssize_t)sizeof answer.head || answer.head.nlmsg_seq != p->asked) {
        peer_owner_close(p); /* the next one begins anew */
        return 0;
    }
    if (answer.head.nlmsg_type == SOCK_DIAG_BY_FAMILY && n >= (ssize_t)NLMSG_LENGTH(sizeof m)) {
        memcpy(&m, NLMSG_DATA(&answer.head), sizeof m);
        *uid = m.idiag_uid;
        return m.idiag_inode != 0 ? 1 : -1;
    }
    const struct nlmsgerr *error = NLMSG_DATA(&answer.head);
    bool unknown = answer.head.nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_LENGTH(sizeof *error) &&
                   error->error == -ENOENT;
    return unknown ? -1 : 0;
}

static bool read_table(const struct ends *ends, uid_t *uid)
{
    FILE *f = fopen("/proc/net/tcp", "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned own, own_port, remote, remote_port, owner;
        unsigned long inode;
        if (sscanf(line, "%*u: %8x:%4x %8x:%4x %*x %*x:%*x %*x:%*x %*x %u %*u %lu", &own, &own_port, &remote,
                   &remote_port, &owner, &inode) != 6)
            continue;
        found = inode != 0 && own == ends->own.sin_addr.s_addr && own_port == ntohs(ends->own.sin_port) &&
                remote == ends->remote.sin_addr.s_addr && remote_port == ntohs(ends->remote.sin_port);
        if (found)
            *uid = owner;
    }
    if (f)
        fclose(f);
    return found;
}

int peer_owner(struct peer_owner *p, int fd, uid_t *uid, struct err *e)
{
    struct ends ends;
    socklen_t own = sizeof ends.own, remote = sizeof ends.remote;
    if (getpeername(fd, (struct sockaddr *)&ends.own, &own) < 0 ||
        getsockname(fd, (struct sockaddr *)&ends.remote, &remote) < 0)
        return err_sys(e, errno, "a connection has no addresses");
    if (ends.own.sin_family != AF_INET)
        return err_set(e, ERR_UNSUPPORTED, "not an IPv4 connection");
    int rc = ask_kernel(p, &ends, uid);
    if (rc > 0 || (rc == 0 && read_table(&ends, uid)))
        return 0;
    return err_set(e, ERR_CLOSED, "nobody owns the other end of a connection");
}

void peer_owner_close(struct peer_owner *p)
{
    if (p->open)
        close(p->netlink);
    p->open = false;
}
