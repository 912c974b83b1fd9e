#include "agent/session/session.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/worker/descendants.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"

#define KILL_MS       5000 /* what SIGKILL has not ended by then is uninterruptible */
#define BYE_MS        2000
#define LEFTOVERS_MAX 64

static void welcome_stranger(void *owner);
static void say_spawned(void *owner);
static void kill_all(void *owner);
static void say_refused(void *owner);
static void begin_end(void *owner);
static void shorten_grace(void *owner);
static void leave(void *owner);
static void stop(void *owner);

static const char *const state_names[] = {"hello", "ready",  "waiting", "spawning", "refusing", "running",
                                          "done",  "ending", "killing", "leaving",  "over"};
static const char *const event_names[] = {"hello",    "stranger", "wait", "spawn",    "refused", "executed",
                                          "finished", "teardown", "lost", "patience", "empty",   "bye"};

static const struct fsm_row rows[] = {
    {SESSION_HELLO, EV_HELLO, SESSION_READY, NULL},
    {SESSION_HELLO, EV_STRANGER, SESSION_LEAVING, welcome_stranger},
    {SESSION_HELLO, EV_LOST, SESSION_OVER, stop},
    {SESSION_READY, EV_SPAWN, SESSION_SPAWNING, NULL},
    {SESSION_READY, EV_WAIT, SESSION_WAITING, NULL},
    {SESSION_READY, EV_REFUSED, SESSION_REFUSING, kill_all},
    {SESSION_READY, EV_TEARDOWN, SESSION_ENDING, begin_end},
    {SESSION_READY, EV_LOST, SESSION_ENDING, begin_end},
    {SESSION_WAITING, EV_SPAWN, SESSION_SPAWNING, NULL},
    {SESSION_WAITING, EV_REFUSED, SESSION_REFUSING, kill_all},
    {SESSION_WAITING, EV_TEARDOWN, SESSION_ENDING, begin_end},
    {SESSION_WAITING, EV_LOST, SESSION_ENDING, begin_end},
    {SESSION_SPAWNING, EV_EXECUTED, SESSION_RUNNING, say_spawned},
    {SESSION_SPAWNING, EV_REFUSED, SESSION_REFUSING, kill_all},
    {SESSION_SPAWNING, EV_TEARDOWN, SESSION_ENDING, begin_end},
    {SESSION_SPAWNING, EV_LOST, SESSION_ENDING, begin_end},
    {SESSION_REFUSING, EV_EMPTY, SESSION_DONE, say_refused},
    {SESSION_REFUSING, EV_PATIENCE, SESSION_DONE, say_refused},
    {SESSION_REFUSING, EV_TEARDOWN, SESSION_KILLING, kill_all},
    {SESSION_REFUSING, EV_LOST, SESSION_KILLING, kill_all},
    {SESSION_RUNNING, EV_FINISHED, SESSION_DONE, NULL},
    {SESSION_RUNNING, EV_TEARDOWN, SESSION_ENDING, begin_end},
    {SESSION_RUNNING, EV_LOST, SESSION_ENDING, begin_end},
    {SESSION_DONE, EV_TEARDOWN, SESSION_ENDING, begin_end},
    {SESSION_DONE, EV_LOST, SESSION_ENDING, begin_end},
    {SESSION_ENDING, EV_TEARDOWN, SESSION_ENDING, shorten_grace},
    {SESSION_ENDING, EV_PATIENCE, SESSION_KILLING, kill_all},
    {SESSION_ENDING, EV_EMPTY, SESSION_LEAVING, leave},
    {SESSION_KILLING, EV_EMPTY, SESSION_LEAVING, leave},
    {SESSION_KILLING, EV_PATIENCE, SESSION_LEAVING, leave}, /* uninterruptible processes: they are named */
    {SESSION_LEAVING, EV_BYE, SESSION_OVER, stop},
    {SESSION_LEAVING, EV_LOST, SESSION_OVER, stop},
    {SESSION_LEAVING, EV_PATIENCE, SESSION_OVER, stop},
};

static const struct fsm_table table = {"session", state_names, event_names, rows, sizeof rows / sizeof *rows};

static void on_patience(uv_timer_t *timer)
{
    struct session *s = timer->data;
    fsm_post(&s->fsm, EV_PATIENCE);
}

static void set_patience(struct session *s, uint64_t ms)
{
    uv_timer_start(&s->patience, on_patience, ms, 0);
}

