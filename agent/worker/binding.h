/* The processors that each rank of this host is bound to (pure).
 *
 * A rank is placed in a part of the machine: the whole machine for --map-by slot and node, else the sockets,
 * NUMA nodes or cores in turn, by local rank. In that part, or around it where the part is smaller, the rank
 * is bound to the object of --bind-to with the fewest ranks so far, the first of these. So ranks that are
 * mapped by slot and bound to sockets go round the sockets, too. A rank with a list in the rankfile has the
 * cores of that list. With --ppr N:WHAT the first N ranks are placed in the first object, the next N in the
 * second. */
#pragma once

#include "agent/worker/topology.h"
#include "common/protocol/control.pb-c.h"

/* cpus[i] for the i-th of n workers; empty: it is not bound. -1 with *e: they do not fit, or a rankfile asks
 * for cores that are not here. */
int binding_make(const struct topology *t, const Hvd__Binding *want, Hvd__Worker *const *worker, size_t n,
                 struct cpus *cpus, struct err *e);
