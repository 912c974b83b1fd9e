#include "agent/session/session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/worker/descendants.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"

#define KILL_MS       5000 /* a process that SIGKILL has not ended by then is uninterruptible */
#define BYE_MS        2000
#define LEFTOVERS_MAX 64

/* The features of a session, in the order in which they prepare the workers' start. */
static const struct session_part *const parts[] = {
    &session_part_spawning, &session_part_liveness, &session_part_programs,   &session_part_preload,
    &session_part_status,   &session_part_binding,  &session_part_rendezvous, &session_part_gpus,
    &session_part_engine,   &session_part_mps,      &session_part_stacks,     &session_part_error_file,
    &session_part_report,   &session_part_elastic,  &session_part_timeline,   NULL,
};

static void leave_other_version(void *owner);
static void start_workers(void *owner);
static void report_running(void *owner);
static void kill_job(void *owner);
static void send_refused(void *owner);
static void begin_ending(void *owner);
static void discard_rest(void *owner);
static void shorten_grace(void *owner);
static void send_term(void *owner);
static void send_kill(void *owner);
static void leave_job(void *owner);
static void stop_loop(void *owner);

#define TEXT(name, text) text,
static const char *const state_names[] = {SESSION_STATES(TEXT)};
static const char *const event_names[] = {SESSION_EVENTS(TEXT)};

static const struct fsm_row rows[] = {
    {SESSION_HELLO, EV_HELLO, SESSION_READY, NULL},
    {SESSION_HELLO, EV_OTHER_VERSION, SESSION_LEAVING, leave_other_version},
    {SESSION_HELLO, EV_LOST, SESSION_OVER, stop_loop},
    {SESSION_READY, EV_SPAWN, SESSION_SPAWNING, start_workers},
    {SESSION_READY, EV_WAIT, SESSION_WAITING, NULL},
    {SESSION_READY, EV_REFUSED, SESSION_REFUSING, kill_job},
    {SESSION_READY, EV_TEARDOWN, SESSION_ENDING, begin_ending},
    {SESSION_READY, EV_LOST, SESSION_ENDING, begin_ending},
    {SESSION_WAITING, EV_SPAWN, SESSION_SPAWNING, start_workers},
    {SESSION_WAITING, EV_REFUSED, SESSION_REFUSING, kill_job},
    {SESSION_WAITING, EV_TEARDOWN, SESSION_ENDING, begin_ending},
    {SESSION_WAITING, EV_LOST, SESSION_ENDING, begin_ending},
    {SESSION_SPAWNING, EV_EXECUTED, SESSION_RUNNING, report_running},
    {SESSION_SPAWNING, EV_REFUSED, SESSION_REFUSING, kill_job},
    {SESSION_SPAWNING, EV_TEARDOWN, SESSION_ENDING, begin_ending},
    {SESSION_SPAWNING, EV_LOST, SESSION_ENDING, begin_ending},
    {SESSION_REFUSING, EV_RELEASED, SESSION_REFUSING, send_kill},
    {SESSION_REFUSING, EV_EMPTY, SESSION_DONE, send_refused},
    {SESSION_REFUSING, EV_TIME_OVER, SESSION_DONE, send_refused},
    {SESSION_REFUSING, EV_TEARDOWN, SESSION_KILLING, kill_job},
    {SESSION_REFUSING, EV_LOST, SESSION_KILLING, kill_job},
    {SESSION_RUNNING, EV_FINISHED, SESSION_DONE, NULL},
    {SESSION_RUNNING, EV_TEARDOWN, SESSION_ENDING, begin_ending},
    {SESSION_RUNNING, EV_LOST, SESSION_ENDING, begin_ending},
    {SESSION_DONE, EV_TEARDOWN, SESSION_ENDING, begin_ending},
    {SESSION_DONE, EV_LOST, SESSION_ENDING, begin_ending},
    {SESSION_ENDING, EV_TEARDOWN, SESSION_ENDING, shorten_grace},
    {SESSION_ENDING, EV_RELEASED, SESSION_ENDING, send_term},
    {SESSION_ENDING, EV_TIME_OVER, SESSION_KILLING, kill_job},
    {SESSION_ENDING, EV_EMPTY, SESSION_LEAVING, leave_job},
    {SESSION_KILLING, EV_TEARDOWN, SESSION_KILLING, discard_rest},
    {SESSION_KILLING, EV_RELEASED, SESSION_KILLING, send_kill},
    {SESSION_KILLING, EV_EMPTY, SESSION_LEAVING, leave_job},
    {SESSION_KILLING, EV_TIME_OVER, SESSION_LEAVING, leave_job}, /* names uninterruptible processes */
    {SESSION_LEAVING, EV_BYE, SESSION_OVER, stop_loop},
    {SESSION_LEAVING, EV_LOST, SESSION_OVER, stop_loop},
    {SESSION_LEAVING, EV_TIME_OVER, SESSION_OVER, stop_loop},
};

