#include "launcher/job/job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/io/log_writer.h"
#include "launcher/io/terminal.h"
#include "launcher/job/core.h"
#include "launcher/job/job_ending.h"
#include "launcher/job/report.h"
#include "launcher/job/spawn_message.h"
#include "launcher/parts/parts.h"

/* After HVD_ERR_PEER workers may print and clean up for so long, before SIGTERM. */
#define PARTING_MS  300
#define PATIENCE_MS 500 /* from ^C to the word that ranks still run */
#define LAST_WORDS_MS                                                                                        \
    5000 /* more of them while a rank that gave up prints, cleans up and exits with its own status */

static void place_ranks(void *owner);
static void spawn_workers(void *owner);
static void note_start(void *owner);
static void inspect_ranks(void *owner);
static void end_inspection(void *owner);
static void give_moment(void *owner);
static void pass_signal_on(void *owner);
static void begin_end(void *owner);
static void sweep_hosts(void *owner);
static void skip_sweep(void *owner);
static void drain_output(void *owner);
static void finish_job(void *owner);

#define AS_NAME(name, text) text,
static const char *const state_names[] = {JOB_STATES(AS_NAME)};
static const char *const event_names[] = {JOB_EVENTS(AS_NAME)};
#undef AS_NAME

static const struct fsm_row rows[] = {
    {JOB_CONNECTING, JOB_EV_READY, JOB_PREPARING, place_ranks},
    {JOB_PREPARING, JOB_EV_PREPARED, JOB_STARTING, spawn_workers},
    {JOB_PREPARING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_PREPARING, JOB_EV_LIMIT, JOB_ENDING, begin_end},
    {JOB_CONNECTING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_STARTING, JOB_EV_STARTED, JOB_RUNNING, note_start},
    {JOB_STARTING, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_STARTING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_FINISHED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_FAILED, JOB_ENDING, begin_end},
    {JOB_RUNNING, JOB_EV_PEER_LOST, JOB_PARTING, give_moment},
    {JOB_RUNNING, JOB_EV_LIMIT, JOB_INSPECTING, inspect_ranks},
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
    {JOB_ENDING, JOB_EV_GONE, JOB_SWEEPING, sweep_hosts},
    {JOB_SWEEPING, JOB_EV_INSIST, JOB_SWEEPING, skip_sweep},
    {JOB_SWEEPING, JOB_EV_SWEPT, JOB_DRAINING, drain_output},
    {JOB_DRAINING, JOB_EV_DRAINED, JOB_DONE, finish_job},
    {JOB_DRAINING, JOB_EV_INSIST, JOB_DONE, finish_job},
};

