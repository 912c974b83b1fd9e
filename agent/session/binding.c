/* The workers' processors: chosen before the first worker starts, and reported for --report-bindings. A job
 * whose options ask for no binding costs nothing here. */
#include "agent/worker/binding.h"

#include <sched.h>
#include <stdlib.h>

#include "agent/session/parts.h"

struct session_binding {
    struct cpus *cpus; /* [n_worker], that the workers are bound to; NULL: none is bound */
};

static bool is_wanted(const Hvd__Spawn *spawn)
{
    if (spawn->binding && spawn->binding->bind_to != HVD__BINDING__BIND__TO_NONE)
        return true;
    for (size_t i = 0; i < spawn->n_worker; i++)
        if (spawn->worker[i]->n_cores > 0)
            return true;
    return false;
}

static int bind_workers(struct session *s, struct worker_env_job *env, struct err *e)
{
    const Hvd__Spawn *spawn = s->spawn;
    struct topology t;
    if (!is_wanted(spawn))
        return 0;
    if (!spawn->binding)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has cores and no binding");
    struct cpus *cpus = calloc(spawn->n_worker, sizeof *cpus);
    s->binding->cpus = cpus;
    if (!cpus)
        return err_set(e, ERR_MEMORY, "no memory for the processors of %zu ranks", spawn->n_worker);
    if (topology_find(&t, e) < 0)
        return -1;
    int rc = binding_make(&t, spawn->binding, spawn->worker, spawn->n_worker, cpus, e);
    topology_free(&t);
    return rc;
}

int session_count_units(struct session *s, const Hvd__Hello *hello, struct err *e)
{
    struct topology t;
    if (!hello->per_part)
        return 0;
    if (topology_find(&t, e) < 0)
        return -1;
    s->job.units = hello->count_parts == HVD__BINDING__MAP__BY_SOCKET ? t.sockets
                   : hello->count_parts == HVD__BINDING__MAP__BY_NUMA ? t.numas
                                                                      : t.cores;
    topology_free(&t);
    return 0;
}

const struct cpus *session_cpus(const struct session *s)
{
    return s->binding->cpus;
}

const struct cpus *session_cpus_of(const struct session *s, size_t i)
{
    const struct cpus *cpus = i < s->spawn->n_worker ? session_cpus(s) : NULL; /* later ones are not bound */
    return cpus && cpus_meet(&cpus[i], &cpus[i]) ? &cpus[i] : NULL;
}

void session_bound(const struct session *s, size_t i, Hvd__Spawned *told, char *text, size_t size)
{
    const struct cpus *bound = session_cpus_of(s, i);
    struct cpus now = {0};
    if (!s->spawn->binding || !s->spawn->binding->report)
        return;
    /* From the kernel; for a worker that has ended already, the processors that it was given. */
    if (sched_getaffinity((pid_t)told->pid, sizeof now, (cpu_set_t *)(void *)&now) < 0) {
        if (bound)
            now = *bound;
        else
            (void)sched_getaffinity(0, sizeof now, (cpu_set_t *)(void *)&now);
    }
    told->cpus = (char *)cpus_text(&now, text, size);
    told->bound = bound != NULL;
}

static void free_binding(struct session *s)
{
    free(s->binding->cpus);
}

const struct session_part session_part_binding = {
    .name = "binding",
    .state = SESSION_STATE(binding),
    .prepare = bind_workers,
    .free = free_binding,
};
