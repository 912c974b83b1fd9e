/* Messages of `hvdagent attach`, before there is a session: the job's place in the queue of the host's
 * managed agent, the node's name, and the refusal. hvdrun acts on the messages and their codes. Their texts
 * are for people, and so is all that the host prints on stderr. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "launcher/host/host.h"
#include "launcher/host/host_legal.h"

/* Returns NULL, or why the message is not legal: half a sentence. */
static const char *hear_waiting(struct host *h, const Hvd__LeaseWaiting *waiting)
{
    if (h->lease.waited)
        return "the wait is over";
    snprintf(h->lease.waiting, sizeof h->lease.waiting, "%s", waiting->text);
    log_printable(h->lease.waiting);
    h->lease.waited = !*h->lease.waiting;
    h->common->events->waiting(h->common->ctx, h);
    return NULL;
}

static const char *hear_held(struct host *h, const Hvd__LeaseHeld *held)
{
    if (!h->common->hold)
        return "it was not asked";
    if (!*held->node || strlen(held->node) >= sizeof h->lease.node)
        return "that is no name of a node";
    snprintf(h->lease.node, sizeof h->lease.node, "%s", held->node);
    log_printable(h->lease.node);
    h->common->events->held(h->common->ctx, h);
    return NULL;
}

/* attach ends by itself now. The refusal is why. */
static const char *hear_refusal(struct host *h, const Hvd__LeaseRefusal *refusal)
{
    bool is_busy = refusal->code == HVD__LEASE_REFUSAL__CODE__BUSY;
    char text[ERR_TEXT_MAX];
    if (!*refusal->text)
        return "it says no cause";
    snprintf(text, sizeof text, "%s", refusal->text);
    log_printable(text);
    host_note_phase(h);
    h->lease.busy = is_busy;
    err_set(&h->err, ERR_HOST, "%s", text);
    if (is_busy && h->common->config->wait_ms == JOB_WAIT_NO)
        err_hint(&h->err, "hvdrun --wait waits until they are free");
    return NULL;
}

void host_hear_lease(void *ctx, const Hvd__Control *m)
{
    struct host *h = ctx;
    const char *why = "hvdagent attach never sends it";
    if (host_legal_is_lease(m->body_case) &&
        !legal_hears(&h->legal, &host_legal, m->body_case, h->fsm.state, h->label, fsm_state_name(&h->fsm)))
        return;
    if (m->body_case == HVD__CONTROL__BODY_LEASE_WAITING)
        why = hear_waiting(h, m->lease_waiting);
    else if (m->body_case == HVD__CONTROL__BODY_LEASE_HELD)
        why = hear_held(h, m->lease_held);
    else if (m->body_case == HVD__CONTROL__BODY_LEASE_REFUSAL)
        why = hear_refusal(h, m->lease_refusal);
    if (why)
        legal_refuse(&h->legal, h->label, legal_control_name(m->body_case), why);
}