/* ---- what is left -------------------------------------------------------------------------------------- */

static void report_exit(struct session *s, struct worker *w)
{
    w->reported = true;
    s->workers.unreported--;
    /* What the worker told the engine before it ended is already in our socket. */
    if (w->signal == 0)
        engine_host_drain(&s->engine);
    pmix_host_drain(&s->pmix);
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
    bool told = (s->poisoned && w->rank != s->poisoned_by) || engine_host_is_failing(&s->engine) ||
                pmix_host_is_failing(&s->pmix);
    x.told_peer = told && w->status != 0 && w->signal == 0;
    x.time = w->time;
    x.peak_kib = w->peak_kib;
    x.user_us = w->user_us;
    x.system_us = w->system_us;
    x.oom = w->oom;
    x.aborted = w->called_abort;
    x.abort_code = w->abort_code;
    session_rank_ended(s, w, &x);
    CONTROL(m, EXITED, exited, &x);
    session_send(s, &m);
}

static void report_exits(struct session *s)
{
    struct workers *w = &s->workers;
    if (s->fsm.state == SESSION_SPAWNING)
        return; /* nobody has ended before he was said to run */
    for (size_t i = 0; i < w->count && w->unreported > 0; i++)
        if (!w->item[i].reported && worker_is_complete(&w->item[i]))
            report_exit(s, &w->item[i]);
}

/* While the job is being ended: is anybody left? */
static void check_rest(struct session *s)
{
    bool killing = s->fsm.state != SESSION_ENDING;
    struct session_servers servers = session_servers(s);
    if (s->workers.alive == 0 && !descendants_any(servers.pid))
        session_servers_end(s);
    if (descendants_any(NULL)) {
        if (!killing || s->mps.then)
            return;
        /* Whoever died has made his children ours. */
        containment_kill(s->containment.path);
        (void)descendants_signal(SIGKILL, NULL);
        return;
    }
    if (s->workers.unreported == 0)
        fsm_post(&s->fsm, EV_EMPTY);
    else
        uv_timer_stop(
            &s->patience); /* their output waits for the launcher's credit, which may take its time */
}

