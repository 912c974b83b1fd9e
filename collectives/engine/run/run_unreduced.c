/* Reductions in which the elements of all ranks are kept apart until they are at their owner: Adasum, whose
 * pairs are ranks wherever those are, and in flat mode every allreduce and reducescatter, which so has the
 * same bits on any placement. (Otherwise a host's ranks are reduced first, which is less to send.)
 *
 *   PACK       each member's elements are copied to what leaves for their owners, or to what this host owns
 *   EXCHANGE   an alltoall: now a host has its elements of every rank
 *   COMBINE    flat: one reduction in the order of ranks, a piece a turn
 *              Adasum: by steps (adasum.h); for each distance the hosts tell one another (EXCHANGE again)
 *              what their blocks sum to, and so find the same factors
 *   NETWORK    an allreduce: an allgather of the results
 *
 * Memory: what this host's ranks give, and once more what it owns of all ranks. */
#include <stdlib.h>

#include "collectives/engine/run/run.h"
#include "collectives/kernels/adasum.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"

#define LINE         64u
#define LEAST        4096 /* elements a turn: fewer would be more calls than work */
#define PER_PRODUCTS (sizeof(struct adasum_products) / sizeof(double))

enum step { LOAD, PRODUCTS, JOIN, STORE, STEPS_DONE };

struct unreduced {
    struct route *route;
    uint64_t *segment;  /* [hosts] elements of the result that each of them makes */
    uint64_t at, count; /* this host's */
    void **vector;      /* [ranks] each one's elements of those */
    /* Adasum: */
    enum step step;
    uint64_t distance;             /* of the ranks that are joined */
    uint64_t *part;                /* [hosts] of the table, in numbers */
    struct adasum_products *table; /* of each host: of each pair: of each block */
    struct adasum_products *own, sum;
};

void unreduced_free(struct unreduced *a)
{
    if (!a)
        return;
    route_free(a->route);
    free(a->segment);
    free(a->vector);
    free(a->part);
    free(a->table);
    free(a);
}

/* ---- plan ---------------------------------------------------------------------------------------------- */

static uint64_t blocks_of(uint64_t count)
{
    return (count + ADASUM_BLOCK - 1) / ADASUM_BLOCK;
}

/* Of a reducescatter a host makes what its ranks get; of an allreduce a part of whole grains. */
static void cut_segments(const struct run *run, struct unreduced *a)
{
    const struct tensor_op *op = &run->view->op;
    const struct set *set = run->set;
    uint64_t grain = op_is_adasum(op) ? ADASUM_BLOCK : LINE / dtype_size(op->dtype);
    uint64_t grains = (op->count + grain - 1) / grain, each = (grains + set->hosts - 1) / set->hosts * grain;
    uint64_t at = 0;
    for (uint32_t h = 0; h < set->hosts; h++) {
        uint64_t left = op->count - at;
        a->segment[h] = op->kind == SHM_REDUCESCATTER ? run->route->part[h] : left < each ? left : each;
        if (h == set->self)
            a->at = at;
        at += a->segment[h];
    }
    a->count = a->segment[set->self];
}

static int make_table(const struct run *run, struct unreduced *a)
{
    uint64_t blocks = 0, pairs = run->set->team->size / 2;
    for (uint32_t h = 0; h < run->set->hosts; h++)
        blocks += blocks_of(a->segment[h]);
    a->part = calloc(run->set->hosts, sizeof *a->part);
    a->table = calloc(pairs * blocks, sizeof *a->table);
    a->distance = 1;
    return a->part && a->table ? 0 : -1;
}

/* 16-bit types become wider before they are joined. */
static bool find_vectors(struct run *run, const struct route_shape *shape)
{
    struct unreduced *a = run->unreduced;
    hvd_dtype dtype = (hvd_dtype)run->view->op.dtype;
    size_t size = dtype_size(dtype);
    char *base = run->got;
    a->step = PRODUCTS;
    if (op_is_adasum(&run->view->op) && adasum_lane(dtype) != size) {
        a->step = LOAD;
        size = adasum_lane(dtype);
        base = run_borrow(run, 3, a->route->got * size);
        if (!base)
            return false;
    }
    for (uint32_t i = 0; i < shape->size; i++)
        a->vector[shape->order ? shape->order[i] : i] =
            base + route_unreduced_at(shape, a->segment, i) * size;
    return true;
}

