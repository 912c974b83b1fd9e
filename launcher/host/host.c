#include "launcher/host/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/module.h"
#include "common/protocol/message.h"
#include "launcher/host/agent_upload.h"
#include "launcher/host/host_legal.h"

/* stdin of the workers waits here at most; its credits keep it lower. */
#define BULK_MAX (4u << 20)

/* clang-format off */
#define HOST_EVENTS(X)          \
    X(START,    "start")        \
    X(FALLBACK, "fallback")     \
    X(ASK,      "ask")          \
    X(OPENED,   "opened")       \
    X(WELCOME,  "welcome")      \
    X(SPAWN,    "spawn")        \
    X(TEARDOWN, "teardown")     \
    X(ENDED,    "ended")        \
    X(CLOSED,   "closed")
/* clang-format on */

#define AS_EVENT(name, text) EV_##name,
#define AS_NAME(name, text)  text,
enum host_event { HOST_EVENTS(AS_EVENT) };

static void start_transport(void *owner);
static void offer_agent(void *owner);
static void send_hello(void *owner);
static void drop_transport(void *owner);
static void send_bye(void *owner);
static void report_closed(void *owner);

static const char *const state_names[] = {HOST_STATES(AS_NAME)};
static const char *const event_names[] = {HOST_EVENTS(AS_NAME)};

static const struct fsm_row rows[] = {
    {HOST_QUEUED, EV_START, HOST_CONNECTING, start_transport},
    {HOST_QUEUED, EV_TEARDOWN, HOST_CLOSED, report_closed},
    {HOST_CONNECTING, EV_FALLBACK, HOST_CONNECTING, start_transport},
    {HOST_CONNECTING, EV_OPENED, HOST_GREETING, send_hello},
    {HOST_CONNECTING, EV_TEARDOWN, HOST_LEAVING, drop_transport},
    {HOST_CONNECTING, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_CONNECTING, EV_ASK, HOST_SENDING, offer_agent},
    {HOST_SENDING, EV_OPENED, HOST_GREETING, send_hello},
    {HOST_SENDING, EV_TEARDOWN, HOST_LEAVING, drop_transport},
    {HOST_SENDING, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_GREETING, EV_WELCOME, HOST_READY, NULL},
    {HOST_GREETING, EV_TEARDOWN, HOST_LEAVING, drop_transport},
    {HOST_GREETING, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_READY, EV_SPAWN, HOST_RUNNING, NULL},
    {HOST_READY, EV_TEARDOWN, HOST_ENDING, NULL},
    {HOST_READY, EV_ENDED, HOST_LEAVING, send_bye},
    {HOST_READY, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_RUNNING, EV_TEARDOWN, HOST_ENDING, NULL},
    {HOST_RUNNING, EV_ENDED, HOST_LEAVING, send_bye},
    {HOST_RUNNING, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_ENDING, EV_ENDED, HOST_LEAVING, send_bye},
    {HOST_ENDING, EV_CLOSED, HOST_CLOSED, report_closed},
    {HOST_LEAVING, EV_CLOSED, HOST_CLOSED, report_closed},
};

static const struct fsm_table table = {"host", state_names, event_names, rows, sizeof rows / sizeof *rows};

/* ---- messages of the session --------------------------------------------------------------------------- */

static void on_welcome(struct host *h, const Hvd__Welcome *w)
{
    struct err e = ERR_INIT;
    if (h->err.code) /* attach has refused the job: no session is due */
        err_set(&e, ERR_PROTOCOL, "a session came behind a refusal");
    if (e.code || host_take_welcome(h, w, &e) < 0) {
        host_give_up(h, &e);
        return;
    }
    fsm_post(&h->fsm, EV_WELCOME);
    if (h->ops == &transport_local)
        host_clock_same(&h->beat.clock);
    host_measure_clock(h, w->now, h->beat.hello_sent);
    h->common->events->ready(h->common->ctx, h, w);
}

static void on_ended(struct host *h, const Hvd__Ended *ended)
{
    h->common->events->ended(h->common->ctx, h, ended);
    if (h->fsm.state < HOST_ENDING) {
        host_note_phase(h);
        err_set(&h->err, ERR_HOST, "its agent ended the job by itself");
    }
    fsm_post(&h->fsm, EV_ENDED);
}