static const struct fsm_table table = {"session", state_names, event_names, rows, sizeof rows / sizeof *rows};

static void on_time_over(uv_timer_t *timer)
{
    struct session *s = timer->data;
    fsm_post(&s->fsm, EV_TIME_OVER);
}

static void limit_state(struct session *s, uint64_t ms)
{
    uv_timer_start(&s->state_timer, on_time_over, ms, 0);
}

/* ---- the workers' ends --------------------------------------------------------------------------------- */

static void set_cause_of(struct session *s, const Hvd__Exited *x)
{
    if (x->by_us || x->told_peer)
        return;
    if (x->signal)
        session_set_cause(s, x->oom ? HVD__CAUSE__CAUSE_OUT_OF_MEMORY : HVD__CAUSE__CAUSE_SIGNAL);
    else if (x->status)
        session_set_cause(s, HVD__CAUSE__CAUSE_EXIT_STATUS);
    else if (x->not_shut_down)
        session_set_cause(s, HVD__CAUSE__CAUSE_NO_SHUTDOWN);
}

static void report_exit(struct session *s, struct worker *w)
{
    w->reported = true;
    s->workers.unreported--;
    session_servers_drain(s); /* messages about the worker that were sent before it ended */
    if (s->fsm.state == SESSION_REFUSING)
        return;
    Hvd__Exited x = HVD__EXITED__INIT;
    x.rank = w->rank;
    x.pid = (uint32_t)w->pid;
    x.status = w->status;
    x.signal = w->signal;
    x.core_dumped = w->core_dumped;
    x.by_us = worker_was_ended_by_us(w);
    x.not_shut_down = w->initialized && !w->shut_down && w->status == 0 && w->signal == 0;
    x.told_peer = session_servers_told(s, w) && w->signal == 0 && (w->status != 0 || x.not_shut_down);
    x.time = w->time;
    x.peak_kib = w->peak_kib;
    x.user_us = w->user_us;
    x.system_us = w->system_us;
    x.oom = w->oom;
    x.aborted = w->called_abort;
    x.abort_code = w->abort_code;
    set_cause_of(s, &x);
    EACH_PART(s, p, reported)
        p->reported(s, w, &x);
    CONTROL(m, EXITED, exited, &x);
    session_send_control(s, &m);
}

static void report_exits(struct session *s)
{
    struct workers *w = &s->workers;
    if (s->fsm.state == SESSION_SPAWNING)
        return; /* Spawned comes before Exited */
    for (size_t i = 0; i < w->count && w->unreported > 0; i++)
        if (!w->item[i].reported && worker_is_complete(&w->item[i]))
            report_exit(s, &w->item[i]);
}

/* While the job is being ended: ends the servers after the workers, and posts EV_EMPTY after the last
 * process. */
static void check_rest(struct session *s)
{
    struct session_servers servers = session_servers_list(s);
    if (s->workers.alive == 0 && !descendants_any(servers.pid))
        session_servers_end(s);
    if (descendants_any(NULL)) {
        if (s->fsm.state == SESSION_ENDING || session_parts_are_delaying(s))
            return;
        /* The children of a process that has died are children of the session now. */
        containment_kill(s->containment.path);
        (void)descendants_signal(SIGKILL, NULL);
        return;
    }
    /* Output and files that wait for the launcher's credit have no time limit. */
    if (s->workers.unreported > 0 || session_timeline_is_due(s))
        uv_timer_stop(&s->state_timer);
    else
        fsm_post(&s->fsm, EV_EMPTY);
}

static void check_progress(struct session *s)
{
    report_exits(s);
    switch (s->fsm.state) {
    case SESSION_RUNNING:
        if (s->workers.unreported == 0 && !s->spawn->elastic) /* more workers may come to an elastic job */
            fsm_post(&s->fsm, EV_FINISHED);
        break;
    case SESSION_REFUSING:
    case SESSION_ENDING:
    case SESSION_KILLING:
        check_rest(s);
        break;
    default:
        break;
    }
}

static void on_before_sleep(uv_prepare_t *prepare)
{
    struct session *s = prepare->data;
    do {
        if (s->turn.check_due) {
            s->turn.check_due = false;
            check_progress(s);
            session_flush(s);
            session_resume_output(s);
        }
        EACH_PART(s, p, written)
            p->written(s);
    } while (s->turn.check_due);
}

/* ---- children ------------------------------------------------------------------------------------------ */

