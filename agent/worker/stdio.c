#include "agent/worker/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/worker/line_splitter.h"
#include "agent/worker/pty.h"
#include "common/base/clock.h"

#define READ_SIZE (64u << 10)
/* More than the kernel holds of what a terminal has shown; it does not say how much that is. */
#define TERMINAL_HOLDS (128u << 10)

int stdio_init(struct stdio *s, uv_loop_t *loop, const struct stdio_events *events, void *ctx, struct err *e)
{
    *s = (struct stdio){.loop = loop, .events = events, .ctx = ctx};
    int rc = uv_timer_init(loop, &s->patience);
    s->patience.data = s;
    return rc < 0 ? err_set(e, ERR_SYSTEM, "cannot make a timer: %s", uv_strerror(rc)) : 0;
}

static int emit_bytes(void *ctx, uint8_t flags, const uint8_t *bytes, size_t len)
{
    struct outlet *o = ctx;
    struct stdio *s = o->stdio;
    if (s->discard)
        return 0;
    o->credit -= len < o->credit ? len : o->credit;
    return s->events->send(s->ctx, o->rank, o->stream, flags, bytes, len);
}

static void fail_output(struct outlet *o)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_MEMORY, "no memory for the output of rank %u", o->rank);
    o->stdio->events->failed(o->stdio->ctx, &e);
}

static size_t bytes_in_pipe(int fd)
{
    int waiting = 0;
    return ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0 ? (size_t)waiting : 0;
}

/* ---- unfinished lines ---------------------------------------------------------------------------------- */

static void on_patience(uv_timer_t *timer);

static void arm_patience(struct stdio *s)
{
    uint64_t due = UINT64_MAX, now = clock_now();
    for (struct outlet *o = s->outlets; o; o = o->next)
        if (lines_due(&o->lines) < due)
            due = lines_due(&o->lines);
    if (due != UINT64_MAX)
        uv_timer_start(&s->patience, on_patience, due > now ? (due - now) / NSEC_PER_MSEC + 1 : 1, 0);
}

static void on_patience(uv_timer_t *timer)
{
    struct stdio *s = timer->data;
    uint64_t now = clock_now();
    for (struct outlet *o = s->outlets; o; o = o->next) {
        if (lines_due(&o->lines) > now)
            continue;
        /* The line is unfinished only if the worker had the chance to go on, and nothing of it waits in the
         * pipe. */
        if (o->fd >= 0 && (!o->watching || bytes_in_pipe(o->fd) > 0))
            o->lines.since = now;
        else if (lines_flush(&o->lines, emit_bytes, o) < 0)
            fail_output(o);
    }
    arm_patience(s);
}

/* ---- stdout and stderr --------------------------------------------------------------------------------- */

static void on_readable(uv_poll_t *poll, int status, int events);

static void watch_outlet(struct outlet *o, bool wanted)
{
    if (o->fd < 0 || wanted == o->watching)
        return;
    o->watching = wanted;
    if (wanted)
        uv_poll_start(&o->poll, UV_READABLE, on_readable);
    else
        uv_poll_stop(&o->poll);
}

static void settle_outlet(struct outlet *o)
{
    struct stdio *s = o->stdio;
    if (o->settled)
        return;
    if (lines_flush(&o->lines, emit_bytes, o) < 0 ||
        (!s->discard && s->events->send(s->ctx, o->rank, o->stream, FRAME_FLAG_EOF, NULL, 0) < 0))
        fail_output(o);
    o->settled = true;
    s->events->settled(s->ctx, o->rank);
}

/* How many bytes may be read now. */
static size_t compute_allowance(const struct outlet *o)
{
    const struct stdio *s = o->stdio;
    if (s->discard)
        return READ_SIZE;
    if (!s->events->may_send(s->ctx) || o->credit <= o->lines.len)
        return 0;
    uint64_t allowed = o->credit - o->lines.len;
    uint64_t most = o->terminal ? FRAME_DATA_MAX : READ_SIZE;
    return (size_t)(allowed < most ? allowed : most);
}

