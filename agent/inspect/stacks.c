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

struct stacks_worker {
    uint32_t rank;
    size_t count, next, ready; /* of its processes: found, begun, looked at */
    struct inspected_process process[STACKS_PROCESSES];
    char *stack[STACKS_PROCESSES];
    char no_stack[STACKS_PROCESSES][120];
    struct network_use network[STACKS_PROCESSES];
    bool told;
};

static void start_tools(struct stacks *stacks);

/* ---- answers ------------------------------------------------------------------------------------------- */

static void tell_worker(struct stacks *stacks, struct stacks_worker *k)
{
    Hvd__WhereProcess process[STACKS_PROCESSES], *list[STACKS_PROCESSES];
    Hvd__Where where = HVD__WHERE__INIT;
    where.rank = k->rank;
    where.n_process = k->count;
    where.process = list;
    for (size_t i = 0; i < k->count; i++) {
        list[i] = &process[i];
        hvd__where_process__init(&process[i]);
        process[i].pid = (uint32_t)k->process[i].pid;
        process[i].name = k->process[i].name;
        process[i].state = (char *)inspect_state_word(k->process[i].state);
        process[i].waits = k->process[i].waits;
        process[i].cpu_ms = k->process[i].cpu_ms;
        process[i].holder = (uint32_t)k->process[i].holder;
        process[i].swapped_kib = k->process[i].swapped_kib;
        process[i].connections = k->network[i].connections;
        process[i].received_ms = k->network[i].received_ms;
        process[i].sent_ms = k->network[i].sent_ms;
        process[i].stack = k->stack[i] ? k->stack[i] : (char *)"";
        process[i].no_stack = k->no_stack[i];
    }
    k->told = true;
    stacks->told++;
    stacks->events->found(stacks->ctx, &where);
    for (size_t i = 0; i < k->count; i++) {
        free(k->stack[i]);
        k->stack[i] = NULL;
    }
}

static bool has_tool(const struct stacks *stacks)
{
    return stacks->tool[0] || stacks->python_tool[0];
}

static void finish_all(struct stacks *stacks)
{
    const char *name = strrchr(stacks->tool, '/');
    char names[64];
    snprintf(names, sizeof names, "%.40s%s%s", name ? name + 1 : stacks->tool,
             stacks->tool[0] && stacks->python_tool[0] ? ", " : "", stacks->python_tool[0] ? "py-spy" : "");
    stacks->active = false;
    uv_timer_stop(&stacks->timer);
    stacks->events->done(stacks->ctx, names);
}

static void end_at_limit(struct stacks *stacks)
{
    for (size_t i = 0; i < stacks->count; i++) {
        struct stacks_worker *k = &stacks->worker[i];
        for (size_t p = 0; p < k->count && !k->told; p++)
            if (has_tool(stacks) && !k->stack[p] && !k->no_stack[p][0])
                snprintf(k->no_stack[p], sizeof k->no_stack[p], "there was no time for one");
        if (!k->told)
            tell_worker(stacks, k);
    }
    finish_all(stacks);
}

/* ---- a tool -------------------------------------------------------------------------------------------- */

/* The process that a tool looked at is as it was: a tool that was killed may have stopped it or set it going.
 */
static void restore_process(const struct inspected_process *before)
{
    struct inspected_process now;
    bool ignored;
    if (!inspect_read(before->pid, &now, &ignored) || now.start != before->start)
        return;
    if (before->state == 'T' && now.state != 'T' && now.state != 't')
        kill(before->pid, SIGSTOP);
    else if (before->state != 'T' && now.state == 'T')
        kill(before->pid, SIGCONT);
}

/* Its complaint: the last line it printed. */
static void explain_no_stack(const struct stacks_run *r, char *out, size_t size)
{
    size_t end = r->len;
    while (end > 0 && r->text[end - 1] == '\n')
        end--;
    size_t begin = end;
    while (begin > 0 && r->text[begin - 1] != '\n')
        begin--;
    if (r->late)
        snprintf(out, size, "the tool did not end within %d s", STACKS_TOOL_MS / 1000);
    else
        snprintf(out, size, "%.*s", end > begin ? (int)(end - begin) : 22,
                 end > begin ? r->text + begin : "the tool printed nothing");
    log_printable(out);
}

static void read_output(struct stacks_run *r)
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
    struct stacks_run *r = handle->data;
    r->owner = NULL; /* free for another */
}

/* The pipe may have other holders: what the tool started. */
static void release_run(struct stacks_run *r)
{
    r->pid = 0;
    uv_close((uv_handle_t *)&r->poll, on_run_closed);
    close(r->fd);
    free(r->text);
    r->text = NULL;
}

