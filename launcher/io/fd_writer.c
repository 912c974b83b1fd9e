#include "launcher/io/fd_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/io/terminal.h"

void sink_init(struct sink *s, uv_loop_t *loop, int fd, void (*progress)(void *ctx), void *ctx)
{
    memset(s, 0, sizeof *s);
    s->loop = loop;
    s->fd = s->own_fd = fd;
    s->progress = progress;
    s->ctx = ctx;
    /* One formatted piece may be put while the queue is just below its mark. */
    buf_init(&s->queue, SIZE_MAX / 2);
}

static void on_writable(void *ctx);

static void open_sink(struct sink *s)
{
    struct stat st;
    char path[64];
    if (fstat(s->fd, &st) < 0) {
        s->broken = errno;
        return;
    }
    s->kind = SINK_FILE;
    if (S_ISSOCK(st.st_mode)) {
        s->kind = SINK_SOCKET;
    } else if (S_ISFIFO(st.st_mode) || (S_ISCHR(st.st_mode) && isatty(s->fd))) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        s->kind = fd >= 0 ? SINK_REOPENED : SINK_SHARED;
        if (fd >= 0)
            s->own_fd = fd;
    }
    if (s->kind == SINK_FILE)
        return;
    s->pollable = shared_poll_init(&s->poll, s->loop, s->own_fd, EPOLLOUT, on_writable, s) == 0;
    if (!s->pollable)
        s->kind = SINK_FILE;
}

bool sink_wants(const struct sink *s)
{
    return s->queue.len < SINK_QUEUE_MAX;
}

bool sink_is_empty(const struct sink *s)
{
    return s->queue.len == 0;
}

void sink_put_exact(struct sink *s, const void *bytes, size_t len)
{
    if (!s->broken && buf_put(&s->queue, bytes, len) < 0)
        s->broken = ENOMEM;
}

void sink_put(struct sink *s, const void *bytes, size_t len)
{
    const char *at = bytes, *end = at + len, *newline;
    bool raw = terminal_is_raw() && isatty(s->fd);
    while (raw && (newline = memchr(at, '\n', (size_t)(end - at)))) {
        sink_put_exact(s, at, (size_t)(newline - at));
        sink_put_exact(s, "\r\n", 2);
        at = newline + 1;
    }
    sink_put_exact(s, at, (size_t)(end - at));
}

/* One write; -1 with errno as write(2), EAGAIN when it would block. `sure`: poll just said that there is
 * room. */
static ssize_t write_once(struct sink *s, const void *bytes, size_t len, bool sure)
{
    if (s->kind == SINK_SOCKET)
        return send(s->own_fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (s->kind == SINK_SHARED) {
        if (!sure) {
            errno = EAGAIN;
            return -1;
        }
        return write(s->own_fd, bytes, len < PIPE_BUF ? len : PIPE_BUF);
    }
    return write(s->own_fd, bytes, len);
}

static void write_queue(struct sink *s, bool sure)
{
    while (s->queue.len > 0 && !s->broken) {
        ssize_t n = write_once(s, buf_data(&s->queue), s->queue.len, sure);
        if (n >= 0) {
            buf_consume(&s->queue, (size_t)n);
        } else if (errno == EAGAIN && s->kind != SINK_FILE) {
            shared_poll_set(&s->poll, true);
            return;
        } else if (errno != EINTR && errno != EAGAIN) {
            s->broken = errno;
        }
        sure = false;
    }
    if (s->broken)
        buf_consume(&s->queue, s->queue.len);
    if (s->pollable)
        shared_poll_set(&s->poll, false);
}

static void on_writable(void *ctx)
{
    struct sink *s = ctx;
    write_queue(s, true);
    s->progress(s->ctx);
}

void sink_flush(struct sink *s)
{
    if (s->queue.len > 0 && s->kind == SINK_UNOPENED)
        open_sink(s);
    if (!s->pollable || !s->poll.active)
        write_queue(s, false);
}

void sink_close(struct sink *s)
{
    if (s->pollable)
        shared_poll_close(&s->poll);
    if (s->own_fd != s->fd)
        close(s->own_fd);
    s->own_fd = s->fd;
    s->pollable = false;
    buf_free(&s->queue);
}
