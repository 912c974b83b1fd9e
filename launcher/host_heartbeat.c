/* Pings: what the answers say of a host's clock, and when a host that says nothing is given up. */
#include "common/clock.h"
#include "common/message.h"
#include "launcher/host.h"

/* So many more round trips to a host that begins, unless its clock is known well enough. */
#define CLOCK_PINGS 4
#define CLOCK_GOOD  NSEC_PER_MSEC

void host_ping(struct host_run *h)
{
    Hvd__Ping ping = HVD__PING__INIT;
    ping.nonce = h->ping_sent = clock_now();
    CONTROL(m, PING, ping, &ping);
    host_send(h, &m);
}

/* A slow answer says little of the host's clock: then it is asked again, at once. */
void host_measure_clock(struct host_run *h, uint64_t theirs, uint64_t asked)
{
    host_clock_saw(&h->clock, theirs, asked, clock_now());
    if (host_clock_error(&h->clock) <= CLOCK_GOOD || h->clock_pings >= CLOCK_PINGS)
        return;
    h->clock_pings++;
    host_ping(h);
}

void host_heartbeat(struct host_run *h, uint64_t now)
{
    uint64_t limit = (uint64_t)h->common->config->heartbeat_timeout_ms * NSEC_PER_MSEC;
    if (h->fsm.state < HOST_READY || h->fsm.state >= HOST_CLOSED)
        return;
    if (now + 2 * limit / HOST_BEATS > h->last_heard + limit) {
        /* The next call believes it, by the limit: the loop reads what waits, as after we were stopped. */
        if (h->suspect) {
            struct err e = ERR_INIT;
            err_set(&e, ERR_HOST, "nothing was heard of it for %.1f s", (double)(now - h->last_heard) / 1e9);
            err_hint(&e, "the network or the host may be down; its processes end by themselves when they "
                         "hear nothing either");
            host_give_up(h, &e);
            return;
        }
        h->suspect = true;
    }
    host_ping(h);
}
