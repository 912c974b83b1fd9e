#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/inspect/stacks_proc.h"

#define CONNECTIONS_MAX 65536u
#define ESTABLISHED     1 /* TCP_ESTABLISHED of the kernel's own header */
#define FILES_MAX       4096

/* ---- the kernel's list --------------------------------------------------------------------------------- */

static int ask_kernel(int fd, uint8_t family)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } wanted = {.header = {.nlmsg_len = sizeof wanted,
                           .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                           .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                .body = {.sdiag_family = family,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                         .idiag_states = 1u << ESTABLISHED}};
    return send(fd, &wanted, sizeof wanted, 0) == (ssize_t)sizeof wanted ? 0 : -1;
}

static void add_connection(struct network *n, struct network_connection c)
{
    if (n->count == n->room && n->room < CONNECTIONS_MAX) {
        size_t room = n->room ? 2 * n->room : 256;
        struct network_connection *grown = realloc(n->item, room * sizeof *grown);
        if (!grown)
            return;
        n->item = grown;
        n->room = room;
    }
    if (n->count < n->room)
        n->item[n->count++] = c;
}

static void read_connection(struct network *n, const struct nlmsghdr *h)
{
    const struct inet_diag_msg *m = NLMSG_DATA(h);
    int left = (int)h->nlmsg_len - (int)NLMSG_LENGTH(sizeof *m);
    for (const struct rtattr *a = (const struct rtattr *)(m + 1); left > 0 && RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
        struct tcp_info info;
        size_t least = offsetof(struct tcp_info, tcpi_last_data_recv) + sizeof info.tcpi_last_data_recv;
        if (a->rta_type != INET_DIAG_INFO || RTA_PAYLOAD(a) < least)
            continue;
        memcpy(&info, RTA_DATA(a), least); /* an older kernel knows less */
        add_connection(n, (struct network_connection){m->idiag_inode, info.tcpi_last_data_recv,
                                                      info.tcpi_last_data_sent});
    }
}

/* true: more will come. */
static bool read_answers(struct network *n, int fd)
{
    static char bytes[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
    ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0)
        return false;
    int left = (int)got;
    for (const struct nlmsghdr *h = (const struct nlmsghdr *)bytes; left > 0 && NLMSG_OK(h, (unsigned)left);
         h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
            return false;
        if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
            read_connection(n, h);
    }
    return true;
}

static int compare_inodes(const void *a, const void *b)
{
    const struct network_connection *x = a, *y = b;
    return (x->inode > y->inode) - (x->inode < y->inode);
}

void network_look(struct network *n)
{
    static const uint8_t families[] = {AF_INET, AF_INET6};
    *n = (struct network){NULL, 0, 0};
    for (size_t i = 0; i < sizeof families; i++) {
        int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        if (fd < 0)
            return;
        /* A dump is answered within the calls: each recv has the kernel write the next part. */
        if (ask_kernel(fd, families[i]) == 0)
            while (read_answers(n, fd))
                ;
        close(fd);
    }
    if (n->count > 0)
        qsort(n->item, n->count, sizeof *n->item, compare_inodes);
}

void network_free(struct network *n)
{
    free(n->item);
    *n = (struct network){NULL, 0, 0};
}

/* ---- those of a process -------------------------------------------------------------------------------- */

static const struct network_connection *find_connection(const struct network *n, const char *link)
{
    struct network_connection key = {0};
    if (n->count == 0 || sscanf(link, "socket:[%u]", &key.inode) != 1)
        return NULL;
    return bsearch(&key, n->item, n->count, sizeof *n->item, compare_inodes);
}

struct network_use network_of(const struct network *n, pid_t pid)
{
    struct network_use use = {0};
    char path[64], link[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = n->count > 0 ? opendir(path) : NULL;
    const struct dirent *entry;
    for (int i = 0; dir && i < FILES_MAX && (entry = readdir(dir)) != NULL; i++) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        const struct network_connection *c = find_connection(n, link);
        if (!c)
            continue;
        bool first = use.connections++ == 0;
        use.received_ms = first || c->received_ms < use.received_ms ? c->received_ms : use.received_ms;
        use.sent_ms = first || c->sent_ms < use.sent_ms ? c->sent_ms : use.sent_ms;
    }
    if (dir)
        closedir(dir);
    return use;
}
