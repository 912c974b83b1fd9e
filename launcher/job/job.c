#include "launcher/job/job.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/exit_codes.h"
#include "launcher/job/job_internal.h"
#include "launcher/parts/debugger.h"
#include "launcher/job/job_ending.h"
#include "launcher/parts/preload_transfer.h"
#include "launcher/parts/mpir.h"
#include "launcher/parts/sweep.h"
#include "launcher/parts/stack_dump.h"
#include "launcher/io/log_writer.h"
#include "launcher/parts/preflight.h"
#include "launcher/job/report.h"
#include "launcher/io/terminal.h"

/* What workers get to print and clean up after HVD_ERR_PEER, before SIGTERM. */
#define PARTING_MS 300

static void place(void *owner);
static void spawn(void *owner);
static void started(void *owner);
static void inspect(void *owner);
static void end_inspection(void *owner);
static void part(void *owner);
static void pass_signal_on(void *owner);
static void begin_end(void *owner);
static void sweep(void *owner);
static void skip_sweep(void *owner);
static void drain(void *owner);
static void finish(void *owner);

static const char *const state_names[] = {"connecting", "preloading", "starting",    "running",
                                          "inspecting", "parting",    "interrupted", "ending",
                                          "sweeping",   "draining",   "done"};
static const char *const event_names[] = {"ready",     "preloaded", "started",   "finished", "failed",
                                          "peer lost", "limit",     "inspected", "enough",   "interrupt",
                                          "insist",    "gone",      "swept",     "drained"};

static const struct fsm_row rows[] = {
    {JOB_CONNECTING, JOB_EV_READY, JOB_PRELOADING, place},
    {JOB_PRELOADING, JOB_EV_PRELOADED, JOB_STARTING, spawn},
    {JOB_PRELOADING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_PRELOADING, JOB_EV_LIMIT, JOB_ENDING, begin_end},
    {JOB_CONNECTING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_STARTING, JOB_EV_STARTED, JOB_RUNNING, started},
    {JOB_STARTING, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_STARTING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_PEER_LOST, JOB_PARTING, part},
    {JOB_RUNNING, JOB_EV_LIMIT, JOB_INSPECTING, inspect},
    {JOB_CONNECTING, JOB_EV_LIMIT, JOB_ENDING, begin_end},
    {JOB_STARTING, JOB_EV_LIMIT, JOB_ENDING, begin_end},
    {JOB_PARTING, JOB_EV_LIMIT, JOB_ENDING, begin_end},
    {JOB_INSPECTING, JOB_EV_INSPECTED, JOB_ENDING, end_inspection},
    {JOB_INSPECTING, JOB_EV_FINISHED, JOB_ENDING, end_inspection},
    {JOB_INSPECTING, JOB_EV_FAILED, JOB_ENDING, end_inspection},
    {JOB_RUNNING, JOB_EV_INTERRUPT, JOB_INTERRUPTED, pass_signal_on},
    {JOB_PARTING, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_PARTING, JOB_EV_ENOUGH, JOB_ENDING, begin_end},
    {JOB_PARTING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_PARTING, JOB_EV_INTERRUPT, JOB_INTERRUPTED, pass_signal_on},
    {JOB_INTERRUPTED, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_INTERRUPTED, JOB_EV_FAILED, JOB_INTERRUPTED, NULL},
    {JOB_INTERRUPTED, JOB_EV_INSIST, JOB_ENDING, begin_end},
    {JOB_ENDING, JOB_EV_INSIST, JOB_ENDING, begin_end},
    {JOB_ENDING, JOB_EV_GONE, JOB_SWEEPING, sweep},
    {JOB_SWEEPING, JOB_EV_INSIST, JOB_SWEEPING, skip_sweep},
    {JOB_SWEEPING, JOB_EV_SWEPT, JOB_DRAINING, drain},
    {JOB_DRAINING, JOB_EV_DRAINED, JOB_DONE, finish},
    {JOB_DRAINING, JOB_EV_INSIST, JOB_DONE, finish},
};

