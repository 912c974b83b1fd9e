/* This host's cores, and in which sockets and NUMA nodes they are: only those that this process may use.
 *
 * Found by the module `topology` (hwloc), which is opened when an option needs it. A machine without NUMA
 * nodes or sockets is one of each. */
#pragma once

#include "agent/worker/cpus.h"
#include "common/base/err.h"

#define TOPOLOGY_MODULE "topology"
#define TOPOLOGY_SYMBOL "hvd_topology"

struct topology_core {
    uint32_t socket, numa; /* from 0, without gaps */
    struct cpus cpus;
};

struct topology {
    uint32_t cores, sockets, numas;
    struct topology_core *core; /* in the order of the machine: neighbours are near each other */
};

/* The module's. */
struct topology_ops {
    /* -1 with *e. `real` is told whether these are the processors that we run on, or hwloc was told to say
     * something else (HWLOC_SYNTHETIC, HWLOC_XMLFILE). */
    int (*load)(struct topology *t, bool *real, struct err *e);
};

/* Opens the module and takes away what sched_setaffinity has taken from us. */
int topology_find(struct topology *t, struct err *e);
/* Only processors of `allowed` stay, and only cores, sockets and nodes that have some; false: none. */
bool topology_keep(struct topology *t, const struct cpus *allowed);
void topology_free(struct topology *t);
