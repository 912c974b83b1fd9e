/* One entry of the execution list on its way: from due to settled. The result of a small tensor comes with
 * the entry; else:
 *
 *   DUE -> SIZES      ragged kinds: the hosts exchange how much each rank gives, and to whom
 *       -> PACK       this host's members are reduced or copied into its one buffer, a piece a turn; if the
 *                     members stream (local/pipeline.h), they do so themselves, and this phase is skipped
 *       (-> EXCHANGE -> COMBINE) where ranks' elements are kept apart till then: run_unreduced.c
 *       -> NETWORK    the backend does its part between the hosts
 *       -> SPREAD     the result is copied to the members, a piece a turn
 *       -> SETTLED    status and result are published, the members wake
 *
 * What is on the ranks' devices goes from DUE or SIZES to SETTLED: run_plan.c.
 *
 * The one buffer is the slot's result for small tensors and the first member's output for large ones, where
 * that holds all of it; else it is borrowed for the time. If this host's part travels as another type
 * (partial.h), a second buffer is borrowed for it. If that type is float32 and the tensor's has 16 bits, the
 * owner's sum is rounded into the one buffer. Of a compressed reduction each host's contribution is rounded
 * once, summed in float32 at the owner and rounded once, and every host expands the same bits into the one
 * buffer.
 */
#pragma once

#include "collectives/engine/autotune.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/run/route.h"

/* A turn of the loop copies or reduces no more than this, so that a death is noticed soon. */
#define RUN_PIECE_BYTES (1u << 20)

enum run_phase {
    RUN_DUE,
    RUN_SIZES,
    RUN_PACK,
    RUN_EXCHANGE,
    RUN_COMBINE,
    RUN_NETWORK,
    RUN_SPREAD,
    RUN_SETTLED
};

struct unreduced;

struct run_memory {
    void *memory;
    size_t size;
};

struct run {
    struct run *next;
    struct engine *engine;
    struct set *set;
    struct name *name;
    struct tensor_view *view; /* the name's */
    enum run_phase phase;
    uint64_t *table; /* of the sizes */
    struct route *route;
    char *data, *got, *leaves;   /* this host's buffers (route.h) */
    struct unreduced *unreduced; /* NULL: its ranks are reduced first */
    char *wire;                  /* travels instead of data; NULL: data itself travels */
    struct partial partial;      /* of the elements that travel, if this host's ranks are reduced first */
    struct run_memory borrowed[4];
    uint32_t copy;     /* how many of the phase's copies are done */
    uint64_t progress; /* elements: of the next copy, or of the reduction */
    uint64_t packed;   /* bytes that the members have packed, if they stream */
    uint64_t number;   /* of the backend's operation */
    uint64_t listed;   /* when it came */
    struct autotune_values values;
    struct flight_record *record; /* of the flight recorder; NULL: none */
    uint32_t recorded;
    /* Of tensors that travel as one (run_batch.c): */
    struct run *batch;       /* the next one; owned */
    uint64_t at;             /* its first element in the leader's data */
    struct run *turn;        /* the leader's: who is packed or spread */
    uint64_t total;          /* the leader's: elements of all */
    struct list_entry entry; /* last: run_new leaves it to be written */
};

/* DUE: finds the tensor; the run leaves that phase. */
void run_begin(struct run *run);
/* PACK, COMBINE and SPREAD: does one piece. */
void run_pack(struct run *run);
void run_spread(struct run *run);
/* NETWORK: the members may have packed more. */
void run_look_for_pieces(struct run *run);
/* Publishes the end of a run that has begun. */
void run_settle(struct run *run, int status, const char *text);
void run_free(struct run *run);

/* run_batch.c */
/* `member` travels with the leader and all others of its batch; it is freed with the leader. false: the list
 * says what cannot be. */
bool batch_add(struct run *leader, struct run *member);
void batch_begin(struct run *leader);
void batch_pack(struct run *leader);
void batch_spread(struct run *leader);

/* run_plan.c */
/* SIZES, and then what run_plan does. */
void run_sizes(struct run *run);
/* Finds out where all copies and buffers are: PACK. */
void run_plan(struct run *run);
/* The ranks do it on their GPUs: settles it, and puts it into the order in which they do. */
void run_on_devices(struct run *run);

/* run_unreduced.c */
/* When run->route and run->data are made. false: no memory. */
bool unreduced_plan(struct run *run, const struct route_shape *shape);
void unreduced_pack(struct run *run);
void unreduced_combine(struct run *run);
void unreduced_free(struct unreduced *unreduced);

/* run_core.c, for them */
/* NULL: no memory. */
struct run *run_new(struct engine *engine);
/* The elements of all ranks are kept apart until they are at their owner. */
bool unreduced_needed(const struct run *run);
/* Elements that a turn copies or reduces. */
uint64_t run_piece_elements(const struct run *run);
/* The tensor that the entry means; false: there is none, and the job has failed. */
bool run_find(struct run *run);
void run_fail(struct run *run, int status, const char *text);
/* By the backend's error: of a peer, unless it is our own. */
void run_fail_by(struct run *run, const struct err *error);
/* As engine_out_of_memory. */
void run_out_of_memory(struct run *run, const char *why);
/* How what is packed travels, `count` elements of it. false: there is no memory. */
bool run_choose_wire(struct run *run, uint64_t count);
/* Packs elements [first, first + count) of the members' inputs, the reduction of them, to where the tensor
 * has its elements from `at` on in what travels. */
void run_reduce(const struct run *run, const struct tensor_view *v, uint64_t at, uint64_t first,
                uint64_t count);
/* Elements of a result that came compressed are what they were. */
void run_expand(const struct run *run, uint64_t at, uint64_t count);
/* The i-th borrowed buffer of the run; NULL: no memory. */
void *run_borrow(struct run *run, int i, uint64_t bytes);
void run_start_network(struct run *run, uint64_t count);
/* Starts an operation of the backend, the set's next one. The phase is what `done` expects. */
void run_start(struct run *run, struct backend_request *request);
/* The last one: NETWORK, and in the end SPREAD. */
void run_last_network(struct run *run, struct backend_request *request);
void run_spread_begin(struct run *run);
/* PACK and SPREAD: one piece of the list. true: all of it is done. */
bool run_copy_piece(struct run *run, const struct route_copy *list, uint32_t n);