static void check(struct session *s)
{
    report_exits(s);
    switch (s->fsm.state) {
    case SESSION_RUNNING:
        if (s->workers.unreported == 0)
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

void session_mark(struct session *s)
{
    s->marked = true;
}

static void before_sleep(uv_prepare_t *prepare)
{
    struct session *s = prepare->data;
    while (s->marked) {
        s->marked = false;
        check(s);
        session_flush(s);
    }
    engine_host_flush(&s->engine);
}

/* ---- children ------------------------------------------------------------------------------------------ */

/* Whoever waits for it in a collective or in the rendezvous. */
static void tell_waiters(struct session *s, struct worker *w)
{
    char cause[128];
    Hvd__RankEnded ended = HVD__RANK_ENDED__INIT;
    ended.failed = worker_describe_end(w, cause, sizeof cause);
    ended.rank = w->rank;
    ended.host = s->host;
    ended.pid = (uint32_t)w->pid;
    ended.cause = cause;
    engine_host_rank_ended(&s->engine, &ended);
    engine_host_flush(&s->engine);
    rendezvous_rank_ended(&s->rendezvous, w->rank, cause);
}

static void on_child_ended(void *ctx, const struct reaped *child)
{
    struct session *s = ctx;
    struct worker *w = workers_by_pid(&s->workers, child->pid);
    if (!w) {
        if (!where_reaped(&s->where, child->pid))
            (void)session_servers_reaped(s, child);
        return;
    }
    pmix_host_drain(&s->pmix); /* it may have asked for the end of the job, and so it ended */
    w->alive = false;
    w->status = w->aborted ? w->abort_status : child->status;
    w->signal = w->aborted ? 0 : child->signal;
    w->core_dumped = child->core_dumped;
    w->oom = w->signal == SIGKILL && !worker_was_ended_by_us(w) && oom_explains(&s->oom);
    w->time = clock_now();
    w->peak_kib = child->peak_kib;
    w->user_us = child->user_us;
    w->system_us = child->system_us;
    s->workers.alive--;
    engine_host_drain(&s->engine);
    tell_waiters(s, w);
    inlet_close(&w->in);
    outlet_orphan(&w->out);
    outlet_orphan(&w->err);
}

static void on_batch(void *ctx)
{
    session_mark(ctx);
}

static void on_asked_to_end(void *ctx, int number)
{
    session_blame(ctx, HVD__CAUSE__CAUSE_CANCELLED);
    session_lose(ctx, false, "the session of the job (pid %d) was asked to end by signal %d (%s)",
                 (int)getpid(), number, strsignal(number));
}

static const struct reap_events reap_events = {on_child_ended, on_batch, on_asked_to_end};

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void welcome_stranger(void *owner)
{
    struct session *s = owner;
    s->exit_status = 125;
    set_patience(s, BYE_MS);
}

static void say_spawned(void *owner)
{
    struct session *s = owner;
    session_spawned(s);
    session_report_start(s);
    session_mark(s);
}

static void say_refused(void *owner)
{
    struct session *s = owner;
    Hvd__Refused r = HVD__REFUSED__INIT;
    char text[ERR_TEXT_MAX + ERR_HINT_MAX];
    snprintf(text, sizeof text, "%s", s->refusal.text);
    r.rank = s->refused_rank;
    r.code = (uint32_t)err_exit_status(&s->refusal);
    r.text = text;
    r.hint = s->refusal.hint;
    uv_timer_stop(&s->patience);
    session_blame(s, HVD__CAUSE__CAUSE_NOT_STARTED);
    CONTROL(m, REFUSED, refused, &r);
    session_send(s, &m);
}

static bool is_outside(void *ctx, pid_t pid)
{
    struct session *s = ctx;
    return !workers_by_pid(&s->workers, getpgid(pid));
}

/* Everybody gets one SIGTERM: with the group of a living worker, or alone. */
static void tell_to_end(struct session *s)
{
    if (s->workers.alive > 0)
        workers_end(&s->workers, SIGTERM);
    struct session_servers servers = session_servers(s);
    bool any = descendants_any(servers.pid);
    if (any)
        (void)descendants_signal_if(SIGTERM, servers.pid, is_outside, s);
    /* When nobody is left there is no grace to give, but for what has to be told to quit. */
    bool quits = s->workers.alive == 0 && !any && mps_host_pid(&s->mps.host) > 0;
    set_patience(s, quits && s->grace_ms < MPS_END_MS ? MPS_END_MS : s->grace_ms);
    session_mark(s);
}

static void begin_end(void *owner)
{
    struct session *s = owner;
    where_stop(&s->where);
    reap_now(&s->reap); /* who has died already was not ended by us */
    workers_are_ended(&s->workers);
    if (!session_mps_releases(s, false, tell_to_end))
        tell_to_end(s);
}

/* Somebody insists: he does not wait for output that nobody reads either. */
static void shorten_grace(void *owner)
{
    struct session *s = owner;
    if (!s->impatient)
        return;
    stdio_discard(&s->stdio);
    fsm_post(&s->fsm, EV_PATIENCE);
}

static void kill_workers(struct session *s)
{
    workers_end(&s->workers, SIGKILL);
    session_mark(s);
}

static void kill_all(void *owner)
{
    struct session *s = owner;
    if (s->fsm.state == SESSION_REFUSING)
        stdio_discard(&s->stdio); /* of a job that never was */
    set_patience(s, KILL_MS);
    session_servers_end(s);
    mps_host_kill(&s->mps.host);
    if (!session_mps_releases(s, true, kill_workers))
        kill_workers(s);
}

static void clean_up(struct session *s)
{
    session_servers_end(s);
    job_dir_remove(s->dir.path);
    guard_owns_directory(s->guard, "");
    if (containment_remove(s->containment.path, descendants_any(NULL) ? 0 : 1000) == 0)
        guard_owns_cgroup(s->guard, "");
}

static void leave(void *owner)
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
        /* The launcher says it, if it still hears us. */
        log_at(s->lost ? LOG_ERROR : LOG_INFO, "process %d (%s) cannot be killed, its state is %c",
               (int)left[i].pid, left[i].name, left[i].state);
    }
    if (ended.n_leftover > 0)
        guard_gives_up(s->guard);
    CONTROL(m, ENDED, ended, &ended);
    session_send(s, &m);
    set_patience(s, BYE_MS);
    if (s->lost)
        fsm_post(&s->fsm, EV_LOST);
}

static void stop(void *owner)
{
    struct session *s = owner;
    guard_wake(s->guard); /* it is to follow */
    uv_stop(&s->loop);
}

