/* How environment.h's five steps are done, and the two lists that make the difference.
 *
 * A pattern is a name, or a prefix that ends in '*'. Every string of the result is a copy, because hvdrun's
 * own environment may change. Cost: variables times patterns, some thousands of comparisons, once per job. -x
 * is looked up by name in what there is already, so the last -x of a name wins and no name is in the result
 * twice.
 *
 * On failure nothing is left allocated; the message names the option and the word. */
#include "launcher/cli/environment.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SHOWN 80 /* bytes of a user's word in a message */

/* Ranks, sizes and connections that another launcher (or an outer hvdrun) gave to the process that hvdrun is
 * in. A worker that read them would take itself for a rank of the outer job. Variables that only tune or
 * describe (OMPI_MCA_btl, SLURM_JOB_ID, HOROVOD_CYCLE_TIME) stay. */
static const char *const of_another_launcher[] = {
    /* torch.distributed, torchrun */
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "ROLE_NAME", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*",
    /* Horovod */
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_*", "HOROVOD_CONTROLLER",
    "HOROVOD_ELASTIC",
    /* PMI and PMIx, MPICH's hydra, MVAPICH, Intel MPI */
    "PMI_*", "PMI2_*", "PMIX_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPI_LOCALSIZE", "HYDI_*",
    "HYDRA_CONTROL_FD", "MV2_COMM_WORLD_*", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
    /* TensorFlow, PaddlePaddle, JAX */
    "TF_CONFIG", "PADDLE_TRAINER*", "PADDLE_CURRENT_ENDPOINT", "PADDLE_RANK_IN_NODE", "FLAGS_selected_gpus",
    "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS",
    /* OpenMPI: the ranks, and the addresses of its daemons */
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
    "OMPI_APP_CTX_NUM_PROCS", "OMPI_NUM_APP_CTX", "OMPI_MCA_ess*", "OMPI_MCA_orte_*", "OMPI_MCA_pmix*",
    "OMPI_COMMAND", "OMPI_ARGV", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "PRTE_MCA_*",
    /* Slurm's tasks and steps (the job's own variables stay, but not the number of its tasks: programs that
       find it take themselves for one of them) */
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS",
    "SLURM_TASK_PID", "SLURM_STEP_*", "SLURM_STEPID", "SLURM_SRUN_COMM_*", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_CPU_BIND*", "SLURM_MEM_BIND*", "SLURMD_NODENAME", "SLURM_PMI*",
    /* LSF's jsrun, Flux, Cray PALS and ALPS */
    "JSM_*", "LSF_PM_*", "FLUX_TASK_*", "PALS_*", "ALPS_APP_PE",
    /* a service's connection to its manager: the worker is not that service */
    "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
    "JOURNAL_STREAM", "INVOCATION_ID",
    /* the shell's note of the program it started last */
    "_"};

/* The same with the beginning of the value: a user may have set such a variable too. */
static const char *const of_an_outer_hvdrun[] = {"OMPI_MCA_btl_vader_backing_directory=/dev/shm/hvd-",
                                                 "OMPI_MCA_btl_sm_backing_directory=/dev/shm/hvd-"};

/* True on the host that hvdrun runs on, and wrong or meaningless on another. */
static const char *const of_this_host[] = {
    /* the devices of this process: the session hands out devices of its own host */
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
    /* the login session and its sockets */
    "XDG_RUNTIME_DIR", "XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_STARTER_*",
    "SSH_*", "GPG_AGENT_INFO", "KRB5CCNAME", "TMUX", "TMUX_PANE", "STY", "WINDOW",
    /* a display: `:0` would be another screen there, localhost:10 another user's tunnel */
    "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
    /* directories that batch systems make on each node of their own; /tmp exists everywhere */
    "TMPDIR", "TMP", "TEMP", "TEMPDIR",
    /* its name, and where its shell was */
    "HOSTNAME", "HOST", "OLDPWD", "PWD"};

/* A job's own variables: an inner hvdrun must not pass on those of the outer. All HVD_ names but these
 * settings. */
static const char *const our_settings[] = {"HVD_CONTAINMENT"};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- names and patterns -------------------------------------------------------------------------------- */

static size_t name_length(const char *variable)
{
    return strcspn(variable, "=");
}

static bool is_named(const char *variable, const char *name, size_t len)
{
    return strncmp(variable, name, len) == 0 && variable[len] == '=';
}

static bool matches_name(const char *variable, const char *pattern)
{
    size_t len = strlen(pattern);
    if (len && pattern[len - 1] == '*')
        return name_length(variable) >= len - 1 && strncmp(variable, pattern, len - 1) == 0;
    return is_named(variable, pattern, len);
}

static bool matches_any(const char *variable, const char *const *pattern, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (matches_name(variable, pattern[i]))
            return true;
    return false;
}

