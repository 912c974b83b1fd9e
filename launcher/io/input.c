#include "launcher/io/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/protocol/frame.h"

bool input_is_useful(void)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) < 0)
        return false;
    return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

int input_init(struct input *in, uv_loop_t *loop, uint32_t first, uint32_t count,
               const struct input_events *events, void *ctx, struct err *e)
{
    memset(in, 0, sizeof *in);
    in->loop = loop;
    in->events = events;
    in->ctx = ctx;
    in->first = first;
    in->count = count;
    in->credit = calloc(count ? count : 1, sizeof *in->credit);
    in->gone = calloc(count ? count : 1, sizeof *in->gone);
    if (!in->credit || !in->gone)
        return err_set(e, ERR_MEMORY, "no memory for the input of %u ranks", count);
    return 0;
}

/* How much may be read: what the receiver with the least credit takes. 0 also when nobody is left. */
static size_t find_allowance(const struct input *in)
{
    size_t least = SIZE_MAX;
    for (uint32_t i = 0; i < in->count; i++)
        if (!in->gone[i] && in->credit[i] < least)
            least = in->credit[i];
    if (least == SIZE_MAX)
        return 0;
    return least < FRAME_DATA_MAX ? least : FRAME_DATA_MAX;
}

static void watch_stdin(struct input *in);

static void pass_on(struct input *in, const void *bytes, size_t len)
{
    for (uint32_t i = 0; i < in->count; i++) {
        if (in->gone[i])
            continue;
        if (in->events->send(in->ctx, in->first + i, bytes, len) < 0)
            in->gone[i] = true;
        in->credit[i] -= (uint32_t)len;
    }
}

/* A background job that reads its terminal is stopped by the kernel: it does not read. */
static bool in_background(void)
{
    pid_t foreground = tcgetpgrp(STDIN_FILENO);
    return foreground >= 0 && foreground != getpgrp();
}

static void read_some(struct input *in)
{
    uint8_t bytes[FRAME_DATA_MAX];
    size_t most = find_allowance(in);
    if (most == 0 || in_background()) {
        watch_stdin(in);
        return;
    }
    ssize_t n = read(STDIN_FILENO, bytes, most);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (n < 0)
            log_warning("cannot read standard input: %s", strerror(errno));
        pass_on(in, NULL, 0);
        in->ended = true;
    } else {
        pass_on(in, bytes, (size_t)n);
    }
    watch_stdin(in);
}

static void on_readable(void *ctx)
{
    read_some(ctx);
}

static void on_idle(uv_idle_t *idle)
{
    read_some(idle->data);
}

static void open_input(struct input *in)
{
    in->opened = true;
    in->is_file = shared_poll_init(&in->poll, in->loop, STDIN_FILENO, EPOLLIN, on_readable, in) < 0;
    if (!in->is_file)
        return;
    uv_idle_init(in->loop, &in->idle);
    in->idle.data = in;
}

static void watch_stdin(struct input *in)
{
    bool wanted = !in->ended && find_allowance(in) > 0 && !in_background();
    if (wanted && !in->opened)
        open_input(in);
    if (!in->opened)
        return;
    if (!in->is_file)
        shared_poll_set(&in->poll, wanted);
    else if (wanted)
        uv_idle_start(&in->idle, on_idle);
    else
        uv_idle_stop(&in->idle);
}

void input_credit(struct input *in, uint32_t rank, uint32_t bytes)
{
    if (rank < in->first || rank - in->first >= in->count ||
        bytes > UINT32_MAX - in->credit[rank - in->first])
        return;
    in->credit[rank - in->first] += bytes;
    watch_stdin(in);
}

void input_rank_gone(struct input *in, uint32_t rank)
{
    if (rank < in->first || rank - in->first >= in->count)
        return;
    in->gone[rank - in->first] = true;
    watch_stdin(in);
}

void input_resume(struct input *in)
{
    watch_stdin(in);
}

void input_close(struct input *in)
{
    in->ended = true;
    if (in->opened && in->is_file)
        uv_close((uv_handle_t *)&in->idle, NULL);
    else if (in->opened)
        shared_poll_close(&in->poll);
    in->opened = false;
    free(in->credit);
    free(in->gone);
    in->credit = NULL;
    in->gone = NULL;
    in->count = 0;
}
