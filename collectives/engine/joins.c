/* Ranks that are in hvd_join: what they are to take part in. A rank that waits long in hvd_shutdown is told
 * in the same way what others wait for, so that these get a sentence (client/api/join.c).
 *
 * Such a rank takes part in every operation that others begin, with zeros (client/join.c). All it needs is to
 * be told: an operation is `wanted` of it. Within a host the members that have not joined put a slot into
 * their ring when they arrive there and others have not (only while somebody of the host has joined, which
 * the header says); who lacks it is seen in the member slots. When a member joins, all slots are looked at
 * once. So either the arriving one sees that somebody has joined, or the look at all slots sees that it has
 * arrived.
 *
 * A host whose members of a set have all joined hears nothing in that way. Every engine tells every other one
 * which of its ranks join, and a host on which an operation was begun by ranks, not by such a message, tells
 * it to those hosts. Several hosts may tell of the same operation, or this host may have announced the
 * operation itself.
 *
 * Each host forgets names alone, so the hosts' numbers of operations differ. But they share the execution
 * list. A host that tells of an operation says how far its list had come without it (`position`). So an entry
 * of the name behind that position is the operation itself, and the word is late. A host that cannot know
 * (it has forgotten such entries, or its list is behind) asks to be told again; the teller does so while the
 * operation waits. Small operations of two hosts need no list (`direct`). Then the teller's report is here
 * while the operation waits for this host. Without the report the word is late, or it has overtaken it.
 *
 * Joins are counted too (a join is over when SHM_JOIN_NAME was settled), so that nothing late is taken for
 * something of the next one: when a join ends, no operation is pending anywhere, since a rank arrives at that
 * name only when all that it had begun itself has ended.
 *
 * Messages (integers little endian): PEER_JOINED 1, pad 3, epoch 4, rank 4, join 4. PEER_WANTED 1, pad 3,
 * epoch 4, operation (as the teller counts) 4, join 4, position 8, direct (0, 1) 4, then the tensor in full
 * as in tensor_wire.h. PEER_WANTED_AGAIN 1, pad 3, epoch 4, operation 4, set 4, name length 2, name. */
#include "collectives/engine/joins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/agree/tensor_wire.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/forget.h"
#include "collectives/engine/names.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/run/run.h"
#include "collectives/engine/sets.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"
#include "common/base/log.h"

#define JOINED_SIZE 16
#define WANTED_MAX  (28 + TENSOR_WIRE_FIXED + TENSOR_NAME_MAX)
#define AGAIN_MAX   (18 + SHM_NAME_MAX)
#define EVERYBODY   UINT32_MAX
/* Every rank that waits in hvd_shutdown would tell each host. In a larger job only its own host hears. */
#define REFUSING_HOSTS 64

static int start_joins(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    (void)config;
    engine->joins.of_rank = calloc(engine->size, sizeof *engine->joins.of_rank);
    return engine->joins.of_rank ? 0 : err_set(e, ERR_MEMORY, "no memory for %u ranks", engine->size);
}

static int regroup_joins(struct engine *engine, const struct engine_regroup *g, struct err *e)
{
    (void)g;
    free(engine->joins.of_rank);
    return start_joins(engine, NULL, e);
}

static void forget_joins(struct engine *engine)
{
    memset(engine->joins.of_rank, 0, engine->size * sizeof *engine->joins.of_rank);
    for (uint32_t i = 0; i < engine->workers.members; i++)
        engine->workers.member[i].joining = false;
    engine->joins.joining = engine->joins.heard = engine->joins.wanting = 0;
}

static void free_joins(struct engine *engine)
{
    free(engine->joins.of_rank);
}

/* The join that is, or will be the next one. */
static uint32_t current_join(const struct engine *engine)
{
    return engine->names.join_slot == SHM_SLOTS
               ? 1
               : atomic_load(&region_slot(&engine->region, engine->names.join_slot)->settled) + 1;
}

/* ---- this host's members ------------------------------------------------------------------------------- */

static struct member *member_of(struct engine *engine, const struct team *team, uint32_t member)
{
    return &engine->workers.member[team->local[member]];
}