static void pass_on(struct host *h, const Hvd__Control *m)
{
    const char *why = h->common->events->message(h->common->ctx, h, m);
    if (why)
        legal_refuse(&h->legal, h->label, legal_control_name(m->body_case), why);
}

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct host *h = ctx;
    if (host_legal_is_lease(m->body_case)) {
        legal_refuse(&h->legal, h->label, legal_control_name(m->body_case), "a session never sends it");
        return;
    }
    if (!legal_hears(&h->legal, &host_legal, m->body_case, h->fsm.state, h->label, fsm_state_name(&h->fsm)))
        return;
    switch (m->body_case) {
    case HVD__CONTROL__BODY_WELCOME:
        on_welcome(h, m->welcome);
        break;
    case HVD__CONTROL__BODY_PING: {
        Hvd__Pong pong = HVD__PONG__INIT;
        pong.nonce = m->ping->nonce;
        pong.now = clock_now();
        CONTROL(reply, PONG, pong, &pong);
        host_send(h, &reply);
        break;
    }
    case HVD__CONTROL__BODY_PONG:
        /* Its nonce is when we asked; an answer may be slower than the next question. */
        if (m->pong->nonce >= h->beat.hello_sent && m->pong->nonce <= h->beat.ping_sent)
            host_measure_clock(h, m->pong->now, m->pong->nonce);
        break;
    case HVD__CONTROL__BODY_ENDED:
        on_ended(h, m->ended);
        break;
    default:
        pass_on(h, m);
    }
}

static void on_data(void *ctx, const struct frame *f)
{
    struct host *h = ctx;
    if (!h->spawn_sent)
        legal_refuse(&h->legal, h->label, "output", "it has no workers");
    else
        h->common->events->data(h->common->ctx, h, f);
}

static const struct channel_events channel_events = {on_control, on_data, host_hear_lease};

/* ---- the transport ------------------------------------------------------------------------------------- */

static void on_phase(void *ctx, enum transport_phase phase)
{
    struct host *h = ctx;
    h->phase = phase;
    if (h->name.why && phase > TRANSPORT_RESOLVE) {
        log_info("%s: its name has an address now", h->label);
        h->name.why = NULL;
    }
    log_debug("%s: %s", h->label, transport_phase_name(phase));
}

static void on_unresolved(void *ctx, const char *why, bool unknown)
{
    struct host *h = ctx;
    h->name.why = why;
    h->name.unknown = unknown;
    h->common->events->unresolved(h->common->ctx, h);
}

static void on_opened(void *ctx)
{
    struct host *h = ctx;
    fsm_post(&h->fsm, h->common->sent && h->ops != &transport_local ? EV_ASK : EV_OPENED);
}

static void offer_agent(void *owner)
{
    struct host *h = owner;
    host_sending_begin(&h->sending, h->common->sent);
    host_flush(h);
}

/* Returns how many of the bytes were not the agent's. */
static size_t receive_answer(struct host *h, const uint8_t *bytes, size_t len)
{
    size_t used = 0, n;
    while (used < len && h->fsm.state == HOST_SENDING) {
        switch (host_sending_receive(&h->sending, h->common->sent, bytes + used, len - used, &n)) {
        case SENDING_WANT:
            h->sending.since = clock_now();
            host_flush(h);
            break;
        case SENDING_HAVE:
            if (h->sending.files)
                log_info("%s: hvdagent was sent: %zu KiB in %.0f ms", h->label, h->common->sent->len / 1024,
                         (double)(clock_now() - h->sending.since) / NSEC_PER_MSEC);
            fsm_post(&h->fsm, EV_OPENED);
            break;
        default:
            break;
        }
        used += n;
    }
    return used;
}

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct host *h = ctx;
    struct err e = ERR_INIT;
    h->beat.last_heard = clock_now();
    h->beat.suspect = false;
    size_t used = receive_answer(h, bytes, len);
    if (used < len && channel_receive(&h->channel, bytes + used, len - used, &e) < 0)
        host_give_up(h, &e);
}

static void on_writable(void *ctx)
{
    struct host *h = ctx;
    host_flush(h);
    h->common->events->writable(h->common->ctx, h);
}

static void on_closed(void *ctx, const struct transport_end *end)
{
    struct host *h = ctx;
    bool unsupported = end->err && end->err->code == ERR_UNSUPPORTED && h->ops != &transport_exec &&
                       h->ops != &transport_local;
    if (unsupported && h->fsm.state == HOST_CONNECTING && !h->err.code) {
        log_info("%s: %s; using the ssh program", h->label, end->err->text);
        h->replaced = h->transport;
        h->transport = NULL;
        fsm_post(&h->fsm, EV_FALLBACK);
        return;
    }
    host_note_phase(h);
    /* Only its exit status says that the guard has gone, with all that it was there for. */
    h->agent.unconfirmed =
        h->fsm.state == HOST_LEAVING && h->agent.session_pid != 0 && !host_end_is_known(h, end);
    if ((h->fsm.state >= HOST_READY && h->fsm.state <= HOST_ENDING) || h->agent.unconfirmed)
        h->lost_at = clock_now();
    host_explain_end(h, end);
    legal_end(&h->legal, h->label);
    host_words_end(&h->words, h->label);
    fsm_post(&h->fsm, EV_CLOSED);
}

static const struct transport_events transport_events = {on_phase,    on_opened, on_received,  host_hear,
                                                         on_writable, on_closed, on_unresolved};

