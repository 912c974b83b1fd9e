/* This machine's topology for the clients: OpenMPI takes it from its server where it can, else each of its
 * ranks reads all of /sys for itself, which takes it some 25 ms of processor time, and more on larger
 * machines. */
#include "agent/rendezvous/pmix/pmix_topology.h"

#include <stdlib.h>

#include "common/log.h"

#ifdef HVD_HWLOC
#include <hwloc.h>

/* What finds nothing that a library looks for, but opens displays and drivers, or binds us to each processor
 * in turn. Linux knows itself what PCI devices there are. */
static const char *const left_out[] = {"x86", "pci", "opencl", "gl"};

char *pmix_topology(void)
{
    hwloc_topology_t topology;
    char *xml = NULL, *copy = NULL;
    int len = 0;
    if (hwloc_topology_init(&topology) < 0)
        return NULL;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(topology) == 0 && hwloc_topology_export_xmlbuffer(topology, &xml, &len, 0) == 0) {
        copy = strdup(xml);
        hwloc_free_xmlbuffer(topology, xml);
    }
    hwloc_topology_destroy(topology);
    if (!copy)
        log_info("the clients of PMIx get no topology");
    return copy;
}

#else

char *pmix_topology(void)
{
    return NULL;
}

#endif
