/* --mps: decides whether CUDA's multi-process service (MPS) is started for the job's GPUs on this host, and
 * acts when MPS serves, does not start, or ends.
 *
 * MPS costs isolation: a process with a fatal GPU error takes the other processes of its server along. So MPS
 * is started on demand only. A daemon that serves already is used, because CUDA would use it, and because a
 * GPU in exclusive mode admits no second one. With MPS, GPUs are named by their UUIDs: the numbers that its
 * clients see count among the GPUs that the daemon was given. */
#include "agent/session/mps/mps_clients.h"
#include "agent/session/mps/mps_host.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/gpu/gpu.h"
#include "agent/guard/job_dir.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/worker/descendants.h"
#include "common/base/log.h"
#include "common/process/spawn.h"
#include "common/protocol/spawn_programs.h"

struct session_mps {
    struct mps_host host;
    char *gpus; /* UUIDs of the GPUs to be served; NULL: MPS is not to be started */
    char *visible, **envp;
    const char *there; /* the pipe directory of a service of another job or user; NULL: none, or no GPUs */
    struct mps_clients clients; /* of that service */
    char *there_variable, **there_envp;
    bool all;       /* the processes that are released: all, or those that SIGTERM kills */
    bool releasing; /* the end of the job's processes waits for the service */
    char program[4096], pipes[JOB_DIR_MAX + 16], logs[JOB_DIR_MAX + 16];
};

static bool is_demanded(const struct session *s)
{
    return s->spawn->binding->mps == HVD__BINDING__MPS__MPS_YES;
}

/* It is not started: the job does not start either, or goes on without. */
static int do_without(struct session *s, const char *why, struct err *e)
{
    if (is_demanded(s))
        return err_set(e, ERR_UNSUPPORTED, "--mps yes: %s", why);
    session_send_notice(s, LOG_INFO, "--mps auto: not started, %s", why);
    return 0;
}

/* ---- one that is there --------------------------------------------------------------------------------- */

/* Of the user's programs here, or of the host. */
static const char *named_directory(const struct session *s)
{
    const char *named = NULL;
    for (size_t i = 0; i < spawn_programs(s->spawn) && !named; i++)
        if (spawn_program_is_here(s->spawn, i))
            named = worker_env_given(s->spawn, i, GPU_MPS_PIPES);
    return named ? named : getenv(GPU_MPS_PIPES);
}

static void use_daemon(struct session *s, struct worker_env_job *job, const char *directory)
{
    job->mps = directory;
    job->gpu_uuids = gpu_uuids();
    session_send_notice(s, LOG_INFO, "--mps: uses the MPS control daemon of %s, and leaves it running",
                        directory);
}

/* ---- one of our own ------------------------------------------------------------------------------------ */

/* Adds the entries of `more` that `list` does not have. */
static char *join_lists(char *list, const char *more)
{
    size_t used = list ? strlen(list) : 0, size = used + strlen(more) + 2;
    char *all = realloc(list, size);
    if (!all)
        free(list);
    else
        all[used] = '\0';
    while (all && *more) {
        size_t len = strcspn(more, ",");
        bool known = false;
        for (const char *at = all; *at && !known; at += strcspn(at, ","), at += *at == ',')
            known = strcspn(at, ",") == len && strncmp(at, more, len) == 0;
        if (!known)
            used += (size_t)snprintf(all + used, size - used, "%s%.*s", used ? "," : "", (int)len, more);
        more += len + (more[len] == ',');
    }
    return all;
}

/* The GPUs of all programs here, by UUID; to be freed. */
static char *gpus_of(const struct session *s, const struct worker_env_job *job, const char *uuids)
{
    char *all = NULL;
    for (size_t i = 0; i < spawn_programs(s->spawn); i++) {
        if (!spawn_program_is_here(s->spawn, i))
            continue;
        const char *given = job->gpus_are_leased ? NULL : worker_env_given(s->spawn, i, GPU_VISIBLE);
        char *own = gpu_by_uuid(given ? given : job->visible_gpus, uuids);
        all = own ? join_lists(all, own) : all;
        free(own);
    }
    return all;
}

static bool engine_calls_nccl(const struct session *s)
{
    return s->spawn->tuning && s->spawn->tuning->gpu_placement;
}

static bool is_shared(const struct session *s)
{
    size_t gpus = 1;
    for (const char *c = s->mps->gpus; *c; c++)
        gpus += *c == ',';
    return s->spawn->n_worker > gpus || engine_calls_nccl(s);
}

static int find_program(struct session *s, struct err *e)
{
    size_t i = 0;
    while (!spawn_program_is_here(s->spawn, i))
        i++;
    return spawn_find(MPS_PROGRAM, worker_env_given(s->spawn, i, "PATH"), NULL, s->mps->program,
                      sizeof s->mps->program, e);
}

