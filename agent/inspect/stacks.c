#include "agent/inspect/stacks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/spawn.h"

#define STACK_MAX  (8u << 10)   /* of a worker, on the wire */
#define OUTPUT_MAX (256u << 10) /* of a tool; more is read and dropped */

struct where_worker {
    uint32_t rank;
    size_t count, next, ready; /* of its processes: found, begun, looked at */
    struct where_process process[WHERE_PROCESSES];
    char *stack[WHERE_PROCESSES];
    char no_stack[WHERE_PROCESSES][120];
    bool told;
};

static void start_tools(struct where *w);

/* ---- answers ------------------------------------------------------------------------------------------- */

static void tell_worker(struct where *w, struct where_worker *k)
{
    Hvd__WhereProcess process[WHERE_PROCESSES], *list[WHERE_PROCESSES];
    Hvd__Where where = HVD__WHERE__INIT;
    where.rank = k->rank;
    where.n_process = k->count;
    where.process = list;
    for (size_t i = 0; i < k->count; i++) {
        list[i] = &process[i];
        hvd__where_process__init(&process[i]);
        process[i].pid = (uint32_t)k->process[i].pid;
        process[i].name = k->process[i].name;
        process[i].state = (char *)where_state_word(k->process[i].state);
        process[i].waits = k->process[i].waits;
        process[i].cpu_ms = k->process[i].cpu_ms;
        process[i].stack = k->stack[i] ? k->stack[i] : (char *)"";
        process[i].no_stack = k->no_stack[i];
    }
    k->told = true;
    w->told++;
    w->events->found(w->ctx, &where);
    for (size_t i = 0; i < k->count; i++) {
        free(k->stack[i]);
        k->stack[i] = NULL;
    }
}

static void finish_all(struct where *w)
{
    const char *name = strrchr(w->tool, '/');
    w->active = false;
    uv_timer_stop(&w->timer);
    w->events->done(w->ctx, name ? name + 1 : w->tool);
}

static void end_at_limit(struct where *w)
{
    for (size_t i = 0; i < w->count; i++) {
        struct where_worker *k = &w->worker[i];
        for (size_t p = 0; p < k->count && !k->told; p++)
            if (w->tool[0] && !k->stack[p] && !k->no_stack[p][0])
                snprintf(k->no_stack[p], sizeof k->no_stack[p], "there was no time for one");
        if (!k->told)
            tell_worker(w, k);
    }
    finish_all(w);
}

/* ---- a tool -------------------------------------------------------------------------------------------- */

/* The process that a tool looked at is as it was: a tool that was killed may have stopped it or set it going.
 */
static void restore_process(const struct where_process *before)
{
    struct where_process now;
    bool ignored;
    if (!where_read(before->pid, &now, &ignored) || now.start != before->start)
        return;
    if (before->state == 'T' && now.state != 'T' && now.state != 't')
        kill(before->pid, SIGSTOP);
    else if (before->state != 'T' && now.state == 'T')
        kill(before->pid, SIGCONT);
}

/* Its complaint: the last line it printed. */
static void explain_no_stack(const struct where_run *r, char *out, size_t size)
{
    size_t end = r->len;
    while (end > 0 && r->text[end - 1] == '\n')
        end--;
    size_t begin = end;
    while (begin > 0 && r->text[begin - 1] != '\n')
        begin--;
    if (r->late)
        snprintf(out, size, "the tool did not end within %d s", WHERE_TOOL_MS / 1000);
    else
        snprintf(out, size, "%.*s", end > begin ? (int)(end - begin) : 22,
                 end > begin ? r->text + begin : "the tool printed nothing");
    log_printable(out);
}

static void read_output(struct where_run *r)
{
    char spare[4096];
    for (;;) {
        bool room = r->len < OUTPUT_MAX;
        ssize_t n =
            room ? read(r->fd, r->text + r->len, OUTPUT_MAX - r->len) : read(r->fd, spare, sizeof spare);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            uv_poll_stop(&r->poll);
        if (n <= 0)
            return;
        r->len += room ? (size_t)n : 0;
    }
}

static void on_output(uv_poll_t *poll, int status, int events)
{
    read_output(poll->data);
}

