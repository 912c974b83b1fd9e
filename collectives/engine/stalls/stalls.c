/* Stalled operations: found, asked about, told in one line that names the missing ranks of all hosts.
 *
 * Now and then every engine looks how far its own ranks are with each tensor (look_at_slots). A tensor that
 * waits for too long is a suspicion, and goes to the coordinator: the set's first host that has an engine.
 * That one opens a case and asks every other host which of its ranks have not arrived at the name's current
 * operation. The question names no number, since each host forgets names alone, and counts operations from
 * then on. An operation begins when the one before has ended on all hosts, so all mean the same one, but for
 * a moment (is_behind). A host without an engine or link has no rank that could have arrived, one that does
 * not answer within STALL_ANSWER_NS is told as such. Then the case is told, as a warning, or, when it is
 * about giving up, as the end of the job. A told case stays until its operation has gone on, and that is
 * told as well.
 *
 * Hosts suspect independently: a case that is open already is opened once. At most STALL_CASES are open;
 * what is beyond them is counted. On one host the same without anybody to ask.
 *
 * Message between engines (integers little endian): PEER_STALL 1, what 1 (enum question), kind 1, gives_up
 * 1, operation 4, set 4, name length 2, name; an answer has then: ranks 4, a bit for each missing one. */
#include "collectives/engine/stalls/stalls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/names.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/stalls/stall.h"
#include "collectives/local/pipeline.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"

#define STALL_CASES     16
#define STALL_ANSWER_NS (2 * NSEC_PER_SEC)
#define STALL_SHOWN_NS  NSEC_PER_SEC /* counters show operations that have waited for as long */
#define MISSING_BYTES   (SHM_MEMBERS_MAX / 8)
#define MESSAGE_MAX     (14 + SHM_NAME_MAX + 4 + MISSING_BYTES)

enum question { SUSPICION = 1, QUESTION = 2, ANSWER = 3 };

struct message {
    uint8_t what, kind;
    bool gives_up;
    uint32_t operation;
    int32_t set;
    char name[SHM_NAME_MAX + 1];
    uint32_t ranks; /* of an answer */
    uint8_t missing[MISSING_BYTES];
};

struct answer { /* of one host */
    bool here;
    uint8_t missing[MISSING_BYTES];
};

struct stall_case {
    uint32_t slot, operation;
    uint8_t kind;
    bool used, gives_up, told;
    uint64_t since, until; /* until: answers are waited for */
    struct answer *answer; /* [hosts]; NULL once told */
    char *missing;         /* the ranks, once told */
};

struct stalls {
    struct stall_case open[STALL_CASES];
    uint32_t more; /* suspicions that found no place */
    uint64_t look_at;
};

static void close_case(struct engine *engine, struct stall_case *c)
{
    if (c->used)
        engine->names.name[c->slot].watched = false;
    free(c->answer);
    free(c->missing);
    *c = (struct stall_case){0};
}

/* false: no memory. */
static bool make_stalls(struct engine *engine)
{
    if (!engine->stalls)
        engine->stalls = calloc(1, sizeof *engine->stalls);
    return engine->stalls != NULL;
}

static void free_stalls(struct engine *engine)
{
    for (int i = 0; engine->stalls && i < STALL_CASES; i++)
        close_case(engine, &engine->stalls->open[i]);
    free(engine->stalls);
    engine->stalls = NULL;
}

/* ---- how far this host's ranks are --------------------------------------------------------------------- */

static const struct team *team_of(const struct engine *engine, uint32_t slot)
{
    return engine->names.name[slot].set->team;
}

/* A member of the slot's team. */
static uint32_t member_at(const struct engine *engine, uint32_t slot, uint32_t member, uint8_t *kind)
{
    uint32_t local = engine->place[team_rank(team_of(engine, slot), member)].local;
    const struct region *region = &engine->region;
    uint32_t a = atomic_load(&region_entry(region, slot, local, 0)->sequence);
    uint32_t b = atomic_load(&region_entry(region, slot, local, 1)->sequence);
    uint32_t at = (int32_t)(a - b) > 0 ? a : b;
    if (kind)
        *kind = region_entry(region, slot, local, at)->kind;
    return at;
}

/* This host's last operation that is known to have ended is that one. */
static bool has_ended(const struct engine *engine, uint32_t slot, uint32_t operation)
{
    return operation == atomic_load(&region_slot(&engine->region, slot)->settled) ||
           rank_link_carried(engine, slot, operation);
}

