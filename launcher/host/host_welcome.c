/* Checks what a host says of itself in Welcome. If one part cannot be true, all of it is refused. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/host/host.h"

#define SLOTS_MAX    65536 /* ranks that a session takes */
#define PROBLEMS_MAX 64    /* it names fewer of them, and of limits */

/* Numeric; an IPv6 address may have a scope. */
static bool is_address(const char *text)
{
    char plain[INET6_ADDRSTRLEN];
    struct in_addr four;
    struct in6_addr six;
    size_t len = strcspn(text, "%");
    if (len >= sizeof plain || strlen(text) > INET6_ADDRSTRLEN + 16)
        return false;
    memcpy(plain, text, len);
    plain[len] = '\0';
    return inet_pton(AF_INET, text, &four) == 1 || inet_pton(AF_INET6, plain, &six) == 1;
}

static bool are_ports(const uint32_t *port, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (port[i] > UINT16_MAX)
            return false;
    return count <= SLOTS_MAX;
}

static int check_welcome(const Hvd__Welcome *w, struct err *e)
{
    const char *wrong = NULL;
    if (w->slots > SLOTS_MAX || w->parts > SLOTS_MAX)
        wrong = "it has too many slots";
    else if (w->free_port > UINT16_MAX || w->coordinator_port > UINT16_MAX ||
             !are_ports(w->worker_port, w->n_worker_port))
        wrong = "its ports are not valid";
    else if (w->n_problem > PROBLEMS_MAX || w->n_limit > PROBLEMS_MAX)
        wrong = "it names too many problems";
    for (size_t i = 0; i < w->n_address && !wrong; i++)
        if (!is_address(w->address[i]))
            wrong = "its addresses are not valid";
    return wrong ? err_set(e, ERR_PROTOCOL, "hvdagent there sent an impossible Welcome: %s", wrong) : 0;
}

static int check_version(const Hvd__Welcome *w, struct err *e)
{
    if (protocol_fits(w->protocol, w->oldest_protocol))
        return 0;
    err_set(e, ERR_VERSION, "hvdagent there is version %.40s (protocol %u), this hvdrun is %s (protocol %u)",
            w->version, w->protocol, HVD_VERSION, PROTOCOL_VERSION);
    return err_hint(e, "install the same version on every host, name one with --agent-path, or copy this one "
                       "there with --send-agent");
}

/* Loopback, and an address with a scope, mean nothing elsewhere. */
static const char *choose_address(const struct host *h, const Hvd__Welcome *w)
{
    const char *address = h->ops->peer_address(h->transport);
    if (!address || h->common->interface_count > 0 || h->ops == &transport_local || strchr(address, '%'))
        address = w->n_address ? w->address[0] : address;
    return address;
}

int host_take_welcome(struct host *h, const Hvd__Welcome *w, struct err *e)
{
    if (check_version(w, e) < 0 || check_welcome(w, e) < 0)
        return -1;
    const char *address = choose_address(h, w);
    h->agent.session_pid = w->pid;
    h->agent.guard_pid = w->guard_pid;
    h->agent.managed = w->managed;
    free(h->address);
    h->address = address ? strdup(address) : NULL;
    log_info("%s: session %u on %.64s, slots %u, containment %.32s, address %s", h->label, w->pid,
             w->hostname, w->slots, w->containment, h->address ? h->address : "unknown");
    return 0;
}