/* NULL: it can be started, and the GPUs are known. */
static const char *find_obstacle(struct session *s, const struct worker_env_job *job)
{
    const char *uuids = gpu_uuids();
    struct err e = ERR_INIT;
    if (!uuids)
        return "the UUIDs of the GPUs here are not known";
    s->mps->gpus = gpus_of(s, job, uuids);
    if (!s->mps->gpus || !s->mps->gpus[0])
        return "the job has no GPU here";
    if (strstr(s->mps->gpus, "MIG-"))
        return "an instance of a GPU in MIG mode would need a service of its own";
    if (!is_demanded(s) && !is_shared(s))
        return "no two processes of the job share a GPU here";
    if (find_program(s, &e) < 0)
        return "there is no " MPS_PROGRAM " here (in PATH), which comes with NVIDIA's driver";
    return NULL;
}

static int choose_mps(struct session *s, struct worker_env_job *job, struct err *e)
{
    char why[512];
    const char *named = named_directory(s);
    const char *there = s->mps->there = job->gpus == 0 ? NULL : named ? named : MPS_PIPE_DIRECTORY;
    if (!s->spawn->binding || s->spawn->binding->mps == HVD__BINDING__MPS__MPS_NO) {
        if (job->gpus && engine_calls_nccl(s) && !mps_is_served(there))
            session_send_notice(s, LOG_WARNING,
                                "--gpu-placement engine without MPS: rank and engine take turns on a GPU, "
                                "milliseconds each; --mps auto starts it");
        return 0;
    }
    if (!job->gpus) {
        session_send_notice(s, is_demanded(s) ? LOG_WARNING : LOG_INFO,
                            "--mps: not started, the job has no GPUs here");
        return 0;
    }
    if (mps_is_served(there)) {
        use_daemon(s, job, there);
        return 0;
    }
    if (named) {
        snprintf(why, sizeof why, "%s is %.300s, where no MPS control daemon answers", GPU_MPS_PIPES, named);
        return do_without(s, why, e);
    }
    const char *in_the_way = find_obstacle(s, job);
    if (in_the_way) {
        free(s->mps->gpus);
        s->mps->gpus = NULL;
        return do_without(s, in_the_way, e);
    }
    snprintf(s->mps->pipes, sizeof s->mps->pipes, "%s/" MPS_DIRECTORY, s->dir.path);
    snprintf(s->mps->logs, sizeof s->mps->logs, "%s/" MPS_LOG, s->dir.path);
    s->mps->there = NULL;
    job->mps = s->mps->pipes;
    job->mps_log = s->mps->logs;
    job->gpu_uuids = gpu_uuids();
    return 0;
}

/* ---- its life ------------------------------------------------------------------------------------------ */

/* The job may have been told to end meanwhile: then no worker starts any more. */
static bool is_waited_for(const struct session *s)
{
    return s->fsm.state == SESSION_WAITING;
}

static void on_serves(void *ctx)
{
    struct session *s = ctx;
    session_send_notice(s, LOG_INFO, "--mps: " MPS_PROGRAM " (pid %d) serves %s",
                        (int)mps_host_pid(&s->mps->host), s->mps->gpus);
    if (is_waited_for(s))
        fsm_post(&s->fsm, EV_SPAWN);
    else
        session_schedule_check(s);
}

/* CUDA must not find what is left of it. */
static int go_on_without(struct session *s, const char *why, struct err *e)
{
    (void)remove_tree(s->dir.fd, MPS_DIRECTORY, 1);
    if (is_demanded(s))
        return err_set(e, ERR_HOST, "--mps yes: %s", why);
    session_send_notice(s, LOG_WARNING, "--mps auto: the job goes on without MPS here: %s", why);
    return 0;
}

static void on_failed(void *ctx, bool served, const char *text)
{
    struct session *s = ctx;
    if (!served && !is_waited_for(s))
        session_schedule_check(s);
    else if (!served && go_on_without(s, text, &s->refusal.why) == 0)
        fsm_post(&s->fsm, EV_SPAWN);
    else if (!served)
        fsm_post(&s->fsm, EV_REFUSED);
    else if (s->fsm.state >= SESSION_ENDING || s->workers.alive == 0)
        session_send_notice(s, LOG_WARNING, "%s", text);
    else
        session_send_fault(s, "%s: the job's processes on this host cannot use their GPUs without it", text);
}

/* Its servers, when it could not end them. */
static void on_over(void *ctx)
{
    struct session *s = ctx;
    struct session_servers servers = session_servers_list(s);
    if (s->fsm.state >= SESSION_ENDING && s->workers.alive == 0)
        (void)descendants_signal(SIGKILL, servers.pid);
    session_schedule_check(s);
}

static const struct mps_events events = {on_serves, on_failed, on_over};

/* The engine's environment with one variable more, which comes first and wins. */
static char **make_environment(struct session *s, const char *name, const char *value, char **variable)
{
    char **base = session_programs_base(s);
    size_t count = 0;
    while (base[count])
        count++;
    char **envp = calloc(count + 2, sizeof *envp);
    if (envp && asprintf(variable, "%s=%s", name, value) >= 0) {
        memcpy(envp + 1, base, count * sizeof *envp);
        envp[0] = *variable;
        return envp;
    }
    *variable = NULL;
    free(envp);
    return NULL;
}