bool unreduced_plan(struct run *run, const struct route_shape *shape)
{
    struct unreduced *a = run->unreduced = calloc(1, sizeof *a);
    size_t size = dtype_size(run->view->op.dtype);
    if (!a)
        return false;
    a->segment = calloc(shape->hosts, sizeof *a->segment);
    a->vector = calloc(shape->size, sizeof *a->vector);
    if (!a->segment || !a->vector)
        return false;
    cut_segments(run, a);
    if (op_is_adasum(&run->view->op) && make_table(run, a) < 0)
        return false;
    const uint64_t *of_rank = run->view->op.kind == SHM_REDUCESCATTER ? run->view->split : NULL;
    a->route = route_unreduced(shape, a->segment, of_rank, NULL);
    if (!a->route)
        return false;
    run->leaves = run_borrow(run, 1, a->route->data * size);
    run->got = run_borrow(run, 2, a->route->got * size);
    return run->leaves && run->got && find_vectors(run, shape);
}

/* ---- between the hosts --------------------------------------------------------------------------------- */

static void end_exchange(void *ctx, const struct err *error)
{
    struct run *run = ctx;
    if (error) {
        run_fail_by(run, error);
        return;
    }
    run->copy = 0;
    run->progress = 0;
    run->phase = RUN_COMBINE;
}

static void exchange_elements(struct run *run)
{
    const struct route *route = run->unreduced->route;
    struct backend_request request = {.kind = BACKEND_ALLTOALL,
                                      .data = run->leaves,
                                      .out = run->got,
                                      .part = route->part,
                                      .part_in = route->part_in,
                                      .dtype = (hvd_dtype)run->view->op.dtype,
                                      .done = end_exchange};
    run->phase = RUN_EXCHANGE; /* done may come before start returns */
    run_start(run, &request);
}

static void exchange_products(struct run *run)
{
    struct unreduced *a = run->unreduced;
    uint64_t pairs = run->set->team->size / 2 / a->distance;
    for (uint32_t h = 0; h < run->set->hosts; h++)
        a->part[h] = pairs * blocks_of(a->segment[h]) * PER_PRODUCTS;
    struct backend_request request = {.kind = BACKEND_ALLGATHER,
                                      .data = a->table,
                                      .part = a->part,
                                      .dtype = HVD_FLOAT64,
                                      .done = end_exchange};
    run->phase = RUN_EXCHANGE;
    run_start(run, &request);
}

static void gather_results(struct run *run)
{
    struct backend_request request = {.kind = BACKEND_ALLGATHER,
                                      .data = run->data,
                                      .part = run->unreduced->segment,
                                      .dtype = (hvd_dtype)run->view->op.dtype};
    run_last_network(run, &request);
}

static void end_combine(struct run *run)
{
    if (run->view->op.kind == SHM_REDUCESCATTER)
        run_spread_begin(run); /* this host has what its ranks get */
    else
        gather_results(run);
}

void unreduced_pack(struct run *run)
{
    if (run_copy_piece(run, run->unreduced->route->pack, run->unreduced->route->packs))
        exchange_elements(run);
}

/* ---- flat ---------------------------------------------------------------------------------------------- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* One piece. true: all of it is done. */
static bool reduce_piece(struct run *run)
{
    const struct unreduced *a = run->unreduced;
    const struct tensor_op *op = &run->view->op;
    size_t size = dtype_size(op->dtype), ranks = run->set->team->size;
    uint64_t most = RUN_PIECE_BYTES / size / ranks,
             n = min_u64(a->count - run->progress, most > LEAST ? most : LEAST);
    void *out = run->data + a->at * size;
    struct reduce_job job = {.in = (const void *const *)a->vector,
                             .inputs = ranks,
                             .out = &out,
                             .outputs = 1,
                             .dtype = (hvd_dtype)op->dtype,
                             .op = (hvd_op)op->op,
                             .divisor = (uint32_t)ranks,
                             .prescale = op->prescale,
                             .postscale = op->postscale};
    reduce_range(&job, run->progress, n);
    run->progress += n;
    return run->progress == a->count;
}

