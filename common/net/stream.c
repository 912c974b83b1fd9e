#include "common/net/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/secret.h"

#define READ_SIZE  (64u << 10)
#define PAGE       4096
#define READS_ONCE 16 /* then other handles of the loop have their turn */

/* One loop, one thread, no recursion: callbacks never read. It may have held a key. */
static _Alignas(PAGE) uint8_t space[READ_SIZE];

static void finish_stream(struct stream *s, int errnum)
{
    if (s->over)
        return;
    s->over = true;
    uv_poll_stop(&s->in_poll);
    if (s->out_poll.data)
        uv_poll_stop(&s->out_poll);
    s->events->ended(s->ctx, errnum);
}

static void read_some(struct stream *s)
{
    for (int i = 0; i < READS_ONCE && !s->over; i++) {
        ssize_t n = read(s->in, space, sizeof space);
        if (n > 0) {
            s->events->received(s->ctx, space, (size_t)n);
            if ((size_t)n < sizeof space)
                return;
        } else if (n == 0) {
            finish_stream(s, 0);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            finish_stream(s, errno);
        }
    }
}

static void watch_fds(struct stream *s);

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct stream *s = poll->data;
    if (status < 0) {
        finish_stream(s, -status);
        return;
    }
    if ((events & UV_WRITABLE) && s->waiting) {
        s->waiting = false;
        watch_fds(s);
        s->events->writable(s->ctx);
    }
    if ((events & UV_READABLE) && poll == &s->in_poll && !s->over)
        read_some(s);
}

/* Tells the loop what to wait for. */
static void watch_fds(struct stream *s)
{
    bool shared = s->out == s->in;
    if (s->over)
        return;
    uv_poll_start(&s->in_poll, UV_READABLE | (shared && s->waiting ? UV_WRITABLE : 0), on_ready);
    if (shared || s->out < 0)
        return;
    if (s->waiting)
        uv_poll_start(&s->out_poll, UV_WRITABLE, on_ready);
    else
        uv_poll_stop(&s->out_poll);
}

static void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int stream_open(struct stream *s, uv_loop_t *loop, int in, int out, const struct stream_events *events,
                void *ctx, struct err *e)
{
    memset(s, 0, sizeof *s);
    secret_hide(space, sizeof space);
    s->events = events;
    s->ctx = ctx;
    s->in = in;
    s->out = out;
    set_nonblocking(in);
    if (out >= 0 && out != in)
        set_nonblocking(out);
    int rc = uv_poll_init(loop, &s->in_poll, in);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch descriptor %d: %s", in, uv_strerror(rc));
    s->in_poll.data = s;
    s->handles = 1;
    if (out >= 0 && out != in) {
        rc = uv_poll_init(loop, &s->out_poll, out);
        if (rc < 0) {
            s->out = s->in = -1;
            stream_close(s, NULL);
            return err_set(e, ERR_SYSTEM, "cannot watch descriptor %d: %s", out, uv_strerror(rc));
        }
        s->out_poll.data = s;
        s->handles = 2;
    }
    watch_fds(s);
    return 0;
}

size_t stream_write(struct stream *s, const void *bytes, size_t len)
{
    size_t done = 0;
    while (done < len && !s->over) {
        ssize_t n = write(s->out, (const uint8_t *)bytes + done, len - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            s->waiting = true;
            watch_fds(s);
            return done;
        } else if (errno != EINTR) {
            /* Bytes that the peer wrote before it went are still to be read: reading finds the end by itself,
             * in any case now. */
            (void)shutdown(s->out, SHUT_RDWR);
            return len;
        }
    }
    return len;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct stream *s = handle->data;
    if (--s->handles == 0 && s->closed)
        s->closed(s->ctx);
}

void stream_close(struct stream *s, void (*closed)(void *ctx))
{
    s->over = true;
    s->closed = closed;
    uv_close((uv_handle_t *)&s->in_poll, on_handle_closed);
    if (s->out_poll.data)
        uv_close((uv_handle_t *)&s->out_poll, on_handle_closed);
    if (s->out >= 0 && s->out != s->in)
        close(s->out);
    if (s->in >= 0)
        close(s->in);
    s->in = s->out = -1;
}