static int start_mps(struct session *s, struct worker_env_job *env, struct err *e)
{
    struct err why = ERR_INIT;
    if (!s->mps->gpus)
        return 0;
    s->mps->envp = make_environment(s, GPU_VISIBLE, s->mps->gpus, &s->mps->visible);
    if (!s->mps->envp)
        return err_set(e, ERR_MEMORY, "no memory for the environment of " MPS_PROGRAM);
    struct mps_place place = {.program = s->mps->program,
                              .directory = s->dir.path,
                              .directory_fd = s->dir.fd,
                              .envp = s->mps->envp,
                              .cgroup_fd = s->containment.fd};
    if (mps_host_start(&s->mps->host, &s->loop, &events, s, &place, &why) == 0)
        return 1;
    return go_on_without(s, why.text, e);
}

/* ---- clients of a service of another job or user ------------------------------------------------------- */

static bool is_pid(void *ctx, pid_t pid)
{
    return pid == *(const pid_t *)ctx;
}

/* A program that catches SIGTERM may have something to save, with its GPU. */
static bool dies_of_sigterm(pid_t pid)
{
    static const char *const lines[] = {"SigIgn:", "SigCgt:"};
    char path[64], line[128];
    bool dies = true;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < 2; i++)
            if (strncmp(line, lines[i], strlen(lines[i])) == 0)
                dies = dies && !(strtoull(line + strlen(lines[i]), NULL, 16) >> (SIGTERM - 1) & 1);
    if (f)
        fclose(f);
    return dies;
}

/* At SIGTERM the engine is left out: it is told to end, and aborts its work on the GPUs. */
static bool is_to_release(void *ctx, pid_t pid)
{
    struct session *s = ctx;
    struct session_servers servers = session_servers_list(s);
    return (s->mps->all || dies_of_sigterm(pid)) &&
           descendants_signal_if(0, s->mps->all ? NULL : servers.pid, is_pid, &pid) > 0;
}

static void on_released(void *ctx, bool late)
{
    struct session *s = ctx;
    if (late)
        session_send_notice(s, LOG_WARNING,
                            "the MPS control daemon of %s did not answer within %g s: other users of it may "
                            "be harmed by the end of this job's processes",
                            s->mps->there, MPS_CLIENTS_MS / 1e3);
    s->mps->releasing = false;
    fsm_post(&s->fsm, EV_RELEASED);
}

static const struct mps_clients_events client_events = {is_to_release, on_released};

/* The service is told to end the work of the processes that are about to be killed (mps_clients.h). */
static bool release_clients(struct session *s, bool all)
{
    struct session_mps *own = s->mps;
    struct err e = ERR_INIT;
    struct session_servers servers = session_servers_list(s);
    mps_clients_cancel(&own->clients);
    own->releasing = false;
    if (!own->there || (s->workers.alive == 0 && !descendants_any(servers.pid)) ||
        !mps_is_served(own->there) || find_program(s, &e) < 0)
        return false;
    if (!own->there_envp)
        own->there_envp = make_environment(s, GPU_MPS_PIPES, own->there, &own->there_variable);
    struct mps_place place = {.program = own->program,
                              .directory = s->dir.path,
                              .directory_fd = s->dir.fd,
                              .envp = own->there_envp,
                              .cgroup_fd = s->containment.fd};
    own->all = all;
    own->releasing = true;
    if (place.envp && mps_clients_end(&own->clients, &s->loop, &client_events, s, &place) == 0)
        return true;
    own->releasing = false;
    return false;
}

static bool is_releasing(const struct session *s)
{
    return s->mps->releasing;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static pid_t mps_pid(const struct session *s)
{
    return mps_host_pid(&s->mps->host);
}

/* The engine may use GPUs through MPS until the engine ends. */
static void end_mps(struct session *s)
{
    if (session_engine_pid(s) == 0)
        mps_host_end(&s->mps->host);
}

static void kill_mps(struct session *s)
{
    mps_host_kill(&s->mps->host);
}

static bool reap_mps(struct session *s, const struct reaped *child)
{
    return mps_clients_reaped(&s->mps->clients, child->pid, child->status == 0 && child->signal == 0) ||
           mps_host_reaped(&s->mps->host, child->pid, child->status, child->signal);
}

static void close_mps(struct session *s)
{
    mps_clients_close(&s->mps->clients);
    mps_host_close(&s->mps->host);
}

static void free_mps(struct session *s)
{
    free(s->mps->there_variable);
    free(s->mps->there_envp);
    free(s->mps->gpus);
    free(s->mps->visible);
    free(s->mps->envp);
}

static const struct session_server server = {
    .pid = mps_pid, .end = end_mps, .kill = kill_mps, .end_ms = MPS_END_MS};

const struct session_part session_part_mps = {
    .name = "mps",
    .state = SESSION_STATE(mps),
    .prepare = choose_mps,
    .start = start_mps,
    .reaped = reap_mps,
    .delay_end = release_clients,
    .delays_end = is_releasing,
    .server = &server,
    .close = close_mps,
    .free = free_mps,
};