static const struct fsm_table table = {"job", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- faults -------------------------------------------------------------------------------------------- */

void job_fault(struct job *j, uint64_t time, int exit_status, const char *hint, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX + 400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    outcome_fault(&j->outcome, time, exit_status, text, hint);
    job_failed(j);
}

void job_failed(struct job *j)
{
    bool running = j->fsm.state == JOB_RUNNING || j->fsm.state == JOB_PARTING;
    fsm_post(&j->fsm, running && j->engine_links.count > 0 ? JOB_EV_PEER_LOST : JOB_EV_FAILED);
}

void job_fault_err(struct job *j, const struct err *e)
{
    job_fault(j, clock_now(), err_exit_status(e), e->hint, "%s", e->text);
}

/* A limit or a signal ends the job. */
static void stop(struct job *j, int status, const char *text)
{
    bool going = j->config->on_failure != CONFIG_ON_FAILURE_KILL && j->fsm.state <= JOB_PARTING;
    j->final = true;
    outcome_stop(&j->outcome, clock_now(), status, text, going, status == STATUS_LIMIT);
}

static void on_time_limit(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char text[640], late[500];
    job_waiting_tell(j, late, sizeof late);
    snprintf(text, sizeof text, "the time limit of %.10g s (--timeout) is over%s",
             (double)j->config->timeout_ms / 1e3, late);
    stop(j, STATUS_LIMIT, text);
    fsm_post(&j->fsm, JOB_EV_LIMIT);
}

static void insist(struct job *j)
{
    j->grace_is_over = true;
    fsm_post(&j->fsm, JOB_EV_INSIST);
}

/* Of the states before ENDING, which has its own. */
static void on_moment_over(uv_timer_t *timer)
{
    struct job *j = timer->data;
    if (j->fsm.state == JOB_INTERRUPTED)
        insist(j);
    else if (j->fsm.state == JOB_PARTING)
        fsm_post(&j->fsm, JOB_EV_ENOUGH);
    else if (j->fsm.state == JOB_INSPECTING)
        fsm_post(&j->fsm, JOB_EV_INSPECTED);
}

static void on_heartbeat(uv_timer_t *timer)
{
    struct job *j = timer->data;
    for (uint32_t i = 0; i < j->host_count; i++)
        host_heartbeat(&j->host[i], clock_now());
}

/* ---- signals ------------------------------------------------------------------------------------------- */

void job_signal_workers(struct job *j, int number, bool ours)
{
    Hvd__Signal s = HVD__SIGNAL__INIT;
    s.number = number;
    s.ours = ours;
    CONTROL(m, SIGNAL, signal, &s);
    for (uint32_t i = 0; i < j->host_count; i++)
        if (host_state(&j->host[i]) == HOST_READY || host_state(&j->host[i]) == HOST_RUNNING)
            host_send(&j->host[i], &m);
}

static void on_ending_signal(struct job *j, int number)
{
    if (j->signal) {
        j->insisted = true;
        insist(j);
        return;
    }
    j->signal = number;
    terminal_restore();
    char text[128];
    snprintf(text, sizeof text, "ended by signal %d (%s)", number, strsignal(number));
    stop(j, 128 + number, text);
    if (number != SIGTERM)
        fsm_post(&j->fsm, JOB_EV_INTERRUPT);
    fsm_post(&j->fsm, JOB_EV_FAILED);
    if (j->fsm.state == JOB_DRAINING)
        insist(j);
}

/* --pty: that worker runs. */
static bool has_terminal(const struct job *j)
{
    const struct rank_state *r = j->config->pty && j->planned ? &j->rank[j->config->stdin_rank] : NULL;
    return r && r->started && !r->exited && !j->signal;
}

void job_tell_window(struct job *j)
{
    if (!has_terminal(j))
        return;
    Hvd__Window window = HVD__WINDOW__INIT;
    terminal_size(&window);
    window.rank = (uint32_t)j->config->stdin_rank;
    CONTROL(m, WINDOW, window, &window);
    host_send(job_host_of_plan(j, j->plan.rank[window.rank].host), &m);
}

void job_on_signal(void *ctx, int number)
{
    struct job *j = ctx;
    log_info("signal %d (%s)", number, strsignal(number));
    switch (number) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
        on_ending_signal(j, number);
        break;
    case SIGTSTP:
        /* The sessions suspend their lease with it: while we are stopped they will hear nothing. */
        job_signal_workers(j, number, false);
        terminal_restore();
        raise(SIGSTOP);
        break;
    case SIGCONT:
        job_signal_workers(j, number, false);
        if (has_terminal(j))
            terminal_make_raw();
        if (j->has_input)
            input_resume(&j->input);
        break;
    case SIGWINCH:
        job_tell_window(j);
        /* fall through */
    default:
        if (j->config->forwarded & SIGNAL_BIT(number))
            job_signal_workers(j, number, false);
    }
}

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void place(void *owner)
{
    struct job *j = owner;
    struct err e = ERR_INIT;
    progress_stop(&j->progress);
    if (job_place(j, &e) < 0)
        job_fault_err(j, &e);
    else if (preflight_conclude(j) < 0)
        job_failed(j);
    else
        job_preload_start(j);
}

static void spawn(void *owner)
{
    struct job *j = owner;
    j->phases.starting = clock_now();
    job_preload_moved(j);
    job_spawn(j);
}

static void started(void *owner)
{
    struct job *j = owner;
    j->phases.running = clock_now();
    uv_timer_stop(&j->start_limit);
    log_info("all %u ranks run, %.1f ms after the start", j->plan.size,
             (double)(clock_now() - j->began) / 1e6);
    job_debug_started(j);
}

static void inspect(void *owner)
{
    struct job *j = owner;
    uv_timer_start(&j->end_limit, on_moment_over, JOB_WHERE_MS, 0);
    job_where_start(j);
}