/* Tells those that wait for the rank in a collective or in the rendezvous. */
static void notify_rank_ended(struct session *s, struct worker *w)
{
    char cause[128];
    Hvd__RankEnded ended = HVD__RANK_ENDED__INIT;
    ended.failed = worker_describe_end(w, cause, sizeof cause);
    ended.rank = w->rank;
    ended.host = s->job.host;
    ended.pid = (uint32_t)w->pid;
    ended.cause = cause;
    session_parts_rank_ended(s, &ended);
}

static void on_child_ended(void *ctx, const struct reaped *child)
{
    struct session *s = ctx;
    struct worker *w = workers_by_pid(&s->workers, child->pid);
    if (!w) {
        EACH_PART(s, p, reaped) {
            if (p->reaped(s, child))
                return;
        }
        return;
    }
    /* The worker may have asked for the end of the job, and ended for that reason. */
    session_servers_drain(s);
    w->alive = false;
    w->status = w->aborted ? w->abort_status : child->status;
    w->signal = w->aborted ? 0 : child->signal;
    w->core_dumped = child->core_dumped;
    w->oom = w->signal == SIGKILL && !worker_was_ended_by_us(w) && oom_explains(&s->oom);
    if (!w->aborted)
        w->time = clock_now();
    w->peak_kib = child->peak_kib;
    w->user_us = child->user_us;
    w->system_us = child->system_us;
    s->workers.alive--;
    notify_rank_ended(s, w);
    inlet_close(&w->in);
    outlet_orphan(&w->out);
    outlet_orphan(&w->err);
}

static void on_batch(void *ctx)
{
    session_schedule_check(ctx);
}

static void on_asked_to_end(void *ctx, int number)
{
    struct session *s = ctx;
    char why[120];
    snprintf(why, sizeof why, "the session there was asked to end by signal %d (%s)", number,
             strsignal(number));
    if (number == SIGTERM && !session_leaves(s) && !session_ask_leave(s, why))
        return; /* a second one ends the job here */
    session_set_cause(ctx, HVD__CAUSE__CAUSE_CANCELLED);
    session_abort_job(ctx, false, "the session of the job (pid %d) was asked to end by signal %d (%s)",
                      (int)getpid(), number, strsignal(number));
}

static const struct reap_events reap_events = {on_child_ended, on_batch, on_asked_to_end};

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void leave_other_version(void *owner)
{
    struct session *s = owner;
    s->end.exit_status = 125;
    limit_state(s, BYE_MS);
}

static void start_workers(void *owner)
{
    session_start_workers(owner);
}

static void report_running(void *owner)
{
    struct session *s = owner;
    session_send_spawned(s, 0);
    EACH_PART(s, p, running)
        p->running(s);
    session_schedule_check(s);
}

static void send_refused(void *owner)
{
    struct session *s = owner;
    Hvd__Refused r = HVD__REFUSED__INIT;
    char text[ERR_TEXT_MAX + ERR_HINT_MAX];
    snprintf(text, sizeof text, "%s", s->refusal.why.text);
    r.rank = s->refusal.rank;
    r.code = (uint32_t)err_exit_status(&s->refusal.why);
    r.text = text;
    r.hint = s->refusal.why.hint;
    uv_timer_stop(&s->state_timer);
    session_set_cause(s, HVD__CAUSE__CAUSE_NOT_STARTED);
    CONTROL(m, REFUSED, refused, &r);
    session_send_control(s, &m);
}

static bool is_outside(void *ctx, pid_t pid)
{
    struct session *s = ctx;
    return !workers_by_pid(&s->workers, getpgid(pid));
}

/* Each process gets one SIGTERM: with the group of a living worker, or alone. */
static void send_term(void *owner)
{
    struct session *s = owner;
    if (session_parts_are_delaying(s))
        return;
    if (s->workers.alive > 0)
        workers_end(&s->workers, SIGTERM);
    struct session_servers servers = session_servers_list(s);
    bool any = descendants_any(servers.pid);
    if (any)
        (void)descendants_signal_if(SIGTERM, servers.pid, is_outside, s);
    /* Without other processes the grace period is for the servers. */
    uint32_t servers_ms = s->workers.alive == 0 && !any ? session_servers_end_ms(s) : 0;
    limit_state(s, servers_ms > s->job.grace_ms ? servers_ms : s->job.grace_ms);
    session_schedule_check(s);
}

static void begin_ending(void *owner)
{
    struct session *s = owner;
    EACH_PART(s, p, ending)
        p->ending(s);
    reap_now(&s->reap); /* workers that have died before this were not ended by us */
    workers_are_ended(&s->workers);
    if (!session_parts_delay_end(s, false))
        send_term(s);
}

/* A second Teardown without a grace period: output that the launcher does not read, and its timeline, are
 * not waited for either. */
static void discard_rest(void *owner)
{
    struct session *s = owner;
    if (!s->job.no_grace)
        return;
    stdio_discard(&s->stdio);
    session_timeline_drop(s);
}

