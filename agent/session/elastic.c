/* A session of an elastic job: the memberships that it has seen, and the wishes that users tell it: another
 * number of ranks, or that the ranks of this host leave. The launcher decides (launcher/elastic/). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/protocol/message.h"
#include "common/status/status_server.h"

#define SEEN_MAX 32 /* memberships that are kept */

struct seen {
    uint32_t number, size, left, came;
    uint64_t named, decided_ns, entered_ns, state_ns, step_ns;
    char reason[200];
};

struct session_elastic {
    bool leaves;       /* the launcher was asked to let the ranks here go */
    struct seen *seen; /* [SEEN_MAX], the oldest first */
    size_t count;
    uint32_t *worker, *rank; /* [count_here], of the present membership */
    size_t count_here;
    char why[120]; /* the last refusal */
    Hvd__MembershipStatus told[SEEN_MAX], *list[SEEN_MAX];
};

/* ---- memberships --------------------------------------------------------------------------------------- */

static struct seen *newest(const struct session_elastic *own)
{
    return own->count ? &own->seen[own->count - 1] : NULL;
}

static void keep_seats(struct session_elastic *own, const Hvd__Membership *m)
{
    const Hvd__HostRanks *here = m->host_index < m->n_host ? m->host[m->host_index] : NULL;
    size_t n = here && here->n_rank == here->n_worker ? here->n_rank : 0;
    uint32_t *worker = malloc((n ? n : 1) * sizeof *worker), *rank = malloc((n ? n : 1) * sizeof *rank);
    free(own->worker);
    free(own->rank);
    own->count_here = worker && rank ? n : 0;
    own->worker = worker;
    own->rank = rank;
    if (own->count_here) {
        memcpy(worker, here->worker, n * sizeof *worker);
        memcpy(rank, here->rank, n * sizeof *rank);
    }
}

static void keep_membership(struct session_elastic *own, const Hvd__Membership *m)
{
    if (!own->seen)
        own->seen = calloc(SEEN_MAX, sizeof *own->seen);
    if (!own->seen)
        return;
    if (own->count == SEEN_MAX)
        memmove(own->seen, own->seen + 1, --own->count * sizeof *own->seen);
    struct seen *n = &own->seen[own->count++];
    *n = (struct seen){.number = m->number,
                       .size = m->size,
                       .left = m->left,
                       .came = m->came,
                       .named = clock_now(),
                       .decided_ns = m->decided_ns};
    snprintf(n->reason, sizeof n->reason, "%s", m->reason);
}

const char *session_membership(struct session *s, const Hvd__Control *m)
{
    if (!s->spawn->elastic)
        return "the job is not elastic";
    keep_seats(s->elastic, m->membership);
    keep_membership(s->elastic, m->membership);
    session_engine_membership(s, m->membership);
    return NULL;
}

void session_rank_entered(struct session *s, const Hvd__EngineRank *rank)
{
    struct seen *n = newest(s->elastic);
    if (n && rank->membership == n->number)
        n->entered_ns = clock_now() - n->named; /* the last one's stays */
}

void session_rank_stage(struct session *s, const Hvd__EngineRank *rank)
{
    struct seen *n = newest(s->elastic);
    if (!n || rank->membership != n->number)
        return;
    if (rank->stage == HVD__STAGE__STAGE_STATE)
        n->state_ns = clock_now() - n->named;
    else
        n->step_ns = clock_now() - n->named;
}

/* ---- for hvdctl status --------------------------------------------------------------------------------- */

uint32_t session_member_rank(const struct session *s, uint32_t worker)
{
    const struct session_elastic *own = s->elastic;
    if (own->count == 0)
        return s->spawn->newcomer ? UINT32_MAX : worker;
    for (size_t i = 0; i < own->count_here; i++)
        if (own->worker[i] == worker)
            return own->rank[i];
    return UINT32_MAX;
}

void session_tell_memberships(struct session *s, Hvd__JobStatus *out)
{
    struct session_elastic *own = s->elastic;
    uint64_t now = clock_now();
    out->elastic = s->spawn->elastic;
    if (!out->elastic)
        return;
    out->membership = s->spawn->newcomer ? 0 : 1;
    for (size_t i = 0; i < own->count; i++) {
        const struct seen *n = &own->seen[i];
        Hvd__MembershipStatus *m = own->list[i] = &own->told[i];
        hvd__membership_status__init(m);
        m->number = out->membership = n->number;
        m->size = out->size = n->size;
        m->left = n->left;
        m->came = n->came;
        m->reason = (char *)(uintptr_t)n->reason;
        m->age_ms = (now - n->named) / NSEC_PER_MSEC;
        m->decided_ns = n->decided_ns;
        m->entered_ns = n->entered_ns;
        m->state_ns = n->state_ns;
        m->step_ns = n->step_ns;
    }
    out->change = own->list;
    out->n_change = own->count;
}

/* ---- wishes of users ----------------------------------------------------------------------------------- */

const char *session_ask_resize(struct session *s, uint32_t ranks, const char *by)
{
    const Hvd__Spawn *spawn = s->spawn;
    const char *why;
    if (!spawn || !spawn->elastic)
        return STATUS_NOT_ELASTIC;
    if (s->fsm.state > SESSION_DONE || s->launcher.lost)
        return "the job ends";
    why = status_refuse_ranks(ranks, spawn->least, spawn->most, s->elastic->why, sizeof s->elastic->why);
    if (why)
        return why;
    Hvd__Resize resize = HVD__RESIZE__INIT;
    resize.ranks = ranks;
    resize.by = (char *)(uintptr_t)by;
    CONTROL(m, RESIZE, resize, &resize);
    session_send_control(s, &m);
    return NULL;
}

const char *session_ask_leave(struct session *s, const char *reason)
{
    if (!s->spawn || !s->spawn->elastic)
        return "the job is not elastic: its ranks cannot leave";
    if (s->fsm.state > SESSION_DONE || s->launcher.lost)
        return "the job ends";
    Hvd__Leave leave = HVD__LEAVE__INIT;
    s->elastic->leaves = true;
    leave.reason = (char *)(uintptr_t)reason;
    CONTROL(m, LEAVE, leave, &leave);
    session_send_control(s, &m);
    return NULL;
}

bool session_leaves(const struct session *s)
{
    return s->elastic->leaves;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static void free_elastic(struct session *s)
{
    free(s->elastic->seen);
    free(s->elastic->worker);
    free(s->elastic->rank);
}

const struct session_part session_part_elastic = {
    .name = "elastic",
    .state = SESSION_STATE(elastic),
    .free = free_elastic,
};