/* Tells a member (EVERYBODY: all) that joined and lacks the operation. */
static void tell_members(struct engine *engine, uint32_t slot, uint32_t operation, const struct tensor_op *op,
                         uint32_t only)
{
    struct name *n = &engine->names.name[slot];
    struct shm_slot *s = n->view.slot;
    if (n->wanted != operation) {
        s->wanted_op = *op;
        atomic_store(&s->wanted, operation);
        n->wanted = operation;
        only = EVERYBODY;
    }
    for (uint32_t i = 0; i < n->view.team->members; i++) {
        struct member *m = member_of(engine, n->view.team, i);
        uint32_t local = (uint32_t)(m - engine->workers.member);
        struct shm_mailbox *mailbox = region_mailbox(&engine->region, local);
        if (!m->joining || (only != EVERYBODY && local != only) ||
            (int32_t)(operation - tensor_latest(&n->view, i)) <= 0)
            continue;
        if (!ring_put(&mailbox->wanted, slot)) {
            engine_poison(engine, HVD_ERR_ENGINE, "a rank that has joined is not told of more operations");
            return;
        }
        doorbell_ring(mailbox);
    }
}

/* Has a member arrived where one that has joined has not? */
static void check_slot(struct engine *engine, uint32_t slot, uint32_t only)
{
    struct tensor_view *v = slot == engine->names.join_slot ? NULL : names_view(engine, slot);
    uint32_t furthest = 0, operation = 0;
    bool lacks = false;
    for (uint32_t i = 0; v && i < v->team->members; i++) {
        uint32_t latest = tensor_latest(v, i);
        if (i == 0 || (int32_t)(latest - operation) > 0) {
            operation = latest;
            furthest = i;
        }
    }
    for (uint32_t i = 0; v && i < v->team->members; i++)
        lacks = lacks || (member_of(engine, v->team, i)->joining && tensor_latest(v, i) != operation);
    if (!lacks || (only == EVERYBODY && engine->names.name[slot].wanted == operation))
        return;
    struct tensor_op op = tensor_asked(v, furthest);
    tell_members(engine, slot, operation, &op, only);
}

void joins_arrived(struct engine *engine, uint32_t slot)
{
    if (engine->joins.joining > 0)
        check_slot(engine, slot, EVERYBODY);
}

/* ---- other hosts --------------------------------------------------------------------------------------- */

static bool all_joined(const struct engine *engine, const struct set *set, uint32_t host, uint32_t join)
{
    for (uint32_t i = set->first[host]; i < set->first[host] + set->ranks[host]; i++)
        if ((int32_t)(engine->joins.of_rank[set->team->rank[set->order ? set->order[i] : i]] - join) < 0)
            return false;
    return true;
}

/* All hosts have the operation: it is on the list. */
static bool is_listed(const struct set *set, const char *name)
{
    const struct run *run = set->run_first;

    while (run && (run->phase != RUN_DUE || strcmp(run->entry.desc.name, name) != 0))
        run = run->next;
    return run || execution_list_names(readiness_list(set->readiness), name);
}

/* Tells the hosts of its set that have joined, or only one of them, of an operation announced here. */
static void ask_hosts(struct engine *engine, uint32_t slot, uint32_t only)
{
    const struct name *n = &engine->names.name[slot];
    uint8_t message[WANTED_MAX];
    struct writer w = writer_of(message, sizeof message);
    struct tensor_desc desc = {.what = n->view.op};
    uint32_t join = current_join(engine);
    struct err e = ERR_INIT;

    if (slot == engine->names.join_slot || n->asked == n->view.sequence || is_listed(n->set, n->text))
        return; /* asked: others have begun it, and tell of it */
    if (desc.what.device == OP_EITHER)
        desc.what.device = 0; /* as tensor_asked says it */
    snprintf(desc.name, sizeof desc.name, "%s", n->text);
    write_u32(&w, PEER_WANTED);
    write_u32(&w, engine->epoch);
    write_u32(&w, n->view.sequence);
    write_u32(&w, join);
    write_u64(&w, execution_list_end(readiness_list(n->set->readiness)));
    write_u32(&w, readiness_was_direct(n->set->readiness, n->text));
    tensor_wire_write(&w, &desc, NULL);
    for (uint32_t i = 0; i < n->set->hosts; i++)
        if (i != n->set->self && (only == EVERYBODY || n->set->host[i] == only) &&
            all_joined(engine, n->set, i, join) &&
            links_send_control(engine->peers.links, n->set->host[i], message, sizeof message - w.left, &e) !=
                0)
            return; /* the link is lost; its own event says so */
}

