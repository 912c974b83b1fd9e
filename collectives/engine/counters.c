/* Counters of the engine, for the session: when the session asks, when all ranks of this host have shut down,
 * and when the job has failed.
 *
 * They are the sums of the ranks' own counts (shm/layout.h), the bytes of the links, and the operations that
 * ranks wait for. All of it is computed when it is sent. A region's counts end with the region, so their sums
 * are kept for the next epoch. The ranks' counts are added without a check, and nothing depends on them. */
#include "collectives/engine/counters.h"

#include <stdlib.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/stalls/stalls.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define STALLS_TOLD 4
#define PEERS_TOLD  32

struct counted {
    uint64_t operations, bytes, ns;
};

static const struct {
    uint8_t kind, also; /* also: counted with it; 0: nothing is */
} told[] = {{SHM_ALLREDUCE, SHM_ALLREDUCE_SHARED},
            {SHM_REDUCESCATTER, 0},
            {SHM_ALLGATHER, 0},
            {SHM_ALLTOALL, 0},
            {SHM_BROADCAST, 0},
            {SHM_BARRIER, 0}};
#define KINDS_TOLD (sizeof told / sizeof *told)

static void add_count(struct counted *sum, const struct shm_count *c)
{
    sum->operations += atomic_load_explicit(&c->operations, memory_order_relaxed);
    sum->bytes += atomic_load_explicit(&c->bytes, memory_order_relaxed);
    sum->ns += atomic_load_explicit(&c->ns, memory_order_relaxed);
}

static void merge_count(struct counted *sum, const struct counted *more)
{
    sum->operations += more->operations;
    sum->bytes += more->bytes;
    sum->ns += more->ns;
}

/* Of members of former memberships. */
static struct counted gone_count(const struct engine *engine, uint8_t kind)
{
    return engine->counted ? engine->counted[engine->workers.members * SHM_KINDS + kind]
                           : (struct counted){0};
}

/* Of a member, since the first epoch. */
static struct counted count_of(const struct engine *engine, uint32_t member, uint8_t kind)
{
    const struct shm_counts *c = &region_mailbox(&engine->region, member)->counts;
    struct counted sum = {0};
    if (engine->counted)
        sum = engine->counted[member * SHM_KINDS + kind];
    add_count(&sum, &c->own[kind]);
    add_count(&sum, &c->others[kind]);
    return sum;
}

/* The epoch ends: what its region counted is kept. */
static void keep_counters(struct engine *engine)
{
    struct counted *sums = calloc((size_t)(engine->workers.members + 1) * SHM_KINDS, sizeof *sums);
    for (uint32_t m = 0; sums && m < engine->workers.members; m++)
        for (uint8_t kind = 0; kind < SHM_KINDS; kind++)
            sums[m * SHM_KINDS + kind] = count_of(engine, m, kind);
    for (uint8_t kind = 0; sums && engine->counted && kind < SHM_KINDS; kind++)
        sums[engine->workers.members * SHM_KINDS + kind] = gone_count(engine, kind);
    if (!sums)
        return; /* this epoch's are lost */
    free(engine->counted);
    engine->counted = sums;
}

/* Members that have gone keep their counts, in the last row. */
static int regroup_counters(struct engine *engine, const struct engine_regroup *g, struct err *e)
{
    uint32_t members = engine->host[engine->self].ranks;
    struct counted *old = engine->counted;
    if (!old)
        return 0;
    engine->counted = calloc((size_t)(members + 1) * SHM_KINDS, sizeof *old);
    if (!engine->counted) {
        free(old);
        return err_set(e, ERR_MEMORY, "no memory for counters");
    }
    for (uint32_t was = 0; was <= g->members; was++) {
        uint32_t row = members;
        for (uint32_t m = 0; m < members; m++)
            row = g->member_was[m] == was ? m : row;
        for (uint8_t kind = 0; kind < SHM_KINDS; kind++)
            merge_count(&engine->counted[row * SHM_KINDS + kind], &old[was * SHM_KINDS + kind]);
    }
    free(old);
    return 0;
}

static void free_counters(struct engine *engine)
{
    free(engine->counted);
    engine->counted = NULL;
}

static void sum_up(const struct engine *engine, size_t which, Hvd__Collective *c)
{
    hvd__collective__init(c);
    c->kind = (char *)(uintptr_t)op_kind_name(told[which].kind);
    for (uint32_t m = 0; m <= engine->workers.members; m++) {
        bool gone = m == engine->workers.members;
        struct counted one =
            gone ? gone_count(engine, told[which].kind) : count_of(engine, m, told[which].kind);
        if (told[which].also) {
            struct counted more =
                gone ? gone_count(engine, told[which].also) : count_of(engine, m, told[which].also);
            merge_count(&one, &more);
        }
        c->operations += one.operations;
        c->most = one.operations > c->most ? one.operations : c->most;
        c->bytes += one.bytes;
        c->ns += one.ns;
    }
}

