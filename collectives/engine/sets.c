/* The world, process sets and pairs: who is in them, on which hosts, and the messages of their readiness.
 *
 * A process set is made when the first rank of this host tells of it (the ranks have agreed about its id, and
 * none uses it before all of them have told their engines), a pair when a rank of this host or the other
 * host's engine first names it. A set of which this host has no rank, or no other host, has no readiness:
 * there is nothing to do for it here. A set that was removed is kept, so that its id stays used and what lies
 * in its slots stays somebody's. So is a pair; since each needs a name, there cannot be more than names.
 *
 * A set of hvd_set_open (its id is SHM_SETS_MAX or more) is known to its own ranks, and all of them have told
 * their engines before one uses it. It goes when all of this host have closed it, and its names and runs are
 * gone. A message that comes later is about nothing any more.
 *
 * The world's readiness sends its messages as they are. Those of the others are wrapped (integers little
 * endian): PEER_SET 1, pad 3, set 4, then the message; hosts in it are counted within the set. */
#include "collectives/engine/sets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/hash.h"

#define WRAP_HEADER 8
#define LOOK_NS     (10 * NSEC_PER_MSEC)
#define SET_CACHE   1024      /* names of a set that are numbers between hosts */
#define PAIR_CACHE  64        /* of a pair */
#define PAIR_NUMBER 0x800000u /* in 24 bits: what a pair's id has of its own, and this */

_Static_assert((TEAM_PAIR_RANKS * (TEAM_PAIR_RANKS - 1) / 2) <= PAIR_NUMBER, "pairs fit into 24 bits");
_Static_assert(SHM_OPENED_END <= PAIR_NUMBER && BACKEND_SET_MAX == 2 * PAIR_NUMBER - 1, "sets fit too");

uint32_t set_number(const struct set *set)
{
    uint32_t id = (uint32_t)set->team->id;
    return set->team->id < 0 ? PAIR_NUMBER | (id & (PAIR_NUMBER - 1)) : id;
}

uint32_t set_host_of(const struct engine *engine, const struct set *set, uint32_t index)
{
    return engine->place[set->team->rank[index < set->team->size ? index : 0]].host;
}

void set_mask(const struct engine *engine, const struct set *set, uint32_t host, uint8_t *mask)
{
    const struct host *h = &engine->host[host];
    memset(mask, 0, (h->ranks + 7) / 8);
    for (uint32_t i = 0; i < set->team->size; i++) {
        const struct rank_place *p = &engine->place[set->team->rank[i]];
        if (p->host == host)
            mask[p->local / 8] |= (uint8_t)(1 << p->local % 8);
    }
}

/* Of hvd_set_open. */
static bool is_opened(int32_t id)
{
    return id >= (int32_t)SHM_SETS_MAX;
}

/* ---- made ---------------------------------------------------------------------------------------------- */

static void set_free(struct set *set)
{
    readiness_free(set->readiness);
    free(set->host);
    free(set->order);
    free(set->team);
    free(set->is_user);
    free(set);
}

void engine_sets_free(struct engine *engine)
{
    while (engine->sets.first) {
        struct set *set = engine->sets.first;
        engine->sets.first = set->next;
        set_free(set);
    }
    memset(engine->sets.bucket, 0, sizeof engine->sets.bucket);
    engine->sets.active = NULL;
    engine->sets.pairs = 0;
    engine->sets.leaving = engine->sets.opened = 0;
}

static uint32_t host_in_job(const struct engine *engine, const struct set *set, uint32_t index)
{
    return engine->place[set->team->rank[index]].host;
}

/* The team's ranks by host: next[h] is where the next one of host h goes. NULL where they lie so anyway. */
static int find_order(const struct engine *engine, struct set *set, uint32_t *next)
{
    bool in_order = true;
    for (uint32_t i = 1; i < set->team->size; i++)
        in_order = in_order && host_in_job(engine, set, i - 1) <= host_in_job(engine, set, i);
    if (in_order)
        return 0;
    set->order = calloc(set->team->size, sizeof *set->order);
    if (!set->order)
        return -1;
    for (uint32_t i = 0; i < set->team->size; i++)
        set->order[next[host_in_job(engine, set, i)]++] = i;
    return 0;
}

