/* Which processors the workers get, before the first is started; and what they have then, for
 * --report-bindings. Without an option that asks for it nothing is looked for. */
#include <sched.h>
#include <stdlib.h>

#include "agent/session/session.h"
#include "agent/worker/binding.h"

static bool is_wanted(const Hvd__Spawn *spawn)
{
    if (spawn->binding && spawn->binding->bind_to != HVD__BINDING__BIND__TO_NONE)
        return true;
    for (size_t i = 0; i < spawn->n_worker; i++)
        if (spawn->worker[i]->n_cores > 0)
            return true;
    return false;
}

int session_bind(struct session *s, struct err *e)
{
    const Hvd__Spawn *spawn = s->spawn;
    struct topology t;
    if (!is_wanted(spawn))
        return 0;
    if (!spawn->binding)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has cores and no binding");
    s->cpus = calloc(spawn->n_worker, sizeof *s->cpus);
    if (!s->cpus)
        return err_set(e, ERR_MEMORY, "no memory for the processors of %zu ranks", spawn->n_worker);
    if (topology_find(&t, e) < 0)
        return -1;
    int rc = binding_make(&t, spawn->binding, spawn->worker, spawn->n_worker, s->cpus, e);
    topology_free(&t);
    return rc;
}

int session_count_parts(struct session *s, const Hvd__Hello *hello, struct err *e)
{
    struct topology t;
    if (!hello->per_part)
        return 0;
    if (topology_find(&t, e) < 0)
        return -1;
    s->parts = hello->count_parts == HVD__BINDING__MAP__BY_SOCKET ? t.sockets
               : hello->count_parts == HVD__BINDING__MAP__BY_NUMA ? t.numas
                                                                  : t.cores;
    topology_free(&t);
    return 0;
}

const struct cpus *session_cpus_of(const struct session *s, size_t i)
{
    return s->cpus && cpus_meet(&s->cpus[i], &s->cpus[i]) ? &s->cpus[i] : NULL;
}

void session_bound(const struct session *s, size_t i, Hvd__Spawned *told, char *text, size_t size)
{
    const struct cpus *bound = session_cpus_of(s, i);
    struct cpus now = {0};
    if (!s->spawn->binding || !s->spawn->binding->report)
        return;
    /* As the kernel has it; of a worker that has ended already, what it was given. */
    if (sched_getaffinity((pid_t)told->pid, sizeof now, (cpu_set_t *)(void *)&now) < 0) {
        if (bound)
            now = *bound;
        else
            (void)sched_getaffinity(0, sizeof now, (cpu_set_t *)(void *)&now);
    }
    told->cpus = (char *)cpus_text(&now, text, size);
    told->bound = bound != NULL;
}