void joins_announced(struct engine *engine, uint32_t slot)
{
    if (engine->joins.heard != 0 && (int32_t)(engine->joins.heard - current_join(engine)) >= 0)
        ask_hosts(engine, slot, EVERYBODY);
}

static void tell_hosts(struct engine *engine, uint32_t rank)
{
    uint8_t message[JOINED_SIZE];
    struct writer w = writer_of(message, sizeof message);
    struct err e = ERR_INIT;
    write_u32(&w, PEER_JOINED);
    write_u32(&w, engine->epoch);
    write_u32(&w, rank);
    write_u32(&w, current_join(engine));
    for (uint32_t i = 0; i < engine->hosts; i++)
        if (i != engine->self && links_send_control(engine->peers.links, i, message, sizeof message, &e) != 0)
            return;
}

void joins_member(struct engine *engine, uint32_t member, enum worker_join how)
{
    struct member *m = &engine->workers.member[member];
    bool joining = how != WORKER_JOINS_NOT;
    if (m->joining == joining)
        return;
    m->joining = joining;
    engine->joins.joining += joining ? 1 : UINT32_MAX;
    atomic_store(&engine->region.header->joined, engine->joins.joining);
    if (!joining)
        return;
    for (uint32_t slot = 0; slot < engine->names.count; slot++)
        check_slot(engine, slot, member);
    if (engine->hosts > 1 && (how == WORKER_JOINS || engine->hosts <= REFUSING_HOSTS))
        tell_hosts(engine, engine->region.rank[member]);
}

static int on_joined(struct engine *engine, uint32_t from, struct reader r, struct err *e)
{
    uint32_t rank = read_u32(&r), join = read_u32(&r);
    if (r.bad || r.left > 0 || join == 0 || rank >= engine->size || engine->place[rank].host != from)
        return err_set(e, ERR_PROTOCOL, "a malformed message about a rank that joins");
    engine->joins.of_rank[rank] = join;
    if (engine->joins.heard == 0 || (int32_t)(join - engine->joins.heard) > 0)
        engine->joins.heard = join;
    for (uint32_t slot = 0; slot < engine->names.count; slot++)
        if (engine->names.name[slot].announced)
            ask_hosts(engine, slot, from);
    return 0;
}

/* Somebody of this host has not joined and will come to it by itself, or all are there: nothing to do. */
static bool is_lacking(struct engine *engine, const struct tensor_view *v, uint32_t operation)
{
    bool lacks = false;
    for (uint32_t i = 0; i < v->team->members; i++) {
        if (!member_of(engine, v->team, i)->joining)
            return false;
        lacks = lacks || (int32_t)(operation - tensor_latest(v, i)) > 0;
    }
    return lacks;
}

/* The word of another host about an operation that waits there. */
struct word {
    uint32_t from, operation; /* the host, and how it counts */
    uint64_t position;
    bool direct;
};

static void ask_again(struct engine *engine, const struct tensor_desc *desc, const struct word *word)
{
    uint8_t message[AGAIN_MAX];
    struct writer w = writer_of(message, sizeof message);
    size_t name = strlen(desc->name);
    struct err e = ERR_INIT;

    write_u32(&w, PEER_WANTED_AGAIN);
    write_u32(&w, engine->epoch);
    write_u32(&w, word->operation);
    write_u32(&w, (uint32_t)desc->what.set);
    write_u16(&w, (uint16_t)name);
    write_bytes(&w, desc->name, name);
    if (links_send_control(engine->peers.links, word->from, message, sizeof message - w.left, &e) != 0)
        log_debug("nobody tells again what joined ranks lack: %s", e.text);
}

/* The slot of what joined ranks lack. false: none is free yet, or the job ends. */
static bool find_slot(struct engine *engine, struct set *set, const char *name, uint32_t *slot, bool *again)
{
    int status = forget_for(engine, set, name, slot, NULL);

    *again = status != HVD_SUCCESS && *slot == SHM_SLOTS &&
             forget_more(engine, FORGET_FOR_ALL, engine->joins.wanting, &engine->joins.wanting);
    if (status == HVD_SUCCESS)
        engine->joins.wanting = 0;
    if (status == HVD_SUCCESS && names_view(engine, *slot))
        return true;
    if (!*again)
        engine_poison(engine, HVD_ERR_MEMORY, "no memory for the names of what joined ranks lack");
    return false;
}

