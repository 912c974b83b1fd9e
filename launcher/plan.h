/* The plan: ranks placed on slots, in blocks as horovodrun does. Host by host in the given order, each is
 * filled before the next.
 *
 *   plan_check      before the network: what can be said while some hosts are `auto`
 *   plan_hosts      how many of the hosts, from the first, a job of np ranks can come to need: only these are
 * started plan_make       when the slots of those are known
 *
 * cross_rank is a host's index among the hosts that have that local rank, and cross_size their number, as
 * Horovod defines them. */
#ifndef HVD_LAUNCHER_PLAN_H
#define HVD_LAUNCHER_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "launcher/hosts.h"

struct plan_host {
    uint32_t index; /* in the host_list; hosts without ranks are left out */
    uint32_t first_rank;
    uint32_t ranks; /* = local_size of each */
};

struct plan_rank {
    uint32_t host; /* index in plan.host */
    uint32_t local_rank;
    uint32_t cross_rank;
    uint32_t cross_size;
};

struct plan {
    uint32_t size; /* number of ranks */
    uint32_t host_count;
    struct plan_host *host;
    struct plan_rank *rank; /* by rank */
};

/* np 0: one rank for every slot. ERR_USAGE when there certainly are fewer slots than ranks, or more ranks
 * than possible. */
int plan_check(const struct host_list *hosts, uint32_t np, struct err *e);
size_t plan_hosts(const struct host_list *hosts, uint32_t np);
/* Places np ranks over the first `count` hosts, none of which is `auto` any more. On -1 *plan is empty. */
int plan_make(struct plan *plan, const struct host_list *hosts, size_t count, uint32_t np, struct err *e);
void plan_free(struct plan *plan);

#endif
