/* Which GPUs the workers of a session are told of. */
#include <stdlib.h>

#include "agent/session/session.h"
#include "agent/gpu/gpu.h"
#include "common/base/log.h"
#include "common/protocol/spawn_programs.h"

/* One line for the user, who would else wonder why so few ranks were started, or none of them has a GPU. */
static void tell_problem(struct session *s)
{
    static bool told;
    if (!told && gpu_problem()[0])
        session_notice(s, LOG_WARNING, "%s", gpu_problem());
    told = true;
}

/* CUDA says nothing of it: programs would only see fewer GPUs, or none. */
static void tell_unknown(struct session *s, const struct worker_env_job *job)
{
    char entry[GPU_UUID_MAX + 1];
    for (size_t i = 0; i < spawn_programs(s->spawn); i++) {
        const char *given = worker_env_given(s->spawn, i, GPU_VISIBLE);
        const char *list = given ? given : job->visible_gpus;
        if (!spawn_program_is_here(s->spawn, i) || !list ||
            !gpu_unknown(list, job->gpus, entry, sizeof entry))
            continue;
        session_notice(s, LOG_WARNING,
                       GPU_VISIBLE "=%.200s: '%s' is none of the %u GPUs here; CUDA ends the list there, "
                                   "so the ranks see %u",
                       list, entry, job->gpus, gpu_count_visible(list, job->gpus));
        return;
    }
}

/* Those of its lease, or of the host if somebody is to be told of them. */
void session_gpus(struct session *s, struct worker_env_job *job)
{
    const Hvd__Binding *binding = s->spawn->binding;
    const char *leased = s->guard->lease.gpus, *own = getenv(GPU_VISIBLE);
    bool wanted = binding && binding->gpu != HVD__BINDING__GPU__GPU_NONE;
    job->gpus = leased ? GPU_SET_MAX : wanted ? gpu_count() : 0;
    job->visible_gpus = leased ? leased : own || !job->gpus ? own : gpu_list();
    job->gpus_are_leased = leased != NULL;
    s->gpus = job->gpus ? job->visible_gpus : NULL;
    tell_problem(s);
    if (job->gpus && !leased)
        tell_unknown(s, job);
}
