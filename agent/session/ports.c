#include "agent/session/ports.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/session/host_facts.h"

#define WORKERS_MAX 8192 /* with ports; more are not in a variable's room (endpoints.c) */

/* Any will do: what could not be found is left out. */
static void find_ports(struct session_ports *p, size_t wanted)
{
    size_t n = host_free_ports(p->all, wanted);
    p->master = n > 0 ? p->all[0] : 0;
    p->coordinator = n > 1 ? p->all[1] : 0;
    p->worker = p->all + 2;
    p->workers = n > 2 ? n - 2 : 0;
}

/* No more than can be needed: every port counts. Hardly a program asks for both of rank 0's, so one may serve
 * as both. */
static int promise_ports(struct session_ports *p, const Hvd__Hello *hello, size_t workers, struct err *e)
{
    bool both = hello->master_port && hello->master_coordinator;
    size_t first = (size_t)hello->master_port + (size_t)hello->master_coordinator;
    p->claim = calloc(first + workers + 1, sizeof *p->claim);
    if (!p->claim)
        return err_set(e, ERR_MEMORY, "no memory for %zu ports", workers);
    if (both && port_range_promise(&p->range, p->all, p->claim, first + workers, NULL) < 0)
        both = false, first = 1;
    if (!both && port_range_promise(&p->range, p->all, p->claim, first + workers, e) < 0)
        return -1;
    p->claims = first + workers;
    p->master = hello->master_port ? p->all[0] : 0;
    p->coordinator = hello->master_coordinator ? p->all[both] : 0;
    p->worker = p->all + first;
    p->workers = workers;
    p->range.promised = (uint16_t)p->master;
    return 0;
}

int session_ports_choose(struct session_ports *p, const Hvd__Hello *hello, uint32_t ranks, struct err *e)
{
    size_t workers = hello->worker_ports && ranks < WORKERS_MAX ? ranks : 0;
    *p = (struct session_ports){0};
    if (port_range_set(&p->range, hello->port_low, hello->port_high, e) < 0)
        return -1;
    p->all = calloc(2 + workers, sizeof *p->all);
    if (!p->all)
        return err_set(e, ERR_MEMORY, "no memory for %zu ports", workers);
    if (p->range.low)
        return promise_ports(p, hello, workers, e);
    find_ports(p, 2 + workers);
    return 0;
}

void session_ports_close(struct session_ports *p)
{
    for (size_t i = 0; i < p->claims; i++)
        close(p->claim[i]);
    free(p->claim);
    free(p->all);
    *p = (struct session_ports){0};
}