bool stalls_is_pending(const struct engine *engine, uint32_t slot, uint32_t *operation, uint8_t *kind)
{
    /* Ranks in hvd_join wait for nobody's call, only for all others to come to an end. */
    return slot != engine->names.join_slot && stalls_is_under_way(engine, slot, operation, kind);
}

bool stalls_is_under_way(const struct engine *engine, uint32_t slot, uint32_t *operation, uint8_t *kind)
{
    if (!engine->names.name[slot].text || team_of(engine, slot)->members == 0)
        return false; /* other hosts' business, which this one has been asked about */
    uint32_t nearest = member_at(engine, slot, 0, kind);

    *operation = nearest;
    for (uint32_t i = 1; i < team_of(engine, slot)->members; i++) {
        uint8_t its;
        uint32_t at = member_at(engine, slot, i, &its);
        if ((int32_t)(at - *operation) > 0) {
            *operation = at;
            *kind = its;
        }
        if ((int32_t)(nearest - at) > 0)
            nearest = at;
    }
    if (!team_is_here(team_of(engine, slot)))
        return !has_ended(engine, slot, *operation);
    return *operation != nearest;
}

/* The member has arrived, but has yet to bring pieces that others wait for. */
static bool owes_pieces(const struct engine *engine, uint32_t slot, uint32_t member, uint32_t operation)
{
    const struct name *n = &engine->names.name[slot];
    return n->has_view && n->view.sequence == operation && n->view.stream.host &&
           stream_is_behind(&n->view, member);
}

bool stalls_is_missing(const struct engine *engine, uint32_t slot, uint32_t member, uint32_t operation)
{
    return (int32_t)(operation - member_at(engine, slot, member, NULL)) > 0 ||
           owes_pieces(engine, slot, member, operation);
}

/* Ranks that exchange elements themselves may all have begun the operation, while one of them is stopped
 * before it has sent what the others lack. This host cannot see how much it has sent. */
static bool stands_still(const struct engine *engine, uint32_t slot, uint32_t operation)
{
    const struct name *n = &engine->names.name[slot];
    return n->has_view && !n->announced && !n->running && rank_link_is_stopped(engine, &n->view, operation);
}

/* slot UINT32_MAX: no rank here has used the name. */
static void own_missing(const struct engine *engine, const struct set *set, uint32_t slot, uint32_t operation,
                        uint8_t *missing)
{
    memset(missing, 0, MISSING_BYTES);
    for (uint32_t i = 0; i < set->team->members; i++) {
        uint32_t local = engine->place[team_rank(set->team, i)].local;
        if (slot == UINT32_MAX || stalls_is_missing(engine, slot, i, operation) ||
            stands_still(engine, slot, operation))
            missing[local / 8] |= (uint8_t)(1 << (local % 8));
    }
}

