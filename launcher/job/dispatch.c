/* The messages of a job's hosts: readiness, starts, output and ends of workers, faults. */
#include "launcher/job/dispatch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/cli/programs.h"
#include "launcher/host/host_clock.h"
#include "launcher/host/host_words.h"
#include "launcher/elastic/elastic.h"
#include "launcher/job/core.h"
#include "launcher/job/job_ending.h"
#include "launcher/job/outcome.h"
#include "launcher/parts/parts.h"

#define AS_ROW(name) &part_##name,
const struct job_part *const job_parts[] = {JOB_PARTS(AS_ROW) NULL};
#undef AS_ROW

/* A host's monotonic time on our clock, of something that we have just heard of and that was not before
 * `after`: whatever its clock does. */
static uint64_t our_time(struct host *h, uint64_t theirs, uint64_t after)
{
    uint64_t now = clock_now();
    host_clock_saw(&h->beat.clock, theirs, after, now);
    uint64_t time = host_clock_ours(&h->beat.clock, theirs);
    return time > now ? now : time < after ? after : time;
}

static void check_finished(struct job *j, uint32_t rank)
{
    struct rank_state *r = &j->rank[rank];
    if (r->finished || !r->exited || !r->read)
        return;
    r->finished = true;
    if (++j->tally.ranks_finished == j->plan.size && !elastic_goes_on(j))
        fsm_post(&j->fsm, JOB_EV_FINISHED);
}

