#include "agent/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/worker/pty.h"
#include "common/base/clock.h"

void rlimits_take(struct rlimits *r, Hvd__ResourceLimit *const *wanted, size_t count,
                  void (*capped)(void *ctx, const char *name, uint64_t wanted, uint64_t hard), void *ctx)
{
    r->count = 0;
    for (size_t i = 0; i < count && r->count < RLIMITS_COUNT; i++) {
        const struct rlimit_name *name = rlimit_find(wanted[i]->name, strlen(wanted[i]->name));
        struct rlimit limit;
        if (!name || getrlimit((__rlimit_resource_t)name->resource, &limit) < 0)
            continue;
        rlim_t soft = wanted[i]->soft == UINT64_MAX ? RLIM_INFINITY : wanted[i]->soft;
        if (soft > limit.rlim_max)
            capped(ctx, name->name, wanted[i]->soft, limit.rlim_max);
        limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
        r->limit[r->count++] = (struct spawn_limit){name->resource, limit};
    }
}

int workers_init(struct workers *w, size_t count, size_t room, struct err *e)
{
    if (room < count)
        room = count;
    *w = (struct workers){.item = calloc(room, sizeof *w->item), .room = room};
    if (!w->item)
        return err_set(e, ERR_MEMORY, "no memory for %zu workers", room);
    while (w->count < count)
        (void)workers_add(w);
    return 0;
}

size_t workers_add(struct workers *w)
{
    if (w->count == w->room)
        return w->room;
    struct worker *item = &w->item[w->count];
    item->out.fd = item->err.fd = item->in.fd = -1;
    return w->count++;
}

void workers_close(struct workers *w)
{
    for (size_t i = 0; i < w->count; i++)
        inlet_close(&w->item[i].in);
}

void workers_dispose(struct workers *w)
{
    free(w->item);
    *w = (struct workers){0};
}

static void close_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++)
        for (int end = 0; end < 2; end++)
            if (pipes[i][end] >= 0)
                close(pipes[i][end]);
}

static int open_pipes(int pipes[3][2], bool has_stdin)
{
    for (int i = 0; i < 3; i++)
        pipes[i][0] = pipes[i][1] = -1;
    for (int i = has_stdin ? 0 : 1; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) < 0) {
            close_pipes(pipes);
            return -1;
        }
    }
    return 0;
}

/* Opens a terminal in place of the pipes. The worker's end serves all three streams. Our end is opened twice,
 * to read and to write. */
static int open_terminal(int pipes[3][2], const Hvd__Window *size, struct err *e)
{
    for (int i = 0; i < 3; i++)
        pipes[i][0] = pipes[i][1] = -1;
    if (pty_open(&pipes[1][0], &pipes[0][0], size, e) < 0)
        return -1;
    pipes[0][1] = fcntl(pipes[1][0], F_DUPFD_CLOEXEC, 3);
    if (pipes[0][1] >= 0)
        return 0;
    err_sys(e, errno, "cannot make a pseudo terminal");
    close_pipes(pipes);
    return -1;
}

/* Our ends of the pipes become parts of the loop; a taken one is set to -1. */
static int take_pipes(struct worker *w, struct stdio *stdio, int pipes[3][2], uint32_t window, struct err *e)
{
    if (pipes[0][1] >= 0 && inlet_open(&w->in, stdio, pipes[0][1], w->rank, e) < 0)
        return -1;
    pipes[0][1] = -1;
    if (outlet_open(&w->out, stdio, pipes[1][0], w->rank, STREAM_STDOUT, window, e) < 0)
        return -1;
    pipes[1][0] = -1;
    w->in.terminal = w->out.terminal = w->terminal;
    if (w->terminal) {
        outlet_open_none(&w->err, stdio, w->rank, STREAM_STDERR);
        return 0;
    }
    if (outlet_open(&w->err, stdio, pipes[2][0], w->rank, STREAM_STDERR, window, e) < 0)
        return -1;
    pipes[2][0] = -1;
    return 0;
}

static struct spawn spawn_of(const struct worker_start *start, const Hvd__Worker *spec)
{
    struct spawn s = SPAWN_INIT;
    s.path = start->path;
    s.argv = start->argv;
    s.dir = start->dir;
    s.cgroup_fd = start->cgroup_fd;
    s.new_session = !start->share_session;
    s.new_group = start->share_session;
    s.stop_at_exec = start->spawn->stop_on_exec;
    s.die_with_us = true;
    s.report_fd = start->report_fd;
    s.cpus = start->cpus;
    s.cpus_size = sizeof *start->cpus;
    s.limits = start->limits->limit;
    s.limit_count = start->limits->count;
    s.id = spec->rank;
    return s;
}

