/* Operations among the sessions of one job, for the rendezvous, over a tree of hosts:
 *
 *   gather     each of some hosts brings a blob; each gets all blobs, in the order of the hosts
 *              (PMIx fences, PMI-1 barriers)
 *   request    one host asks another host and gets its answer (a PMIx key of a remote rank)
 *   broadcast  one host tells all other hosts (a value of the Gloo rendezvous, a PMIx event)
 *
 * The tree: host 0 is the root and has TREE_RADIX + 1 children; every other host has TREE_RADIX children and
 * a parent. Messages travel along the edges only. So a host has at most TREE_RADIX + 1 links, and a gather
 * costs the host one message on each link: as many on 4 hosts as on 4000. Blobs of a subtree go up as one
 * message; the root's result goes down to the participants. A small radix means more steps, each some 50 us,
 * but fewer copies of the result that a host passes on, and the copies cost more.
 * Between two neighbours messages keep their order, so broadcasts of one host arrive in their order.
 *
 * Sans I/O: messages go out by `send` and come in by tree_received; session_links.h carries them.
 * One thread. With one host nothing is ever sent, and a gather ends before tree_gather returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define TREE_RADIX       2
#define TREE_ID_MAX      4096
#define TREE_MESSAGE_MAX (256u << 20)

/* The users of the tree; each has its own name space of ids, requests and broadcasts. */
enum tree_service { TREE_PMIX, TREE_PMI1, TREE_GLOO, TREE_SERVICES };

struct tree;

struct tree_events {
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

/* A service's handlers of messages from other hosts; the data is valid during the call. */
struct tree_handler {
    /* Answered by tree_answer with this host and ticket, now or later; a request that is not answered is
     * awaited for ever, so a service that ends answers with an error. */
    void (*request)(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len);
    void (*broadcast)(void *ctx, uint32_t from, const uint8_t *data, size_t len);
};

/* How an operation ended: why is NULL when it was done, and the data is valid during the call. */
typedef void tree_done(void *ctx, const struct err *why, const uint8_t *data, size_t len);

/* NULL when there is no memory. `self` and `hosts`: indexes of the plan. */
struct tree *tree_new(uint32_t self, uint32_t hosts, const struct tree_events *events, void *ctx);
/* Operations that have not ended are dropped; `done` is not called. */
void tree_free(struct tree *x);
/* Of a host that is not the root. */
uint32_t tree_parent(uint32_t host);
/* True when `host` is linked to `self` in the tree. */
bool tree_is_neighbour(uint32_t self, uint32_t host);
/* Without a handler requests of that service are refused, its broadcasts are dropped. */
void tree_serve(struct tree *x, enum tree_service service, const struct tree_handler *handler, void *ctx);

/* Messages will come: links may be made already. */
void tree_expect(struct tree *x);

/* A message of a neighbour. -1 with *e: it broke the rules, nothing was changed; tree_break is due. */
int tree_received(struct tree *x, uint32_t neighbour, const uint8_t *bytes, size_t len, struct err *e);
/* No message goes through any more: what is pending ends with *why, and so does what comes. */
void tree_break(struct tree *x, const struct err *why);

/* Joins the gather `id` (copied) of `hosts`, in ascending order and with this one among them; all of them
 * join with the same list. Gathers of one id are told apart by their order on each host. Returns a handle for
 * tree_cancel; 0 when it has ended already (done was called). */
uint64_t tree_gather(struct tree *x, enum tree_service service, const void *id, size_t id_len,
                     const uint32_t *host, size_t hosts, const void *blob, size_t len, tree_done *done,
                     void *ctx);
/* Ends a gather or a request of this host without waiting for others, with *why. A gather ends with it on all
 * its hosts, on those that have not joined it yet when they do; but where all have joined, the news and the
 * end may cross. */
void tree_cancel(struct tree *x, uint64_t handle, const struct err *why);

/* Gathers of this id are a thing of the past on all hosts, and its next one would be the first again. */
void tree_forget(struct tree *x, enum tree_service service, const void *id, size_t id_len);

/* Asks `host` (not this one). Returns a handle, or 0 when it has failed already. */
uint64_t tree_request(struct tree *x, enum tree_service service, uint32_t host, const void *data, size_t len,
                      tree_done *done, void *ctx);
/* `why` NULL: the answer is `data`. */
void tree_answer(struct tree *x, enum tree_service service, uint32_t host, uint64_t ticket,
                 const struct err *why, const void *data, size_t len);
void tree_broadcast(struct tree *x, enum tree_service service, const void *data, size_t len);

/* Messages and bytes that this host has sent up to now. */
struct tree_count {
    uint64_t messages, bytes;
};
struct tree_count tree_sent(const struct tree *x);
