/* The next membership of an elastic job: named, sent to all sessions, entered by its ranks in time. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/elastic/roster.h"
#include "launcher/elastic/state.h"
#include "launcher/parts/parts.h"

#define NO_HOST UINT32_MAX

/* ---- the message --------------------------------------------------------------------------------------- */

/* A host of the membership. */
struct seat {
    uint32_t plan_host, count;
    uint32_t *rank, *worker; /* [count] */
};

struct seating {
    struct seat *seat;
    uint32_t count;
    uint32_t *numbers; /* memory of all lists */
};

static void seating_free(struct seating *s)
{
    free(s->seat);
    free(s->numbers);
}

static struct seat *find_seat(struct seating *s, uint32_t plan_host)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->seat[i].plan_host == plan_host)
            return &s->seat[i];
    s->seat[s->count] = (struct seat){.plan_host = plan_host};
    return &s->seat[s->count++];
}

/* The hosts in the order of their lowest ranks; on each the ranks ascending. */
static int seating_make(struct seating *s, const struct roster *r)
{
    *s = (struct seating){.seat = calloc(r->size ? r->size : 1, sizeof *s->seat),
                          .numbers = calloc(2 * (size_t)r->size + 1, sizeof *s->numbers)};
    if (!s->seat || !s->numbers) {
        seating_free(s);
        return -1;
    }
    for (uint32_t i = 0; i < r->size; i++)
        find_seat(s, r->worker[r->rank[i]].host)->count++;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        s->seat[i].rank = s->numbers + at;
        s->seat[i].worker = s->numbers + r->size + at;
        at += s->seat[i].count;
        s->seat[i].count = 0;
    }
    for (uint32_t i = 0; i < r->size; i++) {
        struct seat *seat = find_seat(s, r->worker[r->rank[i]].host);
        seat->rank[seat->count] = i;
        seat->worker[seat->count++] = r->rank[i];
    }
    return 0;
}

static void fill_seat(const struct job *j, const struct seat *seat, uint32_t index, Hvd__HostRanks *host,
                      Hvd__Link *link)
{
    hvd__host_ranks__init(host);
    host->name = (char *)(uintptr_t)j->host_names[seat->plan_host];
    host->id = j->plan.host[seat->plan_host].index;
    host->first_rank = seat->rank[0];
    host->ranks = seat->count;
    host->rank = seat->rank;
    host->worker = seat->worker;
    host->n_rank = host->n_worker = seat->count;
    *link = *links_of_engine(j, seat->plan_host);
    link->host = index;
}

static uint32_t index_of(const struct seating *s, uint32_t plan_host)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->seat[i].plan_host == plan_host)
            return i;
    return NO_HOST;
}

static int send_membership(struct job *j, bool at_once, const struct elastic_change *c)
{
    struct elastic *s = elastic_of(j);
    struct seating seating;
    Hvd__Membership m = HVD__MEMBERSHIP__INIT;
    if (seating_make(&seating, &s->roster) < 0)
        return -1;
    Hvd__HostRanks *host = calloc(seating.count, sizeof *host),
                   **hosts = calloc(seating.count, sizeof *hosts);
    Hvd__Link *link = calloc(seating.count, sizeof *link), **links = calloc(seating.count, sizeof *links);
    bool good = host && hosts && link && links;
    for (uint32_t i = 0; good && i < seating.count; i++) {
        fill_seat(j, &seating.seat[i], i, hosts[i] = &host[i], links[i] = &link[i]);
    }
    m.number = s->roster.number;
    m.size = s->roster.size;
    m.host = hosts;
    m.link = links;
    m.n_host = m.n_link = seating.count;
    m.at_once = at_once;
    m.reason = (char *)(uintptr_t)c->cause;
    m.left = c->left;
    m.came = c->came;
    m.decided_ns = c->named - c->happened;
    CONTROL(told, MEMBERSHIP, membership, &m);
    for (uint32_t i = 0; good && i < j->plan.host_count; i++) {
        m.host_index = index_of(&seating, i);
        host_send(job_host_of_plan(j, i), &told);
    }
    free(host);
    free(hosts);
    free(link);
    free(links);
    seating_free(&seating);
    return good ? 0 : -1;
}