static const struct fsm_table table = {"job", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- limits -------------------------------------------------------------------------------------------- */

static void on_time_limit(struct job *j)
{
    char text[640], late[500];
    start_timeout_describe(j, late, sizeof late);
    snprintf(text, sizeof text, "the time limit of %.10g s (--timeout) is over%s",
             (double)j->config->timeout_ms / 1e3, late);
    job_stop(j, STATUS_LIMIT, text);
    fsm_post(&j->fsm, JOB_EV_LIMIT);
}

static void insist_on_end(struct job *j)
{
    j->stop.grace_is_over = true;
    fsm_post(&j->fsm, JOB_EV_INSIST);
}

static void on_last_words_over(struct job *j)
{
    if (j->fsm.state == JOB_PARTING)
        fsm_post(&j->fsm, JOB_EV_ENOUGH);
}

/* A rank has called hvd_abort and has yet to end. */
static bool awaits_last_words(const struct job *j)
{
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (*j->rank[i].gave_up && !j->rank[i].exited)
            return true;
    return false;
}

/* The moment of the ranks that were told of the failure is over. */
static void end_moment(struct job *j)
{
    if (awaits_last_words(j))
        job_timer_start(j, JOB_TIMER_MOMENT, LAST_WORDS_MS, on_last_words_over);
    else
        fsm_post(&j->fsm, JOB_EV_ENOUGH);
}

/* The limited time of a state before ENDING is over. */
static void on_moment_over(struct job *j)
{
    if (j->fsm.state == JOB_INTERRUPTED)
        insist_on_end(j);
    else if (j->fsm.state == JOB_PARTING)
        end_moment(j);
    else if (j->fsm.state == JOB_INSPECTING)
        fsm_post(&j->fsm, JOB_EV_INSPECTED);
}

static void on_heartbeat(struct job *j)
{
    job_timer_start(j, JOB_TIMER_HEARTBEAT, (uint64_t)j->config->heartbeat_timeout_ms / HOST_BEATS,
                    on_heartbeat);
    for (uint32_t i = 0; i < j->host_count; i++)
        host_heartbeat(&j->host[i], clock_now());
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static void on_ending_signal(struct job *j, int number)
{
    if (j->stop.signal) {
        j->stop.insisted = true;
        insist_on_end(j);
        return;
    }
    j->stop.signal = number;
    terminal_restore();
    char text[128];
    snprintf(text, sizeof text, "ended by signal %d (%s)", number, strsignal(number));
    job_stop(j, 128 + number, text);
    if (number != SIGTERM)
        fsm_post(&j->fsm, JOB_EV_INTERRUPT);
    fsm_post(&j->fsm, JOB_EV_FAILED);
    if (j->fsm.state == JOB_DRAINING)
        insist_on_end(j);
}

static void on_signal(void *ctx, int number)
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
        /* The sessions suspend their lease with the signal: a stopped hvdrun sends nothing. */
        job_signal_workers(j, number, false);
        terminal_restore();
        raise(SIGSTOP);
        break;
    case SIGCONT:
        job_signal_workers(j, number, false);
        pty_resume(j);
        if (j->has_input)
            input_resume(&j->input);
        break;
    case SIGWINCH:
        pty_tell_window(j);
        /* fall through */
    default:
        if (j->config->forwarded & SIGNAL_BIT(number))
            job_signal_workers(j, number, false);
    }
}

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void place_ranks(void *owner)
{
    struct job *j = owner;
    struct err e = ERR_INIT;
    if (job_place(j, &e) < 0)
        job_fault_err(j, &e);
    else if (preflight_conclude(j) < 0)
        job_failed(j);
    else
        job_prepare(j);
}

static void spawn_workers(void *owner)
{
    struct job *j = owner;
    j->phases.starting = clock_now();
    job_spawn(j);
}

static void note_start(void *owner)
{
    struct job *j = owner;
    j->phases.running = clock_now();
    log_info("all %u ranks run, %.1f ms after the start", j->plan.size,
             (double)(clock_now() - j->began) / 1e6);
    JOB_PARTS_CALL(j, started, j);
}

static void inspect_ranks(void *owner)
{
    struct job *j = owner;
    job_timer_start(j, JOB_TIMER_MOMENT, STACK_DUMP_MS, on_moment_over);
    stack_dump_start(j);
}

static void end_inspection(void *owner)
{
    stack_dump_say(owner);
    begin_end(owner);
}

static void give_moment(void *owner)
{
    job_timer_start(owner, JOB_TIMER_MOMENT, PARTING_MS, on_moment_over);
}

static void tell_patience(struct job *j)
{
    uint32_t left = j->plan.size - j->tally.ranks_finished;
    log_say("hvdrun: %u rank%s still run%s; hvdrun kills %s in %.10g s, and at once after %s\n", left,
            left == 1 ? "" : "s", left == 1 ? "s" : "", left == 1 ? "it" : "them",
            (double)(j->config->grace_ms - PATIENCE_MS) / 1e3,
            j->stop.signal == SIGINT ? "another ^C" : "another signal");
}

static void pass_signal_on(void *owner)
{
    struct job *j = owner;
    if (j->config->grace_ms > PATIENCE_MS)
        job_timer_start(j, JOB_TIMER_PATIENCE, PATIENCE_MS, tell_patience);
    job_signal_workers(j, j->stop.signal, false);
    job_timer_start(j, JOB_TIMER_MOMENT, (uint64_t)j->config->grace_ms, on_moment_over);
}