/* NAME or PREFIX* at the beginning of a word of -x or --unset, up to '=': 0 when it is not one. */
static size_t pattern_length(const char *word, bool *prefix)
{
    size_t len = 0;
    while (isalnum((unsigned char)word[len]) || (word[len] && strchr("_.-%()", word[len])))
        len++;
    *prefix = word[len] == '*';
    if (isdigit((unsigned char)word[0]))
        return 0;
    return len + (*prefix ? 1 : 0);
}

static int bad_word(const char *option, const char *word, const char *wanted, struct err *e)
{
    return err_set(e, ERR_USAGE, "%s: '%.*s' is not %s", option, SHOWN, word, wanted);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static ptrdiff_t find_variable(const struct environment *env, const char *name, size_t len)
{
    for (size_t i = 0; i < env->count; i++)
        if (is_named(env->variable[i], name, len))
            return (ptrdiff_t)i;
    return -1;
}

/* Room for `more` variables and the NULL. */
static int reserve_room(struct environment *env, size_t more, struct err *e)
{
    char **variable = reallocarray(env->variable, env->count + more + 1, sizeof *variable);
    if (!variable)
        return err_set(e, ERR_MEMORY, "no memory for the environment");
    env->variable = variable;
    env->variable[env->count] = NULL;
    return 0;
}

/* Copies a variable in, over one of the same name when there is one. */
static int put_variable(struct environment *env, const char *variable, struct err *e)
{
    ptrdiff_t at = find_variable(env, variable, name_length(variable));
    if (at < 0 && reserve_room(env, 1, e))
        return -1;
    char *copy = strdup(variable);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for the environment");
    if (at < 0) {
        env->variable[env->count++] = copy;
        env->variable[env->count] = NULL;
    } else {
        free(env->variable[at]);
        env->variable[at] = copy;
    }
    return 0;
}

/* ---- the steps ----------------------------------------------------------------------------------------- */

static bool is_ours(const char *variable)
{
    return strncmp(variable, "HVD_", 4) == 0 && !matches_any(variable, our_settings, LENGTH(our_settings));
}

static bool is_inherited(const char *variable, const struct option_list *unset, bool local_only)
{
    if (!strchr(variable, '=') || variable[0] == '=' || is_ours(variable))
        return false;
    if (matches_any(variable, of_another_launcher, LENGTH(of_another_launcher)))
        return false;
    for (size_t i = 0; i < LENGTH(of_an_outer_hvdrun); i++)
        if (strncmp(variable, of_an_outer_hvdrun[i], strlen(of_an_outer_hvdrun[i])) == 0)
            return false;
    if (!local_only && matches_any(variable, of_this_host, LENGTH(of_this_host)))
        return false;
    return !matches_any(variable, unset->item, unset->count);
}

static int check_unset(const struct option_list *unset, struct err *e)
{
    for (size_t i = 0; i < unset->count; i++) {
        bool prefix;
        size_t len = pattern_length(unset->item[i], &prefix);
        if (!len || unset->item[i][len])
            return bad_word("--unset", unset->item[i], "VAR or PREFIX*", e);
    }
    return 0;
}

static int inherit_variables(struct environment *env, char *const envp[], const struct option_list *unset,
                             bool local_only, struct err *e)
{
    size_t count = 0;
    for (char *const *v = envp; *v; v++)
        count++;
    if (reserve_room(env, count, e))
        return -1;
    for (; *envp; envp++) {
        if (!is_inherited(*envp, unset, local_only))
            continue;
        env->variable[env->count] = strdup(*envp);
        if (!env->variable[env->count])
            return err_set(e, ERR_MEMORY, "no memory for the environment");
        env->variable[++env->count] = NULL;
    }
    return 0;
}

/* One word of -x. A prefix that no variable has is no error, as everywhere else where a pattern may stand. */
static int apply_set(struct environment *env, char *const envp[], const char *word, struct err *e)
{
    bool prefix, found = false;
    size_t len = pattern_length(word, &prefix);
    if (!len || (word[len] && (prefix || word[len] != '=')))
        return bad_word("-x", word, "VAR, VAR=VALUE or PREFIX*", e);
    if (word[len] == '=')
        return put_variable(env, word, e);
    for (; *envp; envp++) {
        if (!matches_name(*envp, word))
            continue;
        found = true;
        if (put_variable(env, *envp, e))
            return -1;
    }
    if (!found && !prefix) {
        err_set(e, ERR_USAGE, "-x: variable %.*s is not set", SHOWN, word);
        return err_hint(e, "give it a value with -x %.*s=VALUE", SHOWN, word);
    }
    return 0;
}

int environment_build(struct environment *env, char *const envp[], const struct option_list *set,
                      const struct option_list *unset, bool local_only, struct err *e)
{
    *env = (struct environment){0};
    int rc = check_unset(unset, e);
    if (!rc)
        rc = inherit_variables(env, envp, unset, local_only, e);
    for (size_t i = 0; !rc && i < set->count; i++)
        rc = apply_set(env, envp, set->item[i], e);
    if (rc)
        environment_free(env);
    return rc;
}

void environment_free(struct environment *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->variable[i]);
    free(env->variable);
    *env = (struct environment){0};
}