static bool has_gone_on(const struct engine *engine, const struct stall_case *c)
{
    if (!team_is_here(team_of(engine, c->slot)))
        return (int32_t)(atomic_load(&region_slot(&engine->region, c->slot)->settled) - c->operation) >= 0 ||
               rank_link_went_on(engine, c->slot, c->operation);
    for (uint32_t i = 0; i < team_of(engine, c->slot)->members; i++)
        if ((int32_t)(c->operation - member_at(engine, c->slot, i, NULL)) > 0)
            return false;
    return true;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void send_message(struct engine *engine, uint32_t host, const struct message *m)
{
    uint8_t bytes[MESSAGE_MAX];
    struct writer w = writer_of(bytes, sizeof bytes);
    struct err e = ERR_INIT;
    size_t name = strlen(m->name);
    write_u8(&w, PEER_STALL);
    write_u8(&w, m->what);
    write_u8(&w, m->kind);
    write_u8(&w, m->gives_up);
    write_u32(&w, m->operation);
    write_u32(&w, (uint32_t)m->set);
    write_u16(&w, (uint16_t)name);
    write_bytes(&w, m->name, name);
    if (m->what == ANSWER) {
        write_u32(&w, m->ranks);
        write_bytes(&w, m->missing, (m->ranks + 7) / 8);
    }
    if (links_send_control(engine->peers.links, host, bytes, sizeof bytes - w.left, &e) != 0)
        log_debug("no word about a stalled tensor to host %u: %s", host, e.text);
}

static int read_message(struct engine *engine, uint32_t from, const void *data, size_t size,
                        struct message *m, struct err *e)
{
    struct reader r = reader_of(data, size);
    (void)read_u8(&r);
    m->what = read_u8(&r);
    m->kind = read_u8(&r);
    uint8_t gives_up = read_u8(&r);
    m->operation = read_u32(&r);
    m->set = (int32_t)read_u32(&r);
    size_t name = read_u16(&r);
    const uint8_t *bytes = name > 0 && name <= SHM_NAME_MAX ? read_bytes(&r, name) : NULL;
    if (!bytes || memchr(bytes, '\0', name) || gives_up > 1 || m->what < SUSPICION || m->what > ANSWER)
        return err_set(e, ERR_PROTOCOL, "a malformed message about a stalled tensor");
    memcpy(m->name, bytes, name);
    m->gives_up = gives_up;
    if (m->what == ANSWER) {
        m->ranks = read_u32(&r);
        bytes = m->ranks == engine->host[from].ranks ? read_bytes(&r, (m->ranks + 7) / 8) : NULL;
        if (!bytes)
            return err_set(e, ERR_PROTOCOL, "a malformed answer about a stalled tensor");
        memcpy(m->missing, bytes, (m->ranks + 7) / 8);
    }
    return r.left == 0 ? 0 : err_set(e, ERR_PROTOCOL, "a message about a stalled tensor is too long");
}

/* ---- cases --------------------------------------------------------------------------------------------- */

static struct stall_case *find_case(struct stalls *s, uint32_t slot)
{
    for (int i = 0; i < STALL_CASES; i++)
        if (s->open[i].used && s->open[i].slot == slot)
            return &s->open[i];
    return NULL;
}

/* The one of this tensor, or a free one; giving up takes any. */
static struct stall_case *place_of_case(struct stalls *s, uint32_t slot, bool gives_up)
{
    struct stall_case *c = find_case(s, slot);
    for (int i = 0; !c && i < STALL_CASES; i++)
        if (!s->open[i].used)
            c = &s->open[i];
    return c || !gives_up ? c : &s->open[0];
}

static void ask_hosts(struct engine *engine, struct stall_case *c)
{
    const struct set *set = engine->names.name[c->slot].set;
    struct message m = {.what = QUESTION,
                        .kind = c->kind,
                        .gives_up = c->gives_up,
                        .operation = c->operation,
                        .set = set->team->id};

    snprintf(m.name, sizeof m.name, "%s", engine->names.name[c->slot].text);
    for (uint32_t n = 0, i; n < set->hosts; n++) {
        i = set->host[n];
        if (i == engine->self) {
            own_missing(engine, set, c->slot, c->operation, c->answer[i].missing);
            c->answer[i].here = true;
        } else if (links_ready(engine->peers.links, i)) {
            send_message(engine, i, &m);
        } else { /* nobody there has joined, or everybody has left */
            set_mask(engine, set, i, c->answer[i].missing);
            c->answer[i].here = true;
        }
    }
}

/* The operation that ranks of this host are in, or will begin next. */
static uint32_t current_operation(const struct engine *engine, uint32_t slot)
{
    uint32_t next = atomic_load(&region_slot(&engine->region, slot)->settled) + 1;
    const struct name *n = &engine->names.name[slot];
    return n->has_view ? rank_link_operation(engine, &n->view, next) : next;
}

/* Another host has waited for too long. If all hosts were known to have that operation a moment ago, the
 * other host does not know yet, and waits for no rank. */
static bool is_behind(const struct engine *engine, uint32_t slot, bool gives_up, uint64_t now)
{
    uint64_t limit = gives_up ? engine->stall.give_up_ns : engine->stall.warn_ns;
    uint64_t due = slot == UINT32_MAX ? 0 : region_slot(&engine->region, slot)->due;

    return due != 0 && now - due < limit / 2;
}

static void open_case(struct engine *engine, uint32_t slot, const struct message *m, uint64_t now)
{
    struct stall_case *c = place_of_case(engine->stalls, slot, m->gives_up);
    if (!c) {
        engine->stalls->more++;
        return;
    }
    if (c->used && c->slot == slot && c->operation == m->operation && (c->gives_up || !m->gives_up))
        return;
    close_case(engine, c);
    c->answer = calloc(engine->hosts, sizeof *c->answer);
    if (!c->answer)
        return; /* it will not be told */
    c->used = true;
    c->slot = slot;
    engine->names.name[slot].watched = true;
    c->operation = m->operation;
    c->kind = m->kind;
    c->gives_up = m->gives_up;
    c->since = now - (m->gives_up ? engine->stall.give_up_ns : engine->stall.warn_ns);
    c->until = now + STALL_ANSWER_NS;
    ask_hosts(engine, c);
}

static void report_suspicion(struct engine *engine, uint32_t slot, struct message *m, uint64_t now)
{
    const struct set *set = engine->names.name[slot].set;
    uint32_t i = 0;
    while (i < set->self && !links_ready(engine->peers.links, set->host[i]))
        i++;
    if (i == set->self) {
        open_case(engine, slot, m, now);
        return;
    }
    m->what = SUSPICION;
    m->set = engine->names.name[slot].set->team->id;
    snprintf(m->name, sizeof m->name, "%s", engine->names.name[slot].text);
    send_message(engine, set->host[i], m);
}

static unsigned long long seconds_of(uint64_t ns)
{
    return (unsigned long long)((ns + NSEC_PER_SEC / 2) / NSEC_PER_SEC);
}

/* The missing ranks of all hosts are what the job cannot go on with. */
static void tell_fault(struct engine *engine, const struct stall_case *c, const char *text)
{
    const struct set *set = engine->names.name[c->slot].set;
    uint32_t *worker = calloc(engine->size, sizeof *worker), count = 0;
    for (uint32_t n = 0; worker && n < set->hosts; n++) {
        const struct host *h = &engine->host[set->host[n]];
        for (uint32_t i = 0; i < h->ranks; i++)
            if (c->answer[set->host[n]].missing[i / 8] & (1 << (i % 8)))
                worker[count++] = h->worker ? h->worker[i] : h->rank[i];
    }
    engine_fault_of(engine, text, worker, count);
    free(worker);
}

static void tell_stall(struct engine *engine, struct stall_case *c, const char *ranks, uint64_t now)
{
    const char *kind = op_kind_name(c->kind), *name = engine->names.name[c->slot].text;
    char text[SHM_TEXT_MAX];
    if (!c->gives_up) {
        snprintf(text, sizeof text, "tensor \"%.100s\": %s has waited %llu s for %s", name, kind,
                 seconds_of(now - c->since), ranks);
        engine_notice_stall(engine, text);
        return;
    }
    snprintf(
        text, sizeof text,
        "tensor \"%.100s\": %s was given up after %llu s (--stall-check-shutdown-time-seconds); it still "
        "waited for %s",
        name, kind, seconds_of(now - c->since), ranks);
    tell_fault(engine, c, text);
    engine_poison(engine, HVD_ERR_PEER, text);
}

/* All have answered, or had the time to. */
static void conclude_case(struct engine *engine, struct stall_case *c, uint64_t now)
{
    const struct set *set = engine->names.name[c->slot].set;
    struct stall_ranks ranks = {0};
    for (uint32_t n = 0, i; n < set->hosts; n++) {
        i = set->host[n];
        const struct host *h = &engine->host[i];
        if (!c->answer[i].here)
            set_mask(engine, set, i, c->answer[i].missing);
        stall_ranks_add(&ranks, h->name, h->rank, h->ranks, c->answer[i].missing,
                        c->answer[i].here ? "" : " (its engine does not answer)");
    }
    c->told = ranks.hosts > 0;
    if (c->told) {
        c->missing = strdup(stall_ranks_end(&ranks));
        tell_stall(engine, c, stall_ranks_end(&ranks), now);
    }
    free(c->answer);
    c->answer = NULL;
    if (!c->told)
        close_case(engine, c); /* they have come meanwhile */
}

static void look_at_case(struct engine *engine, struct stall_case *c, uint64_t now)
{
    const struct set *set = engine->names.name[c->slot].set;
    bool all = true;
    if (has_gone_on(engine, c)) {
        char text[SHM_TEXT_MAX];
        snprintf(text, sizeof text, "tensor \"%.100s\": %s goes on after %llu s",
                 engine->names.name[c->slot].text, op_kind_name(c->kind), seconds_of(now - c->since));
        if (c->told)
            engine_notice(engine, LOG_WARNING, text);
        close_case(engine, c);
        return;
    }
    for (uint32_t i = 0; c->answer && i < set->hosts; i++)
        all = all && c->answer[set->host[i]].here;
    if (c->answer && (all || now >= c->until))
        conclude_case(engine, c, now);
}

/* ---- the ways in ----------------------------------------------------------------------------------- */

static void look_at_slots(struct engine *engine, uint64_t now)
{
    engine->stalls->more = 0;
    for (uint32_t slot = 0; slot < engine->names.count; slot++) {
        struct message m = {0};
        bool pending = stalls_is_pending(engine, slot, &m.operation, &m.kind);
        enum stall_news news = stall_seen(&engine->stall, slot, m.operation, !pending, now);
        m.gives_up = news == STALL_GIVE_UP;
        if (news != STALL_NONE)
            report_suspicion(engine, slot, &m, now);
    }
    if (engine->stalls->more == 0)
        return;
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "%u more tensors wait for other ranks", engine->stalls->more);
    engine_notice(engine, LOG_WARNING, text);
}