static const struct transport_ops *choose_transport(struct host *h, struct err *e)
{
    const struct host_common *c = h->common;
    if (h->replaced) {
        h->target.rsh = "ssh";
        return &transport_exec;
    }
    if (hosts_is_local(h->spec, c->hostname))
        return &transport_local;
    if (c->config->rsh) {
        h->target.rsh = c->config->rsh;
        return &transport_exec;
    }
    return module_symbol(TRANSPORT_SSH_MODULE, TRANSPORT_SSH_SYMBOL, e);
}

static void start_transport(void *owner)
{
    struct host *h = owner;
    const struct host_common *c = h->common;
    h->target.host = h->spec->name;
    h->target.user = h->spec->user;
    h->target.port = (uint16_t)c->config->ssh_port;
    h->target.identity_file = c->config->ssh_identity_file;
    h->target.agent_path = c->agent_local;
    h->target.arguments = c->agent_arguments;
    h->target.command = c->sent ? c->sent->command : c->agent_command;
    h->ops = choose_transport(h, &h->err);
    if (h->ops)
        h->transport = h->ops->start(c->loop, &h->target, &transport_events, h, &h->err);
    if (!h->transport) {
        if (h->ops == &transport_local) {
            h->phase = TRANSPORT_AGENT_START;
            if (h->err.code == ERR_NOT_FOUND)
                err_hint(&h->err, HOST_INSTALL_HINT);
        } else if (h->ops == &transport_exec) {
            h->phase = TRANSPORT_CONNECT;
        }
        host_note_phase(h);
        fsm_post(&h->fsm, EV_CLOSED);
    }
}

/* ---- actions ------------------------------------------------------------------------------------------- */

static void send_hello(void *owner)
{
    struct host *h = owner;
    Hvd__Hello hello = HVD__HELLO__INIT;
    host_hello(h, &hello);
    CONTROL(m, HELLO, hello, &hello);
    h->beat.hello_sent = h->beat.last_heard = clock_now();
    host_push(h, &m);
}

static void drop_transport(void *owner)
{
    struct host *h = owner;
    if (h->transport)
        h->ops->close(h->transport);
}

static void send_bye(void *owner)
{
    struct host *h = owner;
    Hvd__Bye bye = HVD__BYE__INIT;
    CONTROL(m, BYE, bye, &bye);
    host_push(h, &m);
}

static void report_closed(void *owner)
{
    struct host *h = owner;
    h->common->events->closed(h->common->ctx, h);
}

/* ---- from the job -------------------------------------------------------------------------------------- */

void host_init(struct host *h, const struct host_common *common, const struct host_spec *spec, uint32_t index)
{
    memset(h, 0, sizeof *h);
    h->common = common;
    h->spec = spec;
    h->index = index;
    snprintf(h->label, sizeof h->label, "%s", spec->name);
    channel_init(&h->channel, &channel_events, h, true, BULK_MAX);
    channel_set_session(&h->channel, index);
    fsm_init(&h->fsm, &table, h, h->label, HOST_QUEUED);
}

void host_free(struct host *h)
{
    if (h->transport)
        h->ops->destroy(h->transport);
    if (h->replaced) {
        const struct transport_ops *ssh = module_symbol(TRANSPORT_SSH_MODULE, TRANSPORT_SSH_SYMBOL, NULL);
        if (ssh)
            ssh->destroy(h->replaced);
    }
    channel_free(&h->channel);
    free(h->address);
}

void host_start(struct host *h)
{
    fsm_post(&h->fsm, EV_START);
}

void host_go(struct host *h)
{
    Hvd__Go go = HVD__GO__INIT;
    CONTROL(m, GO, go, &go);
    h->lease.asked = true;
    if (h->fsm.state == HOST_GREETING)
        host_push(h, &m);
}

void host_spawn(struct host *h, const Hvd__Spawn *spawn)
{
    CONTROL(m, SPAWN, spawn, (Hvd__Spawn *)spawn);
    h->spawn_sent = clock_now();
    host_send(h, &m);
    fsm_post(&h->fsm, EV_SPAWN);
}

void host_teardown(struct host *h, Hvd__Teardown *teardown)
{
    if (h->common->timeline_mark)
        teardown->timeline_mark = h->common->timeline_mark;
    if (h->fsm.state >= HOST_READY && h->fsm.state <= HOST_ENDING) {
        CONTROL(m, TEARDOWN, teardown, teardown);
        uint64_t before = h->beat.spoke_at;
        host_send(h, &m);
        h->beat.spoke_at = before; /* a host that is asked to end needs no lease */
        h->beat.torn_at = clock_now();
        host_expect(h);
    }
    if (h->fsm.state < HOST_ENDING)
        fsm_post(&h->fsm, EV_TEARDOWN);
}
