/* The GPUs that the workers are told of: those of the session's lease, or those of the host if an option
 * hands them out.
 *
 * When somebody asks why the job does not go on, they are asked whether they make themselves slower, by a
 * process that may hang as the driver does (agent/gpu/gpu_scan.h). The answer to that question does not wait
 * for a driver that hangs, and nobody starts a second process beside one that does. */
#include "agent/gpu/gpu.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/log.h"
#include "common/process/gpu_probe.h"
#include "common/protocol/message.h"
#include "common/protocol/spawn_programs.h"

struct session_gpus {
    uint32_t count;      /* that workers may see; 0: nobody has counted them, and nobody asks them */
    const char *visible; /* NULL: all of them */
    struct gpu_probe probe;
    uv_poll_t poll;
    pid_t pid;       /* of the process that asks; 0: none lives */
    bool open;       /* the poll is */
    Hvd__Gpus *last; /* NULL: they have not answered */
};

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
    s->gpus->count = env->gpus;
    s->gpus->visible = env->visible_gpus;
    /* Without this line the user would wonder why so few ranks were started, or why no rank has a GPU. */
    if (gpu_problem()[0])
        session_send_notice(s, LOG_WARNING, "%s", gpu_problem());
    if (env->gpus && !leased)
        tell_unknown_entry(s, env);
    return 0;
}

/* ---- for a status with reasons -------------------------------------------------------------------------- */

/* The process may live on for a moment, and is reaped then. */
static void close_probe(struct session_gpus *g)
{
    if (!g->open)
        return;
    g->open = false;
    uv_poll_stop(&g->poll);
    gpu_probe_end(&g->probe);
    close(g->probe.child.pidfd);
    uv_close((uv_handle_t *)&g->poll, NULL);
}

static void on_said(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    struct session_gpus *g = s->gpus;
    struct err e = ERR_INIT;
    (void)events;
    int rc = status < 0 ? -1 : gpu_probe_read(&g->probe, &e);
    if (rc == 0)
        return;
    g->last = rc > 0 ? gpu_probe_result(&g->probe, &e) : NULL;
    close_probe(g);
    session_gpus_known(s);
}

bool session_gpus_ask(struct session *s)
{
    struct session_gpus *g = s->gpus;
    char agent[PATH_MAX];
    struct err e = ERR_INIT;
    if (g->count == 0 || s->fsm.state != SESSION_RUNNING)
        return false;
    if (g->pid > 0)
        return g->open;
    message_free(g->last);
    g->last = NULL;
    if (gpu_agent_path(agent, sizeof agent, &e) < 0 || gpu_probe_start(&g->probe, agent, false, &e) < 0)
        return false;
    g->pid = g->probe.child.pid;
    g->open = true;
    uv_poll_init(&s->loop, &g->poll, g->probe.fd);
    g->poll.data = s;
    uv_poll_start(&g->poll, UV_READABLE, on_said);
    return true;
}

static const Hvd__Gpu *find_gpu(const Hvd__Gpus *all, const char *name)
{
    size_t index = isdigit((unsigned char)*name) ? strtoul(name, NULL, 10) : SIZE_MAX;
    for (size_t i = 0; i < all->n_gpu; i++)
        if (i == index || (*name && strcmp(all->gpu[i]->uuid, name) == 0))
            return all->gpu[i];
    return NULL;
}

uint64_t session_gpu_slowed(const struct session *s, uint32_t rank)
{
    const struct session_gpus *g = s->gpus;
    char name[GPU_UUID_MAX + 1];
    const char *given = spawn_programs(s->spawn) == 1 ? worker_env_given(s->spawn, 0, GPU_VISIBLE) : NULL;
    for (size_t i = 0; g->last && i < s->spawn->n_worker; i++) {
        const Hvd__Worker *w = s->spawn->worker[i];
        if (w->rank != rank || !gpu_visible(HVD__BINDING__GPU__GPU_SINGLE, given ? given : g->visible,
                                            g->count, w->local_rank, name, sizeof name))
            continue;
        const Hvd__Gpu *gpu = find_gpu(g->last, name);
        return gpu && gpu->slowed > 0 ? (uint64_t)gpu->slowed : 0;
    }
    return 0;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static bool reap_probe(struct session *s, const struct reaped *child)
{
    bool mine = s->gpus->pid > 0 && s->gpus->pid == child->pid;
    s->gpus->pid = mine ? 0 : s->gpus->pid;
    return mine;
}

static void close_gpus(struct session *s)
{
    close_probe(s->gpus);
}

static void free_gpus(struct session *s)
{
    message_free(s->gpus->last);
}

const struct session_part session_part_gpus = {
    .name = "gpus",
    .state = SESSION_STATE(gpus),
    .prepare = choose_gpus,
    .reaped = reap_probe,
    .close = close_gpus,
    .free = free_gpus,
};