/* ---- from the channel ---------------------------------------------------------------------------------- */

void session_teardown(struct session *s, const Hvd__Teardown *teardown)
{
    bool known = protobuf_c_enum_descriptor_get_value(&hvd__cause__descriptor, (int)teardown->cause);
    session_blame(s, known ? teardown->cause : HVD__CAUSE__CAUSE_FAULT);
    log_info("ending the job%s%s", teardown->reason[0] ? ": " : "", teardown->reason);
    s->grace_ms = teardown->grace_ms;
    s->impatient = teardown->grace_ms == 0;
    fsm_post(&s->fsm, EV_TEARDOWN);
}

void session_lose(struct session *s, bool dead, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (s->fsm.state < SESSION_LEAVING) {
        log_at(s->fsm.state == SESSION_HELLO ? LOG_ERROR : LOG_INFO, "%s",
               text); /* before Hello stderr is all there is */
        s->exit_status = 125;
        session_blame(s, HVD__CAUSE__CAUSE_FAULT);
        if (!dead)
            session_fault(s, "%s", text);
    }
    if (dead && !s->lost) {
        s->lost = true;
        stdio_discard(&s->stdio);
    }
    fsm_post(&s->fsm, EV_LOST);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void on_guard_died(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    uv_poll_stop(poll);
    session_lose(s, false, "the guard of the job (pid %d) was killed", (int)s->guard->pid);
}

static int set_up(struct session *s, struct guard *g, struct err *e)
{
    s->guard = g;
    inquiries_init(&s->inquiries);
    s->dir.fd = s->containment.fd = s->report_fd = s->preload.fd = s->preload.dir_fd = -1;
    s->exit_status = 0;
    if (loop_init(&s->loop, e) < 0)
        return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    uv_timer_init(&s->loop, &s->heart);
    uv_timer_init(&s->loop, &s->patience);
    uv_timer_init(&s->loop, &s->abort_timer);
    uv_timer_init(&s->loop, &s->report_timer);
    uv_prepare_init(&s->loop, &s->prepare);
    s->heart.data = s->patience.data = s->abort_timer.data = s->report_timer.data = s->prepare.data = s;
    uv_prepare_start(&s->prepare, before_sleep);
    fsm_init(&s->fsm, &table, s, "-", SESSION_HELLO);
    int rc = uv_poll_init(&s->loop, &s->guard_poll, g->pidfd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the guard: %s", uv_strerror(rc));
    s->guard_poll.data = s;
    uv_poll_start(&s->guard_poll, UV_READABLE, on_guard_died);
    if (reap_open(&s->reap, &s->loop, &reap_events, s, e) < 0 ||
        stdio_init(&s->stdio, &s->loop, &session_stdio_events, s, e) < 0 || session_channel_open(s, e) < 0)
        return -1;
    return 0;
}

static void tear_down(struct session *s)
{
    clean_up(s);
    session_flush(s);
    session_report_end(s);
    session_channel_close(s);
    engine_host_close(&s->engine);
    session_rendezvous_close(s);
    session_mps_close(s);
    where_close(&s->where);
    inquiries_close(&s->inquiries);
    workers_close(&s->workers);
    stdio_close(&s->stdio);
    session_spawn_close(s);
    reap_close(&s->reap);
    uv_close((uv_handle_t *)&s->guard_poll, NULL);
    uv_close((uv_handle_t *)&s->heart, NULL);
    uv_close((uv_handle_t *)&s->patience, NULL);
    uv_close((uv_handle_t *)&s->abort_timer, NULL);
    uv_close((uv_handle_t *)&s->report_timer, NULL);
    uv_close((uv_handle_t *)&s->prepare, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT); /* the closed handles' last callbacks */
    workers_free(&s->workers);
    session_inquiry_free(s);
    job_dir_close(&s->dir);
    containment_close(&s->containment);
    (void)uv_loop_close(&s->loop);
}

int session_main(struct guard *g)
{
    static struct session session; /* one a process; too large for a stack */
    struct session *s = &session;
    struct err e = ERR_INIT;
    if (set_up(s, g, &e) < 0) {
        log_error("%s", e.text);
        return err_exit_status(&e);
    }
    uv_run(&s->loop, UV_RUN_DEFAULT);
    int status = s->exit_status;
    tear_down(s);
    return status;
}