/* ---- words for the user -------------------------------------------------------------------------------- */

/* For the report, as far as there is memory. */
static void keep_change(struct elastic *s, const struct elastic_change *c)
{
    if (s->changes == s->change_room) {
        size_t room = s->change_room ? 2 * s->change_room : 16;
        struct elastic_change *more = realloc(s->change, room * sizeof *more);
        if (!more)
            return;
        s->change = more;
        s->change_room = room;
    }
    s->change[s->changes++] = *c;
}

/* Ranks of the membership before, in `was`, that are not in the next one; and the others way round. */
static void count_change(const struct roster *r, const uint32_t *was, uint32_t size, struct elastic_change *c)
{
    uint32_t stayed = 0;
    for (uint32_t i = 0; i < size; i++)
        stayed += roster_rank_of(r, was[i]) != UINT32_MAX;
    c->left = size - stayed;
    c->came = r->size - stayed;
    c->size = r->size;
}

static void say_change(const struct elastic_change *c)
{
    log_say("hvdrun: %s%sthe job goes on with %u rank%s (membership %u: %u left, %u came)\n", c->cause,
            *c->cause ? "; " : "", c->size, c->size == 1 ? "" : "s", c->number, c->left, c->came);
}

static struct elastic_change note_change(struct elastic *s, const uint32_t *was, uint32_t size)
{
    struct elastic_change c = {.number = s->roster.number, .named = clock_now()};
    count_change(&s->roster, was, size, &c);
    c.happened = s->happened ? s->happened : c.named;
    snprintf(c.cause, sizeof c.cause, "%.290s", s->trouble.failed ? s->trouble.text : "");
    if (c.left + c.came > 0)
        say_change(&c);
    keep_change(s, &c);
    return c;
}

/* null: nobody has said so. */
static void report_time(struct json *w, const char *name, const struct elastic_change *c, uint64_t time)
{
    if (time)
        json_real(w, name, outcome_seconds_after(c->happened, time));
    else
        json_null(w, name);
}

void change_report(const struct job *j, struct json *w)
{
    const struct elastic *s = elastic_of(j);
    if (!j->config->elastic)
        return;
    json_array(w, "memberships");
    for (size_t i = 0; i < s->changes; i++) {
        const struct elastic_change *c = &s->change[i];
        json_object(w, NULL);
        json_unsigned(w, "number", c->number);
        json_unsigned(w, "size", c->size);
        json_unsigned(w, "left", c->left);
        json_unsigned(w, "came", c->came);
        json_text(w, "cause", *c->cause ? c->cause : NULL);
        json_real(w, "at", outcome_seconds_after(j->epoch->began, c->happened));
        json_real(w, "decided_after", outcome_seconds_after(c->happened, c->named));
        report_time(w, "entered_after", c, c->entered);
        report_time(w, "state_after", c, c->state);
        report_time(w, "step_after", c, c->stepped);
        json_end(w);
    }
    json_end(w);
}

/* ---- in time ------------------------------------------------------------------------------------------- */

void change_kill(struct job *j, uint32_t worker)
{
    Hvd__Signal signal = HVD__SIGNAL__INIT;
    signal.number = SIGKILL;
    signal.ours = true;
    signal.rank = &worker;
    signal.n_rank = 1;
    CONTROL(m, SIGNAL, signal, &signal);
    host_send(job_host_of_rank(j, worker), &m);
}

static void limit_entry(struct job *j);

static void on_enter_limit(struct job *j)
{
    const struct roster *r = &elastic_of(j)->roster;
    double limit = (double)j->config->elastic_timeout_ms / 1e3;
    bool any = false;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!roster_is_late(r, i))
            continue;
        any = true;
        log_error(
            "worker %u on %s has not entered membership %u within %.10g s (--elastic-timeout): it is ended",
            i, job_host_of_rank(j, i)->label, r->number, limit);
        growth_blame(j, job_host_of_rank(j, i));
        change_kill(j, i);
    }
    if (any)
        limit_entry(j);
    else /* engines have failed without a word, or all ranks are stopped in the call */
        job_fault(j, clock_now(), 125, NULL,
                  "membership %u was not complete within %.10g s (--elastic-timeout), though all its ranks "
                  "have come to hvd_reset or hvd_init",
                  r->number, limit);
}

