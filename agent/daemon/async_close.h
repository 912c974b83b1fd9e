/* Closes descriptors that others made, without waiting for them.
 *
 * The maker of a descriptor decides how long close() takes: a TCP connection lingers as long as its owner has
 * said (SO_LINGER), a file of a FUSE file system asks a process. The same is true of descriptors that were
 * sent and not received: they end with the socket in whose queue they lie. So each set is closed by a thread
 * of its own, which may never end; the owner bounds the number of threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct async_close {
    uv_async_t ended;
    uv_thread_t thread;
    const int *fd;
    size_t count;
    void (*done)(void *ctx);
    void *ctx;
};

/* Begins. `fd` stays valid, and closing where it is, until done(), which comes from the loop; then
 * closing.ended is the owner's to close. It does not keep the loop alive. -1: there can be no thread now,
 * nothing was closed. */
int async_close_start(struct async_close *closing, uv_loop_t *loop, const int *fd, size_t count,
                      void (*done)(void *ctx), void *ctx);
/* Closes a unix socket here and now, when nothing lies unread in it: false, and it is still open, when
 * something does. Nothing more can be sent to it. */
bool close_if_read(int socket);
/* Can whoever holds such a descriptor close it at once, and find out what it is without asking a file system?
 * True of pipes and unix sockets. */
bool close_is_harmless(int fd);
