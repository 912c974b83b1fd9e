/* Which processors each rank of this host is bound to (pure).
 *
 * A rank has a part of the machine in which it is placed: the whole for --map-by slot and node, else the
 * sockets, NUMA nodes or cores in turn, by local rank. In it, or around it where it is smaller, it is bound
 * to the thing of --bind-to that fewest ranks before it were bound to, the first one of those. So ranks that
 * are mapped by slot and bound to sockets go round the sockets, too. A rank with a list in the rankfile has
 * the cores of that list. With --ppr N:WHAT the first N ranks are placed in the first of these, the next N in
 * the second. */
#ifndef HVD_AGENT_WORKER_BINDING_H
#define HVD_AGENT_WORKER_BINDING_H

#include "agent/worker/topology.h"
#include "common/protocol/control.pb-c.h"

/* cpus[i] for the i-th of n workers; empty: it is not bound. -1 with *e: they do not fit, or a rankfile asks
 * for cores that are not here. */
int binding_make(const struct topology *t, const Hvd__Binding *want, Hvd__Worker *const *worker, size_t n,
                 struct cpus *cpus, struct err *e);

#endif