static void limit_entry(struct job *j)
{
    if (!job_timer_runs(j, JOB_TIMER_ENTER))
        job_timer_start(j, JOB_TIMER_ENTER, (uint64_t)j->config->elastic_timeout_ms, on_enter_limit);
}

static void complete_change(struct job *j)
{
    struct elastic *s = elastic_of(j);
    struct elastic_change *c = s->changes ? &s->change[s->changes - 1] : NULL;
    job_timer_stop(j, JOB_TIMER_ENTER);
    s->trouble = s->first = (struct outcome){0};
    s->happened = 0;
    if (c && c->number == s->roster.number && !c->entered) {
        c->entered = clock_now();
        log_info("membership %u is complete, %.1f ms after the change", c->number,
                 1e3 * outcome_seconds_after(c->happened, c->entered));
    }
}

void change_entered(struct job *j, uint32_t worker, uint32_t membership)
{
    struct elastic *s = elastic_of(j);
    roster_enter(&s->roster, worker, membership);
    if (roster_is_settled(&s->roster) && !roster_is_broken(&s->roster))
        complete_change(j);
}

void change_waits(struct job *j, uint32_t worker, uint32_t left)
{
    struct elastic *s = elastic_of(j);
    bool comes = s->roster.worker[worker].phase == ROSTER_STARTS;
    roster_wait(&s->roster, worker, left);
    if (comes)
        elastic_happened(j, 0);
    if (comes && roster_ready(&s->roster) == 1)
        s->ready_since = clock_now();
    if (left > 0 && left < s->roster.number)
        limit_entry(j); /* the first of them has come to the change */
}

/* ---- the next one -------------------------------------------------------------------------------------- */

static bool engines_listen(const struct job *j, const struct roster *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const struct roster_worker *w = &r->worker[i];
        bool may_be = !w->leaves && (w->phase == ROSTER_READY ||
                                     (w->phase == ROSTER_MEMBER && roster_rank_of(r, i) != UINT32_MAX));
        if (may_be && !links_of_engine(j, w->host))
            return false;
    }
    return true;
}

static bool is_over_limit(struct job *j)
{
    struct elastic *s = elastic_of(j);
    if (j->config->reset_limit < 0 || s->roster.number <= (uint64_t)j->config->reset_limit)
        return false;
    if (elastic_cause(s)->failed)
        j->outcome = *elastic_cause(s);
    job_fault(j, clock_now(), 125, NULL, "the ranks have changed %lld times, which --reset-limit allows",
              (long long)j->config->reset_limit);
    return true;
}

/* The cause was told. The next membership has a cause of its own. */
static void keep_first_cause(struct elastic *s)
{
    if (!s->first.failed)
        s->first = s->trouble;
    s->trouble = (struct outcome){0};
}

bool change_begin(struct job *j, bool at_once)
{
    struct elastic *s = elastic_of(j);
    struct roster *r = &s->roster;
    if (!engines_listen(j, r))
        return false;
    if (is_over_limit(j))
        return true;
    uint32_t size = r->size, *was = malloc((size ? size : 1) * sizeof *was);
    if (was)
        memcpy(was, r->rank, size * sizeof *was);
    bool good = was && roster_advance(r, elastic_most(j)) == 0;
    if (good) {
        struct elastic_change c = note_change(s, was, size);
        good = send_membership(j, at_once, &c) == 0;
        keep_first_cause(s);
    }
    free(was);
    if (!good)
        job_fault(j, clock_now(), 125, NULL, "no memory for membership %u", r->number);
    job_timer_stop(j, JOB_TIMER_ENTER);
    if (at_once)
        limit_entry(j);
    return true;
}