static void mark_exited(struct job *j, uint32_t rank)
{
    j->rank[rank].exited = true;
    JOB_PARTS_CALL(j, rank_gone, j, rank);
    job_ending_progress(j);
    if (j->has_input)
        input_rank_gone(&j->input, rank);
    check_finished(j, rank);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void on_ready(void *ctx, struct host *h, const Hvd__Welcome *welcome)
{
    struct job *j = ctx;
    hosts_resolve(&j->list->host[h->index], welcome->slots ? welcome->slots : 1);
    j->list->host[h->index].parts = welcome->parts ? welcome->parts : 1;
    j->tally.ready++;
    JOB_PARTS_CALL(j, host_ready, j, h, welcome);
    job_start_hosts(j);
    if (j->fsm.state == JOB_CONNECTING && j->outcome.failed)
        preflight_settle(j);
    else if (j->tally.ready == j->host_count)
        fsm_post(&j->fsm, JOB_EV_READY);
}

static const char NOT_THERE[] = "that rank is not there";

static const char *on_spawned(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Spawned *m = control->spawned;
    struct rank_state *r = job_rank_of_host(j, h, m->rank);
    if (!r)
        return NOT_THERE;
    if (r->started)
        return "that rank has started before";
    r->started = our_time(h, m->time, h->spawn_sent);
    r->started_there = m->time;
    r->pid = m->pid;
    JOB_PARTS_CALL(j, rank_started, j, m->rank);
    log_debug("rank %u runs on %s as pid %u", m->rank, h->label, m->pid);
    log_printable(m->cpus); /* a host's own words */
    if (*m->cpus && j->config->report_bindings)
        log_say("hvdrun: rank %u on %s %s processors %s\n", m->rank, h->label,
                m->bound ? "is bound to" : "is not bound, and has", m->cpus);
    if (++j->tally.ranks_started == j->tally.ranks_first)
        fsm_post(&j->fsm, JOB_EV_STARTED);
    return NULL;
}

/* A host may refuse its workers, or what they need. */
static bool can_refuse(const struct job *j, const struct host *h)
{
    const struct plan_host *p = j->planned && h->planned ? &j->plan.host[h->plan_index] : NULL;
    return p && (h->spawn_sent || j->parts.prepares) && !j->rank[p->rank[0]].started;
}

static const char *on_refused(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Refused *m = control->refused;
    int code = m->code == 126 || m->code == 127 ? (int)m->code : 125;
    if (!can_refuse(j, h))
        return "it was given no workers, or they run";
    job_fault(j, clock_now(), code, *m->hint ? m->hint : NULL, "%s: %.600s", h->label, m->text);
    return NULL;
}

static void note_end(struct rank_state *r, const struct rank_end *end, uint64_t time, const Hvd__Exited *m)
{
    r->end = *end;
    r->ended = time;
    r->peak_kib = m->peak_kib;
    r->user_us = m->user_us;
    r->system_us = m->system_us;
}

/* NULL when there is only one: everybody knows it then. */
static const char *program_named(const struct job *j, uint32_t rank)
{
    const struct programs *p = &j->config->programs;
    return p->count > 1 ? p->item[programs_of(p, rank)].command[0] : NULL;
}

/* Of a rank's end; of its start we know more now, too. */
static uint64_t time_of_end(struct host *h, struct rank_state *r, uint64_t theirs)
{
    uint64_t ended = our_time(h, theirs, h->spawn_sent);
    if (r->started)
        r->started = our_time(h, r->started_there, h->spawn_sent);
    return ended > r->started ? ended : r->started;
}

static const char *on_exited(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Exited *m = control->exited;
    struct rank_state *r = job_rank_of_host(j, h, m->rank);
    struct rank_end end = {m->rank,          m->pid,       m->status, m->signal,  m->core_dumped, m->by_us,
                           m->not_shut_down, m->told_peer, m->oom,    m->aborted, m->abort_code,  NULL};
    char how[RANK_END_TEXT];
    if (!r)
        return NOT_THERE;
    end.gave_up = *r->gave_up ? r->gave_up : NULL;
    if (r->exited)
        return "that rank has ended before";
    uint64_t time = time_of_end(h, r, m->time);
    if (rank_end_failed(&end))
        host_clock_fix(&h->beat.clock); /* the order of this host's faults does not change any more */
    rank_end_describe(&end, how, sizeof how);
    log_debug("rank %u on %s (pid %u) ended: %s%s", m->rank, h->label, m->pid, how,
              m->by_us ? ", by us" : "");
    struct outcome *outcome = elastic_outcome(j, m->rank);
    bool survived = outcome != &j->outcome;
    if (end.by_us && !j->outcome.failed && !survived)
        job_fault(j, time, 125, NULL, "host %s was lost: its agent ended the job by itself", h->label);
    outcome_rank_ended(outcome, &end, h->label, program_named(j, m->rank), r->started, time);
    note_end(r, &end, time, m);
    JOB_PARTS_CALL(j, rank_ended, j, m->rank);
    mark_exited(j, m->rank);
    bool failed = rank_end_failed(&end) && !survived;
    if (failed && j->config->on_failure == CONFIG_ON_FAILURE_KILL)
        job_failed(j);
    if (failed && !end.told_peer && j->config->on_failure == CONFIG_ON_FAILURE_NOTIFY)
        job_signal_workers(j, SIGUSR1, true);
    return NULL;
}

static const char *on_gave_up(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__GaveUp *m = control->gave_up;
    struct rank_state *r = job_rank_of_host(j, h, m->rank);
    if (!r)
        return NOT_THERE;
    if (!r->exited && !*r->gave_up) {
        snprintf(r->gave_up, sizeof r->gave_up, "%s", m->text);
        log_printable(r->gave_up);
        log_info("rank %u on %s gave up: %s", m->rank, h->label, r->gave_up);
    }
    return NULL;
}

static const char *on_credit(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Credit *m = control->credit;
    if (m->stream != STREAM_STDIN)
        return "it takes no bytes of that stream";
    if (!job_rank_of_host(j, h, m->rank))
        return NOT_THERE;
    if (j->has_input)
        input_credit(&j->input, m->rank, m->bytes);
    return NULL;
}

static const char *on_notice(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Notice *m = control->notice;
    enum log_level level = m->level > LOG_ERROR ? LOG_ERROR : (enum log_level)m->level;
    if (log_enabled(level) && host_words_take(&h->words, h->label, clock_now()))
        log_write(level, "%s: %.800s", h->label, m->text);
    if (m->stall)
        status_say_why(j);
    return NULL;
}

static const char *on_fault(struct job *j, struct host *h, const Hvd__Control *control)
{
    const Hvd__Fault *m = control->fault;
    uint64_t time = our_time(h, m->time, h->beat.hello_sent);
    host_clock_fix(&h->beat.clock);
    job_fault(j, time, 125, NULL, "host %s: %.800s", h->label, m->text);
    return NULL;
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_SPAWNED, true, on_spawned}, {HVD__CONTROL__BODY_EXITED, true, on_exited},
    {HVD__CONTROL__BODY_GAVE_UP, true, on_gave_up}, {HVD__CONTROL__BODY_REFUSED, false, on_refused},
    {HVD__CONTROL__BODY_CREDIT, false, on_credit},  {HVD__CONTROL__BODY_NOTICE, false, on_notice},
    {HVD__CONTROL__BODY_FAULT, false, on_fault},    {0, false, NULL},
};

static const char *offer_message(const struct job_message *row, struct job *j, struct host *h,
                                 const Hvd__Control *m)
{
    for (; row && row->take; row++)
        if (row->body == (int)m->body_case)
            return row->of_workers && !h->spawn_sent ? "it has no workers" : row->take(j, h, m);
    return job_not_mine;
}

/* The parts come first: a message of a body that several take belongs to the first that does not pass it
 * on. */
static const char *on_message(void *ctx, struct host *h, const Hvd__Control *m)
{
    struct job *j = ctx;
    const char *why = job_not_mine;
    for (size_t i = 0; job_parts[i] && why == job_not_mine; i++)
        why = offer_message(job_parts[i]->message, j, h, m);
    return why == job_not_mine ? offer_message(messages, j, h, m) : why;
}

static void on_data(void *ctx, struct host *h, const struct frame *f)
{
    struct job *j = ctx;
    struct err e = ERR_INIT;
    if (f->stream == STREAM_FILE) {
        if (timeline_parts_data(j, h, f, &e) == 0 && !j->stop.insisted)
            job_ending_progress(j);
    } else if (!job_rank_of_host(j, h, f->rank))
        err_set(&e, ERR_PROTOCOL, "it sent bytes of stream %u of rank %u, which it does not run",
                (unsigned)f->stream, f->rank);
    else if (output_frame(j->output, f, &e) == 0)
        status_keep_output(j, f);
    if (e.code)
        host_give_up(h, &e);
}

