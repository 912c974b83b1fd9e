#include "launcher/elastic/elastic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/elastic/state.h"

#define TOGETHER_MS 1000
#define REPORTS_MS  50 /* in which engines tell of a host that they cannot reach, before it is dropped */

/* ---- for the dispatcher -------------------------------------------------------------------------------- */

bool elastic_goes_on(const struct job *j)
{
    return j->config->elastic && j->planned && !j->outcome.failed && !elastic_of(j)->finishing &&
           (j->fsm.state == JOB_STARTING || j->fsm.state == JOB_RUNNING);
}

uint32_t *elastic_workers_of(const struct job *j, uint32_t host, uint32_t *count)
{
    const struct roster *r = &elastic_of(j)->roster;
    uint32_t *worker = malloc((r->count + 1) * sizeof *worker);
    *count = 0;
    for (uint32_t w = 0; worker && w < r->count; w++)
        if (r->worker[w].host == host)
            worker[(*count)++] = w;
    return worker;
}

struct outcome *elastic_outcome(struct job *j, uint32_t rank)
{
    if (!j->config->elastic || !j->planned || j->outcome.failed)
        return &j->outcome;
    struct elastic *s = elastic_of(j);
    bool needless = roster_rank_of(&s->roster, rank) == UINT32_MAX || s->roster.worker[rank].leaves;
    if (needless || (s->finishing && roster_is_needless(&s->roster, rank)))
        return &s->needless;
    return elastic_goes_on(j) ? &s->trouble : &j->outcome;
}

