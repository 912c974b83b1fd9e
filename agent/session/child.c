#include "agent/session/child.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/process/module.h"
#include "common/process/spawn.h"

#define END_MS 1000

/* ---- silence ------------------------------------------------------------------------------------------- */

static void kill_it(struct child *c)
{
    if (c->pid > 0)
        kill(c->pid, SIGKILL);
}

static void on_look(uv_timer_t *timer)
{
    struct child *c = timer->data;
    switch (heartbeat_look(&c->heart, clock_now())) {
    case HEARTBEAT_ALIVE:
        break;
    case HEARTBEAT_DOUBT: /* the loop reads what waits before this timer comes again */
        uv_timer_start(timer, on_look, 1, c->silence_ms / 4);
        break;
    case HEARTBEAT_DEAD:
        child_fail(c, "did not move for %.3g s and was killed", (double)c->heart.limit / 1e9);
        kill_it(c); /* it does not see that its socket was closed */
        break;
    }
}

static void watch_silence(struct child *c, uint32_t start_ms)
{
    heartbeat_start(&c->heart, start_ms * NSEC_PER_MSEC, clock_now());
    uv_timer_init(c->loop, &c->timer);
    c->timer.data = c;
    c->has_timer = true;
    uv_timer_start(&c->timer, on_look, c->silence_ms / 4, c->silence_ms / 4);
}

void child_moves(struct child *c)
{
    heartbeat_start(&c->heart, c->silence_ms * NSEC_PER_MSEC, clock_now());
}

/* ---- start --------------------------------------------------------------------------------------------- */

static int start_process(struct child *c, const struct child_program *program, int peer, struct err *e)
{
    char path[PATH_MAX];
    char *argv[] = {(char *)(uintptr_t)program->program, NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned child;
    if (module_path(program->program, path, sizeof path, e) < 0)
        return -1;
    s.path = path;
    s.argv = argv;
    s.envp = program->envp;
    s.fds[2] = STDERR_FILENO;
    s.extra_fd = peer;
    s.cgroup_fd = program->cgroup_fd;
    s.new_session = s.die_with_us = true;
    if (spawn_start(&s, &child, e) < 0)
        return -1;
    close(child.pidfd);
    c->pid = child.pid;
    return 0;
}

void child_init(struct child *c, uv_loop_t *loop, const char *title, const struct child_events *events,
                void *ctx)
{
    *c = (struct child){.loop = loop, .title = title, .events = events, .ctx = ctx};
}

int child_start(struct child *c, const struct child_program *program, struct err *e)
{
    int pair[2];
    c->silence_ms = program->silence_ms;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "socketpair");
    int rc = start_process(c, program, pair[1], e);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return -1;
    }
    watch_silence(c, program->start_ms);
    return pair[0];
}

/* ---- end ----------------------------------------------------------------------------------------------- */

static void on_last_wait(uv_timer_t *timer)
{
    kill_it(timer->data);
}

void child_let_go(struct child *c)
{
    if (c->has_timer && c->pid > 0)
        uv_timer_start(&c->timer, on_last_wait, END_MS, 0);
}

void child_fail(struct child *c, const char *fmt, ...)
{
    char how[512], text[ERR_TEXT_MAX];
    va_list args;
    if (c->ending || c->failed)
        return;
    c->failed = true;
    va_start(args, fmt);
    vsnprintf(how, sizeof how, fmt, args);
    va_end(args);
    snprintf(text, sizeof text, "%s (pid %d) %s", c->title, (int)c->pid, how);
    c->events->let_go(c->ctx);
    c->events->failed(c->ctx, text);
}

void child_end(struct child *c)
{
    c->ending = true;
    c->events->let_go(c->ctx);
}

bool child_reaped(struct child *c, pid_t pid, uint32_t status, uint32_t signal)
{
    char how[256], text[ERR_TEXT_MAX];
    if (pid <= 0 || pid != c->pid)
        return false;
    if (!c->ending)
        c->events->drain(c->ctx); /* its last words */
    if (signal)
        snprintf(how, sizeof how, "was killed by signal %u (%s)", signal, strsignal((int)signal));
    else
        snprintf(how, sizeof how, "ended with exit status %u", status);
    if (c->ending && !c->failed && (signal ? signal != SIGKILL : status != 0)) {
        snprintf(text, sizeof text, "%s (pid %d) %s", c->title, (int)pid, how);
        c->events->notice(c->ctx, LOG_ERROR, text);
    }
    child_fail(c, "%s", how);
    c->pid = 0;
    if (c->has_timer)
        uv_timer_stop(&c->timer);
    return true;
}

void child_close(struct child *c)
{
    if (c->has_timer)
        uv_close((uv_handle_t *)&c->timer, NULL);
    c->has_timer = false;
}
