/* A look at the GPUs when somebody asks why the job does not go on: do they make themselves slower?
 *
 * A process of its own asks, which may hang as the driver does (agent/gpu/gpu_scan.h). The status does not
 * wait for a driver that hangs, and nobody starts a second process beside one that does. */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/process/gpu_probe.h"
#include "common/protocol/message.h"
#include "common/protocol/spawn_programs.h"

struct gpu_look {
    struct session *session;
    struct gpu_probe probe;
    uv_poll_t poll;
    pid_t pid;       /* of the process that asks; 0: none lives */
    bool open;       /* the poll is */
    bool closing;    /* it was */
    Hvd__Gpus *last; /* NULL: they have not answered */
};

struct gpu_look *gpu_look_open(struct session *s)
{
    struct gpu_look *g = calloc(1, sizeof *g);
    if (g)
        g->session = s;
    return g;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct gpu_look *g = handle->data;
    g->closing = false;
}

/* The process may live on for a moment, and is reaped then. */
void gpu_look_close(struct gpu_look *g)
{
    if (!g || !g->open)
        return;
    g->open = false;
    g->closing = true;
    uv_poll_stop(&g->poll);
    gpu_probe_end(&g->probe);
    close(g->probe.child.pidfd);
    uv_close((uv_handle_t *)&g->poll, on_poll_closed);
}

void gpu_look_free(struct gpu_look *g)
{
    if (g)
        message_free(g->last);
    free(g);
}

static void on_said(uv_poll_t *poll, int status, int events)
{
    struct gpu_look *g = poll->data;
    struct err e = ERR_INIT;
    (void)events;
    int rc = status < 0 ? -1 : gpu_probe_read(&g->probe, &e);
    if (rc == 0)
        return;
    g->last = rc > 0 ? gpu_probe_result(&g->probe, &e) : NULL;
    gpu_look_close(g);
    session_gpus_known(g->session);
}

bool gpu_look_ask(struct gpu_look *g)
{
    struct session *s = g->session;
    char agent[PATH_MAX];
    struct err e = ERR_INIT;
    if (s->job.gpu_count == 0 || s->fsm.state != SESSION_RUNNING)
        return false;
    if (g->pid > 0 || g->closing)
        return g->open;
    message_free(g->last);
    g->last = NULL;
    if (gpu_agent_path(agent, sizeof agent, &e) < 0 || gpu_probe_start(&g->probe, agent, false, &e) < 0)
        return false;
    g->pid = g->probe.child.pid;
    g->open = true;
    uv_poll_init(&s->loop, &g->poll, g->probe.fd);
    g->poll.data = g;
    uv_poll_start(&g->poll, UV_READABLE, on_said);
    return true;
}

bool gpu_look_reaped(struct gpu_look *g, pid_t pid)
{
    if (g->pid == 0 || g->pid != pid)
        return false;
    g->pid = 0;
    return true;
}

/* `name`: a number, or a UUID. */
static const Hvd__Gpu *find_gpu(const Hvd__Gpus *all, const char *name)
{
    size_t index = isdigit((unsigned char)*name) ? strtoul(name, NULL, 10) : SIZE_MAX;
    for (size_t i = 0; i < all->n_gpu; i++)
        if (i == index || (*name && strcmp(all->gpu[i]->uuid, name) == 0))
            return all->gpu[i];
    return NULL;
}

uint64_t gpu_look_slowed(const struct gpu_look *g, uint32_t rank)
{
    const Hvd__Spawn *spawn = g->session->spawn;
    const struct session_job *job = &g->session->job;
    char name[GPU_UUID_MAX + 1];
    const char *given =
        g->last && spawn_programs(spawn) == 1 ? worker_env_given(spawn, 0, GPU_VISIBLE) : NULL;
    for (size_t i = 0; g->last && i < spawn->n_worker; i++) {
        const Hvd__Worker *w = spawn->worker[i];
        if (w->rank != rank || !gpu_visible(HVD__BINDING__GPU__GPU_SINGLE, given ? given : job->gpus,
                                            job->gpu_count, w->local_rank, name, sizeof name))
            continue;
        const Hvd__Gpu *gpu = find_gpu(g->last, name);
        return gpu && gpu->slowed > 0 ? (uint64_t)gpu->slowed : 0;
    }
    return 0;
}