static void end_run(struct stacks_run *r)
{
    struct stacks *stacks = r->owner;
    struct stacks_worker *k = r->worker;
    size_t p = r->process;
    read_output(r);
    r->text[r->len] = '\0';
    restore_process(&k->process[p]);
    if (stacks->active && !k->told) {
        size_t room = STACK_MAX / k->count;
        k->stack[p] = malloc(room);
        if (!k->stack[p] || !stacks_parse(r->text, k->process[p].pid, k->stack[p], room))
            explain_no_stack(r, k->no_stack[p], sizeof k->no_stack[p]);
        k->ready++;
    }
    release_run(r);
    start_tools(stacks);
}

static void kill_run(struct stacks_run *r)
{
    if (kill(-r->pid, SIGKILL) < 0)
        kill(r->pid, SIGKILL);
    r->late = true;
}

static int start_tool(struct stacks *stacks, struct stacks_run *r, const struct inspected_process *p,
                      struct err *e)
{
    char pid[16];
    char *const eu_stack[] = {"eu-stack", "-m", "-p", pid, NULL};
    char *const gdb[] = {"gdb", "-p", pid, "-batch", "-nx", "-ex", "thread apply all bt", NULL};
    char *const py_spy[] = {"py-spy", "dump", "--native", "--pid", pid, NULL};
    char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL}; /* and no server for debug files */
    bool python = stacks->python_tool[0] && (!stacks->tool[0] || strncmp(p->name, "python", 6) == 0);
    struct spawned child;
    struct spawn s = SPAWN_INIT;
    int pipes[2];
    snprintf(pid, sizeof pid, "%d", (int)p->pid);
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    s.path = python ? stacks->python_tool : stacks->tool;
    s.argv = python ? py_spy : stacks->is_gdb ? gdb : eu_stack;
    s.envp = env;
    s.fds[1] = s.fds[2] = pipes[1];
    s.cgroup_fd = stacks->cgroup_fd;
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
static bool start_run(struct stacks *stacks, struct stacks_run *r, struct stacks_worker *k, size_t p)
{
    struct err e = ERR_INIT;
    struct inspected_process now;
    bool ignored;
    r->text = malloc(OUTPUT_MAX + 1);
    if (!inspect_read(k->process[p].pid, &now, &ignored) || now.start != k->process[p].start)
        err_set(&e, ERR_SYSTEM, "it has ended");
    else if (!r->text)
        err_set(&e, ERR_MEMORY, "no memory");
    else
        start_tool(stacks, r, &now, &e);
    if (e.code) {
        free(r->text);
        snprintf(k->no_stack[p], sizeof k->no_stack[p], "%.100s", e.text);
        k->ready++;
        return false;
    }
    r->owner = stacks;
    r->worker = k;
    r->process = p;
    r->len = 0;
    r->late = false;
    r->deadline = clock_now() + STACKS_TOOL_MS * NSEC_PER_MSEC;
    r->poll.data = r;
    uv_poll_init(stacks->loop, &r->poll, r->fd);
    uv_poll_start(&r->poll, UV_READABLE, on_output);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct stacks *stacks = timer->data;
    uint64_t now = clock_now();
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->run[i].pid && now >= stacks->run[i].deadline)
            kill_run(&stacks->run[i]);
    if (now < stacks->limit) {
        start_tools(stacks);
        return;
    }
    end_at_limit(stacks);
    stacks_stop(stacks);
}

/* Until the next tool is late, or the limit. */
static void set_timer(struct stacks *stacks)
{
    uint64_t next = stacks->limit, now = clock_now();
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->run[i].pid && !stacks->run[i].late && stacks->run[i].deadline < next)
            next = stacks->run[i].deadline;
    uv_timer_start(&stacks->timer, on_timer, next > now ? (next - now) / NSEC_PER_MSEC + 1 : 0, 0);
}

/* The next process that has not been looked at. */
static struct stacks_worker *next_worker(struct stacks *stacks)
{
    while (stacks->next < stacks->count &&
           stacks->worker[stacks->next].next == stacks->worker[stacks->next].count)
        stacks->next++;
    return stacks->next < stacks->count ? &stacks->worker[stacks->next] : NULL;
}

static struct stacks_run *free_run(struct stacks *stacks)
{
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (!stacks->run[i].owner)
            return &stacks->run[i];
    return NULL;
}

