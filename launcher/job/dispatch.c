/* What a job makes of what its hosts say: readiness, the workers' starts, output and ends, faults. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/job_ending.h"
#include "launcher/job/job_internal.h"
#include "launcher/parts/limits_check.h"
#include "launcher/parts/preload_transfer.h"
#include "launcher/parts/stack_dump.h"
#include "launcher/parts/preflight.h"
#include "launcher/io/terminal.h"
#include "launcher/parts/dns_wait.h"

struct host *job_host_of_plan(struct job *j, uint32_t plan_index)
{
    return &j->host[j->plan.host[plan_index].index];
}

void job_start_hosts(struct job *j)
{
    uint32_t on_their_way = j->next_to_start - j->ready - j->closed - j->held;
    while (j->next_to_start < j->host_count && on_their_way < FANOUT_MAX) {
        on_their_way++;
        host_start(&j->host[j->next_to_start++]);
    }
}

/* A host's monotonic time on our clock, of something that we have just heard of and that was not before
 * `after`: whatever its clock does. */
static uint64_t our_time(struct host *h, uint64_t theirs, uint64_t after)
{
    uint64_t now = clock_now();
    host_clock_saw(&h->clock, theirs, after, now);
    uint64_t time = host_clock_ours(&h->clock, theirs);
    return time > now ? now : time < after ? after : time;
}

/* The rank if it is one of this host's, else NULL: a session speaks for its own ranks only. */
static struct rank_state *rank_of(struct job *j, const struct host *h, uint32_t rank)
{
    if (!j->planned || !h->planned || rank >= j->plan.size || j->plan.rank[rank].host != h->plan_index)
        return NULL;
    return &j->rank[rank];
}

static void check_finished(struct job *j, uint32_t rank)
{
    struct rank_state *r = &j->rank[rank];
    if (r->finished || !r->exited || !r->read)
        return;
    r->finished = true;
    if (++j->finished == j->plan.size)
        fsm_post(&j->fsm, JOB_EV_FINISHED);
}

static bool has_terminal(const struct job *j, uint32_t rank)
{
    return j->config->pty && (int64_t)rank == j->config->stdin_rank;
}

