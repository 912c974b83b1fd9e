#include "agent/worker/worker_env.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/endpoints.h"
#include "agent/worker/error_file.h"
#include "common/base/secret.h"
#include "common/protocol/spawn_programs.h"

#define OWN_SIZE    (64 + ENDPOINT_MAX) /* of NAME=number, NAME=endpoint, NAME=token, NAME=path */
#define SHARED_SIZE 512                 /* of NAME=text */
#define TEXT_SIZE   96                  /* of a text that is made here */

/* Of each program, with blanks between: the same words as in MPI_INFO_ENV, which Open MPI fills from them. */
#define FIRST_RANKS_NAME   "OMPI_FIRST_RANKS"
#define PROGRAM_RANKS_NAME "OMPI_APP_CTX_NUM_PROCS"

enum value {
    RANK,
    LOCAL_RANK,
    CROSS_RANK,
    CROSS_SIZE,
    LOCAL_DEVICE,
    ENDPOINT,
    ERROR_FILE,
    TOKEN,   /* alike for all ranks, but only for ranks */
    TF_TEXT, /* of the rank: the rest is alike for all ranks of this host */
    /* Alike for all ranks of this host, from here on: a list that was made before, or a getter's value. */
    FIRST_RANKS,
    PROGRAM_RANKS,
    ENDPOINTS,
    SHARED
};

enum rule {
    ALWAYS,
    UNLESS_SET,          /* the user's own value wins */
    UNLESS_SET_OR_ALONE, /* likewise, and not when this is the host's only worker */
    IF_CROWDED           /* likewise, and only when the host's workers share processors */
};

/* ---- values that are alike for all ranks of this host; an empty one leaves its variable out ------------ */

typedef const char *shared_value(const struct worker_env_job *job, char text[TEXT_SIZE]);

static const char *format_number(uint32_t number, char text[TEXT_SIZE])
{
    snprintf(text, TEXT_SIZE, "%u", number);
    return text;
}

#define NUMBER(name, number)                                                                                 \
    static const char *get_##name(const struct worker_env_job *job, char text[TEXT_SIZE])                    \
    {                                                                                                        \
        return format_number(number, text);                                                                  \
    }
#define STRING(name, string)                                                                                 \
    static const char *get_##name(const struct worker_env_job *job, char text[TEXT_SIZE])                    \
    {                                                                                                        \
        return string;                                                                                       \
    }

NUMBER(one, 1)
NUMBER(size, job->spawn->size)
NUMBER(local_size, (uint32_t)job->spawn->n_worker)
NUMBER(host_index, job->spawn->host_index)
NUMBER(hosts, (uint32_t)job->spawn->n_host)
NUMBER(epoch, job->spawn->epoch)
NUMBER(max_restarts, job->spawn->max_restarts)
NUMBER(universe, job->spawn->universe > job->spawn->size ? job->spawn->universe : job->spawn->size)
NUMBER(programs, (uint32_t)spawn_programs(job->spawn))
NUMBER(master_port, job->spawn->master_port)
STRING(master_address, job->spawn->master_address)
STRING(host_name, job->hostname)
STRING(job, job->job)
STRING(role, "default")
STRING(elastic, job->spawn->elastic ? "1" : "")
STRING(newcomer, job->spawn->newcomer ? "1" : "")
STRING(no, "False")
STRING(socket, job->socket)
STRING(wdir, job->wdir)
STRING(preload_dir, job->preload_dir)
STRING(mps_pipes, job->mps)
STRING(mps_logs, job->mps_log)
STRING(pmi_port, job->rendezvous->pmi_port)
STRING(interface, job->rendezvous->interface)
STRING(chosen_interfaces, job->rendezvous->chosen_interfaces)
STRING(gloo_port, job->rendezvous->gloo_port ? format_number(job->rendezvous->gloo_port, text) : "")
STRING(gloo_address, job->rendezvous->gloo_port ? "127.0.0.1" : "")
STRING(gloo_name, job->rendezvous->gloo_port ? "gloo" : "")
STRING(gloo_interface, job->rendezvous->gloo_port ? job->rendezvous->interface : "")

