/* This machine's topology. Without one the library's server finds the topology itself, with all components of
 * hwloc: most of the server's start. The server lets its clients map a copy. A client without a copy reads
 * all of /sys, which takes some 25 ms of processor time, and more on larger machines. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <stdlib.h>

#include "common/base/log.h"

void pmix_topology_without_plugins(const char *empty)
{
    setenv("HWLOC_PLUGINS_PATH", empty, 0);
}

#ifdef HVD_HWLOC
#include <hwloc.h>

/* Components that find nothing that a library looks for, but open displays and drivers, or bind this process
 * to each processor in turn. Linux itself knows the PCI devices. */
static const char *const left_out[] = {"x86", "pci", "opencl", "gl"};

void pmix_topology_find(pmix_topology_t *t)
{
    static char source[] = "hwloc";
    hwloc_topology_t topology;
    *t = (pmix_topology_t){.source = source};
    if (hwloc_topology_init(&topology) < 0)
        return;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(topology) == 0) {
        t->topology = topology;
        return;
    }
    log_info("the clients of PMIx get no topology");
    hwloc_topology_destroy(topology);
}

char *pmix_topology_locality(const char *cpus)
{
    static char source[] = "hwloc";
    char *text = NULL;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    pmix_cpuset_t of = {.source = source, .bitmap = set};
    if (set && hwloc_bitmap_list_sscanf(set, cpus) == 0 &&
        PMIx_server_generate_locality_string(&of, &text) != PMIX_SUCCESS)
        text = NULL;
    hwloc_bitmap_free(set);
    return text;
}

#else

char *pmix_topology_locality(const char *cpus)
{
    return NULL;
}

void pmix_topology_find(pmix_topology_t *t)
{
    t->topology = NULL;
}

#endif