static void on_writable(void *ctx, struct host *h)
{
    struct job *j = ctx;
    JOB_PARTS_CALL(j, writable, j, h);
}

static void on_ended(void *ctx, struct host *h, const Hvd__Ended *ended)
{
    struct job *j = ctx;
    job_ending_progress(j);
    JOB_PARTS_CALL(j, host_ended, j, h, ended);
}

/* ---- a host's end -------------------------------------------------------------------------------------- */

static void abandon_ranks(struct job *j, struct host *h)
{
    const struct plan_host *p = &j->plan.host[h->plan_index];
    output_abandon(j->output, p->rank, p->ranks);
    for (uint32_t i = 0; i < p->ranks; i++)
        if (!j->rank[p->rank[i]].exited)
            mark_exited(j, p->rank[i]);
}

static void record_loss(struct job *j, struct host *h)
{
    bool late = j->planned && h->planned && j->rank[j->plan.host[h->plan_index].rank[0]].started;
    char text[ERR_TEXT_MAX + 400];
    if (h->agent.died)
        snprintf(text, sizeof text, "host %s: %s", h->label, h->err.text);
    else if (late)
        snprintf(text, sizeof text, "host %s was lost: %s", h->label, h->err.text);
    else
        snprintf(text, sizeof text, "%s: %s: %s", h->label, h->failed_in, h->err.text);
    j->stop.lost_workers |= late && !j->outcome.failed;
    outcome_fault(&j->outcome, clock_now(), 125, text, h->err.hint);
    /* One that ran is always named: hvdrun waits for what it had. */
    if (h->lost_at && strcmp(j->outcome.text, text) != 0)
        log_error("%s", text);
}

/* The host counts as closed only when everything else about it is settled: with the last one, the job may end
 * and take its output away. */
static void on_closed(void *ctx, struct host *h)
{
    struct job *j = ctx;
    bool failed = h->err.code && !h->slow;
    if (h->agent.unconfirmed)
        log_error(
            "host %s: its agent has ended the job, but its guard process (pid %u) did not report its end; "
            "look for that process there",
            h->label, h->agent.guard_pid);
    bool survived = failed && elastic_survives_host(j, h);
    if (failed && !survived)
        record_loss(j, h);
    if (j->planned && h->planned)
        abandon_ranks(j, h);
    j->tally.closed++;
    job_ending_progress(j);
    JOB_PARTS_CALL(j, host_closed, j, h);
    if (failed && j->fsm.state == JOB_CONNECTING)
        preflight_settle(j);
    else if (failed && !survived)
        job_failed(j);
    if (j->tally.closed == j->host_count)
        fsm_post(&j->fsm, JOB_EV_GONE);
}

static void on_waiting(void *ctx, struct host *h)
{
    lease_order_waiting(ctx, h);
}

static void on_held(void *ctx, struct host *h)
{
    lease_order_held(ctx, h);
}

static void on_unresolved(void *ctx, struct host *h)
{
    dns_wait_add(ctx, h);
}

const struct host_events job_host_events = {on_ready,   on_message, on_data,       on_writable, on_ended,
                                            on_waiting, on_held,    on_unresolved, on_closed};

/* ---- input and output ---------------------------------------------------------------------------------- */

static void on_consumed(void *ctx, uint32_t rank, enum frame_stream stream, uint32_t bytes)
{
    struct job *j = ctx;
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.rank = rank;
    credit.stream = stream;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    /* Also after the worker's end: its last bytes may still wait there. */
    host_send(job_host_of_rank(j, rank), &m);
}

static void on_rank_read(void *ctx, uint32_t rank)
{
    struct job *j = ctx;
    j->rank[rank].read = true;
    check_finished(j, rank);
}

static void on_broken(void *ctx, int fd, int errnum)
{
    struct job *j = ctx;
    j->stop.final = true;
    const char *name = fd == 2 ? "standard error" : "standard output";
    if (errnum == EPIPE && fd == 1 && !j->outcome.failed)
        j->outcome.unread = true;
    job_fault(j, clock_now(), errnum == EPIPE ? 128 + SIGPIPE : 125, NULL, "cannot write to %s: %s", name,
              strerror(errnum));
}

static void on_drained(void *ctx)
{
    struct job *j = ctx;
    if (j->fsm.state == JOB_DRAINING)
        fsm_post(&j->fsm, JOB_EV_DRAINED);
}

const struct output_events job_output_events = {on_consumed, on_rank_read, on_broken, on_drained};

static int on_input(void *ctx, uint32_t rank, const void *bytes, size_t len)
{
    struct job *j = ctx;
    return host_send_stdin(job_host_of_rank(j, rank), rank, bytes, len);
}

const struct input_events job_input_events = {on_input};
