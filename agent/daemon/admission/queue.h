/* The queue of requests that wait for a lease: their order, and the news that each gets. Pure: no I/O, time
 * is an argument.
 *
 * The order is by priority, then first come, first served. No request overtakes another, however small it is,
 * with one exception: a request that waits for the end of a job of its own user (LEASE_OWN_LIMIT) stands in
 * no other's way. */
#pragma once

#include "agent/daemon/admission/leases.h"

#define QUEUE_MAX     1024
#define QUEUE_TEXT    512
#define QUEUE_TELL_MS 1000 /* no request gets news more often */

struct queue_entry {
    struct lease_want want;
    uint32_t priority;
    bool patient; /* a client with --wait, which gets news; others wait for a moment */
    char told[QUEUE_TEXT];
    uint64_t told_at; /* milliseconds */
};

struct queue {
    struct queue_entry *entry[QUEUE_MAX + 1]; /* one more, that is to be let in or turned away at once */
    size_t count;
};

/* At its place in the order; there are no more than QUEUE_MAX so far. */
void queue_add(struct queue *q, struct queue_entry *x);
/* May the entry wait? -1 with *e (ERR_HOST): with this entry more than `most` would wait, or more than half
 * as many of its user. The second limit is not for root. */
int queue_may_wait(const struct queue *q, const struct queue_entry *x, size_t most, struct err *e);
/* Does nothing when the entry is not in the queue. */
void queue_remove(struct queue *q, const struct queue_entry *x);
/* The place of the entry, from 1; 0: it does not wait. */
size_t queue_place(const struct queue *q, const struct queue_entry *x);
/* The next entry whose wait is over. *verdict is LEASE_GIVEN, with *lease, or LEASE_NEVER, with *e. NULL: all
 * entries have to wait. */
struct queue_entry *queue_next(const struct queue *q, const struct leases *l, const struct lease_rules *rules,
                               struct lease *lease, enum lease_verdict *verdict, struct err *e);
/* The place of the request, if it is news and the last news are not too recent, else NULL. *again becomes the
 * milliseconds after which to ask again, if that is sooner. */
const char *queue_news(const struct queue *q, struct queue_entry *x, const struct leases *l,
                       const struct lease_rules *rules, uint64_t now_ms, uint64_t *again);
