#include "tests/unit/transport_run.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WATCHDOG_MS 40000

static uint8_t pattern_byte(size_t at)
{
    return (uint8_t)((at * 2654435761U) >> 13);
}

static uint64_t fnv(uint64_t h, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ bytes[i]) * 1099511628211ULL;
    return h;
}

uint64_t pattern_checksum(size_t len)
{
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < len; i++) {
        uint8_t b = pattern_byte(i);
        h = fnv(h, &b, 1);
    }
    return h;
}

static void call_close(struct transport_run *r)
{
    r->in_call = true;
    r->ops->close(r->t);
    r->in_call = false;
}

static void send_more(struct transport_run *r)
{
    uint8_t bytes[50000];
    while (r->sent < r->to_send) {
        size_t n = r->to_send - r->sent < sizeof bytes ? r->to_send - r->sent : sizeof bytes;
        for (size_t i = 0; i < n; i++)
            bytes[i] = pattern_byte(r->sent + i);
        r->in_call = true;
        size_t taken = r->ops->write(r->t, bytes, n);
        r->in_call = false;
        ck_assert_uint_le(taken, n);
        r->sent += taken;
        if (taken < n)
            return;
    }
    if (r->close_when_sent)
        call_close(r);
}

static void on_phase(void *ctx, enum transport_phase phase)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call && !r->closed);
    r->phases |= 1U << phase;
    r->last_phase = phase;
    if (r->close_in_phase & 1U << phase)
        call_close(r);
}

static void on_opened(void *ctx)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call && !r->closed);
    r->opened++;
    const char *peer = r->ops->peer_address(r->t);
    snprintf(r->peer, sizeof r->peer, "%s", peer ? peer : "");
    if (r->greeting)
        ck_assert_uint_eq(r->ops->write(r->t, r->greeting, strlen(r->greeting)), strlen(r->greeting));
    if (r->close_when_opened)
        call_close(r);
    else
        send_more(r);
}

static void append(char *text, size_t size, const uint8_t *bytes, size_t len)
{
    size_t at = strlen(text), n = len < size - 1 - at ? len : size - 1 - at;
    memcpy(text + at, bytes, n);
    text[at + n] = '\0';
}

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call && !r->closed && r->opened && len);
    if (r->received == 0)
        r->checksum = 14695981039346656037ULL;
    r->checksum = fnv(r->checksum, bytes, len);
    r->received += len;
    append(r->text, sizeof r->text, bytes, len);
    if ((r->close_after && r->received >= r->close_after) || (r->quit_on_reply && memchr(bytes, '\n', len)))
        call_close(r);
}

static void on_noise(void *ctx, const uint8_t *bytes, size_t len)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call && !r->closed);
    append(r->noise, sizeof r->noise, bytes, len);
    usleep(r->stall_us);
    r->stall_us = 0;
}

static void on_writable(void *ctx)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call && !r->closed);
    send_more(r);
}

static void on_closed(void *ctx, const struct transport_end *end)
{
    struct transport_run *r = ctx;
    ck_assert(!r->in_call);
    r->closed++;
    r->exit_status = end->exit_status;
    r->term_signal = end->term_signal;
    if (end->err)
        r->err = *end->err;
    r->ops->destroy(r->t);
    uv_close((uv_handle_t *)&r->watchdog, NULL);
}

static void too_long(uv_timer_t *timer)
{
    ck_abort_msg("the transport did not close");
}

bool run_transport(struct transport_run *r, const struct transport_target *target)
{
    static const struct transport_events events = {on_phase,    on_opened, on_received, on_noise,
                                                   on_writable, on_closed, NULL};
    ck_assert_int_eq(uv_loop_init(&r->loop), 0);
    uv_timer_init(&r->loop, &r->watchdog);
    uv_timer_start(&r->watchdog, too_long, WATCHDOG_MS, 0);
    r->in_call = true;
    r->t = r->ops->start(&r->loop, target, &events, r, &r->start_err);
    r->in_call = false;
    r->started = r->t != NULL;
    if (!r->started)
        uv_close((uv_handle_t *)&r->watchdog, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&r->loop), 0); /* no handle is left */
    ck_assert_int_eq(r->closed, r->started ? 1 : 0);
    return r->started;
}