bool elastic_survives_host(struct job *j, struct host *h)
{
    if (j->config->elastic && (elastic_host_of(j, h)->dropped || elastic_host_of(j, h)->released))
        return true; /* its loss was told, or it had no workers any more */
    if (j->config->elastic && j->planned && !h->planned && elastic_of(j)->finishing)
        return true; /* it would have come too late */
    if (!elastic_goes_on(j))
        return false;
    struct elastic *s = elastic_of(j);
    char text[ERR_TEXT_MAX + 400];
    if (!h->planned && h->lease.busy) {
        growth_pause(j, h);
        elastic_note(j);
        return true;
    }
    snprintf(text, sizeof text, h->planned ? "host %s was lost: %s" : "host %s cannot be used: %s", h->label,
             h->err.text);
    if (h->planned)
        outcome_fault(&s->trouble, clock_now(), 125, text, h->err.hint);
    else
        log_warning("%s", text);
    growth_blame(j, h);
    elastic_note(j);
    return true;
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

/* The job cannot go on, because of `why` and of what went before. */
static void give_up(struct job *j, const char *why)
{
    struct elastic *s = elastic_of(j);
    log_error("the job cannot go on: %s", why);
    if (!elastic_cause(s)->failed)
        outcome_fault(&s->trouble, clock_now(), 125, why, NULL);
    j->outcome = *elastic_cause(s);
    job_failed(j);
}

static void say_short(const struct job *j, char *text, size_t size)
{
    const struct roster *r = &elastic_of(j)->roster;
    uint32_t have = roster_staying(r) + roster_ready(r);
    snprintf(text, size, "%u rank%s left of at least %lld (--min-np)", have, have == 1 ? " is" : "s are",
             (long long)j->config->min_np);
}

static void on_slots_limit(struct job *j)
{
    char few[120], text[200];
    say_short(j, few, sizeof few);
    snprintf(text, sizeof text, "%s, and no others came within %.10g s (--elastic-timeout)", few,
             (double)j->config->elastic_timeout_ms / 1e3);
    give_up(j, text);
}

/* Too few ranks are left. */
static void wait_for_slots(struct job *j)
{
    struct elastic *s = elastic_of(j);
    char few[120];
    say_short(j, few, sizeof few);
    growth_fill(j);
    if (!growth_may_come(j)) {
        give_up(j, few);
        return;
    }
    if (!s->told_short)
        log_say("hvdrun: %s%s%s; waiting for hosts\n", s->trouble.failed ? s->trouble.text : "",
                s->trouble.failed ? "; " : "", few);
    s->told_short = true;
    if (!job_timer_runs(j, JOB_TIMER_SLOTS))
        job_timer_start(j, JOB_TIMER_SLOTS, (uint64_t)j->config->elastic_timeout_ms, on_slots_limit);
}

/* Ranks are to leave, but too few would be left: they train on until others come. */
static void stay_for_now(struct job *j)
{
    struct elastic *s = elastic_of(j);
    char few[120];
    say_short(j, few, sizeof few);
    if (!s->told_stay)
        log_say("hvdrun: without the hosts that are to go, %s; the ranks go on until others come\n", few);
    s->told_stay = true;
}

static void begin_change(struct job *j, bool at_once)
{
    struct elastic *s = elastic_of(j);
    if (!change_begin(j, at_once))
        return; /* considered again when the engine listens */
    s->told_short = false;
    job_timer_stop(j, JOB_TIMER_SLOTS);
}

/* Workers that were started together come in one membership, if they are ready at about the same time. */
static bool waits_for_others(struct job *j)
{
    struct elastic *s = elastic_of(j);
    uint64_t now = clock_now(), until = s->ready_since + TOGETHER_MS * NSEC_PER_MSEC;
    if (roster_starting(&s->roster) == 0 || now >= until)
        return false;
    if (!job_timer_runs(j, JOB_TIMER_TOGETHER))
        job_timer_start(j, JOB_TIMER_TOGETHER, (until - now) / NSEC_PER_MSEC + 1, elastic_note);
    return true;
}

/* Ranks may come or go when the present membership is complete, and it pays. */
static bool wants_change(struct job *j)
{
    const struct roster *r = &elastic_of(j)->roster;
    if (roster_all_wait(r))
        return true;
    if (!roster_is_settled(r))
        return false;
    if (roster_ready(r) > 0 && waits_for_others(j))
        return false;
    return roster_has_leavers(r) || (roster_ready(r) > 0 && roster_staying(r) < elastic_most(j));
}

/* The training is done. Workers that would only wait are ended. */
static void end_needless(struct job *j)
{
    struct elastic *s = elastic_of(j);
    for (uint32_t i = 0; i < s->roster.count; i++) {
        bool leaver = roster_rank_of(&s->roster, i) == UINT32_MAX;
        if (!j->rank[i].exited && (leaver || roster_is_needless(&s->roster, i)))
            change_kill(j, i);
    }
}

/* Workers that were to come, and are not wanted any more before they came. */
static void end_unseated(struct job *j)
{
    const struct roster *r = &elastic_of(j)->roster;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct roster_worker *w = &r->worker[i];
        if (w->phase == ROSTER_MEMBER && w->leaves && !w->trained && !w->first &&
            roster_rank_of(r, i) == UINT32_MAX && !j->rank[i].exited)
            change_kill(j, i);
    }
}

static void consider_change(struct job *j)
{
    struct elastic *s = elastic_of(j);
    struct roster *r = &s->roster;
    if (s->finishing)
        end_needless(j);
    if (!elastic_goes_on(j)) {
        growth_release(j);
        return;
    }
    uint32_t staying = roster_staying(r), have = staying + roster_ready(r);
    bool broken = roster_is_broken(r), enough = have >= (uint64_t)j->config->min_np;
    if (!roster_has_holder(r))
        give_up(j, "no rank is left that has the state of the training");
    else if (broken && enough)
        begin_change(j, true);
    else if (broken || (roster_all_wait(r) && !enough))
        wait_for_slots(j);
    else if (wants_change(j) && enough)
        begin_change(j, false);
    else if (wants_change(j))
        stay_for_now(j);
    else
        s->told_stay = false;
    end_unseated(j);
    if (elastic_goes_on(j)) {
        growth_release(j);
        growth_fill(j);
    }
}

void elastic_note(struct job *j)
{
    if (!job_timer_runs(j, JOB_TIMER_CONSIDER))
        job_timer_start(j, JOB_TIMER_CONSIDER, 0, consider_change);
}

