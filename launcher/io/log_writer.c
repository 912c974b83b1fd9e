#include "launcher/io/log_writer.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "launcher/io/fd_writer.h"

/* One for the process, as its stderr is; the loop's thread only. */
static struct {
    struct sink sink;
    struct buf waiting; /* whole lines */
    uv_timer_t patience;
    unsigned long dropped;
    bool open, finishing;
} notes;

static void close_now(void)
{
    if (!notes.open)
        return;
    notes.open = false;
    sink_close(&notes.sink);
    buf_free(&notes.waiting);
    uv_close((uv_handle_t *)&notes.patience, NULL);
}

static void put_waiting(const char *bytes, size_t len)
{
    if (notes.waiting.len + len > NOTES_MAX || buf_put(&notes.waiting, bytes, len) < 0)
        notes.dropped++;
}

static void say_dropped(void)
{
    char line[128];
    int n = snprintf(line, sizeof line,
                     "hvdrun: warning: %lu lines were dropped: nobody read standard error\n", notes.dropped);
    notes.dropped = 0;
    put_waiting(line, (size_t)n);
}

/* One line at a time, so that lines of the workers come between ours and never into them. */
static void pump_lines(void)
{
    while (sink_is_empty(&notes.sink)) {
        if (notes.waiting.len == 0 && notes.dropped > 0)
            say_dropped();
        if (notes.waiting.len == 0)
            break;
        const char *text = (const char *)buf_data(&notes.waiting);
        const char *end = memchr(text, '\n', notes.waiting.len);
        size_t len = end ? (size_t)(end - text) + 1 : notes.waiting.len;
        sink_put(&notes.sink, text, len);
        buf_consume(&notes.waiting, len);
        sink_flush(&notes.sink);
    }
}

static void on_progress(void *ctx)
{
    (void)ctx;
    pump_lines();
    if (notes.finishing && sink_is_empty(&notes.sink))
        close_now();
}

static void on_patience(uv_timer_t *timer)
{
    (void)timer;
    close_now();
}

static void on_line(const char *line, size_t len)
{
    put_waiting(line, len);
    pump_lines();
}

void notes_open(uv_loop_t *loop)
{
    memset(&notes, 0, sizeof notes);
    sink_init(&notes.sink, loop, STDERR_FILENO, on_progress, NULL);
    buf_init(&notes.waiting, NOTES_MAX);
    uv_timer_init(loop, &notes.patience);
    notes.open = true;
    log_to(on_line);
}

void notes_finish(void)
{
    log_to(NULL);
    notes.finishing = true;
    pump_lines();
    if (sink_is_empty(&notes.sink))
        close_now();
    else
        uv_timer_start(&notes.patience, on_patience, NOTES_PATIENCE_MS, 0);
}