/* The meeting point of JAX's ranks: a port of its own, because a program may use torch as well. */
static const char *get_coordinator(const struct worker_env_job *job, char text[TEXT_SIZE])
{
    const Hvd__Spawn *s = job->spawn;
    if (!s->coordinator_port || !s->master_address[0])
        return "";
    snprintf(text, TEXT_SIZE, strchr(s->master_address, ':') ? "[%s]:%u" : "%s:%u", s->master_address,
             s->coordinator_port);
    return text;
}

/* The job's name without the number of restarts at its end. */
static const char *get_run(const struct worker_env_job *job, char text[TEXT_SIZE])
{
    const char *dash = strrchr(job->job, '-');
    snprintf(text, TEXT_SIZE, "%.*s", dash ? (int)(dash - job->job) : TEXT_SIZE, job->job);
    return text;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static const struct variable {
    const char *name;
    enum value value;
    shared_value *get; /* of SHARED */
    enum rule rule;
    unsigned contract; /* of which it is a part (common/protocol/contracts.h); 0: of none */
} variables[] = {
    /* ours, read by libhvd */
    {"HVD_RANK", RANK, NULL, ALWAYS, 0},
    {"HVD_LOCAL_RANK", LOCAL_RANK, NULL, ALWAYS, 0},
    {"HVD_CROSS_RANK", CROSS_RANK, NULL, ALWAYS, 0},
    {"HVD_CROSS_SIZE", CROSS_SIZE, NULL, ALWAYS, 0},
    {"HVD_SIZE", SHARED, get_size, ALWAYS, 0},
    {"HVD_LOCAL_SIZE", SHARED, get_local_size, ALWAYS, 0},
    {"HVD_HOST", SHARED, get_host_name, ALWAYS, 0},
    {"HVD_JOB", SHARED, get_job, ALWAYS, 0},
    {"HVD_ELASTIC", SHARED, get_elastic, ALWAYS, 0},
    {"HVD_NEWCOMER", SHARED, get_newcomer, ALWAYS, 0},
    {"HVD_WORKER", RANK, NULL, ALWAYS, 0},
    {"HVD_EPOCH", SHARED, get_epoch, ALWAYS, 0},
    {"HVD_RESTART_COUNT", SHARED, get_epoch, ALWAYS, 0},
    {"HVD_WORKER_SOCKET", SHARED, get_socket, ALWAYS, 0},
    {"HVD_JOB_TOKEN", TOKEN, NULL, ALWAYS, 0},
    {"HVD_PRELOAD_DIR", SHARED, get_preload_dir, ALWAYS, 0},
    /* CUDA's, of the multi-process service that was started for the job */
    {GPU_MPS_PIPES, SHARED, get_mps_pipes, UNLESS_SET, 0},
    {GPU_MPS_LOGS, SHARED, get_mps_logs, UNLESS_SET, 0},
    /* horovodrun's */
    {"HOROVOD_RANK", RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_LOCAL_RANK", LOCAL_RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_CROSS_RANK", CROSS_RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_CROSS_SIZE", CROSS_SIZE, NULL, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_SIZE", SHARED, get_size, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_LOCAL_SIZE", SHARED, get_local_size, ALWAYS, CONTRACT_ENV},
    {"HOROVOD_HOSTNAME", SHARED, get_host_name, ALWAYS, CONTRACT_ENV},
    /* torchrun's */
    {"RANK", RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"LOCAL_RANK", LOCAL_RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"WORLD_SIZE", SHARED, get_size, ALWAYS, CONTRACT_ENV},
    {"LOCAL_WORLD_SIZE", SHARED, get_local_size, ALWAYS, CONTRACT_ENV},
    {"GROUP_RANK", SHARED, get_host_index, ALWAYS, CONTRACT_ENV},
    {"GROUP_WORLD_SIZE", SHARED, get_hosts, ALWAYS, CONTRACT_ENV},
    {"ROLE_RANK", RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"ROLE_WORLD_SIZE", SHARED, get_size, ALWAYS, CONTRACT_ENV},
    {"ROLE_NAME", SHARED, get_role, ALWAYS, CONTRACT_ENV},
    {"TORCHELASTIC_RUN_ID", SHARED, get_run, ALWAYS, CONTRACT_ENV},
    {"TORCHELASTIC_USE_AGENT_STORE", SHARED, get_no, ALWAYS, CONTRACT_ENV},
    {"TORCHELASTIC_ERROR_FILE", ERROR_FILE, NULL, ALWAYS, CONTRACT_ENV},
    {"TORCHELASTIC_RESTART_COUNT", SHARED, get_epoch, ALWAYS, CONTRACT_ENV},
    {"TORCHELASTIC_MAX_RESTARTS", SHARED, get_max_restarts, ALWAYS, CONTRACT_ENV},
    {"MASTER_ADDR", SHARED, get_master_address, UNLESS_SET, CONTRACT_ENV},
    {"MASTER_PORT", SHARED, get_master_port, UNLESS_SET, CONTRACT_ENV},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", SHARED, get_one, UNLESS_SET, CONTRACT_ENV},
    {"GLOO_SOCKET_IFNAME", SHARED, get_interface, UNLESS_SET, CONTRACT_ENV},
    {"OMP_NUM_THREADS", SHARED, get_one, UNLESS_SET_OR_ALONE, 0},
    {"PYTHONUNBUFFERED", SHARED, get_one, UNLESS_SET, 0},
    /* mpirun's, which many scripts read */
    {"OMPI_COMM_WORLD_RANK", RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"OMPI_COMM_WORLD_LOCAL_RANK", LOCAL_RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"OMPI_COMM_WORLD_SIZE", SHARED, get_size, ALWAYS, CONTRACT_ENV},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", SHARED, get_local_size, ALWAYS, CONTRACT_ENV},
    {"OMPI_COMM_WORLD_NODE_RANK", LOCAL_RANK, NULL, ALWAYS, CONTRACT_ENV},
    {"OMPI_UNIVERSE_SIZE", SHARED, get_universe, ALWAYS, CONTRACT_ENV},
    {"OMPI_NUM_APP_CTX", SHARED, get_programs, ALWAYS, CONTRACT_ENV},
    {FIRST_RANKS_NAME, FIRST_RANKS, NULL, ALWAYS, CONTRACT_ENV},
    {PROGRAM_RANKS_NAME, PROGRAM_RANKS, NULL, ALWAYS, CONTRACT_ENV},
    /* PMIx's own; what is the same for all ranks comes from its contract */
    {"PMIX_RANK", RANK, NULL, ALWAYS, CONTRACT_PMIX},
    {"OMPI_MCA_initial_wdir", SHARED, get_wdir, UNLESS_SET, CONTRACT_PMIX}, /* MPI_INFO_ENV's wdir */
    /* horovodrun's for the Gloo controller */
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", SHARED, get_gloo_address, UNLESS_SET, CONTRACT_GLOO},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", SHARED, get_gloo_port, UNLESS_SET, CONTRACT_GLOO},
    {"HOROVOD_CONTROLLER", SHARED, get_gloo_name, UNLESS_SET, CONTRACT_GLOO},
    {"HOROVOD_CPU_OPERATIONS", SHARED, get_gloo_name, UNLESS_SET, CONTRACT_GLOO},
    {"HOROVOD_GLOO_IFACE", SHARED, get_gloo_interface, UNLESS_SET, CONTRACT_GLOO},
    {"NCCL_SOCKET_IFNAME", SHARED, get_chosen_interfaces, UNLESS_SET, CONTRACT_ENV | CONTRACT_GLOO},
    /* PMI-1: where MPICH knocks and as whom; the rest are Hydra's, which scripts read */
    {"PMI_PORT", SHARED, get_pmi_port, ALWAYS, CONTRACT_PMI1},
    {"PMI_ID", RANK, NULL, ALWAYS, CONTRACT_PMI1},
    {"PMI_RANK", RANK, NULL, ALWAYS, CONTRACT_PMI1},
    {"PMI_SIZE", SHARED, get_size, ALWAYS, CONTRACT_PMI1},
    {"MPI_LOCALRANKID", LOCAL_RANK, NULL, ALWAYS, CONTRACT_PMI1},
    {"MPI_LOCALNRANKS", SHARED, get_local_size, ALWAYS, CONTRACT_PMI1},
    /* MPICH 5 ends where it finds PMI-1 and PMIx; and sleeps while it waits, when it is told to */
    {"MPIR_CVAR_PMI_VERSION", SHARED, get_one, UNLESS_SET, CONTRACT_PMI1},
    {"MPIR_CVAR_CH4_PROGRESS_THROTTLE", SHARED, get_one, IF_CROWDED, CONTRACT_PMI1},
    {"MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", SHARED, get_one, IF_CROWDED, CONTRACT_PMI1},
    /* jax.distributed's, TensorFlow's, PaddlePaddle's */
    {"JAX_COORDINATOR_ADDRESS", SHARED, get_coordinator, UNLESS_SET, CONTRACT_JAX},
    {"JAX_NUM_PROCESSES", SHARED, get_size, ALWAYS, CONTRACT_JAX},
    {"JAX_PROCESS_ID", RANK, NULL, ALWAYS, CONTRACT_JAX},
    {"JAX_LOCAL_DEVICE_IDS", LOCAL_DEVICE, NULL, UNLESS_SET, CONTRACT_JAX},
    {"TF_CONFIG", TF_TEXT, NULL, UNLESS_SET, CONTRACT_TF},
    {"PADDLE_TRAINER_ID", RANK, NULL, ALWAYS, CONTRACT_PADDLE},
    {"PADDLE_TRAINERS_NUM", SHARED, get_size, ALWAYS, CONTRACT_PADDLE},
    {"PADDLE_RANK_IN_NODE", LOCAL_RANK, NULL, ALWAYS, CONTRACT_PADDLE},
    {"PADDLE_TRAINER_ENDPOINTS", ENDPOINTS, NULL, UNLESS_SET, CONTRACT_PADDLE},
    {"PADDLE_CURRENT_ENDPOINT", ENDPOINT, NULL, UNLESS_SET, CONTRACT_PADDLE},
    {"FLAGS_selected_gpus", LOCAL_DEVICE, NULL, UNLESS_SET, CONTRACT_PADDLE},
};
#define VARIABLES (sizeof variables / sizeof *variables)

static bool is_own(const struct variable *v)
{
    return v->value <= TF_TEXT;
}

static bool has_name(const char *entry, const char *name)
{
    size_t len = strlen(name);
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static const char *find_variable(char *const *envp, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (has_name(envp[i], name))
            return envp[i] + strlen(name) + 1;
    return NULL;
}

static bool is_asked_for(const struct variable *v, unsigned contracts)
{
    return v->contract == 0 || (v->contract & contracts);
}

static bool is_ours(const char *entry, unsigned contracts)
{
    for (size_t i = 0; i < VARIABLES; i++)
        if (variables[i].rule == ALWAYS && is_asked_for(&variables[i], contracts) &&
            has_name(entry, variables[i].name))
            return true;
    return false;
}

static bool is_wanted(const struct variable *v, const struct worker_env_job *job, char *const *envp,
                      size_t count)
{
    if (!is_asked_for(v, job->spawn->contracts))
        return false;
    if ((v->rule == UNLESS_SET_OR_ALONE && job->spawn->n_worker < 2) ||
        (v->rule == IF_CROWDED && !job->rendezvous->crowded))
        return false;
    return v->rule == ALWAYS || !find_variable(envp, count, v->name);
}

/* The user's own list is the one that is handed out, and each rank gets its part later. */
static bool take_gpus(struct worker_env *w, const struct worker_env_job *job, const char *entry)
{
    if (!job->gpus || !has_name(entry, GPU_VISIBLE))
        return false;
    if (!job->gpus_are_leased)
        w->gpu_list = entry + sizeof GPU_VISIBLE;
    return true;
}

/* Leaving the variables alone would show him those of others. */
static Hvd__Binding__Gpu gpu_bind_of(const struct worker_env_job *job)
{
    const Hvd__Binding *b = job->spawn->binding;
    Hvd__Binding__Gpu how = b ? b->gpu : HVD__BINDING__GPU__GPU_NONE;
    return job->gpus_are_leased && how == HVD__BINDING__GPU__GPU_NONE ? HVD__BINDING__GPU__GPU_LIST : how;
}

/* Adds the variables that are the same for all ranks, after the `given` ones. */
static int add_shared(struct worker_env *w, const struct worker_env_job *job, size_t given, struct err *e)
{
    size_t count = given;
    for (size_t i = 0; i < VARIABLES; i++) {
        const struct variable *v = &variables[i];
        char made[TEXT_SIZE], *text = w->shared + i * SHARED_SIZE;
        if (is_own(v) || !is_wanted(v, job, w->envp, given))
            continue;
        if (v->value != SHARED) {
            w->envp[count++] = v->value == ENDPOINTS     ? w->endpoints.list
                               : v->value == FIRST_RANKS ? w->first_ranks
                                                         : w->program_ranks;
            continue;
        }
        const char *value = v->get(job, made);
        if (!value || !value[0])
            continue;
        int n = snprintf(text, SHARED_SIZE, "%s=%s", v->name, value);
        if (n < 0 || n >= SHARED_SIZE)
            return err_set(e, ERR_PROTOCOL, "the value of %s is too long", v->name);
        w->envp[count++] = text;
    }
    w->own_at = count;
    return 0;
}

/* NAME=0 4 6: of each program its first rank, or how many it has. */
static char *list_programs(const Hvd__Spawn *s, const char *name, bool counts)
{
    size_t programs = spawn_programs(s), size = strlen(name) + 2 + programs * sizeof "4294967295";
    char *list = malloc(size);
    size_t used = list ? (size_t)snprintf(list, size, "%s", name) : 0;
    for (size_t i = 0; list && i < programs; i++) {
        struct spawn_program p = spawn_program_get(s, i);
        used += (size_t)snprintf(list + used, size - used, "%c%u", i ? ' ' : '=', counts ? p.ranks : p.first);
    }
    return list;
}

int worker_env_init(struct worker_env *w, const struct worker_env_job *job, struct err *e)
{
    const Hvd__Spawn *s = job->spawn;
    struct spawn_program p = spawn_program_get(s, job->program);
    char *const *pmix = job->rendezvous->pmix;
    size_t count = 0, extra = 0;
    while (pmix && pmix[extra])
        extra++;
    *w = (struct worker_env){
        .envp = calloc(p.n_env + extra + VARIABLES + 3, sizeof *w->envp),
        .shared = malloc(VARIABLES * SHARED_SIZE),
        .own = secret_new(VARIABLES * OWN_SIZE),
        .token = job->token,
        .directory = job->directory,
        .gpus = job->gpus,
        .gpu_bind = gpu_bind_of(job),
        .gpu_list = job->visible_gpus,
        .workers = (uint32_t)s->n_worker,
        .contracts = pmix ? s->contracts : s->contracts & ~(unsigned)CONTRACT_PMIX,
    };
    w->first_ranks = list_programs(s, FIRST_RANKS_NAME, false);
    w->program_ranks = list_programs(s, PROGRAM_RANKS_NAME, true);
    if (!w->envp || !w->shared || !w->own || !w->first_ranks || !w->program_ranks) {
        worker_env_free(w);
        return err_set(e, ERR_MEMORY, "no memory for the workers' environment");
    }
    for (size_t i = 0; i < p.n_env; i++)
        if (!is_ours(p.env[i], s->contracts) && !take_gpus(w, job, p.env[i]))
            w->envp[count++] = p.env[i];
    if (w->gpus && !find_variable(w->envp, count, GPU_ORDER))
        w->envp[count++] = GPU_ORDER "=PCI_BUS_ID";
    for (size_t i = 0; i < extra; i++)
        w->envp[count++] = pmix[i];
    if (w->gpus && job->gpu_uuids)
        w->gpu_list = w->gpu_named = gpu_by_uuid(w->gpu_list, job->gpu_uuids);
    if (w->gpus && !w->gpu_list && job->gpu_uuids) {
        worker_env_free(w);
        return err_set(e, ERR_MEMORY, "no memory for a list of GPUs");
    }
    if (endpoints_init(&w->endpoints, s, e) < 0 || add_shared(w, job, count, e) < 0) {
        worker_env_free(w);
        return -1;
    }
    return 0;
}

void worker_env_free(struct worker_env *w)
{
    free(w->envp);
    free(w->shared);
    secret_free(w->own, VARIABLES * OWN_SIZE);
    free(w->first_ranks);
    free(w->program_ranks);
    free(w->gpu_named);
    endpoints_free(&w->endpoints);
    *w = (struct worker_env){0};
}

/* The worker's own GPU among those that it sees, when several workers share the host; false: not clear. */
static bool device_of(const struct worker_env *w, uint32_t local_rank, uint32_t *device)
{
    bool alone = gpu_alone(w->gpu_bind, w->gpu_list);
    uint32_t visible = w->gpu_list ? gpu_count_visible(w->gpu_list, w->gpus) : w->gpus;
    *device = alone ? 0 : local_rank;
    return w->workers > 1 && visible > 0 && (alone || visible >= w->workers);
}

/* A rank's own variable; NULL: it has none. */
static char *own_text(struct worker_env *w, const struct variable *v, const uint32_t *value,
                      char text[OWN_SIZE])
{
    char endpoint[ENDPOINT_MAX];
    if (v->value == TF_TEXT)
        return endpoints_tf_config(&w->endpoints, value[RANK]);
    uint32_t number = value[v->value];
    if (v->value == LOCAL_DEVICE && !device_of(w, value[LOCAL_RANK], &number))
        return NULL;
    if (v->value == TOKEN) {
        snprintf(text, OWN_SIZE, "%s=%s", v->name, w->token);
        return text;
    }
    if (v->value == ERROR_FILE) {
        char path[ERROR_FILE_MAX];
        snprintf(text, OWN_SIZE, "%s=%s", v->name, error_file_path(w->directory, value[RANK], path));
        return text;
    }
    if (v->value != ENDPOINT) {
        snprintf(text, OWN_SIZE, "%s=%u", v->name, number);
        return text;
    }
    if (!endpoints_entry(worker_env_get(w, "PADDLE_TRAINER_ENDPOINTS"), value[RANK], endpoint))
        return NULL; /* the user's own list is shorter */
    snprintf(text, OWN_SIZE, "%s=%s", v->name, endpoint);
    return text;
}

char **worker_env_of(struct worker_env *w, const Hvd__Worker *worker)
{
    const uint32_t value[] = {
        [RANK] = worker->rank,
        [LOCAL_RANK] = worker->local_rank,
        [CROSS_RANK] = worker->cross_rank,
        [CROSS_SIZE] = worker->cross_size,
        [TF_TEXT] = 0,
    };
    size_t at = w->own_at;
    for (size_t i = 0; i < VARIABLES; i++) {
        const struct variable *v = &variables[i];
        if (!is_own(v) || !is_asked_for(v, w->contracts) || (v->rule != ALWAYS && worker_env_get(w, v->name)))
            continue;
        char *text = own_text(w, v, value, w->own + i * OWN_SIZE);
        if (text)
            w->envp[at++] = text;
    }
    size_t name = (size_t)snprintf(w->gpu, sizeof w->gpu, GPU_VISIBLE "=");
    if (w->gpus && gpu_visible(w->gpu_bind, w->gpu_list, w->gpus, worker->local_rank, w->gpu + name,
                               sizeof w->gpu - name))
        w->envp[at++] = w->gpu;
    w->envp[at] = NULL;
    return w->envp;
}

char **worker_env_base(struct worker_env *w)
{
    w->envp[w->own_at] = NULL;
    return w->envp;
}

const char *worker_env_given(const Hvd__Spawn *s, size_t i, const char *name)
{
    struct spawn_program p = spawn_program_get(s, i);
    return find_variable(p.env, p.n_env, name);
}

const char *worker_env_get(const struct worker_env *w, const char *name)
{
    return find_variable(w->envp, w->own_at, name);
}
