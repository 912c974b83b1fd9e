/* From the PMIx library's thread to the loop: a queue that any thread may append to, without a lock.
 *
 * An eventfd wakes the loop, and not uv_async, because the library's thread may outlive the loop for a moment
 * when a session ends: to write to a descriptor without a reader does no harm. */
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "common/base/err.h"

/* The first member of every item. */
struct upcall {
    struct upcall *next;
    void (*run)(struct upcall *item); /* on the loop's thread; owns the item */
};

struct upcall_queue {
    _Atomic(struct upcall *) last;
    int fd;
    uv_poll_t poll;
};

/* `b` is never freed. -1 with *e. */
int upcall_queue_open(struct upcall_queue *b, uv_loop_t *loop, struct err *e);
/* Any thread. */
void upcall_queue_post(struct upcall_queue *b, struct upcall *item);