/* ---- hosts that are given up --------------------------------------------------------------------------- */

static bool is_in_membership(const struct job *j, const struct host *h)
{
    const struct roster *r = &elastic_of(j)->roster;
    for (uint32_t i = 0; h->planned && i < r->size; i++)
        if (r->worker[r->rank[i]].host == h->plan_index && r->worker[r->rank[i]].phase == ROSTER_MEMBER)
            return true;
    return false;
}

/* Its ranks end; the others go on. */
static void drop_host(struct job *j, struct host *h, const char *why)
{
    struct elastic *s = elastic_of(j);
    struct elastic_host *own = elastic_host_of(j, h);
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    char text[ERR_TEXT_MAX + 400];
    if (own->dropped)
        return;
    own->dropped = clock_now();
    snprintf(text, sizeof text, "host %s: %.800s", h->label, why);
    if (is_in_membership(j, h))
        outcome_fault(&s->trouble, own->dropped, 125, text, NULL);
    else
        log_warning("%s", text);
    growth_blame(j, h);
    teardown.reason = text;
    teardown.cause = HVD__CAUSE__CAUSE_FAULT;
    host_teardown(h, &teardown);
    for (uint32_t i = 0; i < s->roster.count; i++)
        if (h->planned && s->roster.worker[i].host == h->plan_index)
            s->roster.worker[i].phase = ROSTER_GONE;
    elastic_note(j);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static const char NOT_THERE[] = "that worker is not there", NOT_ELASTIC[] = "the job is not elastic";

static const char *on_waits(struct job *j, struct host *h, const Hvd__Control *m)
{
    if (!j->config->elastic)
        return NOT_ELASTIC;
    if (!job_rank_of_host(j, h, m->waits->rank))
        return NOT_THERE;
    change_waits(j, m->waits->rank, m->waits->membership);
    elastic_note(j);
    return NULL;
}

static const char *on_entered(struct job *j, struct host *h, const Hvd__Control *m)
{
    if (!j->config->elastic)
        return NOT_ELASTIC;
    if (!job_rank_of_host(j, h, m->entered->rank))
        return NOT_THERE;
    change_entered(j, m->entered->rank, m->entered->membership);
    if (roster_is_settled(&elastic_of(j)->roster))
        elastic_note(j);
    return NULL;
}

static const char *on_stage(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct elastic *s = elastic_of(j);
    struct elastic_change *c = j->config->elastic && s->changes ? &s->change[s->changes - 1] : NULL;
    if (!job_rank_of_host(j, h, m->stage->rank))
        return NOT_THERE;
    if (c && c->number == m->stage->membership) {
        uint64_t *last = m->stage->stage == HVD__STAGE__STAGE_STATE ? &c->state : &c->stepped;
        *last = clock_now();
    }
    return NULL;
}

/* A rank that calls hvd_abort is none from now on; dispatch.c keeps its sentence. */
static const char *on_gave_up(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct elastic *s = elastic_of(j);
    uint32_t worker = m->gave_up->rank;
    char text[ERR_TEXT_MAX + 200];
    if (!elastic_goes_on(j) || !job_rank_of_host(j, h, worker) || j->rank[worker].exited)
        return job_not_mine;
    snprintf(text, sizeof text, "rank %u on %s (worker %u, pid %u) gave up: %.300s",
             roster_rank_of(&s->roster, worker), h->label, worker, j->rank[worker].pid, m->gave_up->text);
    outcome_fault(&s->trouble, clock_now(), 1, text, NULL);
    s->roster.worker[worker].phase = ROSTER_GONE;
    elastic_happened(j, 0);
    growth_blame(j, h);
    elastic_note(j);
    return job_not_mine;
}

/* Workers that the others have waited for too long are ended; the others go on. */
static void end_stalled(struct job *j, const Hvd__Fault *fault)
{
    struct elastic *s = elastic_of(j);
    log_printable(fault->text);
    outcome_fault(&s->trouble, clock_now(), 125, fault->text, NULL);
    for (size_t i = 0; i < fault->n_stalled; i++) {
        uint32_t worker = fault->stalled[i];
        if (worker >= s->roster.count || s->roster.worker[worker].phase != ROSTER_MEMBER)
            continue;
        s->roster.worker[worker].phase = ROSTER_GONE;
        elastic_happened(j, 0);
        growth_blame(j, job_host_of_rank(j, worker));
        change_kill(j, worker);
    }
    elastic_note(j);
}

static const char *on_fault(struct job *j, struct host *h, const Hvd__Control *m)
{
    if (!elastic_goes_on(j))
        return job_not_mine;
    if (m->fault->n_stalled > 0)
        end_stalled(j, m->fault);
    else
        drop_host(j, h, m->fault->text);
    return NULL;
}

static const char *on_refused(struct job *j, struct host *h, const Hvd__Control *m)
{
    if (!elastic_goes_on(j) || j->fsm.state != JOB_RUNNING)
        return job_not_mine;
    drop_host(j, h, m->refused->text);
    return NULL;
}

/* Of two hosts that cannot reach each other one has to go: the one that most others cannot reach, or else the
 * one whose ranks are the younger. */
static void judge_reports(struct job *j)
{
    struct host *worst = NULL;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        const struct elastic_host *own = elastic_host_of(j, h);
        if (own->reports > 0 && host_state(h) == HOST_RUNNING && !own->dropped &&
            (!worst || own->reports >= elastic_host_of(j, worst)->reports))
            worst = h;
    }
    for (uint32_t i = 0; i < j->host_count; i++)
        elastic_host_of(j, &j->host[i])->reports = 0;
    if (worst && elastic_goes_on(j))
        drop_host(j, worst, "other hosts cannot reach it over their data links");
}

