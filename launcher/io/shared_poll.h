/* Waits for a descriptor that we share with other programs (the terminal, a pipe of the shell) on a libuv
 * loop.
 *
 * uv_poll_init makes a descriptor non-blocking, and that is a property of the open file: the shell and every
 * program on the same terminal would find it changed. So the descriptor goes into an epoll instance of our
 * own, and the loop polls that. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct shared_poll {
    uv_poll_t poll;
    int epoll;
    bool active;
    void (*ready)(void *ctx);
    void *ctx;
};

/* `events`: EPOLLIN or EPOLLOUT. -1 when the descriptor cannot be polled (a regular file). Starts inactive.
 * *p must stay valid until the loop ran once more after shared_poll_close. */
int shared_poll_init(struct shared_poll *p, uv_loop_t *loop, int fd, uint32_t events,
                     void (*ready)(void *ctx), void *ctx);
/* While active, `ready` comes again and again as long as the descriptor is ready. */
void shared_poll_set(struct shared_poll *p, bool active);
void shared_poll_close(struct shared_poll *p);