/* A line longer than the whole credit will not become whole here: it goes out in pieces. */
static void advance_outlet(struct outlet *o)
{
    bool whole_credit = o->credit >= o->window;
    if (!o->stdio->discard && whole_credit && o->lines.len >= o->credit &&
        lines_advance(&o->lines, emit_bytes, o) < 0)
        fail_output(o);
}

/* One read. True when there may be more at once. */
static bool read_once(struct outlet *o)
{
    static uint8_t bytes[READ_SIZE]; /* one loop, one thread, not re-entered */
    size_t allowed = compute_allowance(o);
    if (allowed == 0) {
        watch_outlet(o, false);
        return false;
    }
    watch_outlet(o, true);
    ssize_t n = read(o->fd, bytes, allowed);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (o->orphaned && errno == EAGAIN)
            settle_outlet(o);
        return errno == EINTR;
    }
    /* A program that ends has closed its terminal already: if we closed ours now, SIGHUP would kill it. */
    if (n <= 0 && o->terminal && !o->orphaned) {
        watch_outlet(o, false);
        return false;
    }
    if (n <= 0) {
        outlet_close(o);
        settle_outlet(o);
        return false;
    }
    int rc = o->terminal ? emit_bytes(o, FRAME_FLAG_UNFINISHED, bytes, (size_t)n)
                         : lines_put(&o->lines, bytes, (size_t)n, clock_now(), emit_bytes, o);
    if (rc < 0)
        fail_output(o);
    o->owed -= (size_t)n < o->owed ? (size_t)n : o->owed;
    if (o->orphaned && o->owed == 0)
        settle_outlet(o);
    advance_outlet(o);
    if (o->lines.len && !uv_is_active((uv_handle_t *)&o->stdio->patience))
        arm_patience(o->stdio);
    return true;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct outlet *o = poll->data;
    (void)read_once(o);
}