/* Finds the hosts of the set, and the ranks of each. */
static int find_hosts(const struct engine *engine, struct set *set)
{
    uint32_t most = engine->hosts < set->team->size ? engine->hosts : set->team->size;
    uint32_t *next = calloc(engine->hosts, sizeof *next), at = 0;
    set->host = calloc(most, 3 * sizeof *set->host);
    if (!set->host || !next) {
        free(next);
        return -1;
    }
    set->first = set->host + most;
    set->ranks = set->first + most;
    set->self = UINT32_MAX;
    for (uint32_t i = 0; i < set->team->size; i++)
        next[host_in_job(engine, set, i)]++;
    for (uint32_t h = 0; h < engine->hosts; h++) {
        uint32_t ranks = next[h];
        next[h] = at;
        if (ranks == 0)
            continue;
        if (h == engine->self)
            set->self = set->hosts;
        set->host[set->hosts] = h;
        set->first[set->hosts] = at;
        set->ranks[set->hosts++] = ranks;
        set->shape.most = ranks > set->shape.most ? ranks : set->shape.most;
        at += ranks;
    }
    set->shape.hosts = set->hosts;
    set->shape.ranks = set->team->size;
    int rc = find_order(engine, set, next);
    free(next);
    return rc;
}

static uint32_t names_between_hosts(int32_t set)
{
    return set == HVD_WORLD ? SHM_SLOTS : set < 0 ? PAIR_CACHE : SET_CACHE;
}

static int make_readiness(struct engine *engine, struct set *set, struct err *e)
{
    struct readiness_config config = {.epoch = engine->epoch,
                                      .self = set->self,
                                      .hosts = set->hosts,
                                      .data_bytes = engine->options.flat ? 0 : ENGINE_DATA_BYTES,
                                      .fusion_bytes = engine->options.fusion_bytes,
                                      .cache_capacity = names_between_hosts(set->team->id)};
    if (set->hosts == 1 || set->self == UINT32_MAX)
        return 0;
    if (engine->options.cache_capacity != UINT32_MAX)
        config.cache_capacity = engine->options.cache_capacity;
    struct readiness_host *hosts;
    config.host = hosts = calloc(set->hosts, sizeof *hosts);
    if (!hosts)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", set->hosts);
    for (uint32_t i = 0; i < set->hosts; i++) {
        uint32_t ranks = set->ranks[i];
        const uint32_t *list = set->order ? set->order + set->first[i] : NULL;
        uint32_t first = list ? list[0] : set->first[i], last = list ? list[ranks - 1] : first + ranks - 1;
        const uint32_t *rank = set->team->rank;
        hosts[i] = (struct readiness_host){.name = engine->host[set->host[i]].name,
                                           .first_rank = first,
                                           .ranks = ranks,
                                           .rank = list,
                                           .shift = rank[first] - first,
                                           .gaps = rank[last] - rank[first] != ranks - 1};
    }
    set->readiness = readiness_new(&config, e);
    free(hosts);
    return set->readiness ? 0 : -1;
}

static struct set **bucket_of(struct engine *engine, int32_t id)
{
    return &engine->sets.bucket[hash_number(HASH_EMPTY, (uint32_t)id) % ENGINE_SET_BUCKETS];
}

static struct set *make_set(struct engine *engine, int32_t id, const uint32_t *rank, uint32_t size,
                            struct err *e)
{
    struct set *set = calloc(1, sizeof *set), **bucket = bucket_of(engine, id);
    const struct host *here = &engine->host[engine->self];
    if (set)
        set->team = team_new(id, rank, size, here->rank, here->ranks);
    if (set && set->team && is_opened(id))
        set->is_user = calloc(set->team->members + 1, sizeof *set->is_user);
    if (!set || !set->team || (is_opened(id) && !set->is_user) || find_hosts(engine, set) != 0 ||
        make_readiness(engine, set, e) != 0) {
        err_set(e, ERR_MEMORY, "no memory for a process set of %u ranks", size);
        if (set)
            set_free(set);
        return NULL;
    }
    engine->sets.opened += is_opened(id);
    set->next = engine->sets.first;
    engine->sets.first = set;
    set->next_in_bucket = *bucket;
    *bucket = set;
    return set;
}

int engine_sets_start(struct engine *engine, struct err *e)
{
    engine->sets.world = make_set(engine, HVD_WORLD, NULL, engine->size, e);
    return engine->sets.world ? 0 : -1;
}

