#include "agent/worker/topology.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "common/process/module.h"

/* Numbers what is used of `field` anew, in order of first use. */
static uint32_t number_anew(struct topology *t, size_t offset)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->cores; i++) {
        uint32_t *mine = (uint32_t *)((char *)&t->core[i] + offset), new = count, j = 0;
        const uint32_t before = *mine;
        if (before & 0x80000000u)
            continue;
        for (j = i; j < t->cores; j++) {
            uint32_t *other = (uint32_t *)((char *)&t->core[j] + offset);
            if (*other == before)
                *other = new | 0x80000000u;
        }
        count++;
    }
    for (uint32_t i = 0; i < t->cores; i++)
        *(uint32_t *)((char *)&t->core[i] + offset) &= 0x7fffffffu;
    return count;
}

bool topology_keep(struct topology *t, const struct cpus *allowed)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->cores; i++)
        if (cpus_keep(&t->core[i].cpus, allowed))
            t->core[kept++] = t->core[i];
    t->cores = kept;
    t->sockets = number_anew(t, offsetof(struct topology_core, socket));
    t->numas = number_anew(t, offsetof(struct topology_core, numa));
    return kept > 0;
}

int topology_find(struct topology *t, struct err *e)
{
    const struct topology_ops *ops = module_symbol(TOPOLOGY_MODULE, TOPOLOGY_SYMBOL, e);
    struct cpus allowed = {0};
    bool real;
    *t = (struct topology){0};
    if (!ops)
        return err_wrap(e, "the processors of this host are not known");
    if (ops->load(t, &real, e) < 0)
        return -1;
    if (!real)
        return 0;
    if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)(void *)&allowed) < 0)
        err_sys(e, errno, "cannot read which processors may be used");
    else if (topology_keep(t, &allowed))
        return 0;
    else
        err_set(e, ERR_HOST, "none of the processors that hwloc knows may be used");
    topology_free(t);
    return -1;
}

void topology_free(struct topology *t)
{
    free(t->core);
    *t = (struct topology){0};
}
