#include "collectives/shm/worker_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union fd_control {
    char bytes[CMSG_SPACE(sizeof(int) * WORKER_FDS_MAX)];
    struct cmsghdr align;
};

int worker_send(int fd, const struct worker_message *m, const int *fds, unsigned number_of_fds, struct err *e)
{
    size_t sent = 0;
    while (sent < sizeof *m) {
        union fd_control control;
        struct iovec iov = {(char *)m + sent, sizeof *m - sent};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        if (sent == 0 && number_of_fds > 0) {
            memset(&control, 0, sizeof control);
            msg.msg_control = control.bytes;
            msg.msg_controllen = CMSG_SPACE(sizeof(int) * number_of_fds);
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * number_of_fds);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * number_of_fds);
        }
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return err_set(e, ERR_CLOSED, "the other end of the worker socket has gone");
        if (n < 0)
            return err_sys(e, errno, "cannot write to the worker socket");
        sent += (size_t)n;
    }
    return 0;
}

void worker_reader_reset(struct worker_reader *r)
{
    for (unsigned i = 0; i < r->number_of_fds; i++)
        if (r->fds[i] >= 0)
            close(r->fds[i]);
    r->number_of_fds = 0;
    r->have = 0;
    explicit_bzero(r->message.token, sizeof r->message.token);
}

/* Keeps the descriptors that came with a piece; more than a message may have are closed. */
static void keep_fds(struct worker_reader *r, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t number = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < number; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (r->number_of_fds < WORKER_FDS_MAX)
                r->fds[r->number_of_fds++] = fd;
            else
                close(fd);
        }
    }
}

int worker_receive(int fd, struct worker_reader *r, struct err *e)
{
    while (r->have < sizeof r->message) {
        union fd_control control;
        struct iovec iov = {(char *)&r->message + r->have, sizeof r->message - r->have};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n < 0 && errno != ECONNRESET)
            return err_sys(e, errno, "cannot read from the worker socket");
        if (n <= 0)
            return err_set(e, ERR_CLOSED, "the other end of the worker socket has gone");
        keep_fds(r, &msg);
        r->have += (size_t)n;
    }
    if (r->message.tag != WORKER_MESSAGE_TAG || r->message.type < WORKER_HELLO ||
        r->message.type >= WORKER_TYPE_END)
        return err_set(e, ERR_VERSION, "the worker socket's peer speaks another version");
    r->message.text[sizeof r->message.text - 1] = '\0';
    return 1;
}