/* Looks for stalls, and after those that were found. */
static void progress_stalls(struct engine *engine, uint64_t now)
{
    uint64_t period = stall_period(&engine->stall);
    if (period == 0 || region_poisoned(&engine->region))
        return;
    if (!make_stalls(engine))
        return;
    if (now >= engine->stalls->look_at) {
        look_at_slots(engine, now);
        engine->stalls->look_at = now + period;
    }
    for (int i = 0; i < STALL_CASES && !region_poisoned(&engine->region); i++)
        if (engine->stalls->open[i].used)
            look_at_case(engine, &engine->stalls->open[i], now);
}

/* As the coordinator has found out; else those of this host. */
static void say_missing(const struct engine *engine, struct stall_told *t)
{
    const struct host *here = &engine->host[engine->self];
    const struct stall_case *c = engine->stalls ? find_case(engine->stalls, t->slot) : NULL;
    struct stall_ranks ranks = {0};
    uint8_t missing[MISSING_BYTES];
    own_missing(engine, engine->names.name[t->slot].set, t->slot, t->operation, missing);
    stall_ranks_add(&ranks, here->name, here->rank, here->ranks, missing, "");
    bool known = c && c->missing && c->operation == t->operation;
    snprintf(t->missing, sizeof t->missing, "%s", known ? c->missing : stall_ranks_end(&ranks));
}

