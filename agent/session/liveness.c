/* The session, the launcher and the guard show each other that they live. A silent launcher ends the job. A
 * guard that was stopped is continued; a guard that still does not move, or that has died, ends the job,
 * because nothing would end what this session leaves. */
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/agent_exit.h"

#define SILENCE_MS 60000 /* until Hello says how long */

struct session_liveness {
    uv_timer_t timer;
    uint64_t shown_at; /* when the session showed last that it lives */
    uv_poll_t guard_poll;
    struct heartbeat guard;
    uint64_t guard_moves; /* as they were counted last */
    bool guard_woken;
};

/* ---- the guard ----------------------------------------------------------------------------------------- */

static void check_guard(struct session *s)
{
    struct session_liveness *l = s->liveness;
    uint64_t moves = guard_moves(s->guard), now = clock_now();
    if (moves != l->guard_moves) {
        l->guard_moves = moves;
        l->guard_woken = false;
        heartbeat_seen(&l->guard, now);
    }
    if (heartbeat_look(&l->guard, now) != HEARTBEAT_DEAD)
        return;
    heartbeat_seen(&l->guard, now);
    if (l->guard_woken) {
        session_abort_job(s, false, "the guard of the job (pid %d) does not move", (int)s->guard->pid);
        return;
    }
    session_send_notice(s, LOG_WARNING, "the guard of the job (pid %d) was stopped: it goes on",
                        (int)s->guard->pid);
    l->guard_woken = true;
    guard_wake(s->guard);
}

static void on_guard_died(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    uv_poll_stop(poll);
    session_abort_job(s, false, "the guard of the job (pid %d) was killed", (int)s->guard->pid);
}

/* ---- the launcher -------------------------------------------------------------------------------------- */

static void show_life(struct session *s)
{
    Hvd__Ping ping = HVD__PING__INIT;
    s->liveness->shown_at = clock_now();
    guard_beat(s->guard);
    if (s->fsm.state > SESSION_HELLO) {
        CONTROL(m, PING, ping, &ping);
        session_send_control(s, &m);
    }
}

void session_heartbeat_busy(struct session *s)
{
    if (clock_now() - s->liveness->shown_at < heartbeat_interval(&s->launcher.heartbeat))
        return;
    show_life(s);
    session_flush(s);
}

/* A launcher that only stood still learns the reason from the exit status. */
static void end_silent_job(struct session *s)
{
    bool begins = s->fsm.state < SESSION_LEAVING;
    session_set_cause(s, HVD__CAUSE__CAUSE_HEARTBEAT);
    session_abort_job(s, true, "the launcher has been silent for %u ms: ending the job", s->job.heartbeat_ms);
    if (begins)
        s->end.exit_status = AGENT_EXIT_SILENT;
}

/* Shows the guard and the launcher that the session lives, and checks that they do. */
static void on_timer(uv_timer_t *timer)
{
    struct session *s = timer->data;
    struct heartbeat *launcher = &s->launcher.heartbeat;
    show_life(s);
    check_guard(s);
    if (s->launcher.lost)
        return;
    switch (heartbeat_look(launcher, clock_now())) {
    case HEARTBEAT_ALIVE:
        /* The launcher relies on a lease that ends in time. */
        uv_timer_start(timer, on_timer, heartbeat_next_ms(launcher, clock_now()),
                       heartbeat_interval(launcher) / NSEC_PER_MSEC);
        break;
    case HEARTBEAT_DOUBT:
        s->launcher.heartbeats_missed++;
        /* The loop reads what waits before this timer comes again. */
        uv_timer_start(timer, on_timer, 1, heartbeat_interval(launcher) / NSEC_PER_MSEC);
        break;
    case HEARTBEAT_DEAD:
        end_silent_job(s);
        break;
    }
}

void session_heartbeat_start(struct session *s, uint32_t heartbeat_ms)
{
    s->job.heartbeat_ms = heartbeat_ms;
    heartbeat_start(&s->launcher.heartbeat, heartbeat_ms * NSEC_PER_MSEC, clock_now());
    uint64_t interval = heartbeat_interval(&s->launcher.heartbeat) / NSEC_PER_MSEC;
    uv_timer_start(&s->liveness->timer, on_timer, interval, interval);
    guard_beat(s->guard);
    heartbeat_start(&s->liveness->guard, heartbeat_ms * NSEC_PER_MSEC, clock_now());
    /* The guard notices a silent session before the launcher does, and can say what was wrong. */
    guard_limit(s->guard, heartbeat_ms - heartbeat_ms / 4);
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static int open_liveness(struct session *s, struct err *e)
{
    struct session_liveness *l = s->liveness;
    uv_timer_init(&s->loop, &l->timer);
    int rc = uv_poll_init(&s->loop, &l->guard_poll, s->guard->pidfd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the guard: %s", uv_strerror(rc));
    l->timer.data = l->guard_poll.data = s;
    uv_poll_start(&l->guard_poll, UV_READABLE, on_guard_died);
    session_heartbeat_start(s, SILENCE_MS);
    return 0;
}

static void close_liveness(struct session *s)
{
    uv_close((uv_handle_t *)&s->liveness->timer, NULL);
    uv_close((uv_handle_t *)&s->liveness->guard_poll, NULL);
}

const struct session_part session_part_liveness = {
    .name = "liveness",
    .state = SESSION_STATE(liveness),
    .open = open_liveness,
    .close = close_liveness,
};