/* The id of a set that was opened may be used again before the set has gone. */
static struct set *find_set(struct engine *engine, int32_t id)
{
    struct set *set = *bucket_of(engine, id);
    while (set && (set->team->id != id || (is_opened(id) && set->removed)))
        set = set->next_in_bucket;
    return set;
}

/* One of two ranks is on this host; what two others send each other is nothing to this engine. */
static struct set *make_pair(struct engine *engine, int32_t id)
{
    struct set *set = NULL;
    uint32_t rank[2];
    if (engine->sets.pairs < ENGINE_PAIRS_MAX && team_pair_ranks(id, rank) && rank[1] < engine->size &&
        (engine->place[rank[0]].host == engine->self || engine->place[rank[1]].host == engine->self))
        set = make_set(engine, id, rank, 2, NULL);
    engine->sets.pairs += set != NULL;
    return set;
}

struct set *sets_find(struct engine *engine, int32_t id)
{
    struct set *set = find_set(engine, id);
    if (!set && id < 0)
        set = make_pair(engine, id);
    return set && !set->removed ? set : NULL;
}

static bool are_ranks(const struct engine *engine, const uint32_t *rank, uint32_t n)
{
    bool ok = n > 0;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = rank[i] < engine->size && (i == 0 || rank[i - 1] < rank[i]);
    return ok;
}

/* Of a set that was opened. The rank is one of it. */
static int add_user(struct set *set, uint32_t local, struct err *e)
{
    uint32_t member = ranks_find(set->team->local, set->team->members, local);
    if (member == UINT32_MAX) {
        err_set(e, ERR_PROTOCOL, "the rank is not in process set %d", set->team->id);
        return HVD_ERR_INVALID;
    }
    set->users += !set->is_user[member];
    set->is_user[member] = 1;
    return HVD_SUCCESS;
}

/* The id is one that the set's first rank may choose, and this rank is in the set. */
static bool may_open(const struct engine *engine, int32_t id, uint32_t local, const uint32_t *rank,
                     uint32_t n)
{
    return ((uint32_t)id - SHM_SETS_MAX) % engine->size == rank[0] &&
           ranks_find(rank, n, engine->region.rank[local]) != UINT32_MAX;
}

int sets_add(struct engine *engine, int32_t id, uint32_t local, const uint32_t *rank, uint32_t n,
             struct err *e)
{
    struct set *set = find_set(engine, id);
    if (!are_ranks(engine, rank, n) || id <= HVD_WORLD || id >= (int32_t)SHM_OPENED_END ||
        (is_opened(id) && !may_open(engine, id, local, rank, n))) {
        err_set(e, ERR_PROTOCOL, "what came as the ranks of process set %d is none", id);
        return HVD_ERR_INVALID;
    }
    if (set && (set->removed || !team_same_ranks(set->team, rank, n))) {
        err_set(e, ERR_PROTOCOL, "another rank of this host calls others process set %d", id);
        return HVD_ERR_MISMATCH;
    }
    if (!set && is_opened(id) && engine->sets.opened >= engine->workers.members * SHM_SETS_MAX) {
        err_set(e, ERR_MEMORY, "%u process sets are open on this host", engine->sets.opened);
        return HVD_ERR_MEMORY; /* more than libhvd opens for the ranks of this host */
    }
    if (!set && !(set = make_set(engine, id, rank, n, e)))
        return HVD_ERR_MEMORY;
    return is_opened(id) ? add_user(set, local, e) : HVD_SUCCESS;
}

void sets_remove(struct engine *engine, int32_t id, uint32_t local)
{
    struct set *set = id > HVD_WORLD ? find_set(engine, id) : NULL;
    uint32_t member = set && is_opened(id) ? ranks_find(set->team->local, set->team->members, local) : 0;
    if (!set || member == UINT32_MAX)
        return;
    if (is_opened(id)) {
        set->users -= set->is_user[member];
        set->is_user[member] = 0;
    }
    set->removed = set->users == 0;
    if (set->removed && is_opened(id) && engine->peers.backend)
        engine->peers.backend->ops->forget_set(engine->peers.backend, set_number(set));
    engine->sets.leaving += set->removed && is_opened(id) && !set->lasts;
}