static void on_run_closed(uv_handle_t *handle)
{
    struct where_run *r = handle->data;
    r->owner = NULL; /* free for another */
}

/* The pipe may have other holders: what the tool started. */
static void release_run(struct where_run *r)
{
    r->pid = 0;
    uv_close((uv_handle_t *)&r->poll, on_run_closed);
    close(r->fd);
    free(r->text);
    r->text = NULL;
}

static void end_run(struct where_run *r)
{
    struct where *w = r->owner;
    struct where_worker *k = r->worker;
    size_t p = r->process;
    read_output(r);
    r->text[r->len] = '\0';
    restore_process(&k->process[p]);
    if (w->active && !k->told) {
        size_t room = STACK_MAX / k->count;
        k->stack[p] = malloc(room);
        if (!k->stack[p] || !where_stack_parse(r->text, k->process[p].pid, k->stack[p], room))
            explain_no_stack(r, k->no_stack[p], sizeof k->no_stack[p]);
        k->ready++;
    }
    release_run(r);
    start_tools(w);
}

static void kill_run(struct where_run *r)
{
    if (kill(-r->pid, SIGKILL) < 0)
        kill(r->pid, SIGKILL);
    r->late = true;
}

static int start_tool(struct where *w, struct where_run *r, const struct where_process *p, struct err *e)
{
    char pid[16];
    char *const eu_stack[] = {"eu-stack", "-m", "-p", pid, NULL};
    char *const gdb[] = {"gdb", "-p", pid, "-batch", "-nx", "-ex", "thread apply all bt", NULL};
    char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL}; /* and no server for debug files */
    struct spawned child;
    struct spawn s = SPAWN_INIT;
    int pipes[2];
    snprintf(pid, sizeof pid, "%d", (int)p->pid);
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    s.path = w->tool;
    s.argv = w->is_gdb ? gdb : eu_stack;
    s.envp = env;
    s.fds[1] = s.fds[2] = pipes[1];
    s.cgroup_fd = w->cgroup_fd;
    s.new_session = true;
    s.die_with_us = true;
    int rc = fcntl(pipes[0], F_SETFL, O_NONBLOCK) < 0 ? err_sys(e, errno, "cannot make a pipe")
                                                      : spawn_start(&s, &child, e);
    close(pipes[1]);
    if (rc < 0) {
        close(pipes[0]);
        return -1;
    }
    close(child.pidfd); /* an unreaped pid is ours for certain */
    r->pid = child.pid;
    r->fd = pipes[0];
    return 0;
}

/* False when no tool could be started. The process then counts as answered, with the reason. */
static bool start_run(struct where *w, struct where_run *r, struct where_worker *k, size_t p)
{
    struct err e = ERR_INIT;
    struct where_process now;
    bool ignored;
    if (!where_read(k->process[p].pid, &now, &ignored) || now.start != k->process[p].start)
        err_set(&e, ERR_SYSTEM, "it has ended");
    else if (!(r->text = malloc(OUTPUT_MAX + 1)))
        err_set(&e, ERR_MEMORY, "no memory");
    else if (start_tool(w, r, &now, &e) < 0)
        free(r->text);
    if (e.code) {
        snprintf(k->no_stack[p], sizeof k->no_stack[p], "%.100s", e.text);
        k->ready++;
        return false;
    }
    r->owner = w;
    r->worker = k;
    r->process = p;
    r->len = 0;
    r->late = false;
    r->deadline = clock_now() + WHERE_TOOL_MS * NSEC_PER_MSEC;
    r->poll.data = r;
    uv_poll_init(w->loop, &r->poll, r->fd);
    uv_poll_start(&r->poll, UV_READABLE, on_output);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct where *w = timer->data;
    uint64_t now = clock_now();
    for (size_t i = 0; i < WHERE_AT_ONCE; i++)
        if (w->run[i].pid && now >= w->run[i].deadline)
            kill_run(&w->run[i]);
    if (now < w->limit) {
        start_tools(w);
        return;
    }
    end_at_limit(w);
    where_stop(w);
}

