/* The module `topology`: hwloc's tree as the flat list of topology.h. By default hwloc leaves out what the
 * cgroup's cpuset does not allow. */
#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>

#include "agent/worker/topology.h"
#include "common/process/module.h"

extern const char hvd_module_version[];
MODULE_DEFINE_VERSION;
extern const struct topology_ops hvd_topology;

/* Components that find no core, but open displays and drivers, or bind this process to each processor in
 * turn. */
static const char *const left_out[] = {"x86", "pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"};

static void take_cpus(hwloc_const_bitmap_t from, struct cpus *to)
{
    for (int cpu = hwloc_bitmap_first(from); cpu >= 0; cpu = hwloc_bitmap_next(from, cpu))
        cpus_add(to, (uint32_t)cpu);
}

/* The number of the object of this type around or (a NUMA node) beside the core; 0 where there is none. */
static uint32_t number_of(hwloc_topology_t h, hwloc_obj_type_t type, hwloc_obj_t core)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, type, o));)
        if (hwloc_bitmap_intersects(o->cpuset, core->cpuset))
            return o->logical_index;
    return 0;
}

static int take_objects(hwloc_topology_t h, struct topology *t, struct err *e)
{
    /* When the firmware reports no cores, each processor is one. */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int cores = hwloc_get_nbobjs_by_type(h, type);
    if (cores <= 0)
        return err_set(e, ERR_HOST, "hwloc finds no processor here");
    t->core = calloc((size_t)cores, sizeof *t->core);
    if (!t->core)
        return err_set(e, ERR_MEMORY, "no memory for %d cores", cores);
    t->sockets = t->numas = 1;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, type, o));) {
        struct topology_core *core = &t->core[t->cores++];
        core->socket = number_of(h, HWLOC_OBJ_PACKAGE, o);
        core->numa = number_of(h, HWLOC_OBJ_NUMANODE, o);
        take_cpus(o->cpuset, &core->cpus);
        t->sockets = core->socket >= t->sockets ? core->socket + 1 : t->sockets;
        t->numas = core->numa >= t->numas ? core->numa + 1 : t->numas;
    }
    return 0;
}

static int load_topology(struct topology *t, bool *real, struct err *e)
{
    hwloc_topology_t h;
    *t = (struct topology){0};
    if (hwloc_topology_init(&h) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the topology");
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        (void)hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
    int rc = hwloc_topology_load(h) < 0 ? err_sys(e, errno, "hwloc cannot find this host's processors")
                                        : take_objects(h, t, e);
    *real = rc == 0 && hwloc_topology_is_thissystem(h);
    hwloc_topology_destroy(h);
    return rc;
}

const struct topology_ops hvd_topology = {load_topology};