static bool may_go(const struct set *set)
{
    return set->removed && is_opened(set->team->id) && !set->lasts && set->names == 0 && !set->active &&
           !set->run_first;
}

static void leave_bucket(struct engine *engine, const struct set *set)
{
    struct set **at = bucket_of(engine, set->team->id);
    while (*at != set)
        at = &(*at)->next_in_bucket;
    *at = set->next_in_bucket;
}

/* Frees sets that were closed. Nothing else of the engine's turn runs now. Names of a set may stay for a
 * while, and there may be many sets. */
static void free_closed(struct engine *engine, struct turn *turn)
{
    if (__builtin_expect(engine->sets.leaving == 0, 1) || turn->now < engine->sets.looked_at + LOOK_NS)
        return;
    engine->sets.looked_at = turn->now;
    for (struct set **at = &engine->sets.first; *at;) {
        struct set *set = *at;
        if (!may_go(set)) {
            at = &set->next;
            continue;
        }
        *at = set->next;
        leave_bucket(engine, set);
        set_free(set);
        engine->sets.leaving--;
        engine->sets.opened--;
    }
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Of its own, because of so large a frame on the stack. */
static __attribute__((noinline)) int send_wrapped(struct engine *engine, const struct set *set, uint32_t to,
                                                  const void *message, size_t size, struct err *e)
{
    uint8_t wrapped[WRAP_HEADER + READINESS_MESSAGE_MAX];
    struct writer w = writer_of(wrapped, sizeof wrapped);
    write_u32(&w, PEER_SET);
    write_u32(&w, (uint32_t)set->team->id);
    write_bytes(&w, message, size);
    return links_send_control(engine->peers.links, set->host[to], wrapped, WRAP_HEADER + size, e);
}

void sets_send(struct engine *engine, struct set *set)
{
    const void *message;
    struct err e = ERR_INIT;
    uint32_t to;
    size_t size;
    while (readiness_next_message(set->readiness, &to, &message, &size)) {
        int rc = set != engine->sets.world
                     ? send_wrapped(engine, set, to, message, size, &e)
                     : links_send_control(engine->peers.links, set->host[to], message, size, &e);
        engine->peers.has_sent = true;
        if (rc != 0)
            return; /* the link is lost; its own event says so */
    }
}

static int receive_wrapped(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct reader r = reader_of(data, size);
    uint32_t type = read_u32(&r), host = 0;
    int32_t id = (int32_t)read_u32(&r);
    struct set *set = r.bad || type != PEER_SET || id == HVD_WORLD ? NULL : sets_find(engine, id);
    if (!set && id < 0 && engine->sets.pairs >= ENGINE_PAIRS_MAX)
        return err_set(e, ERR_MEMORY, "more than %u pairs of ranks send and receive here", ENGINE_PAIRS_MAX);
    if (!set && is_opened(id))
        return 0; /* it was closed */
    if (!set || !set->readiness)
        return err_set(e, ERR_PROTOCOL, "a message of process set %d, which has no rank on this host", id);
    while (host < set->hosts && set->host[host] != from)
        host++;
    if (host == set->hosts || r.left == 0)
        return err_set(e, ERR_PROTOCOL, "a message of process set %d from a host without part in it", id);
    sets_wake(engine, set);
    return readiness_receive(set->readiness, host, (const uint8_t *)data + WRAP_HEADER, r.left, e);
}

int sets_receive(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    if (*(const uint8_t *)data == PEER_SET)
        return receive_wrapped(engine, from, data, size, e);
    sets_wake(engine, engine->sets.world);
    return readiness_receive(engine->sets.world->readiness, from, data, size, e);
}

void sets_wake(struct engine *engine, struct set *set)
{
    if (set->active)
        return;
    set->active = true;
    set->next_active = engine->sets.active;
    engine->sets.active = set;
}

static int start_sets(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    (void)config;
    return engine_sets_start(engine, e);
}

/* Readiness of the world, and messages of other sets. */
const struct engine_part sets_part = {.start = start_sets,
                                      .epoch_begin = engine_sets_start,
                                      .epoch_end = engine_sets_free,
                                      .progress = free_closed,
                                      .messages = ((1u << PEER_FAILED) - 1) | 1u << PEER_SET,
                                      .message = sets_receive,
                                      .free = engine_sets_free};