static void fill_stalls(const struct engine *engine, Hvd__Counters *out, Hvd__Stall *stall, Hvd__Stall **list,
                        struct stall_told *waits)
{
    uint64_t now = clock_now();
    out->stalls = region_poisoned(&engine->region) ? 0 : stalls_now(engine, now, waits, STALLS_TOLD);
    out->stall = list;
    for (; out->n_stall < STALLS_TOLD && out->n_stall < out->stalls; out->n_stall++) {
        Hvd__Stall *s = list[out->n_stall] = &stall[out->n_stall];
        struct stall_told *w = &waits[out->n_stall];
        hvd__stall__init(s);
        s->tensor = (char *)(uintptr_t)w->tensor;
        s->kind = (char *)(uintptr_t)w->kind;
        s->ms = (now - w->since) / NSEC_PER_MSEC;
        s->missing = w->missing;
    }
}

static void fill_ranks(const struct engine *engine, Hvd__Counters *out, Hvd__RankTime *item,
                       Hvd__RankTime **list)
{
    out->rank = list;
    for (; out->n_rank < engine->workers.members; out->n_rank++) {
        Hvd__RankTime *r = list[out->n_rank] = &item[out->n_rank];
        hvd__rank_time__init(r);
        r->rank = engine->host[engine->self].rank[out->n_rank];
        for (uint8_t kind = 0; kind < SHM_KINDS; kind++) {
            struct counted c = count_of(engine, (uint32_t)out->n_rank, kind);
            r->operations += c.operations;
            r->ns += c.ns;
        }
    }
}

/* The hosts by themselves, as many as are told; of the others the sum. */
static void fill_traffic(const struct engine *engine, Hvd__Counters *out, Hvd__PeerTraffic *item,
                         Hvd__PeerTraffic **list)
{
    out->peer = list;
    for (uint32_t host = 0; engine->peers.links && host < engine->hosts; host++) {
        uint64_t sent, received;
        links_traffic(engine->peers.links, host, &sent, &received);
        if (sent + received == 0)
            continue;
        out->resent += links_resent(engine->peers.links, host);
        size_t i = out->n_peer < PEERS_TOLD ? out->n_peer++ : PEERS_TOLD - 1;
        if (!list[i]) {
            hvd__peer_traffic__init(list[i] = &item[i]);
            item[i].host = i < PEERS_TOLD - 1 ? engine->host[host].name : item[i].host;
        }
        item[i].sent += sent;
        item[i].received += received;
        out->sent += sent;
        out->received += received;
    }
}

static void tell_counters(struct engine *engine, struct pending *pending)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Counters counters = HVD__COUNTERS__INIT;
    Hvd__PeerTraffic *peers[PEERS_TOLD] = {NULL};
    struct err e = ERR_INIT;
    if (!engine->configured)
        return;
    Hvd__Collective *list[KINDS_TOLD];
    counters.collective = list;
    Hvd__Collective item[KINDS_TOLD];
    for (size_t i = 0; i < KINDS_TOLD; i++) {
        sum_up(engine, i, list[counters.n_collective] = &item[i]);
        counters.n_collective += item[i].operations > 0;
    }
    Hvd__PeerTraffic peer[PEERS_TOLD];
    fill_traffic(engine, &counters, peer, peers);
    Hvd__Stall stall[STALLS_TOLD], *stalls[STALLS_TOLD];
    struct stall_told waits[STALLS_TOLD];
    fill_stalls(engine, &counters, stall, stalls, waits);
    if (pending)
        pending_fill(engine, pending, &counters);
    Hvd__RankTime *rank = calloc(engine->workers.members, sizeof *rank);
    Hvd__RankTime **ranks = calloc(engine->workers.members, sizeof(Hvd__RankTime *));
    if (rank && ranks)
        fill_ranks(engine, &counters, rank, ranks);
    message.body_case = HVD__ENGINE__BODY_COUNTERS;
    message.counters = &counters;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("the session will not know what was counted: %s", e.text);
    free(rank);
    free(ranks);
}

void counters_tell(struct engine *engine)
{
    tell_counters(engine, NULL);
}

void counters_tell_pending(struct engine *engine)
{
    struct pending *pending = pending_make(engine);
    tell_counters(engine, pending);
    free(pending);
}

const struct engine_part counters_part = {.epoch_end = keep_counters,
                                          .regroup = regroup_counters,
                                          .failed = counters_tell,
                                          .all_left = counters_tell,
                                          .free = free_counters};