int workers_start(struct workers *w, size_t i, const struct worker_start *start, struct err *e)
{
    const Hvd__Worker *spec = start->worker;
    struct worker *worker = &w->item[i];
    struct spawn s = spawn_of(start, spec);
    struct spawned child;
    int pipes[3][2];
    worker->rank = spec->rank;
    worker->has_stdin = spec->has_stdin;
    worker->terminal = s.terminal = spec->terminal != NULL;
    s.new_session = s.new_session || s.terminal;
    if (spec->terminal && open_terminal(pipes, spec->terminal, e) < 0)
        return err_wrap(e, "rank %u", spec->rank);
    if (!spec->terminal && open_pipes(pipes, spec->has_stdin) < 0)
        return err_sys(e, errno, "cannot make pipes for rank %u", spec->rank);
    s.fds[0] = pipes[0][0];
    s.fds[1] = spec->terminal ? pipes[0][0] : pipes[1][1];
    s.fds[2] = spec->terminal ? pipes[0][0] : pipes[2][1];
    s.envp = worker_env_of(start->env, spec);
    int rc = take_pipes(worker, start->stdio, pipes, start->spawn->output_window, e);
    worker->began = clock_now(); /* before it can run: this process may wait for a processor afterwards */
    if (rc == 0)
        rc = spawn_start(&s, &child, e);
    close_pipes(pipes);
    if (rc < 0)
        return err_wrap(e, "rank %u", spec->rank);
    close(child.pidfd); /* an unreaped pid is ours for certain */
    worker->pid = child.pid;
    worker->alive = true;
    w->alive++;
    w->unreported++;
    return 0;
}

int workers_start_failed(const struct spawn_failure *f, const struct worker_start *start, struct err *e)
{
    Hvd__Worker spec = HVD__WORKER__INIT;
    struct spawn s = spawn_of(start, &spec);
    return spawn_failure_err(f, &s, e);
}

struct worker *workers_by_pid(struct workers *w, pid_t pid)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->item[i].pid == pid && w->item[i].alive)
            return &w->item[i];
    return NULL;
}

struct worker *workers_by_rank(struct workers *w, uint32_t rank)
{
    /* Ranks are placed in blocks: nearly always this is it. */
    size_t guess = w->count > 0 && rank >= w->item[0].rank ? rank - w->item[0].rank : 0;
    if (guess < w->count && w->item[guess].pid > 0 && w->item[guess].rank == rank)
        return &w->item[guess];
    for (size_t i = 0; i < w->count; i++)
        if (w->item[i].pid > 0 && w->item[i].rank == rank)
            return &w->item[i];
    return NULL;
}

/* A worker that dies of SIGUSR1, whose meaning is the program's own, has failed. */
static bool asks_to_end(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT ||
           number == SIGKILL;
}

void worker_signal(struct worker *w, int number, bool ours)
{
    /* Between clone and setsid it has no group of its own yet. */
    if (w->alive && kill(-w->pid, number) < 0 && errno == ESRCH)
        kill(w->pid, number);
    if (w->alive && number < 64 && (ours || asks_to_end(number)))
        w->fatal_sent |= 1ULL << number;
}

void workers_signal(struct workers *w, int number, bool ours)
{
    for (size_t i = 0; i < w->count; i++)
        worker_signal(&w->item[i], number, ours);
}

void workers_are_ended(struct workers *w)
{
    for (size_t i = 0; i < w->count; i++)
        w->item[i].ended_by_us = w->item[i].ended_by_us || (w->item[i].alive && !w->item[i].aborted);
}

void workers_end(struct workers *w, int number)
{
    workers_are_ended(w);
    workers_signal(w, number, true);
    workers_signal(w, SIGCONT, true); /* a stopped one must wake up to end */
}

bool worker_is_complete(const struct worker *w)
{
    return w->pid > 0 && !w->alive && w->out.settled && w->err.settled;
}

bool worker_was_ended_by_us(const struct worker *w)
{
    return w->ended_by_us || (w->signal && w->signal < 64 && (w->fatal_sent >> w->signal & 1));
}

bool worker_describe_end(const struct worker *w, char *text, size_t size)
{
    if (w->oom)
        snprintf(text, size, "killed by the kernel for lack of memory (OOM)");
    else if (w->signal)
        snprintf(text, size, "killed by signal %u (%s)", w->signal, strsignal((int)w->signal));
    else if (w->status)
        snprintf(text, size, "exit status %u", w->status);
    else if (w->initialized && !w->shut_down)
        snprintf(text, size, "exit status 0 without hvd_shutdown");
    else
        snprintf(text, size, "exit status 0");
    return w->signal || w->status || (w->initialized && !w->shut_down);
}