int environment_set(struct environment *env, const char *name, const char *value, struct err *e)
{
    char *variable;
    if (asprintf(&variable, "%s=%s", name, value) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the environment");
    int rc = put_variable(env, variable, e);
    free(variable);
    return rc;
}

const char *environment_get(const struct environment *env, const char *name)
{
    size_t len = strlen(name);
    ptrdiff_t at = find_variable(env, name, len);
    return at < 0 ? NULL : env->variable[at] + len + 1;
}

/* ---- for reports --------------------------------------------------------------------------------------- */

/* Variables that explain how a job ran. Others may be private, and are not shown. */
static const char *const shown[] = {"PATH",         "LD_LIBRARY_PATH",
                                    "PYTHONPATH",   "VIRTUAL_ENV",
                                    "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES",
                                    "OMP_*",        "MKL_*",
                                    "OPENBLAS_*",   "KMP_*",
                                    "GOMP_*",       "NCCL_*",
                                    "UCX_*",        "FI_*",
                                    "GLOO_*",       "TORCH_*",
                                    "PYTORCH_*",    "CUDA_*",
                                    "XLA_*",        "TF_CPP_*",
                                    "TF_GPU_*",     "TF_NUM_*",
                                    "TF_XLA_*",     "HOROVOD_*",
                                    "HVDRUN_*",     "HVD_CONTAINMENT",
                                    "OMPI_MCA_*",   "MPIR_CVAR_*",
                                    "SLURM_JOB_ID", "SLURM_JOB_NODELIST",
                                    "PBS_JOBID",    "LSB_JOBID"};
/* These may carry variables of the user. */
static const char *const carriers[] = {"HVDRUN_ENV", "HVDRUN_MPI_ARGS", "HVDRUN_RSH"};
static const char *const secret_parts[] = {"SECRET", "TOKEN", "PASS", "KEY", "CRED", "AUTH"};

/* `variable` is NAME=value. */
static bool is_shown(const char *variable)
{
    size_t len = name_length(variable);
    for (size_t i = 0; i < LENGTH(secret_parts); i++)
        for (size_t at = 0; at + strlen(secret_parts[i]) <= len; at++)
            if (strncasecmp(variable + at, secret_parts[i], strlen(secret_parts[i])) == 0)
                return false;
    return variable[len] == '=' && matches_any(variable, shown, LENGTH(shown)) &&
           !matches_any(variable, carriers, LENGTH(carriers));
}

void environment_put(const struct environment *env, struct json *w)
{
    json_object(w, "environment");
    for (size_t i = 0; i < env->count; i++) {
        char *name =
            is_shown(env->variable[i]) ? strndup(env->variable[i], name_length(env->variable[i])) : NULL;
        if (name)
            json_text(w, name, env->variable[i] + strlen(name) + 1);
        free(name);
    }
    json_end(w);
}

/* The variable that a word of the command line sets, in the word; NULL: it sets none. */
static const char *find_assignment(const char *before, const char *word)
{
    bool joined = strncmp(word, "-x", 2) == 0 && word[2];
    const char *variable = joined                                ? word + 2 + (word[2] == '=')
                           : before && strcmp(before, "-x") == 0 ? word
                                                                 : NULL;
    return variable && strchr(variable, '=') ? variable : NULL;
}

/* The arguments for mpirun in a word: they may set variables. NULL: there are none. */
static const char *find_arguments(const char *before, const char *word)
{
    static const char option[] = "--mpi-args";
    if (before && strcmp(before, option) == 0)
        return word;
    return strncmp(word, option, sizeof option - 1) == 0 && word[sizeof option - 1] == '='
               ? word + sizeof option
               : NULL;
}

void environment_put_word(const char *before, const char *word, struct json *w)
{
    const char *variable = find_assignment(before, word), *arguments = find_arguments(before, word);
    bool hidden = (variable && !is_shown(variable)) || arguments;
    size_t len = variable ? (size_t)(variable - word) + name_length(variable) : 0;
    char *shown_part = hidden ? strndup(word, arguments ? (size_t)(arguments - word) : len) : NULL;
    if (shown_part || !hidden)
        json_text(w, NULL, shown_part ? shown_part : word);
    free(shown_part);
}