static void end_inspection(void *owner)
{
    job_where_say(owner);
    begin_end(owner);
}

static void part(void *owner)
{
    struct job *j = owner;
    uv_timer_start(&j->end_limit, on_moment_over, PARTING_MS, 0);
}

static void pass_signal_on(void *owner)
{
    struct job *j = owner;
    job_signal_workers(j, j->signal, false);
    uv_timer_start(&j->end_limit, on_moment_over, (uint64_t)j->config->grace_ms, 0);
}

static void begin_end(void *owner)
{
    job_ending_begin(owner);
}

static void sweep(void *owner)
{
    struct job *j = owner;
    uv_timer_stop(&j->end_limit);
    job_sweep_start(j);
}

static void skip_sweep(void *owner)
{
    job_sweep_skip(owner);
}

static void drain(void *owner)
{
    struct job *j = owner;
    if (!j->output || output_is_idle(j->output) || j->insisted)
        fsm_post(&j->fsm, JOB_EV_DRAINED);
}

static void finish(void *owner)
{
    struct job *j = owner;
    uv_timer_t *timers[] = {&j->heartbeat, &j->start_limit, &j->time_limit, &j->end_limit,
                            &j->settling,  &j->gathering,   &j->wait_limit, &j->ends.timer};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++)
        uv_close((uv_handle_t *)timers[i], NULL);
    terminal_restore();
    signals_close(&j->signals);
    if (j->has_input)
        input_close(&j->input);
    if (j->output && j->outcome.failed)
        output_end_line(j->output);
    output_close(j->output);
    notes_finish();
}

/* ---- from beginning to end ----------------------------------------------------------------------------- */

static void start_timer(struct job *j, uv_timer_t *timer, uv_timer_cb callback, uint64_t ms, uint64_t repeat)
{
    uv_timer_init(&j->loop, timer);
    timer->data = j;
    if (ms > 0)
        uv_timer_start(timer, callback, ms, repeat);
}

/* A session whose guard was killed has become our child (we are its subreaper): nothing of the job may be
 * left when we return. It has closed its stream, so it is about to exit; what was named as a leftover is not.
 */
static void wait_for_orphans(const struct job *j)
{
    sigset_t child, before;
    struct timespec patience = {j->leftover_count == 0, 0};
    pid_t pid;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0 || (pid == 0 && sigtimedwait(&child, NULL, &patience) > 0));
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* All epochs share it: what is left of it now. */
static uint64_t time_limit_ms(const struct job *j)
{
    uint64_t now = clock_now();
    if (!j->epoch->deadline)
        return 0;
    return j->epoch->deadline > now ? (j->epoch->deadline - now) / NSEC_PER_MSEC + 1 : 1;
}

static void sum_up(const struct job *j, struct job_end *end)
{
    const struct outcome *o = &j->outcome;
    *end = (struct job_end){.failed = o->failed,
                            .ran = j->phases.running || j->lost_workers || o->first_is_rank,
                            .final = j->final,
                            .exit_status = o->failed ? o->exit_status : 0,
                            .size = j->plan.size,
                            .began = j->began,
                            .ended = clock_now(),
                            .ran_for = j->phases.running ? j->phases.ending - j->phases.running : 0,
                            .cause = o->text};
}

void job_run(struct job *j, struct job_end *end)
{
    uint64_t beat = (uint64_t)j->config->heartbeat_timeout_ms / HOST_BEATS;
    fsm_init(&j->fsm, &table, j, j->name, JOB_CONNECTING);
    notes_open(&j->loop);
    start_timer(j, &j->heartbeat, on_heartbeat, beat, beat);
    start_timer(j, &j->wait_limit, NULL, 0, 0);
    start_timer(j, &j->start_limit, NULL, 0, 0);
    job_start_limit(j);
    start_timer(j, &j->time_limit, on_time_limit, time_limit_ms(j), 0);
    start_timer(j, &j->end_limit, NULL, 0, 0);
    start_timer(j, &j->settling, NULL, 0, 0);
    start_timer(j, &j->gathering, NULL, 0, 0);
    start_timer(j, &j->ends.timer, NULL, 0, 0);
    progress_start(&j->progress, &j->loop, j->host, j->host_count);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    job_start_hosts(j);
    uv_run(&j->loop, UV_RUN_DEFAULT);
    wait_for_orphans(j);
    sum_up(j, end);
}

/* The way of all notes, which has an end when nobody reads them. */
void job_report(struct job *j, int exit_status)
{
    notes_open(&j->loop);
    report_say(j);
    if (j->config->print_exit_codes)
        exit_codes_say(j);
    job_sweep_say(j);
    report_write(j, exit_status);
    notes_finish();
    uv_run(&j->loop, UV_RUN_DEFAULT);
}

bool job_lost_host(const struct job *j, size_t index)
{
    return index < j->host_count && (j->host[index].err.code || j->host[index].late);
}