uint32_t stalls_now(const struct engine *engine, uint64_t now, struct stall_told *told, uint32_t most)
{
    uint32_t all = 0;
    for (uint32_t slot = 0; slot < engine->names.count; slot++) {
        struct stall_told t = {.since = engine->stall.slot[slot].since, .slot = slot};
        uint8_t kind = 0;
        if (t.since == 0 || now - t.since < STALL_SHOWN_NS ||
            !stalls_is_pending(engine, slot, &t.operation, &kind) ||
            t.operation != engine->stall.slot[slot].operation)
            continue;
        t.tensor = engine->names.name[slot].text;
        t.kind = op_kind_name(kind);
        uint32_t at = all++;
        for (at = at < most ? at : most; at > 0 && told[at - 1].since > t.since; at--)
            if (at < most)
                told[at] = told[at - 1];
        if (at < most)
            told[at] = t;
    }
    for (uint32_t i = 0; i < all && i < most; i++)
        say_missing(engine, &told[i]);
    return all;
}

static int receive_stall(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct message m = {0};
    if (read_message(engine, from, data, size, &m, e) != 0)
        return -1;
    if (!make_stalls(engine))
        return err_set(e, ERR_MEMORY, "no memory for a stalled tensor");
    struct set *set = sets_find(engine, m.set);
    if (!set || set->self == UINT32_MAX)
        return 0; /* it was removed, or is not known here yet: nobody can wait in it */
    uint32_t slot = names_find(engine, set, m.name);
    if (m.what == QUESTION) {
        m.what = ANSWER;
        m.ranks = engine->workers.members;
        if (!is_behind(engine, slot, m.gives_up, clock_now()))
            own_missing(engine, set, slot, slot == UINT32_MAX ? 0 : current_operation(engine, slot),
                        m.missing);
        send_message(engine, from, &m);
    } else if (m.what == SUSPICION) {
        if (!is_behind(engine, slot, m.gives_up, clock_now()) &&
            forget_for(engine, set, m.name, &slot, NULL) == HVD_SUCCESS) {
            m.operation = current_operation(engine, slot);
            open_case(engine, slot, &m, clock_now());
        }
    } else {
        struct stall_case *c = slot == UINT32_MAX ? NULL : find_case(engine->stalls, slot);
        if (c && c->answer && c->operation == m.operation) {
            memcpy(c->answer[from].missing, m.missing, MISSING_BYTES);
            c->answer[from].here = true;
            look_at_case(engine, c, clock_now());
        }
    }
    return 0;
}

static void end_stalls(struct engine *engine)
{
    progress_stalls(engine, clock_now()); /* cases that have gone on are told while their names are known */
    free_stalls(engine);
    memset(engine->stall.slot, 0, sizeof engine->stall.slot);
}

const struct engine_part stalls_part = {.epoch_end = end_stalls,
                                        .beat = progress_stalls,
                                        .messages = 1u << PEER_STALL,
                                        .message = receive_stall,
                                        .free = free_stalls};
