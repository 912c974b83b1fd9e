/* The GPUs that the workers are told of: those of the session's lease, or those of the host if an option
 * hands them out. */
#include "agent/gpu/gpu.h"

#include <stdlib.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/log.h"
#include "common/protocol/spawn_programs.h"

/* CUDA does not report an unknown entry: programs would only see fewer GPUs, or none. */
static void tell_unknown_entry(struct session *s, const struct worker_env_job *env)
{
    char entry[GPU_UUID_MAX + 1];
    for (size_t i = 0; i < spawn_programs(s->spawn); i++) {
        const char *given = worker_env_given(s->spawn, i, GPU_VISIBLE);
        const char *list = given ? given : env->visible_gpus;
        if (!spawn_program_is_here(s->spawn, i) || !list ||
            !gpu_unknown(list, env->gpus, entry, sizeof entry))
            continue;
        session_send_notice(s, LOG_WARNING,
                            GPU_VISIBLE
                            "=%.200s: '%s' is none of the %u GPUs here; CUDA ends the list there, "
                            "so the ranks see %u",
                            list, entry, env->gpus, gpu_count_visible(list, env->gpus));
        return;
    }
}

static int choose_gpus(struct session *s, struct worker_env_job *env, struct err *e)
{
    const Hvd__Binding *binding = s->spawn->binding;
    const char *leased = s->guard->lease.gpus, *own = getenv(GPU_VISIBLE);
    bool wanted = binding && binding->gpu != HVD__BINDING__GPU__GPU_NONE;
    env->gpus = leased ? GPU_SET_MAX : wanted ? gpu_count() : 0;
    env->visible_gpus = leased ? leased : own || !env->gpus ? own : gpu_list();
    env->gpus_are_leased = leased != NULL;
    s->job.gpus = env->gpus ? env->visible_gpus : NULL;
    s->job.gpu_count = env->gpus;
    /* Without this line the user would wonder why so few ranks were started, or why no rank has a GPU. */
    if (gpu_problem()[0])
        session_send_notice(s, LOG_WARNING, "%s", gpu_problem());
    if (env->gpus && !leased)
        tell_unknown_entry(s, env);
    return 0;
}

const struct session_part session_part_gpus = {.name = "gpus", .prepare = choose_gpus};