/* ---- Adasum -------------------------------------------------------------------------------------------- */

/* This host's first row in the table of this distance. */
static struct adasum_products *own_products(const struct run *run)
{
    const struct unreduced *a = run->unreduced;
    uint64_t before = 0;
    for (uint32_t h = 0; h < run->set->self; h++)
        before += blocks_of(a->segment[h]);
    return a->table + run->set->team->size / 2 / a->distance * before;
}

/* The products of one pair, added in the order of blocks. */
static struct adasum_products sum_products(const struct run *run, uint64_t pair)
{
    const struct unreduced *a = run->unreduced;
    const struct adasum_products *of_host = a->table;
    struct adasum_products sum = {0, 0, 0};
    uint64_t pairs = run->set->team->size / 2 / a->distance;
    for (uint32_t h = 0; h < run->set->hosts; h++) {
        uint64_t blocks = blocks_of(a->segment[h]);
        for (uint64_t b = 0; b < blocks; b++)
            adasum_add(&sum, &of_host[pair * blocks + b]);
        of_host += pairs * blocks;
    }
    return sum;
}

/* The next block of a step, which is block run->progress of vector, or pair, run->copy. false: it was the
 * last one. */
static bool next_block(struct run *run, uint64_t vectors)
{
    run->progress++;
    if (run->progress == blocks_of(run->unreduced->count)) {
        run->progress = 0;
        run->copy++;
    }
    return run->copy < vectors;
}

static void do_block(struct run *run)
{
    struct unreduced *a = run->unreduced;
    hvd_dtype dtype = (hvd_dtype)run->view->op.dtype;
    uint64_t first = run->progress * ADASUM_BLOCK, n = min_u64(a->count - first, ADASUM_BLOCK);
    uint64_t lane = adasum_lane(dtype), size = dtype_size(dtype);
    bool pair = a->step == PRODUCTS || a->step == JOIN;
    char *x = (char *)a->vector[pair ? 2 * a->distance * run->copy : run->copy] + first * lane;
    char *y = pair ? (char *)a->vector[2 * a->distance * run->copy + a->distance] + first * lane : NULL;
    if (a->step == LOAD) {
        /* Both buffers have the vectors in the same order. */
        uint64_t at = (uint64_t)(x - (char *)run->borrowed[3].memory) / lane;
        adasum_load(x, run->got + at * size, n, dtype);
    } else if (a->step == PRODUCTS) {
        *a->own++ = adasum_products(x, y, n, dtype);
    } else if (a->step == JOIN) {
        if (run->progress == 0)
            a->sum = sum_products(run, run->copy);
        adasum_join(x, y, n, dtype, &a->sum);
    } else {
        adasum_store(run->data + (a->at + first) * size, x, n, dtype);
    }
}

/* The step is done. */
static void next_step(struct run *run)
{
    struct unreduced *a = run->unreduced;
    run->copy = 0;
    run->progress = 0;
    if (a->step == JOIN) {
        a->distance *= 2;
        a->step = a->distance < run->set->team->size ? PRODUCTS : STORE;
        return;
    }
    a->step++;
    if (a->step == JOIN)
        exchange_products(run);
    else if (a->step == STEPS_DONE)
        end_combine(run);
}

static void adasum_turn(struct run *run)
{
    struct unreduced *a = run->unreduced;
    uint64_t ranks = run->set->team->size, budget = RUN_PIECE_BYTES / sizeof(double) / ADASUM_BLOCK;
    uint64_t vectors = a->step == LOAD ? ranks : a->step == STORE ? 1 : ranks / 2 / a->distance;
    bool more = a->count > 0;
    if (a->step == PRODUCTS && run->copy == 0 && run->progress == 0)
        a->own = own_products(run);
    for (; more && budget > 0; budget--) {
        do_block(run);
        more = next_block(run, vectors);
    }
    if (!more)
        next_step(run);
}

void unreduced_combine(struct run *run)
{
    if (op_is_adasum(&run->view->op))
        adasum_turn(run);
    else if (run->unreduced->count == 0 || reduce_piece(run))
        end_combine(run);
}
