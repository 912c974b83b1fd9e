/* What the sessions of one job tell each other for the rendezvous: three operations over a tree of hosts.
 *
 *   gather     every one of some hosts brings a blob; each gets all of them, in the order of the hosts
 *              (PMIx fences, PMI-1 barriers)
 *   request    one host asks another one and gets its answer (a PMIx key of a remote rank)
 *   broadcast  one host tells all others (a value of the Gloo rendezvous, a PMIx event)
 *
 * The tree: host 0 is the root and has EXCHANGE_RADIX + 1 children, every other host has EXCHANGE_RADIX and
 * a parent. Messages travel along its edges only, so a host has at most EXCHANGE_RADIX + 1 links and a gather
 * costs it one message on each: as many on 4 hosts as on 4000. Blobs of a subtree go up as one message; what
 * has come together at the root goes down to where it is awaited. A small radix means more steps, each some
 * 50 us, but a host passes on what all have brought only so often: that counts for more.
 * Between two neighbours messages keep their order, so broadcasts of one host arrive in theirs.
 *
 * Sans I/O: messages go out by `send` and come in by exchange_received; who carries them is links.h.
 * One thread. With one host nothing is ever sent, and a gather ends before exchange_gather returns. */
#ifndef HVD_AGENT_TREE_TREE_H
#define HVD_AGENT_TREE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define EXCHANGE_RADIX       2
#define EXCHANGE_ID_MAX      4096
#define EXCHANGE_MESSAGE_MAX (256u << 20)

/* Who uses it; each has its own name space of ids, requests and broadcasts. */
enum exchange_service { EXCHANGE_PMIX, EXCHANGE_PMI1, EXCHANGE_GLOO, EXCHANGE_SERVICES };

struct exchange;

struct exchange_events {
    /* A message for a neighbour in the tree: `bytes` (malloc'd) belongs to the callee. Called from any
     * function below. The first one is the sign that links are needed. */
    void (*send)(void *ctx, uint32_t neighbour, uint8_t *bytes, size_t len);
    /* This host waits for others and has nothing to send: links are needed all the same, for with them come
     * the news of ranks that end. NULL: nobody cares. */
    void (*wait)(void *ctx);
    /* The first operation of this host has failed because no message goes through any more: worth a word to
     * the user, where a break that nobody notices is not. NULL: nobody cares. */
    void (*missed)(void *ctx, const struct err *why);
};

/* What a service does with what others send; the data is valid during the call. */
struct exchange_handler {
    /* Answered by exchange_answer with this host and ticket, now or later; a request that is not answered is
     * awaited for ever, so a service that ends answers with an error. */
    void (*request)(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len);
    void (*broadcast)(void *ctx, uint32_t from, const uint8_t *data, size_t len);
};

/* How an operation ended: why is NULL when it was done, and the data is valid during the call. */
typedef void exchange_done(void *ctx, const struct err *why, const uint8_t *data, size_t len);

/* NULL when there is no memory. `self` and `hosts`: indexes of the plan. */
struct exchange *exchange_new(uint32_t self, uint32_t hosts, const struct exchange_events *events, void *ctx);
/* Operations that have not ended are dropped; `done` is not called. */
void exchange_free(struct exchange *x);
/* Of a host that is not the root. */
uint32_t exchange_parent(uint32_t host);
/* True when `host` is linked to `self` in the tree. */
bool exchange_is_neighbour(uint32_t self, uint32_t host);
/* Without a handler requests of that service are refused, its broadcasts are dropped. */
void exchange_serve(struct exchange *x, enum exchange_service service, const struct exchange_handler *handler,
                    void *ctx);

/* Messages will come: links may be made already. */
void exchange_expect(struct exchange *x);

/* A message of a neighbour. -1 with *e: it broke the rules, nothing was changed; exchange_break is due. */
int exchange_received(struct exchange *x, uint32_t neighbour, const uint8_t *bytes, size_t len,
                      struct err *e);
/* No message goes through any more: what is pending ends with *why, and so does what comes. */
void exchange_break(struct exchange *x, const struct err *why);

/* Joins the gather `id` (copied) of `hosts`, in ascending order and with this one among them; all of them
 * join with the same list. Gathers of one id are told apart by their order on each host. Returns a handle for
 * exchange_cancel; 0 when it has ended already (done was called). */
uint64_t exchange_gather(struct exchange *x, enum exchange_service service, const void *id, size_t id_len,
                         const uint32_t *host, size_t hosts, const void *blob, size_t len,
                         exchange_done *done, void *ctx);
/* Ends a gather or a request of this host without waiting for others, with *why. A gather ends with it on all
 * its hosts, on those that have not joined it yet when they do; but where all have joined, the news and the
 * end may cross. */
void exchange_cancel(struct exchange *x, uint64_t handle, const struct err *why);

/* Gathers of this id are a thing of the past on all hosts, and its next one would be the first again. */
void exchange_forget(struct exchange *x, enum exchange_service service, const void *id, size_t id_len);

/* Asks `host` (not this one). Returns a handle, or 0 when it has failed already. */
uint64_t exchange_request(struct exchange *x, enum exchange_service service, uint32_t host, const void *data,
                          size_t len, exchange_done *done, void *ctx);
/* `why` NULL: the answer is `data`. */
void exchange_answer(struct exchange *x, enum exchange_service service, uint32_t host, uint64_t ticket,
                     const struct err *why, const void *data, size_t len);
void exchange_broadcast(struct exchange *x, enum exchange_service service, const void *data, size_t len);

/* What this host has sent up to now. */
struct exchange_count {
    uint64_t messages, bytes;
};
struct exchange_count exchange_sent(const struct exchange *x);

#endif
