#include "launcher/elastic/discovery.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "common/process/spawn.h"

#define OUTPUT_MAX (1u << 20)
#define SHELL      "/bin/sh"
#define NAME       "--host-discovery-script"

void discovery_init(struct discovery *d, uv_loop_t *loop, const char *script, uint32_t slots,
                    void (*found)(void *ctx, struct host_list *hosts, const struct err *e), void *ctx)
{
    *d = (struct discovery){.loop = loop, .script = script, .slots = slots, .found = found, .ctx = ctx};
    d->fd = d->pidfd = -1;
}

/* ---- the end of a run ---------------------------------------------------------------------------------- */

static bool is_blank(const struct buf *b)
{
    const char *bytes = (const char *)buf_data(b);
    for (size_t i = 0; i < b->len; i++)
        if (!strchr(" \t\r\n", bytes[i]))
            return false;
    return true;
}

static int read_hosts(const struct discovery *d, struct host_list *hosts, struct err *e)
{
    *hosts = (struct host_list){0};
    if (d->late)
        return err_set(e, ERR_TIMEOUT, NAME ": %s did not end within %d s", d->script, DISCOVERY_MS / 1000);
    if (WIFSIGNALED(d->status))
        return err_set(e, ERR_HOST, NAME ": %s was killed by signal %d", d->script, WTERMSIG(d->status));
    if (WEXITSTATUS(d->status) != 0)
        return err_set(e, ERR_HOST, NAME ": %s ended with exit status %d", d->script, WEXITSTATUS(d->status));
    if (is_blank(&d->bytes))
        return 0;
    if (hosts_parse_file(hosts, (const char *)buf_data(&d->bytes), d->bytes.len, NAME, e) < 0)
        return -1;
    for (size_t i = 0; d->slots && i < hosts->count; i++)
        hosts_resolve(&hosts->host[i], d->slots);
    return 0;
}

static void close_fds(struct discovery *d)
{
    if (d->fd >= 0)
        close(d->fd);
    if (d->pidfd >= 0)
        close(d->pidfd);
    d->fd = d->pidfd = -1;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct discovery *d = handle->data;
    if (--d->closing > 0)
        return;
    close_fds(d);
    d->pid = 0;
    if (d->found) {
        struct err e = ERR_INIT;
        struct host_list hosts;
        int rc = read_hosts(d, &hosts, &e);
        buf_free(&d->bytes);
        d->found(d->ctx, rc == 0 ? &hosts : NULL, &e);
    } else {
        buf_free(&d->bytes);
    }
}

static void close_handles(struct discovery *d)
{
    if (d->closing > 0)
        return;
    d->closing = 3;
    uv_close((uv_handle_t *)&d->limit, on_handle_closed);
    uv_close((uv_handle_t *)&d->output, on_handle_closed);
    uv_close((uv_handle_t *)&d->end, on_handle_closed);
}

static void check_over(struct discovery *d)
{
    if (d->read && d->ended)
        close_handles(d);
}

/* ---- a run --------------------------------------------------------------------------------------------- */

static void on_output(uv_poll_t *poll, int status, int events)
{
    struct discovery *d = poll->data;
    char bytes[4096];
    ssize_t n = read(d->fd, bytes, sizeof bytes);
    (void)status, (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && buf_put(&d->bytes, bytes, (size_t)n) == 0)
        return;
    uv_poll_stop(poll);
    d->read = true;
    check_over(d);
}

static void on_end(uv_poll_t *poll, int status, int events)
{
    struct discovery *d = poll->data;
    (void)status, (void)events;
    if (waitpid(d->pid, &d->status, WNOHANG) != d->pid)
        return;
    uv_poll_stop(poll);
    d->ended = true;
    d->read = d->read || d->late; /* a child of the script may hold the pipe */
    check_over(d);
}

static void on_limit(uv_timer_t *timer)
{
    struct discovery *d = timer->data;
    d->late = true;
    kill(-d->pid, SIGKILL);
    if (d->ended) {
        d->read = true;
        check_over(d);
    }
}

