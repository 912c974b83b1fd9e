/* The rows of config.h become the table, and the table the struct. Rules about several rows are checked
 * here: there must be a command, and --verbose changes the level of the log. */
#include "launcher/cli/config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/modules/yaml.h"
#include "common/net/net.h"
#include "common/net/port_range.h"
#include "common/process/module.h"
#include "launcher/allocation/allocation.h"
#include "launcher/cli/environment.h"
#include "launcher/cli/list_options.h"
#include "launcher/io/output.h"
#include "launcher/io/output_names.h"
#include "launcher/job/signals.h"
#include "launcher/plan/hosts.h"
#include "launcher/transport/rsh_template.h"

#define JOB_NAME_MAX 32

static const struct option_spec specs[] = {
#define CONFIG_ROW(ctype, ...) OPTION_ROW(struct config, __VA_ARGS__)
    CONFIG_OPTIONS(CONFIG_ROW)
#undef CONFIG_ROW
};

/* Keys of horovodrun's files without an option here. horovodrun's sample file has the second key, and
 * horovodrun itself does not read that key. */
static const struct option_other_key other_keys[] = {
    {"controller", "gloo|mpi"}, {"logging.hide_timestamp", NULL}, {NULL, NULL}};

static struct settings *read_file(void *context, struct err *e)
{
    struct config *config = context;
    size_t len;
    if (!config->config_file)
        return NULL;
    settings_read_fn *read = NULL;
    *(void **)&read = module_symbol(YAML_MODULE, YAML_SYMBOL, e);
    char *bytes = read ? hosts_load("configuration file", config->config_file, &len, e) : NULL;
    int rc = bytes ? read(&config->file, config->config_file, bytes, len, e) : -1;
    free(bytes);
    return rc ? NULL : &config->file;
}

const struct options_program config_program = {
    .name = "hvdrun",
    .usage = "[options] command [argument ...] [: -np N [options] command ...]",
    .about = "Starts a command as the ranks of one job, on this host or on many. Passes on the output of the "
             "ranks, and returns when the last process of the job is gone.",
    .spec = specs,
    .count = sizeof specs / sizeof *specs,
    .read_file = read_file,
    .other_keys = other_keys,
    .ignores_keys = true,
    .given_at = offsetof(struct config, given),
    .refused = foreign_flags,
};