/* Until the next tool is late, or the limit. */
static void set_timer(struct where *w)
{
    uint64_t next = w->limit, now = clock_now();
    for (size_t i = 0; i < WHERE_AT_ONCE; i++)
        if (w->run[i].pid && !w->run[i].late && w->run[i].deadline < next)
            next = w->run[i].deadline;
    uv_timer_start(&w->timer, on_timer, next > now ? (next - now) / NSEC_PER_MSEC + 1 : 0, 0);
}

/* The next process that has not been looked at. */
static struct where_worker *next_worker(struct where *w)
{
    while (w->next < w->count && w->worker[w->next].next == w->worker[w->next].count)
        w->next++;
    return w->next < w->count ? &w->worker[w->next] : NULL;
}

static struct where_run *free_run(struct where *w)
{
    for (size_t i = 0; i < WHERE_AT_ONCE; i++)
        if (!w->run[i].owner)
            return &w->run[i];
    return NULL;
}

static void start_tools(struct where *w)
{
    struct where_worker *k;
    struct where_run *r;
    if (!w->active)
        return;
    while (w->tool[0] && !w->events->busy(w->ctx) && (r = free_run(w)) && (k = next_worker(w)))
        (void)start_run(w, r, k, k->next++);
    for (size_t i = 0; i < w->count; i++)
        if (!w->worker[i].told && (!w->tool[0] || w->worker[i].ready == w->worker[i].count))
            tell_worker(w, &w->worker[i]);
    if (w->told == w->count)
        finish_all(w);
    else
        set_timer(w);
}

static void find_tool(struct where *w)
{
    struct err e = ERR_INIT;
    w->is_gdb = false;
    if (spawn_find("eu-stack", getenv("PATH"), NULL, w->tool, sizeof w->tool, &e) == 0)
        return;
    w->is_gdb = true;
    if (spawn_find("gdb", getenv("PATH"), NULL, w->tool, sizeof w->tool, &e) < 0)
        w->tool[0] = '\0';
}

void where_start(struct where *w, uv_loop_t *loop, const struct where_events *events, void *ctx,
                 const struct workers *workers, int cgroup_fd, uint32_t limit_ms)
{
    if (w->opened) {
        if (!w->active)
            events->done(ctx, "");
        return; /* one look a job */
    }
    w->loop = loop;
    w->events = events;
    w->ctx = ctx;
    w->opened = w->active = true;
    w->cgroup_fd = cgroup_fd;
    w->limit = clock_now() + limit_ms * NSEC_PER_MSEC;
    uv_timer_init(loop, &w->timer);
    w->timer.data = w;
    w->worker = calloc(workers->count ? workers->count : 1, sizeof *w->worker);
    find_tool(w);
    for (size_t i = 0; w->worker && i < workers->count; i++) {
        struct where_worker *k = &w->worker[w->count];
        if (!workers->item[i].alive)
            continue;
        k->rank = workers->item[i].rank;
        k->count = where_find(workers->item[i].pid, k->process, WHERE_PROCESSES);
        w->count += k->count > 0;
    }
    start_tools(w);
}

void where_resume(struct where *w)
{
    if (w->active)
        start_tools(w);
}

bool where_reaped(struct where *w, pid_t pid)
{
    for (size_t i = 0; i < WHERE_AT_ONCE; i++) {
        if (w->run[i].pid != pid || pid == 0)
            continue;
        end_run(&w->run[i]);
        return true;
    }
    return false;
}

void where_stop(struct where *w)
{
    w->active = false;
    if (w->opened)
        uv_timer_stop(&w->timer);
    for (size_t i = 0; i < WHERE_AT_ONCE; i++)
        if (w->run[i].pid)
            kill_run(&w->run[i]);
}

void where_close(struct where *w)
{
    where_stop(w);
    for (size_t i = 0; i < WHERE_AT_ONCE; i++)
        if (w->run[i].pid)
            release_run(&w->run[i]);
    for (size_t i = 0; i < w->count; i++)
        for (size_t p = 0; p < WHERE_PROCESSES; p++)
            free(w->worker[i].stack[p]);
    free(w->worker);
    w->worker = NULL;
    w->count = 0;
    if (w->opened)
        uv_close((uv_handle_t *)&w->timer, NULL);
    w->opened = false;
}
