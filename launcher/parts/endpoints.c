/* Addresses and ports of the hosts, for rank 0 and for contracts that name every rank's port. */
#include <stdlib.h>
#include <string.h>

#include "common/net/net.h"
#include "common/protocol/message.h"
#include "launcher/cli/list_options.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

/* Free ports on a host, from its Welcome; 0 or none where the job's contracts need none. */
struct host_ports {
    uint32_t master, coordinator;
    uint32_t *worker; /* one for each rank */
    size_t workers;
};

static struct host_ports *ports_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_endpoints, h);
}

static void free_endpoints(struct job *j)
{
    for (uint32_t i = 0; j->host && i < j->host_count; i++)
        free(ports_of(j, &j->host[i])->worker);
}

/* Keeps the ports of the host's Welcome. Without memory the host has no ports, and fill_ports reports
 * that. */
static void keep_ports(struct job *j, struct host *h, const Hvd__Welcome *welcome)
{
    struct host_ports *p = ports_of(j, h);
    size_t bytes = welcome->n_worker_port * sizeof *p->worker;
    p->master = welcome->free_port;
    p->coordinator = welcome->coordinator_port;
    p->worker = bytes ? malloc(bytes) : NULL;
    if (!p->worker)
        return;
    memcpy(p->worker, welcome->worker_port, bytes);
    p->workers = welcome->n_worker_port;
}

/* The address of the first host elsewhere that has one. */
static const char *find_remote_address(struct job *j)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        const struct host *h = job_host_of_plan(j, i);
        if (h->ops != &transport_local && h->address)
            return h->address;
    }
    return NULL;
}

/* The address at which other hosts reach this host is the one from which this host reaches them: the first
 * address that its session offers may lead nowhere (a bridge, a separate network). With --network-interfaces
 * the user has chosen. */
static void settle_local_address(struct job *j)
{
    const char *there = find_remote_address(j);
    union net_address to, source;
    char text[NET_TEXT_MAX];
    if (!there || j->common.interface_count > 0 || net_parse(there, 0, &to, NULL) < 0 ||
        !net_source_for(&to, &source))
        return;
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        char *address = h->ops == &transport_local ? strdup(net_format(&source, text)) : NULL;
        if (!address)
            continue;
        free(h->address);
        h->address = address;
    }
}

static char *address_of(const struct job *j, const struct host *h)
{
    return j->plan.host_count > 1 && h->address ? h->address : (char *)"127.0.0.1";
}

/* The address and the ports at which the host's ranks listen for other ranks. */
static int fill_ports(const struct job *j, Hvd__HostRanks *to, const struct host *h, struct err *e)
{
    const struct host_ports *p = ports_of(j, h);
    if (p->workers < to->ranks)
        return err_set(e, ERR_HOST, "%s has only %zu free ports for its %u ranks", h->label, p->workers,
                       to->ranks);
    to->address = address_of(j, h);
    to->worker_port = p->worker;
    to->n_worker_port = to->ranks;
    return 0;
}

static int fill_spawn(struct job *j, Hvd__Spawn *m, struct err *e)
{
    const struct host *first = job_host_of_rank(j, 0);
    const struct host_ports *p = ports_of(j, first);
    settle_local_address(j);
    m->master_address = address_of(j, first);
    m->master_port = p->master;
    m->coordinator_port = p->coordinator;
    for (uint32_t i = 0; (m->contracts & CONTRACTS_ENDPOINTS) && i < j->plan.host_count; i++)
        if (fill_ports(j, m->host[i], job_host_of_plan(j, i), e) < 0)
            return -1;
    return 0;
}

const struct job_part part_endpoints = {
    .host_state_size = sizeof(struct host_ports),
    .host_ready = keep_ports,
    .spawn = fill_spawn,
    .free = free_endpoints,
};
