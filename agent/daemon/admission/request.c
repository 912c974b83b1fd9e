#include "agent/daemon/admission/admission.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* All that came, so that none is left to the kernel to close in our place. -1 with *e when they are not what
 * is wanted. */
static int take_descriptors(struct client *c, struct msghdr *m, struct err *e)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int), first = c->fds;
        memcpy(c->fd + c->fds, CMSG_DATA(h), count * sizeof(int)); /* there is room: see below */
        c->fds += count;
        for (size_t i = first; i < c->fds; i++)
            if (!close_is_harmless(c->fd[i]))
                return err_set(e, ERR_PROTOCOL, "sent a descriptor that is no pipe and no unix socket");
    }
    if (c->fds > 1 + DAEMON_DESCRIPTORS)
        return err_set(e, ERR_PROTOCOL, "sent %zu descriptors, and %d are wanted", c->fds - 1,
                       DAEMON_DESCRIPTORS);
    return 0;
}

/* Up to `want` bytes of the frame, no more: 1 when they are there, 0 when some are to come, -1 at the end. */
static int fill_frame(struct client *c, size_t want, struct err *e)
{
    while (c->have < want) {
        union {
            char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec part = {c->frame + c->have, want - c->have};
        struct msghdr m = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t n = recvmsg(c->fd[0], &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0 || take_descriptors(c, &m, e) < 0)
            return -1;
        c->have += (size_t)n;
    }
    return 1;
}

int request_read(struct client *c, struct err *e)
{
    int rc = fill_frame(c, FRAME_HEADER_SIZE, e);
    if (rc <= 0)
        return rc;
    ptrdiff_t length = daemon_frame_length(c->frame, DAEMON_MESSAGE_MAX, e);
    return length < 0 ? -1 : fill_frame(c, (size_t)length, e);
}

int request_identify(struct client *c)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(c->fd[0], SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -1;
    c->uid = peer.uid;
    c->pid = peer.pid;
    size = 0;
    if (getsockopt(c->fd[0], SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0 && errno != ERANGE)
        return -1;
    c->groups = malloc(size + sizeof *c->groups);
    if (!c->groups || getsockopt(c->fd[0], SOL_SOCKET, SO_PEERGROUPS, c->groups, &size) < 0)
        return -1;
    c->group_count = size / sizeof *c->groups;
    c->groups[c->group_count++] = peer.gid;
    snprintf(c->user, sizeof c->user, "%u", (unsigned)c->uid);
    return 0;
}

void request_name_user(struct client *c)
{
    const struct passwd *p = getpwuid(c->uid);
    if (p && strlen(p->pw_name) < sizeof c->user && !strpbrk(p->pw_name, "\r\n"))
        snprintf(c->user, sizeof c->user, "%s", p->pw_name);
}