/* 1: this host's next operation on the name is the one of the word. 0: this host has announced it. -1: that
 * cannot be told yet. */
static int is_next(const struct name *n, const struct word *word)
{
    uint64_t position = word->position;

    if (n->listed > position)
        return -1;
    if (!n->announced)
        return !word->direct || readiness_lacks(n->set->readiness, n->text) ? 1 : -1;
    return is_listed(n->set, n->text) || execution_list_end(readiness_list(n->set->readiness)) < position ? -1
                                                                                                          : 0;
}

static void take_wanted(struct engine *engine, struct set *set, const struct tensor_desc *desc,
                        const struct word *word)
{
    bool again = false;
    uint32_t slot, next;
    int is;

    if (!find_slot(engine, set, desc->name, &slot, &again)) {
        if (again)
            ask_again(engine, desc, word);
        return;
    }
    struct name *n = &engine->names.name[slot];
    if (slot == engine->names.join_slot)
        return;
    is = rank_link_is_busy(engine, &n->view) ? -1 : is_next(n, word);
    next = rank_link_operation(engine, &n->view, n->view.sequence + 1);
    if (is < 0)
        ask_again(engine, desc, word);
    if (is <= 0 || n->asked == next || !is_lacking(engine, &n->view, next))
        return;
    n->asked = next;
    tell_members(engine, slot, next, &desc->what, EVERYBODY);
}

static int on_wanted(struct engine *engine, uint32_t from, struct reader r, struct err *e)
{
    struct word word = {.from = from, .operation = read_u32(&r)};
    uint32_t join = read_u32(&r), direct;
    char error[SHM_TEXT_MAX];
    struct tensor_desc desc;

    word.position = read_u64(&r);
    direct = read_u32(&r);
    word.direct = direct == 1;
    if (tensor_wire_read(&r, &desc, error, e) != 0)
        return -1;
    struct set *set = sets_find(engine, desc.what.set);
    if (r.left > 0 || *error || direct > 1 || desc.what.device == OP_EITHER ||
        (set && (!set->readiness || set->team->members == 0)))
        return err_set(e, ERR_PROTOCOL, "a malformed message about what joined ranks lack");
    if (set && join == current_join(engine)) /* else the set was removed, or that join has ended */
        take_wanted(engine, set, &desc, &word);
    return 0;
}

static int on_again(struct engine *engine, uint32_t from, struct reader r, struct err *e)
{
    uint32_t operation = read_u32(&r), slot;
    int32_t id = (int32_t)read_u32(&r);
    size_t size = read_u16(&r);
    const uint8_t *bytes = size > 0 && size <= SHM_NAME_MAX ? read_bytes(&r, size) : NULL;
    char name[SHM_NAME_MAX + 1] = "";

    if (!bytes || r.left > 0 || memchr(bytes, '\0', size))
        return err_set(e, ERR_PROTOCOL, "a malformed question about what joined ranks lack");
    memcpy(name, bytes, size);
    struct set *set = sets_find(engine, id);
    slot = set && set->readiness ? names_find(engine, set, name) : UINT32_MAX;
    if (slot != UINT32_MAX && engine->names.name[slot].announced &&
        engine->names.name[slot].view.sequence == operation)
        ask_hosts(engine, slot, from);
    return 0;
}

static int receive_joins(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct reader r = reader_of(data, size);
    uint32_t type = read_u32(&r), epoch = read_u32(&r);
    if (r.bad || type > UINT8_MAX)
        return err_set(e, ERR_PROTOCOL, "a malformed message about joined ranks");
    if (epoch != engine->epoch)
        return 0; /* it was on its way when that epoch ended */
    return type == PEER_JOINED   ? on_joined(engine, from, r, e)
           : type == PEER_WANTED ? on_wanted(engine, from, r, e)
                                 : on_again(engine, from, r, e);
}

const struct engine_part joins_part = {.start = start_joins,
                                       .epoch_end = forget_joins,
                                       .regroup = regroup_joins,
                                       .messages =
                                           1u << PEER_JOINED | 1u << PEER_WANTED | 1u << PEER_WANTED_AGAIN,
                                       .message = receive_joins,
                                       .free = free_joins};
