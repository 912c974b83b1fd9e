/* ssh -G is a child like any other, so the process transport runs it. It reads files and may run `Match exec`
 * commands: it gets a deadline, its output a ceiling. An exit status other than 0 is a fault in the user's
 * configuration; what ssh said is the error. The child is always reaped before closed(). */
#include "launcher/transport/ssh/ssh_query.h"

#include <stdio.h>
#include <string.h>

#include "launcher/transport/process.h"

#define OUTPUT_MAX  (256 * 1024)
#define DEADLINE_MS 10000

static void part_closed(struct ssh_query *q)
{
    if (--q->open_handles == 0 && q->closing)
        q->closed(q->ctx);
}

static void timer_closed(uv_handle_t *handle)
{
    part_closed(handle->data);
}

static void on_output(void *ctx, const uint8_t *bytes, size_t len)
{
    struct ssh_query *q = ctx;
    if (buf_put(&q->output, bytes, len) == 0)
        return;
    err_set(&q->err, ERR_HOST, "ssh -G printed more than %d bytes", OUTPUT_MAX);
    process_close(q->process);
}

/* Keeps the beginning, on one line. */
static void on_stderr(void *ctx, const uint8_t *bytes, size_t len)
{
    struct ssh_query *q = ctx;
    size_t at = strlen(q->complaint);
    for (size_t i = 0; i < len && at < sizeof q->complaint - 1; i++)
        if (bytes[i] && bytes[i] != '\r')
            q->complaint[at++] = bytes[i] == '\n' ? ' ' : (char)bytes[i];
    q->complaint[at] = '\0';
}

static void child_closed(void *ctx, const struct transport_end *end)
{
    struct ssh_query *q = ctx;
    if (end->exit_status != 0)
        err_set(&q->err, ERR_HOST, "ssh -G failed: %s", q->complaint[0] ? q->complaint : "no message");
    process_destroy(q->process);
    q->process = NULL;
    q->finished = true;
    uv_timer_stop(&q->deadline);
    if (!q->closing)
        q->done(q->ctx);
    part_closed(q);
}

static void ignore_phase(void *ctx, enum transport_phase phase)
{
}

static void ignore_event(void *ctx)
{
}

static void deadline_passed(uv_timer_t *timer)
{
    struct ssh_query *q = timer->data;
    err_set(&q->err, ERR_TIMEOUT, "ssh -G did not end within %d s", DEADLINE_MS / 1000);
    process_close(q->process);
}

int ssh_query_start(struct ssh_query *q, uv_loop_t *loop, const struct transport_target *target,
                    const char *config)
{
    static const struct transport_events events = {.phase = ignore_phase,
                                                   .opened = ignore_event,
                                                   .received = on_output,
                                                   .noise = on_stderr,
                                                   .writable = ignore_event,
                                                   .closed = child_closed};
    char port[8];
    char *argv[16] = {"ssh", "-G"};
    int n = 2;
    snprintf(port, sizeof port, "%u", (unsigned)target->port);
    if (config) {
        argv[n++] = "-F";
        argv[n++] = (char *)config;
    }
    if (target->port) {
        argv[n++] = "-p";
        argv[n++] = port;
    }
    if (target->user) {
        argv[n++] = "-l";
        argv[n++] = (char *)target->user;
    }
    argv[n++] = (char *)target->host;
    struct process_spec spec = {.argv = argv, .term_after_ms = 0};
    buf_init(&q->output, OUTPUT_MAX);
    q->process = process_start(loop, &spec, &events, q, &q->err);
    if (!q->process)
        return -1;
    uv_timer_init(loop, &q->deadline);
    q->deadline.data = q;
    uv_timer_start(&q->deadline, deadline_passed, DEADLINE_MS, 0);
    q->open_handles = 2;
    return 0;
}

void ssh_query_close(struct ssh_query *q)
{
    q->closing = true;
    if (q->process)
        process_close(q->process);
    buf_free(&q->output);
    uv_close((uv_handle_t *)&q->deadline, timer_closed);
}