static void mark_exited(struct job *j, uint32_t rank)
{
    if (has_terminal(j, rank))
        terminal_restore();
    j->rank[rank].exited = true;
    job_ending_progress(j);
    if (j->has_input)
        input_rank_gone(&j->input, rank);
    check_finished(j, rank);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Without memory there are none, which job_spawn says. */
static void keep_ports(struct host *h, const Hvd__Welcome *welcome)
{
    size_t bytes = welcome->n_worker_port * sizeof *h->worker_port;
    h->coordinator_port = welcome->coordinator_port;
    h->worker_port = bytes ? malloc(bytes) : NULL;
    if (!h->worker_port)
        return;
    memcpy(h->worker_port, welcome->worker_port, bytes);
    h->worker_ports = welcome->n_worker_port;
}

static void on_ready(void *ctx, struct host *h, const Hvd__Welcome *welcome)
{
    struct job *j = ctx;
    hosts_resolve(&j->list->host[h->index], welcome->slots ? welcome->slots : 1);
    j->list->host[h->index].parts = welcome->parts ? welcome->parts : 1;
    h->told = limits_keep(welcome);
    h->free_port = welcome->free_port;
    keep_ports(h, welcome);
    j->ready++;
    unresolved_settle(j);
    job_held_no_more(j, h);
    job_start_hosts(j);
    if (j->fsm.state == JOB_CONNECTING && j->outcome.failed)
        preflight_settle(j);
    else if (j->ready == j->host_count)
        fsm_post(&j->fsm, JOB_EV_READY);
}

static const char NOT_THERE[] = "that rank is not there";

static const char *on_spawned(struct job *j, struct host *h, const Hvd__Spawned *m)
{
    struct rank_state *r = rank_of(j, h, m->rank);
    if (!r)
        return NOT_THERE;
    if (r->started)
        return "that rank has started before";
    r->started = our_time(h, m->time, h->spawn_sent);
    r->started_there = m->time;
    r->pid = m->pid;
    if (has_terminal(j, m->rank)) {
        terminal_make_raw();
        job_tell_window(j); /* the size may have changed after Spawn was written */
    }
    log_debug("rank %u runs on %s as pid %u", m->rank, h->label, m->pid);
    log_printable(m->cpus); /* a host's own words */
    if (*m->cpus && j->config->report_bindings)
        log_say("hvdrun: rank %u on %s %s processors %s\n", m->rank, h->label,
                m->bound ? "is bound to" : "is not bound, and has", m->cpus);
    if (++j->started == j->plan.size)
        fsm_post(&j->fsm, JOB_EV_STARTED);
    return NULL;
}

/* For its workers, or for the files that they need. */
static bool can_refuse(const struct job *j, const struct host *h)
{
    const struct plan_host *p = j->planned && h->planned ? &j->plan.host[h->plan_index] : NULL;
    return p && (h->spawned || h->preload.started) && !j->rank[p->rank[0]].started;
}

static const char *on_refused(struct job *j, struct host *h, const Hvd__Refused *m)
{
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

static const char *on_exited(struct job *j, struct host *h, const Hvd__Exited *m)
{
    struct rank_state *r = rank_of(j, h, m->rank);
    struct rank_end end = {m->rank,          m->pid,       m->status, m->signal,  m->core_dumped, m->by_us,
                           m->not_shut_down, m->told_peer, m->oom,    m->aborted, m->abort_code};
    char how[200];
    if (!r)
        return NOT_THERE;
    if (r->exited)
        return "that rank has ended before";
    uint64_t time = time_of_end(h, r, m->time);
    if (rank_end_failed(&end))
        host_clock_fix(&h->clock); /* which of this host's faults was first does not change by learning */
    rank_end_describe(&end, how, sizeof how);
    log_debug("rank %u on %s (pid %u) ended: %s%s", m->rank, h->label, m->pid, how,
              m->by_us ? ", by us" : "");
    if (end.by_us && !j->outcome.failed)
        job_fault(j, time, 125, NULL, "host %s was lost: its agent ended the job by itself", h->label);
    outcome_rank_ended(&j->outcome, &end, h->label, program_named(j, m->rank), r->started, time);
    note_end(r, &end, time, m);
    job_ends_tell(j, m->rank);
    mark_exited(j, m->rank);
    if (rank_end_failed(&end) && j->config->on_failure == CONFIG_ON_FAILURE_KILL)
        job_failed(j);
    if (rank_end_failed(&end) && !end.told_peer && j->config->on_failure == CONFIG_ON_FAILURE_NOTIFY)
        job_signal_workers(j, SIGUSR1, true);
    return NULL;
}

static const char *on_credit(struct job *j, struct host *h, const Hvd__Credit *m)
{
    if (m->stream == STREAM_FILE)
        return job_preload_credit(j, h, m->bytes);
    if (m->stream != STREAM_STDIN)
        return "it takes no bytes of that stream";
    if (!rank_of(j, h, m->rank))
        return NOT_THERE;
    if (j->has_input)
        input_credit(&j->input, m->rank, m->bytes);
    return NULL;
}

static void on_notice(struct host *h, const Hvd__Notice *m)
{
    enum log_level level = m->level > LOG_ERROR ? LOG_ERROR : (enum log_level)m->level;
    if (log_enabled(level) && host_words_take(&h->words, h->label, clock_now()))
        log_write(level, "%s: %.800s", h->label, m->text);
}

static void on_fault(struct job *j, struct host *h, const Hvd__Fault *m)
{
    uint64_t time = our_time(h, m->time, h->hello_sent);
    host_clock_fix(&h->clock);
    job_fault(j, time, 125, NULL, "host %s: %.800s", h->label, m->text);
}

/* Messages that a host may send only when it has workers. */
static const char *on_workers_message(struct job *j, struct host *h, const Hvd__Control *m)
{
    if (!h->spawned)
        return "it has no workers";
    switch (m->body_case) {
    case HVD__CONTROL__BODY_SPAWNED:
        return on_spawned(j, h, m->spawned);
    case HVD__CONTROL__BODY_EXITED:
        return on_exited(j, h, m->exited);
    case HVD__CONTROL__BODY_LINK:
        job_links_engine(j, h, m->link);
        return NULL;
    case HVD__CONTROL__BODY_LINK_ORDER:
        job_ends_order(j);
        return NULL;
    case HVD__CONTROL__BODY_SESSION_LINK:
        return job_links_session(j, h, m->session_link);
    case HVD__CONTROL__BODY_LINKS_LOST:
        return job_links_lost(j, h, m->links_lost);
    case HVD__CONTROL__BODY_WHERE:
        return rank_of(j, h, m->where->rank) ? job_where_found(j, h, m->where) : NOT_THERE;
    default:
        return job_where_done(j, h, m->inspected);
    }
}

static const char *on_message(void *ctx, struct host *h, const Hvd__Control *m)
{
    struct job *j = ctx;
    switch (m->body_case) {
    case HVD__CONTROL__BODY_REFUSED:
        return on_refused(j, h, m->refused);
    case HVD__CONTROL__BODY_PRELOADED:
        return job_preload_done(j, h);
    case HVD__CONTROL__BODY_CREDIT:
        return on_credit(j, h, m->credit);
    case HVD__CONTROL__BODY_FAULT:
        on_fault(j, h, m->fault);
        return NULL;
    case HVD__CONTROL__BODY_NOTICE:
        on_notice(h, m->notice);
        return NULL;
    default:
        return on_workers_message(j, h, m);
    }
}

static void on_data(void *ctx, struct host *h, const struct frame *f)
{
    struct job *j = ctx;
    struct err e = ERR_INIT;
    if (f->stream == STREAM_FILE || !rank_of(j, h, f->rank))
        err_set(&e, ERR_PROTOCOL, "it sent bytes of stream %u, rank %u, which are not its own",
                (unsigned)f->stream, f->rank);
    else
        (void)output_frame(j->output, f, &e);
    if (e.code)
        host_give_up(h, &e);
}

static void on_writable(void *ctx, struct host *h)
{
    job_preload_go_on(ctx, h);
}

static void on_ended(void *ctx, struct host *h, const Hvd__Ended *ended)
{
    struct job *j = ctx;
    job_ending_progress(j);
    for (size_t i = 0; i < ended->n_leftover && i < LEFTOVERS_EACH; i++) {
        const Hvd__Leftover *p = ended->leftover[i];
        log_error("%s: process %u (%.64s, state %.16s) could not be ended", h->label, p->pid, p->name,
                  p->state);
        if (j->leftover_count == LEFTOVERS_MAX)
            continue;
        struct leftover *kept = &j->leftover[j->leftover_count++];
        kept->host = h;
        kept->pid = p->pid;
        snprintf(kept->name, sizeof kept->name, "%s", p->name);
        snprintf(kept->state, sizeof kept->state, "%s", p->state);
    }
    if (ended->n_leftover > LEFTOVERS_EACH)
        log_error("%s: %zu processes more could not be ended", h->label, ended->n_leftover - LEFTOVERS_EACH);
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
    if (h->agent_died)
        snprintf(text, sizeof text, "host %s: %s", h->label, h->err.text);
    else if (late)
        snprintf(text, sizeof text, "host %s was lost: %s", h->label, h->err.text);
    else
        snprintf(text, sizeof text, "%s: %s: %s", h->label, h->failed_in, h->err.text);
    j->lost_workers |= late && !j->outcome.failed;
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
    if (h->unconfirmed)
        log_error("host %s: its agent has ended the job, but the end of the guard (pid %u) was not heard of",
                  h->label, h->guard_pid);
    if (failed)
        record_loss(j, h);
    if (j->planned && h->planned)
        abandon_ranks(j, h);
    j->closed++;
    job_ending_progress(j);
    job_held_no_more(j, h);
    unresolved_settle(j);
    if (failed && j->fsm.state == JOB_CONNECTING)
        preflight_settle(j);
    else if (failed)
        job_failed(j);
    if (j->closed == j->host_count)
        fsm_post(&j->fsm, JOB_EV_GONE);
}

static void on_waiting(void *ctx, struct host *h)
{
    job_waiting(ctx, h);
}

static void on_held(void *ctx, struct host *h)
{
    job_held(ctx, h);
}

static void on_unresolved(void *ctx, struct host *h)
{
    unresolved_add(ctx, h);
}

const struct host_events job_host_events = {on_ready,   on_message, on_data,       on_writable, on_ended,
                                            on_waiting, on_held,    on_unresolved, on_closed};

/* ---- input and output ---------------------------------------------------------------------------------- */

static struct host *host_of_rank(struct job *j, uint32_t rank)
{
    return job_host_of_plan(j, j->plan.rank[rank].host);
}

static void on_consumed(void *ctx, uint32_t rank, enum frame_stream stream, uint32_t bytes)
{
    struct job *j = ctx;
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.rank = rank;
    credit.stream = stream;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    /* Also after the worker's end: its last bytes may still wait there. */
    host_send(host_of_rank(j, rank), &m);
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
    j->final = true;
    const char *name = fd == 2 ? "standard error" : "standard output";
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
    return host_send_stdin(host_of_rank(j, rank), rank, bytes, len);
}

const struct input_events job_input_events = {on_input};