static void shorten_grace(void *owner)
{
    struct session *s = owner;
    discard_rest(s);
    if (s->job.no_grace)
        fsm_post(&s->fsm, EV_TIME_OVER);
}

static void send_kill(void *owner)
{
    struct session *s = owner;
    if (session_parts_are_delaying(s))
        return;
    workers_end(&s->workers, SIGKILL);
    session_schedule_check(s);
}

static void kill_job(void *owner)
{
    struct session *s = owner;
    if (s->fsm.state == SESSION_REFUSING)
        stdio_discard(&s->stdio); /* of a job that has not begun */
    limit_state(s, KILL_MS);
    session_servers_end(s);
    EACH_PART(s, p, server) {
        if (p->server->kill)
            p->server->kill(s);
    }
    if (!session_parts_delay_end(s, true))
        send_kill(s);
}

static void clean_up(struct session *s)
{
    session_servers_end(s);
    job_dir_remove(s->dir.path);
    guard_owns_directory(s->guard, "");
    if (containment_remove(s->containment.path, descendants_any(NULL) ? 0 : 1000) == 0)
        guard_owns_cgroup(s->guard, "");
}

static void leave_job(void *owner)
{
    struct session *s = owner;
    struct descendant left[LEFTOVERS_MAX];
    Hvd__Leftover item[LEFTOVERS_MAX], *list[LEFTOVERS_MAX];
    char state[LEFTOVERS_MAX][2];
    Hvd__Ended ended = HVD__ENDED__INIT;
    clean_up(s);
    ended.n_leftover = descendants_any(NULL) ? descendants_list(left, LEFTOVERS_MAX) : 0;
    ended.leftover = list;
    for (size_t i = 0; i < ended.n_leftover; i++) {
        hvd__leftover__init(&item[i]);
        snprintf(state[i], sizeof state[i], "%c", left[i].state);
        item[i].pid = (uint32_t)left[i].pid;
        item[i].name = left[i].name;
        item[i].state = state[i];
        list[i] = &item[i];
        /* The launcher tells the user, if the channel is there. */
        log_at(s->launcher.lost ? LOG_ERROR : LOG_INFO, "process %d (%s) cannot be killed, its state is %c",
               (int)left[i].pid, left[i].name, left[i].state);
    }
    if (ended.n_leftover > 0)
        guard_gives_up(s->guard);
    CONTROL(m, ENDED, ended, &ended);
    session_send_control(s, &m);
    limit_state(s, BYE_MS);
    if (s->launcher.lost)
        fsm_post(&s->fsm, EV_LOST);
}

static void stop_loop(void *owner)
{
    struct session *s = owner;
    guard_wake(s->guard); /* the guard ends after the session */
    uv_stop(&s->loop);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static int set_up(struct session *s, struct guard *g, struct err *e)
{
    s->guard = g;
    s->parts = parts;
    s->dir.fd = s->containment.lock = s->containment.fd = -1;
    if (loop_init(&s->loop, e) < 0)
        return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    uv_timer_init(&s->loop, &s->state_timer);
    uv_prepare_init(&s->loop, &s->turn.before_sleep);
    s->state_timer.data = s->turn.before_sleep.data = s;
    uv_prepare_start(&s->turn.before_sleep, on_before_sleep);
    fsm_init(&s->fsm, &table, s, "of this host", SESSION_HELLO);
    if (session_parts_open(s, e) < 0 || reap_open(&s->reap, &s->loop, &reap_events, s, e) < 0 ||
        stdio_init(&s->stdio, &s->loop, &session_stdio_events, s, e) < 0)
        return -1;
    return session_channel_open(s, e);
}

static void tear_down(struct session *s)
{
    clean_up(s);
    session_flush(s);
    session_parts_close(s);
    session_channel_close(s);
    workers_close(&s->workers);
    stdio_close(&s->stdio);
    reap_close(&s->reap);
    uv_close((uv_handle_t *)&s->state_timer, NULL);
    uv_close((uv_handle_t *)&s->turn.before_sleep, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT); /* the closed handles' last callbacks */
    workers_dispose(&s->workers);
    session_parts_free(s);
    session_free_job(s);
    job_dir_close(&s->dir);
    containment_close(&s->containment);
    (void)uv_loop_close(&s->loop);
}

int session_main(struct guard *g)
{
    static struct session session; /* too large for a stack, and never freed */
    struct session *s = &session;
    struct err e = ERR_INIT;
    session_keep_events();
    if (set_up(s, g, &e) < 0) {
        log_error("%s", e.text);
        return err_exit_status(&e);
    }
    uv_run(&s->loop, UV_RUN_DEFAULT);
    int status = s->end.exit_status;
    tear_down(s);
    return status;
}