static const char *on_unreachable(struct job *j, struct host *h, const Hvd__Control *m)
{
    uint32_t id = m->unreachable->id;
    if (!j->config->elastic)
        return NOT_ELASTIC;
    if (id >= j->host_count || &j->host[id] == h)
        return "it names no other host";
    if (!elastic_goes_on(j) || !is_in_membership(j, h) || !is_in_membership(j, &j->host[id]))
        return NULL;
    elastic_host_of(j, &j->host[id])->reports++;
    if (!job_timer_runs(j, JOB_TIMER_REPORTS))
        job_timer_start(j, JOB_TIMER_REPORTS, REPORTS_MS, judge_reports);
    return NULL;
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_WAITS, true, on_waits},      {HVD__CONTROL__BODY_ENTERED, true, on_entered},
    {HVD__CONTROL__BODY_STAGE, true, on_stage},      {HVD__CONTROL__BODY_UNREACHABLE, true, on_unreachable},
    {HVD__CONTROL__BODY_GAVE_UP, true, on_gave_up},  {HVD__CONTROL__BODY_RESIZE, true, wish_resize},
    {HVD__CONTROL__BODY_LEAVE, true, wish_leave},    {HVD__CONTROL__BODY_FAULT, false, on_fault},
    {HVD__CONTROL__BODY_REFUSED, false, on_refused}, {0, false, NULL},
};

/* ---- hooks --------------------------------------------------------------------------------------------- */

static int open_elastic(struct job *j, struct err *e)
{
    return j->config->elastic ? growth_open(j, e) : 0;
}

static int place_workers(struct job *j, struct err *e)
{
    struct elastic *s = elastic_of(j);
    if (!j->config->elastic)
        return 0;
    if (roster_init(&s->roster, j->room.ranks) < 0)
        return err_set(e, ERR_MEMORY, "no memory for %u workers", j->room.ranks);
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        growth_note_lease(j, job_host_of_plan(j, i), j->plan.host[i].ranks);
    for (uint32_t i = 0; i < j->plan.size; i++)
        roster_add(&s->roster, j->plan.rank[i].host, j->plan.rank[i].local_rank);
    return roster_begin(&s->roster) < 0 ? err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size) : 0;
}