static void begin_end(void *owner)
{
    job_ending_begin(owner);
}

static void sweep_hosts(void *owner)
{
    job_timer_stop(owner, JOB_TIMER_MOMENT);
    sweep_start(owner);
}

static void skip_sweep(void *owner)
{
    sweep_skip(owner);
}

static void drain_output(void *owner)
{
    struct job *j = owner;
    if (!j->output || output_is_idle(j->output) || j->stop.insisted)
        fsm_post(&j->fsm, JOB_EV_DRAINED);
}

static void finish_job(void *owner)
{
    struct job *j = owner;
    JOB_PARTS_CALL(j, done, j);
    job_timers_close(j);
    terminal_restore();
    signals_rest(j->signals);
    if (j->has_input)
        input_close(&j->input);
    if (j->output && j->outcome.failed)
        output_end_line(j->output);
    output_close(j->output);
    notes_finish();
}

/* ---- from beginning to end ----------------------------------------------------------------------------- */

/* A session whose guard was killed has become our child (we are its subreaper): nothing of the job may be
 * left when we return. The session has closed its stream, so it is about to exit; a leftover is not.
 */
static void wait_for_orphans(const struct job *j)
{
    sigset_t child, before;
    struct timespec patience = {leftovers_exist(j) ? 0 : 1, 0};
    pid_t pid;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0 || (pid == 0 && sigtimedwait(&child, NULL, &patience) > 0));
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* All epochs share the time limit. */
static uint64_t time_left_ms(const struct job *j)
{
    uint64_t now = clock_now();
    return j->epoch->deadline > now ? (j->epoch->deadline - now) / NSEC_PER_MSEC + 1 : 1;
}

static void sum_up(const struct job *j, struct job_end *end)
{
    const struct outcome *o = &j->outcome;
    *end = (struct job_end){.failed = o->failed,
                            .ran = j->phases.running || j->stop.lost_workers || o->first_is_rank,
                            .final = j->stop.final,
                            .exit_status = o->failed ? o->exit_status : 0,
                            .size = j->plan.size,
                            .began = j->began,
                            .ended = clock_now(),
                            .ran_for = j->phases.running ? j->phases.ending - j->phases.running : 0,
                            .cause = o->text};
}

void job_run(struct job *j, uv_loop_t *loop, struct signals *signals, struct job_end *end)
{
    j->loop = j->common.loop = loop;
    j->signals = signals;
    fsm_init(&j->fsm, &table, j, j->name, JOB_CONNECTING);
    notes_open(j->loop);
    signals_take(j->signals, on_signal, j);
    job_timers_init(j);
    job_timer_start(j, JOB_TIMER_HEARTBEAT, (uint64_t)j->config->heartbeat_timeout_ms / HOST_BEATS,
                    on_heartbeat);
    if (j->epoch->deadline)
        job_timer_start(j, JOB_TIMER_TIME_LIMIT, time_left_ms(j), on_time_limit);
    JOB_PARTS_CALL(j, start, j);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    job_start_hosts(j);
    uv_run(j->loop, UV_RUN_DEFAULT);
    wait_for_orphans(j);
    sum_up(j, end);
}

/* The loop writes the lines, and ends when nobody reads them. */
void job_report(struct job *j, int exit_status)
{
    notes_open(j->loop);
    report_say_outcome(j);
    if (j->config->print_exit_codes)
        report_say_exit_codes(j);
    job_say_rest(j);
    timeline_collect(j);
    report_write_json(j, exit_status);
    notes_finish();
    uv_run(j->loop, UV_RUN_DEFAULT);
}

bool job_lost_host(const struct job *j, size_t index)
{
    return index < j->host_count && (j->host[index].err.code || j->host[index].late);
}

void job_say_rest(const struct job *j)
{
    JOB_PARTS_CALL(j, say, j);
}
