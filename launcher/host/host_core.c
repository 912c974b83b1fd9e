/* The core of a host: its state in words, messages to it, and its end by an error. */
#include "common/base/clock.h"
#include "launcher/host/host.h"

enum host_state host_state(const struct host *h)
{
    return h->fsm.state;
}

const char *host_phase(const struct host *h)
{
    switch (h->fsm.state) {
    case HOST_CONNECTING:
        return transport_phase_name(h->phase);
    case HOST_SENDING:
        return h->sending.files ? "sending the agent" : "agent start";
    case HOST_GREETING:
        return *h->lease.waiting                   ? "waiting"
               : *h->lease.node && !h->lease.asked ? "held"
               : channel_is_open(&h->channel)      ? "hello"
                                                   : "agent start";
    default:
        return fsm_state_name(&h->fsm);
    }
}

void host_note_phase(struct host *h)
{
    if (!h->failed_in)
        h->failed_in = host_phase(h);
}

void host_give_up(struct host *h, const struct err *why)
{
    host_note_phase(h);
    if (h->fsm.state < HOST_LEAVING && !h->err.code) /* else it only lingers, with all done that was asked */
        h->err = *why;
    if (h->fsm.state != HOST_CLOSED && h->transport)
        h->ops->close(h->transport);
}

/* ---- to the session ------------------------------------------------------------------------------------ */

static void give_up_starved(struct host *h)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_MEMORY, "no memory for a message to it");
    host_give_up(h, &e);
}

void host_flush(struct host *h)
{
    const uint8_t *bytes;
    size_t len, taken;
    if (!h->transport || h->fsm.state == HOST_CLOSED)
        return;
    while (h->fsm.state == HOST_SENDING && h->sending.left > 0) {
        taken = h->ops->write(h->transport, h->sending.bytes, h->sending.left);
        host_sending_written(&h->sending, taken);
        if (taken == 0)
            return;
    }
    while ((len = channel_output(&h->channel, &bytes)) > 0) {
        taken = h->ops->write(h->transport, bytes, len);
        channel_written(&h->channel, taken);
        h->beat.spoke_at = taken > 0 ? clock_now() : h->beat.spoke_at;
        if (taken < len)
            return;
    }
    if (channel_is_starved(&h->channel))
        give_up_starved(h);
}

void host_push(struct host *h, const Hvd__Control *message)
{
    if (channel_send(&h->channel, message) < 0)
        give_up_starved(h);
    else
        host_flush(h);
}

static bool is_welcome(const struct host *h)
{
    return h->fsm.state >= HOST_READY && h->fsm.state < HOST_LEAVING;
}

void host_send(struct host *h, const Hvd__Control *message)
{
    if (is_welcome(h))
        host_push(h, message);
}

void host_queue(struct host *h, const Hvd__Control *message)
{
    if (is_welcome(h) && channel_send(&h->channel, message) < 0)
        give_up_starved(h);
}

int host_send_stdin(struct host *h, uint32_t rank, const void *bytes, size_t len)
{
    if (h->fsm.state != HOST_RUNNING)
        return 0;
    int rc = channel_send_data(&h->channel, rank, STREAM_STDIN, len ? 0 : FRAME_FLAG_EOF, bytes, len);
    if (rc < 0)
        give_up_starved(h); /* a worker would wait for the rest */
    else
        host_flush(h);
    return rc;
}

void host_send_file(struct host *h, uint32_t index, const void *bytes, size_t len)
{
    if (channel_send_data(&h->channel, index, STREAM_FILE, 0, bytes, len) < 0)
        give_up_starved(h);
    else
        host_flush(h);
}
