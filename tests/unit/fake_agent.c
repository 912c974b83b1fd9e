#include "tests/unit/fake_agent.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"

static void flush(struct fake_agent *a)
{
    const uint8_t *bytes;
    size_t len;
    while (!a->over && (len = channel_output(&a->channel, &bytes)) > 0) {
        a->over = write_all(STDOUT_FILENO, bytes, len) < 0;
        channel_written(&a->channel, len);
    }
}

void fake_agent_send(struct fake_agent *a, const Hvd__Control *m)
{
    if (channel_send(&a->channel, m) < 0)
        a->over = true;
    flush(a);
}

int fake_agent_attach(struct fake_agent *a, const Hvd__Control *m)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    int rc = channel_pack_attach(m, &b);
    if (rc == 0)
        a->over = write_all(STDOUT_FILENO, buf_data(&b), b.len) < 0;
    buf_free(&b);
    return rc;
}

void fake_agent_say(struct fake_agent *a, const void *message, size_t len)
{
    struct err e = ERR_INIT;
    Hvd__Control *m = message_unpack_control(message, len, &e);
    if (!m)
        abort(); /* a fault of the test */
    fake_agent_send(a, m);
    message_free(m);
}

static void reach(struct fake_agent *a, enum agent_stage stage)
{
    if (a->at)
        a->at(a, stage);
}

static void welcome(struct fake_agent *a)
{
    Hvd__Welcome w = HVD__WELCOME__INIT;
    w.version = (char *)(uintptr_t)HVD_VERSION;
    w.protocol = PROTOCOL_VERSION;
    w.pid = FAKE_AGENT_PID;
    w.slots = 1;
    w.now = clock_now();
    CONTROL(m, WELCOME, welcome, &w);
    fake_agent_send(a, &m);
}

static void end_workers(struct fake_agent *a)
{
    for (uint32_t i = 0; i < a->ranks && !a->exited; i++) {
        Hvd__Exited x = HVD__EXITED__INIT;
        x.rank = a->rank[i];
        x.pid = FAKE_AGENT_PID;
        x.time = clock_now();
        x.peak_kib = FAKE_AGENT_PEAK;
        CONTROL(m, EXITED, exited, &x);
        (void)channel_send_data(&a->channel, a->rank[i], STREAM_STDOUT, FRAME_FLAG_EOF, NULL, 0);
        (void)channel_send_data(&a->channel, a->rank[i], STREAM_STDERR, FRAME_FLAG_EOF, NULL, 0);
        fake_agent_send(a, &m);
    }
    if (!a->exited && a->ranks > 0)
        reach(a, AGENT_EXITED);
    a->exited = true;
}

static void spawn(struct fake_agent *a, const Hvd__Spawn *s)
{
    reach(a, AGENT_SPAWN);
    for (size_t i = 0; i < s->n_worker && a->ranks < sizeof a->rank / sizeof *a->rank; i++) {
        Hvd__Spawned told = HVD__SPAWNED__INIT;
        told.rank = a->rank[a->ranks++] = s->worker[i]->rank;
        told.pid = FAKE_AGENT_PID;
        told.time = clock_now();
        CONTROL(m, SPAWNED, spawned, &told);
        fake_agent_send(a, &m);
    }
    reach(a, AGENT_SPAWNED);
    if (!a->lingers)
        end_workers(a);
}

static void on_preload(struct fake_agent *a)
{
    Hvd__Preloaded done = HVD__PRELOADED__INIT;
    CONTROL(m, PRELOADED, preloaded, &done);
    reach(a, AGENT_FILES);
    fake_agent_send(a, &m);
}

static void on_inspect(struct fake_agent *a)
{
    Hvd__Inspected inspected = HVD__INSPECTED__INIT;
    CONTROL(m, INSPECTED, inspected, &inspected);
    reach(a, AGENT_INSPECT);
    fake_agent_send(a, &m);
}

static void on_teardown(struct fake_agent *a)
{
    Hvd__Ended ended = HVD__ENDED__INIT;
    CONTROL(m, ENDED, ended, &ended);
    reach(a, AGENT_TEARDOWN);
    end_workers(a);
    fake_agent_send(a, &m);
    reach(a, AGENT_ENDED);
}

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct fake_agent *a = ctx;
    switch (m->body_case) {
    case HVD__CONTROL__BODY_HELLO:
        reach(a, AGENT_HELLO);
        welcome(a);
        reach(a, AGENT_WELCOMED);
        break;
    case HVD__CONTROL__BODY_PRELOAD:
        on_preload(a);
        break;
    case HVD__CONTROL__BODY_SPAWN:
        spawn(a, m->spawn);
        break;
    case HVD__CONTROL__BODY_INSPECT:
        on_inspect(a);
        break;
    case HVD__CONTROL__BODY_TEARDOWN:
        on_teardown(a);
        break;
    case HVD__CONTROL__BODY_BYE:
        a->over = true;
        break;
    default:
        break;
    }
}

static void on_data(void *ctx, const struct frame *f)
{
    (void)ctx, (void)f;
}

int fake_agent_run(struct fake_agent *a)
{
    static const struct channel_events events = {on_control, on_data, NULL};
    uint8_t bytes[65536];
    struct err e = ERR_INIT;
    ssize_t n = 0;
    channel_init(&a->channel, &events, a, false, 16u << 20);
    reach(a, AGENT_ATTACHED);
    flush(a);
    reach(a, AGENT_OPENED);
    while (!a->over && (n = read(STDIN_FILENO, bytes, sizeof bytes)) > 0 &&
           channel_receive(&a->channel, bytes, (size_t)n, &e) == 0)
        ;
    channel_free(&a->channel);
    return e.code ? 1 : 0;
}
