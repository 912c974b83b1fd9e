/* From the PMIx library's thread to the loop: a queue that any thread may append to, without a lock.
 *
 * An eventfd wakes the loop, and not uv_async, because the library's thread may outlive the loop for a moment
 * when a session ends: to write to a descriptor without a reader does no harm. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_BRIDGE_H
#define HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_BRIDGE_H

#include <stdatomic.h>
#include <uv.h>

#include "common/base/err.h"

/* The first member of every item. */
struct bridge_item {
    struct bridge_item *next;
    void (*run)(struct bridge_item *item); /* on the loop's thread; owns the item */
};

struct bridge {
    _Atomic(struct bridge_item *) last;
    int fd;
    uv_poll_t poll;
};

/* `b` is never freed. -1 with *e. */
int bridge_open(struct bridge *b, uv_loop_t *loop, struct err *e);
/* Any thread. */
void bridge_post(struct bridge *b, struct bridge_item *item);

#endif
