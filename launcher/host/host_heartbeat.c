/* Pings: what the answers say of a host's clock, and when a host that says nothing is given up. */
#include "common/base/clock.h"
#include "common/protocol/message.h"
#include "launcher/host/host.h"
#include "launcher/host/host_clock.h"

/* So many more round trips to a host that begins, unless its clock is known well enough. */
#define CLOCK_PINGS 4
#define CLOCK_GOOD  NSEC_PER_MSEC
/* Beyond the grace: for the way of SIGKILL, and of the last byte that the session heard. */
#define LEASE_EXTRA_MS 1000
/* A guard takes less to clear away: 5 s for processes, 1 s for the cgroup. */
#define GUARD_MS 8000

/* Sends a ping; the answer tells the host's time. */
static void host_ping(struct host *h)
{
    Hvd__Ping ping = HVD__PING__INIT;
    ping.nonce = h->beat.ping_sent = clock_now();
    CONTROL(m, PING, ping, &ping);
    host_send(h, &m);
}

/* A slow answer says little of the host's clock: then it is asked again, at once. */
void host_measure_clock(struct host *h, uint64_t theirs, uint64_t asked)
{
    host_clock_saw(&h->beat.clock, theirs, asked, clock_now());
    if (host_clock_error(&h->beat.clock) <= CLOCK_GOOD || h->beat.clock_pings >= CLOCK_PINGS)
        return;
    h->beat.clock_pings++;
    host_ping(h);
}

void host_expect(struct host *h)
{
    h->beat.answers_since = clock_now();
}

/* A session that lives speaks four times in that time. */
bool host_is_silent(const struct host *h, uint64_t now)
{
    uint64_t limit = (uint64_t)h->common->config->heartbeat_timeout_ms * NSEC_PER_MSEC;
    return now > h->beat.last_heard + limit / 2 || h->beat.last_heard < h->beat.answers_since;
}

uint64_t host_lease_end(const struct host *h)
{
    const struct config *c = h->common->config;
    if (h->agent.unconfirmed) /* it has none: all workers had ended */
        return h->lost_at;
    uint64_t lease = h->beat.spoke_at + (uint64_t)c->heartbeat_timeout_ms * NSEC_PER_MSEC;
    uint64_t begins = h->beat.torn_at > lease ? h->beat.torn_at : lease; /* to end its workers */
    return begins + ((uint64_t)c->grace_ms + LEASE_EXTRA_MS) * NSEC_PER_MSEC;
}

/* How long it may say nothing. One that is leaving has nothing to say until its guard has cleared away what
 * the session left, and has gone. */
static uint64_t silence_of(const struct host *h)
{
    uint64_t limit = (uint64_t)h->common->config->heartbeat_timeout_ms * NSEC_PER_MSEC;
    uint64_t guard = GUARD_MS * NSEC_PER_MSEC;
    return h->fsm.state == HOST_LEAVING && limit < guard ? guard : limit;
}

void host_heartbeat(struct host *h, uint64_t now)
{
    uint64_t limit = silence_of(h);
    if (h->fsm.state < HOST_READY || h->fsm.state >= HOST_CLOSED)
        return;
    if (now + 2 * limit / HOST_BEATS > h->beat.last_heard + limit) {
        /* The next call believes it, by the limit: the loop reads what waits, as after we were stopped. */
        if (h->beat.suspect) {
            struct err e = ERR_INIT;
            err_set(&e, ERR_HOST, "nothing was heard of it for %.1f s",
                    (double)(now - h->beat.last_heard) / 1e9);
            err_hint(&e, "the network or the host may be down; its processes end by themselves when they "
                         "hear nothing either");
            host_give_up(h, &e);
            return;
        }
        h->beat.suspect = true;
    }
    /* Every ping that it might hear renews its lease, for whose end we would have to wait. */
    if (!host_is_silent(h, now))
        host_ping(h);
}