static void start_tools(struct stacks *stacks)
{
    struct stacks_worker *k;
    struct stacks_run *r;
    if (!stacks->active)
        return;
    while (has_tool(stacks) && !stacks->events->busy(stacks->ctx) && (r = free_run(stacks)) != NULL &&
           (k = next_worker(stacks)) != NULL)
        (void)start_run(stacks, r, k, k->next++);
    for (size_t i = 0; i < stacks->count; i++)
        if (!stacks->worker[i].told &&
            (!has_tool(stacks) || stacks->worker[i].ready == stacks->worker[i].count))
            tell_worker(stacks, &stacks->worker[i]);
    if (stacks->told == stacks->count)
        finish_all(stacks);
    else
        set_timer(stacks);
}

static void find_tool(struct stacks *stacks)
{
    struct err e = ERR_INIT;
    stacks->is_gdb = false;
    if (spawn_find("py-spy", getenv("PATH"), NULL, stacks->python_tool, sizeof stacks->python_tool, &e) < 0)
        stacks->python_tool[0] = '\0';
    if (spawn_find("eu-stack", getenv("PATH"), NULL, stacks->tool, sizeof stacks->tool, &e) == 0)
        return;
    stacks->is_gdb = true;
    if (spawn_find("gdb", getenv("PATH"), NULL, stacks->tool, sizeof stacks->tool, &e) < 0)
        stacks->tool[0] = '\0';
}

static void free_workers(struct stacks *stacks)
{
    for (size_t i = 0; i < stacks->count; i++)
        for (size_t p = 0; p < STACKS_PROCESSES; p++)
            free(stacks->worker[i].stack[p]);
    free(stacks->worker);
    stacks->worker = NULL;
    stacks->count = stacks->next = stacks->told = 0;
}

/* A tool of the look before may still be there: it was killed, and is not reaped yet. */
static bool has_runs(const struct stacks *stacks)
{
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->run[i].owner)
            return true;
    return false;
}

/* The processes and hosts that the process waits for or speaks to. */
static void look_outside(const struct network *network, struct stacks_worker *k, size_t p)
{
    peers_find(&k->process[p]);
    k->network[p] = network_of(network, k->process[p].pid);
}

void stacks_start(struct stacks *stacks, uv_loop_t *loop, const struct stacks_events *events, void *ctx,
                  const struct workers *workers, int cgroup_fd, uint32_t limit_ms)
{
    struct network network;
    if (stacks->active)
        return;
    if (has_runs(stacks)) {
        events->done(ctx, "");
        return;
    }
    free_workers(stacks);
    stacks->loop = loop;
    stacks->events = events;
    stacks->ctx = ctx;
    stacks->cgroup_fd = cgroup_fd;
    stacks->limit = clock_now() + limit_ms * NSEC_PER_MSEC;
    if (!stacks->opened)
        uv_timer_init(loop, &stacks->timer);
    stacks->opened = stacks->active = true;
    stacks->timer.data = stacks;
    stacks->worker = calloc(workers->count ? workers->count : 1, sizeof *stacks->worker);
    find_tool(stacks);
    network_look(&network);
    for (size_t i = 0; stacks->worker && i < workers->count; i++) {
        struct stacks_worker *k = &stacks->worker[stacks->count];
        if (!workers->item[i].alive)
            continue;
        k->rank = workers->item[i].rank;
        k->count = inspect_find(inspect_subject(workers->item[i].pid, workers->item[i].caller), k->process,
                                STACKS_PROCESSES);
        for (size_t p = 0; p < k->count; p++)
            look_outside(&network, k, p);
        stacks->count += k->count > 0;
    }
    network_free(&network);
    start_tools(stacks);
}

void stacks_resume(struct stacks *stacks)
{
    if (stacks->active)
        start_tools(stacks);
}

bool stacks_reaped(struct stacks *stacks, pid_t pid)
{
    for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
        if (stacks->run[i].pid != pid || pid == 0)
            continue;
        end_run(&stacks->run[i]);
        return true;
    }
    return false;
}

void stacks_stop(struct stacks *stacks)
{
    stacks->active = false;
    if (stacks->opened)
        uv_timer_stop(&stacks->timer);
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->run[i].pid)
            kill_run(&stacks->run[i]);
}

void stacks_close(struct stacks *stacks)
{
    stacks_stop(stacks);
    for (size_t i = 0; i < STACKS_AT_ONCE; i++)
        if (stacks->run[i].pid)
            release_run(&stacks->run[i]);
    free_workers(stacks);
    if (stacks->opened)
        uv_close((uv_handle_t *)&stacks->timer, NULL);
    stacks->opened = false;
}