int outlet_open(struct outlet *o, struct stdio *s, int fd, uint32_t rank, enum frame_stream stream,
                uint32_t credit, struct err *e)
{
    *o = (struct outlet){
        .stdio = s, .fd = -1, .rank = rank, .stream = stream, .credit = credit, .window = credit};
    o->lines.max = s->max_line;
    int rc = uv_poll_init(s->loop, &o->poll, fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the output of rank %u: %s", rank, uv_strerror(rc));
    o->poll.data = o;
    o->fd = fd;
    o->next = s->outlets;
    s->outlets = o;
    watch_outlet(o, credit > 0);
    return 0;
}

void outlet_open_none(struct outlet *o, struct stdio *s, uint32_t rank, enum frame_stream stream)
{
    *o = (struct outlet){.stdio = s, .fd = -1, .rank = rank, .stream = stream};
    settle_outlet(o);
}

/* After credit or room came: those that stopped go on, and dead workers' pipes are read to their end. */
static void go_on(struct outlet *o)
{
    advance_outlet(o);
    if (o->fd < 0)
        return;
    if (!o->orphaned || o->settled) {
        watch_outlet(o, compute_allowance(o) > 0);
        return;
    }
    while (o->fd >= 0 && !o->settled && read_once(o))
        ;
}

void outlet_credit(struct outlet *o, uint32_t bytes)
{
    o->credit += bytes;
    go_on(o);
}

/* By an open file of our own: the worker's shall not become non-blocking. */
size_t outlet_say(const struct outlet *o, const char *bytes, size_t len)
{
    char path[32];
    size_t done = 0;
    if (o->fd < 0 || o->terminal || o->orphaned)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", o->fd);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    while (fd >= 0 && done < len) {
        size_t part = len - done < PIPE_BUF ? len - done : PIPE_BUF;
        ssize_t n = write(fd, bytes + done, part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        done += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return done;
}

void outlet_orphan(struct outlet *o)
{
    o->orphaned = true;
    if (!o->stdio)
        return;
    o->owed = o->fd < 0 ? 0 : o->terminal ? TERMINAL_HOLDS : bytes_in_pipe(o->fd);
    if (o->owed == 0)
        settle_outlet(o);
    go_on(o);
}

void outlet_close(struct outlet *o)
{
    if (o->fd < 0)
        return;
    uv_close((uv_handle_t *)&o->poll, NULL);
    close(o->fd);
    o->fd = -1;
}

void stdio_resume(struct stdio *s)
{
    for (struct outlet *o = s->outlets; o; o = o->next)
        if (!o->watching)
            go_on(o);
}

void stdio_discard(struct stdio *s)
{
    if (s->discard)
        return;
    s->discard = true;
    for (struct outlet *o = s->outlets; o; o = o->next) {
        lines_free(&o->lines);
        o->lines.max = 0; /* no credit bounds it any more */
        go_on(o);
    }
}

void stdio_close(struct stdio *s)
{
    for (struct outlet *o = s->outlets; o; o = o->next) {
        outlet_close(o);
        lines_free(&o->lines);
    }
    s->outlets = NULL;
    if (s->loop)
        uv_close((uv_handle_t *)&s->patience, NULL);
}

/* ---- stdin --------------------------------------------------------------------------------------------- */

static void grant_input(struct inlet *in, uint32_t bytes)
{
    in->granted += bytes;
    in->stdio->events->grant(in->stdio->ctx, in->rank, bytes);
}

static void on_writable(uv_poll_t *poll, int status, int events);

static void write_waiting(struct inlet *in)
{
    uint32_t gone = 0;
    while (in->fd >= 0 && in->waiting.len > 0) {
        ssize_t n = write(in->fd, buf_data(&in->waiting), in->waiting.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* the worker has closed its stdin: what comes is dropped, as by a closed pipe */
            gone += (uint32_t)in->waiting.len;
            inlet_close(in);
            break;
        }
        buf_consume(&in->waiting, (size_t)n);
        gone += (uint32_t)n;
    }
    if (in->fd >= 0 && in->waiting.len > 0)
        uv_poll_start(&in->poll, UV_WRITABLE, on_writable);
    else if (in->fd >= 0)
        uv_poll_stop(&in->poll);
    if (in->ending && in->fd >= 0 && in->waiting.len == 0)
        inlet_close(in);
    if (gone > 0 && !in->ending)
        grant_input(in, gone);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    write_waiting(poll->data);
}

int inlet_open(struct inlet *in, struct stdio *s, int fd, uint32_t rank, struct err *e)
{
    *in = (struct inlet){.stdio = s, .fd = -1, .rank = rank};
    buf_init(&in->waiting, STDIN_WINDOW + PTY_END_MAX);
    int rc = uv_poll_init(s->loop, &in->poll, fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the input of rank %u: %s", rank, uv_strerror(rc));
    in->poll.data = in;
    in->fd = fd;
    grant_input(in, STDIN_WINDOW);
    return 0;
}

/* A pipe is closed; a terminal stays, and its reader is told. */
static void put_end(struct inlet *in)
{
    uint8_t end[PTY_END_MAX];
    size_t len = pty_end_of_input(in->fd, in->begun, end);
    (void)buf_put(&in->waiting, end, len); /* there is room */
}

int inlet_put(struct inlet *in, const uint8_t *bytes, size_t len, bool eof)
{
    if (len > in->granted)
        return -1;
    in->granted -= (uint32_t)len;
    bool ends = eof && !in->ending;
    in->ending = in->ending || eof;
    if (in->fd < 0) {
        if (!in->ending && len > 0)
            grant_input(in, (uint32_t)len);
        return 0;
    }
    if (len > 0 && buf_put(&in->waiting, bytes, len) < 0)
        return -1;
    in->begun = len > 0 ? bytes[len - 1] != '\n' : in->begun;
    if (ends && in->terminal)
        put_end(in);
    write_waiting(in);
    return 0;
}

void inlet_close(struct inlet *in)
{
    if (in->fd < 0)
        return;
    uv_close((uv_handle_t *)&in->poll, NULL);
    close(in->fd);
    in->fd = -1;
    buf_free(&in->waiting);
}