/* Each entry of --network-interfaces, as the hosts will read it. */
static int check_interfaces(const char *list, struct err *e)
{
    for (const char *at = list; at;) {
        size_t len = strcspn(at, ",");
        char *entry = strndup(at, len);
        if (!entry)
            return err_set(e, ERR_MEMORY, "no memory for --network-interfaces");
        int rc = net_filter_check((const char *const[]){entry}, 1, e);
        free(entry);
        if (rc)
            return err_wrap(e, "--network-interfaces");
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

/* A bad -x or --unset is found before a host is reached: the environment is built once for nothing. */
static int check_environment(const struct config *config, char *const envp[], struct err *e)
{
    char *const none[] = {NULL};
    struct environment env;
    for (size_t i = 0; i < config->programs.count; i++) {
        const struct program *p = &config->programs.item[i];
        if (!p->set_env.count && !p->unset_env.count)
            continue;
        if (environment_build(&env, envp ? envp : none, &p->set_env, &p->unset_env, true, e))
            return -1;
        environment_free(&env);
    }
    return 0;
}

/* It names directories, whose paths have little room. */
static int check_job_name(const char *name, struct err *e)
{
    size_t len = strlen(name);
    if (len >= 1 && len <= JOB_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len)
        return 0;
    return err_set(e, ERR_USAGE, "--job-name '%.80s': a name is 1 to %d of a-z, 0-9 and -", name,
                   JOB_NAME_MAX);
}

/* srun outside of a job would ask for a new one, for each host. */
static int check_rsh(const char *rsh, char *const envp[], struct err *e)
{
    if (rsh_template_check(rsh, e))
        return -1;
    if (strcmp(rsh, "srun") != 0 || (envp && allocation_variable(envp, "SLURM_JOB_ID")))
        return 0;
    err_set(e, ERR_USAGE, "--rsh srun: this is not inside a Slurm job (SLURM_JOB_ID is not set)");
    return err_hint(e, "start hvdrun in a script of sbatch or in a shell of salloc");
}

/* Wishes that an elastic job cannot fulfil are refused before a host is reached. */
static int check_elastic(struct config *config, struct err *e)
{
    static const char needs[] = "an elastic job";
    config->elastic = config->min_np || config->max_np || config->host_discovery_script;
    if (!config->elastic) {
        if (config->reset_limit >= 0 && !config->max_restarts)
            config->max_restarts = config->reset_limit;
        return 0;
    }
    if (!config->num_proc)
        config->num_proc = config->min_np ? config->min_np : 1;
    if (!config->min_np)
        config->min_np = config->num_proc;
    if (config->min_np > config->num_proc)
        return err_set(e, ERR_USAGE, "--min-np %lld is more than -np %lld", (long long)config->min_np,
                       (long long)config->num_proc);
    if (config->max_np && config->max_np < config->num_proc)
        return err_set(e, ERR_USAGE, "--max-np %lld is less than -np %lld", (long long)config->max_np,
                       (long long)config->num_proc);
    if (config->programs.count > 1)
        return err_set(e, ERR_USAGE, "%s has one program, not several separated by ':'", needs);
    if (config->rankfile || config->ppr || config->placement.map_by == HVD__BINDING__MAP__BY_NODE)
        return err_set(e, ERR_USAGE,
                       "%s fills host by host: --rankfile, --ppr and --map-by node are not for it", needs);
    if (config->gpu_placement)
        return err_set(e, ERR_USAGE, "--gpu-placement engine is not for %s", needs);
    if (config->preload.count)
        return err_set(e, ERR_USAGE, "--preload is not for %s: a host that comes later would lack the files",
                       needs);
    return 0;
}

/* Checks of values that the table cannot express. */
static int check_value(struct config *config, char *const envp[], struct err *e)
{
    if (placement_parse(&config->placement, config, e) || check_elastic(config, e))
        return -1;
    if (config->num_proc && config->stdin_rank >= config->num_proc)
        return err_set(e, ERR_USAGE, "--stdin: there is no rank %lld; -np %lld makes ranks 0 to %lld",
                       (long long)config->stdin_rank, (long long)config->num_proc,
                       (long long)config->num_proc - 1);
    if (config->pty && config->stdin_rank < 0)
        return err_set(e, ERR_USAGE, "--pty is for one rank: --stdin names it, and is neither all nor none");
    if (config->output_filename && output_names_check(config->output_filename, e))
        return -1;
    if (output_check_shown(config->show_rank, (uint32_t)config->num_proc, e))
        return -1;
    if (signals_parse(&config->forwarded, config->forward_signals, e) ||
        propagate_read(NULL, config->propagate_limits, e))
        return -1;
    if (check_environment(config, envp, e))
        return -1;
    if (config->mps == HVD__BINDING__MPS__MPS_YES && config->gpu_bind == HVD__BINDING__GPU__GPU_NONE)
        return err_set(e, ERR_USAGE,
                       "--mps yes is for the GPUs that the ranks are given, and --gpu-bind none gives none");
    if (config->rsh && check_rsh(config->rsh, envp, e))
        return -1;
    if (config->job_name && check_job_name(config->job_name, e))
        return -1;
    unsigned contracts;
    if (contracts_parse(config->rendezvous, &contracts, e))
        return -1;
    if (config->network_interfaces && check_interfaces(config->network_interfaces, e))
        return -1;
    if (config->port_range && port_range_parse(config->port_range, &config->ports, e))
        return -1;
    return 0;
}

int config_parse(struct config *config, int argc, char *const argv[], char *const envp[], struct err *e)
{
    int operand = argc, end = programs_end(argc, argv, 1);
    *config = (struct config){.words = argv};
    if (options_parse(&config_program, end, argv, envp, config, &operand, e)) {
        settings_free(&config->file);
        return -1;
    }
    if (config->help || config->version || config->check_build || config->bash_completion ||
        config->zsh_completion || config->fish_completion)
        return 0;
    if (config->verbose && config->log_level > LOG_INFO)
        config->log_level = LOG_INFO;
    if (programs_parse(config, argc, argv, envp, operand, end, e) == 0 && check_value(config, envp, e) == 0)
        return 0;
    config_free(config);
    return -1;
}

bool config_given(const struct config *config, const void *field)
{
    size_t offset = (size_t)((const char *)field - (const char *)config), i = 0;
    while (specs[i].offset != offset)
        i++;
    return config->given[i];
}

void config_hosts_from(const struct config *config, char *const envp[], char *name, size_t size)
{
    if (!options_origin_of(envp, &config->file, config->hosts, name, size))
        snprintf(name, size, "-H/--hosts");
}

void config_free(struct config *config)
{
    programs_free(&config->programs);
    options_free(&config_program, config);
    settings_free(&config->file);
    placement_free(&config->placement);
}
