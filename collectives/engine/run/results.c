#include "collectives/engine/run/results.h"

#include <stdlib.h>

#include "collectives/engine/names.h"
#include "collectives/engine/run/run.h"
#include "collectives/kernels/dtype.h"
#include "collectives/local/pipeline.h"
#include "collectives/shm/blocks.h"

#define SEGMENT_MIN  (64ull << 20)
#define SEGMENT_STEP (2ull << 20)

struct result_segment {
    struct result_segment *next;
    uint32_t id;
    char *base; /* of the mapping that segments_resolve keeps */
    struct block *blocks;
};

/* A block that members may still read. */
struct result {
    struct result *next;
    struct result_segment *segment;
    size_t offset;
    uint32_t slot, sequence;
    bool is_streamed;
};

/* ---- blocks -------------------------------------------------------------------------------------------- */

static struct result_segment *add_segment(struct engine *engine, size_t at_least)
{
    size_t bytes =
        at_least < SEGMENT_MIN ? SEGMENT_MIN : (at_least + SEGMENT_STEP - 1) / SEGMENT_STEP * SEGMENT_STEP;
    struct result_segment *s = calloc(1, sizeof *s);
    struct segment map = {0};
    struct err e = ERR_INIT;
    int fd = s && (s->blocks = blocks_new(bytes)) ? segment_create(&map, bytes, &e) : -1;
    segment_unmap(&map);
    if (fd >= 0 && segments_add(engine, ENGINE_OWN_SEGMENT, fd, &s->id, &e) == HVD_SUCCESS) {
        s->base = segments_resolve(engine, shm_address(s->id, 0), bytes);
        if (s->base) {
            s->next = engine->runs.segments;
            return engine->runs.segments = s;
        }
    }
    if (s)
        blocks_drop(s->blocks);
    free(s);
    return NULL;
}

static bool is_read(struct engine *engine, const struct result *r)
{
    const struct name *name = &engine->names.name[r->slot];
    if (!name->text)
        return true; /* nobody needs the slot */
    for (uint32_t i = 0; i < name->set->team->members; i++) {
        uint32_t local = name->set->team->local[i];
        if (!(r->is_streamed ? stream_has_left(&engine->region, r->slot, local, r->sequence)
                             : tensor_is_read(&engine->region, r->slot, local, r->sequence)))
            return false;
    }
    return true;
}

static void reap_results(struct engine *engine)
{
    for (struct result **at = &engine->runs.results; *at;) {
        struct result *r = *at;
        struct block *before, *b;
        if (!is_read(engine, r)) {
            at = &r->next;
            continue;
        }
        if ((b = blocks_find(r->segment->blocks, r->offset, &before)))
            blocks_give_back(b, before);
        *at = r->next;
        free(r);
    }
}

/* Its address; UINT64_MAX: there is no memory. */
static uint64_t make_result(struct engine *engine, const struct tensor_view *v, size_t bytes, char **memory)
{
    struct result_segment *s;
    struct block *b = NULL;
    struct result *r = malloc(sizeof *r);
    if (!r)
        return UINT64_MAX;
    bytes = blocks_round(bytes);
    for (s = engine->runs.segments; s && !(b = blocks_take(s->blocks, bytes)); s = s->next)
        ;
    if (!b && (s = add_segment(engine, bytes)))
        b = blocks_take(s->blocks, bytes);
    if (!b) {
        free(r);
        return UINT64_MAX;
    }
    *r = (struct result){engine->runs.results, s, b->offset, v->number, v->sequence, v->streamed};
    engine->runs.results = r;
    *memory = s->base + b->offset;
    return shm_address(s->id, b->offset);
}

/* ---- places -------------------------------------------------------------------------------------------- */

/* Bytes of the member's result. */
static uint64_t count_bytes(const struct run *run, uint32_t member)
{
    const struct tensor_view *v = run->view;
    uint64_t count = 0;
    for (uint32_t from = 0; from < v->team->size; from++)
        count += route_between(v->op.kind, v->team->size, run->table, from, v->team->member[member]);
    return count * dtype_size(v->op.dtype);
}

/* An allgather has one result for all members of the host, which the first one's output stands for. */
bool results_place(struct run *run)
{
    struct tensor_view *v = run->view;
    uint64_t shared = UINT64_MAX;
    reap_results(run->engine);
    for (uint32_t i = 0; i < v->team->members; i++) {
        uint64_t bytes = count_bytes(run, i), address = shared;
        char *memory = NULL;
        if (bytes <= SHM_INLINE_MAX)
            memory = tensor_scratch(v, i);
        else if (shared == UINT64_MAX &&
                 (address = make_result(run->engine, v, bytes, &memory)) == UINT64_MAX)
            return false;
        if (v->op.kind == SHM_ALLGATHER)
            shared = address;
        v->out[i] = memory;
        if (v->recv_counts[i])
            v->recv_counts[i][v->team->size] = address;
    }
    return true;
}

bool results_make_buffer(struct engine *engine, struct tensor_view *v)
{
    char *memory = NULL;
    reap_results(engine);
    uint64_t address = make_result(engine, v, stream_host_bytes(v), &memory);
    return address != UINT64_MAX && stream_begin_host(v, address, memory);
}

void results_free(struct engine *engine)
{
    struct runs *runs = &engine->runs;
    while (runs->results) {
        struct result *r = runs->results;
        runs->results = r->next;
        free(r);
    }
    while (runs->segments) {
        struct result_segment *s = runs->segments;
        runs->segments = s->next;
        blocks_drop(s->blocks);
        free(s);
    }
}