static int start_script(struct discovery *d, struct err *e)
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)d->script, NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned child;
    int out[2];
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(e, errno, NAME ": cannot make a pipe");
    fcntl(out[1], F_SETFL, 0);
    s.path = SHELL;
    s.argv = argv;
    s.fds[1] = out[1];
    s.fds[2] = STDERR_FILENO;
    s.new_group = true;
    s.die_with_us = true;
    int rc = spawn_start(&s, &child, e);
    close(out[1]);
    if (rc < 0) {
        close(out[0]);
        return err_wrap(e, NAME);
    }
    d->fd = out[0];
    d->pid = child.pid;
    d->pidfd = child.pidfd;
    return 0;
}

void discovery_start(struct discovery *d)
{
    struct err e = ERR_INIT;
    if (d->pid)
        return;
    d->read = d->ended = d->late = false;
    if (start_script(d, &e) < 0) {
        d->found(d->ctx, NULL, &e);
        return;
    }
    buf_init(&d->bytes, OUTPUT_MAX);
    uv_timer_init(d->loop, &d->limit);
    uv_poll_init(d->loop, &d->output, d->fd);
    uv_poll_init(d->loop, &d->end, d->pidfd);
    d->limit.data = d->output.data = d->end.data = d;
    uv_timer_start(&d->limit, on_limit, DISCOVERY_MS, 0);
    uv_poll_start(&d->output, UV_READABLE, on_output);
    uv_poll_start(&d->end, UV_READABLE, on_end);
}

void discovery_stop(struct discovery *d)
{
    d->found = NULL;
    if (!d->pid)
        return;
    kill(-d->pid, SIGKILL);
    if (!d->ended)
        waitpid(d->pid, &d->status, 0);
    close_handles(d);
}

/* ---- at the start -------------------------------------------------------------------------------------- */

struct first {
    struct discovery discovery;
    struct host_list *hosts;
    struct err e;
    bool answered;
};

static void on_first(void *ctx, struct host_list *hosts, const struct err *e)
{
    struct first *f = ctx;
    f->answered = true;
    if (hosts) {
        hosts_free(f->hosts);
        *f->hosts = *hosts;
    } else {
        f->e = *e;
    }
}

static uint64_t count_slots(const struct host_list *hosts)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < hosts->count; i++)
        slots += hosts->host[i].slots ? hosts->host[i].slots : 1;
    return slots;
}

static int ask_until(struct first *f, uint32_t wanted, uint64_t limit_ms, struct err *e)
{
    uint64_t until = clock_now() + limit_ms * NSEC_PER_MSEC;
    bool told = false;
    for (;;) {
        f->answered = false;
        discovery_start(&f->discovery);
        uv_run(f->discovery.loop, UV_RUN_DEFAULT);
        if (f->e.code) {
            *e = f->e;
            return -1;
        }
        if (count_slots(f->hosts) >= wanted)
            return 0;
        if (clock_now() + DISCOVERY_PERIOD_MS * NSEC_PER_MSEC > until)
            return err_set(e, ERR_HOST,
                           NAME ": its hosts have %llu slots for %u ranks, and %g s are over "
                                "(--elastic-timeout)",
                           (unsigned long long)count_slots(f->hosts), wanted, (double)limit_ms / 1e3);
        if (!told)
            log_say("hvdrun: waiting for %u slots; the hosts of " NAME " have %llu\n", wanted,
                    (unsigned long long)count_slots(f->hosts));
        told = true;
        usleep(DISCOVERY_PERIOD_MS * 1000);
    }
}

int discovery_first(const char *script, uint32_t slots, uint32_t slots_wanted, uint64_t limit_ms,
                    struct host_list *hosts, struct err *e)
{
    struct first f = {.hosts = hosts};
    uv_loop_t loop;
    *hosts = (struct host_list){0};
    if (loop_init(&loop, e) < 0)
        return -1;
    discovery_init(&f.discovery, &loop, script, slots, on_first, &f);
    int rc = ask_until(&f, slots_wanted, limit_ms, e);
    uv_loop_close(&loop);
    if (rc < 0)
        hosts_free(hosts);
    return rc;
}