static void on_started(struct job *j)
{
    if (!j->config->elastic)
        return;
    j->common.hold = false;
    growth_start(j);
    elastic_note(j);
}

static void on_host_ready(struct job *j, struct host *h, const Hvd__Welcome *w)
{
    if (j->config->elastic && j->fsm.state >= JOB_STARTING)
        growth_host_ready(j, h, w);
}

static void on_engine_listens(struct job *j, struct host *h)
{
    (void)h;
    if (j->config->elastic)
        elastic_note(j);
}

/* The cause by the rank that the worker had, which its number need not be. */
static void on_rank_ended(struct job *j, uint32_t worker)
{
    struct elastic *s = elastic_of(j);
    const struct rank_state *state = &j->rank[worker];
    char how[RANK_END_TEXT];
    if (!j->config->elastic || !s->trouble.failed || !s->trouble.first_is_rank ||
        s->trouble.end.rank != worker || s->trouble.time != state->ended)
        return;
    uint32_t rank = roster_rank_of(&s->roster, worker);
    rank_end_describe(&state->end, how, sizeof how);
    snprintf(s->trouble.text, sizeof s->trouble.text, "rank %u on %s (worker %u, pid %u) failed: %s",
             rank == UINT32_MAX ? worker : rank, job_host_of_rank(j, worker)->label, worker, state->pid, how);
    log_printable(s->trouble.text);
}

/* It would fail again on the same host. */
static void blame_newcomer(struct job *j, uint32_t worker)
{
    char how[RANK_END_TEXT];
    struct host *h = job_host_of_rank(j, worker);
    rank_end_describe(&j->rank[worker].end, how, sizeof how);
    log_printable(how);
    log_warning("worker %u on %s ended before it was a rank: %s", worker, h->label, how);
    growth_blame(j, h);
}

static void on_rank_gone(struct job *j, uint32_t worker)
{
    struct elastic *s = elastic_of(j);
    const struct rank_state *state = &j->rank[worker];
    if (!j->config->elastic)
        return;
    struct roster_worker *w = &s->roster.worker[worker];
    bool seated = w->phase != ROSTER_GONE && roster_rank_of(&s->roster, worker) != UINT32_MAX;
    bool member = seated && !w->leaves;
    bool well = state->ended && !rank_end_failed(&state->end) && !state->end.by_us;
    bool newcomer = (w->phase == ROSTER_STARTS || w->phase == ROSTER_READY) && !w->leaves;
    w->phase = ROSTER_GONE;
    if (member)
        elastic_happened(j, state->ended);
    if (!state->started)
        output_abandon(j->output, &worker, 1); /* it could not be started */
    if (member && state->ended && rank_end_failed(&state->end) && !state->end.told_peer && elastic_goes_on(j))
        growth_blame(j, job_host_of_rank(j, worker));
    if (newcomer && state->ended && rank_end_failed(&state->end) && !state->end.by_us && elastic_goes_on(j))
        blame_newcomer(j, worker);
    if (seated && well && elastic_goes_on(j)) { /* also one that was to leave, and was still needed */
        s->finishing = true;
        growth_close(j);
    }
    elastic_note(j);
}

static void on_ending(struct job *j)
{
    if (j->config->elastic)
        growth_close(j);
}

static void free_elastic(struct job *j)
{
    struct elastic *s = elastic_of(j);
    if (!j->config->elastic)
        return;
    growth_free(j);
    roster_free(&s->roster);
    free(s->change);
}

const struct job_part part_elastic = {
    .state_size = sizeof(struct elastic),
    .host_state_size = sizeof(struct elastic_host),
    .message = messages,
    .open = open_elastic,
    .placed = place_workers,
    .started = on_started,
    .host_ready = on_host_ready,
    .engine_listens = on_engine_listens,
    .rank_ended = on_rank_ended,
    .rank_gone = on_rank_gone,
    .ending = on_ending,
    .report = change_report,
    .free = free_elastic,
};
