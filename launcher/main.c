/* hvdrun: the command line, and which of its few things to do. Only here is the program's exit status
 * decided. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/process/spawn.h"
#include "launcher/allocation/allocation.h"
#include "launcher/cli/config.h"
#include "launcher/cli/horovod_flags.h"
#include "launcher/cli/programs.h"
#include "launcher/elastic/discovery.h"
#include "launcher/job/dry_run.h"
#include "launcher/job/job.h"
#include "launcher/plan/hosts.h"
#include "launcher/transport/rsh_template.h"

extern char **environ;

static int say_failure(const struct err *e)
{
    fprintf(stderr, "hvdrun: %s\n", e->text);
    if (e->hint[0])
        fprintf(stderr, "hvdrun: hint: %s\n", e->hint);
    return err_exit_status(e);
}

/* Those of the batch system's job inside which we run; 1 when there is one, and it is said which. */
static int find_allocated(struct config *config, const char *hostname, struct host_list *hosts, struct err *e)
{
    struct allocation a;
    char named[800];
    int found = allocation_find(&a, environ, (uint32_t)config->num_proc, hostname, e);
    if (found <= 0)
        return found;
    /* Options of SSH are a wish for SSH. */
    if (!config->rsh && !config->ssh_port && !config->ssh_identity_file)
        config->rsh = a.rsh;
    allocation_describe(&a.hosts, named, sizeof named);
    log_info("hosts from %s: %s, reached by %s", a.name, named, config->rsh ? config->rsh : "ssh");
    *hosts = a.hosts;
    return 1;
}

/* The hosts that the command line names, or the batch system, or this one. *all: they are not the command
 * line's. */
static int find_hosts(struct config *config, const char *hostname, struct host_list *hosts, bool *all,
                      struct err *e)
{
    *all = false;
    if (config->hosts) {
        char from[PATH_MAX];
        config_hosts_from(config, environ, from, sizeof from);
        return hosts_parse(hosts, config->hosts, from, e);
    }
    *all = true;
    if (config->host_discovery_script)
        return discovery_first(config->host_discovery_script, (uint32_t)config->slots_per_host,
                               (uint32_t)config->num_proc, (uint64_t)config->elastic_timeout_ms, hosts, e);
    if (config->hostfile)
        return hosts_read_file(hosts, config->hostfile, e);
    int found = find_allocated(config, hostname, hosts, e);
    if (found)
        return found < 0 ? -1 : 0;
    *all = false;
    if (program_hosts_any(&config->programs))
        return 0;
    /* --ppr says how many it takes. */
    return hosts_localhost(hosts, config->placement.ppr ? 0 : (uint32_t)config->num_proc, e);
}

/* A descriptor of our own must never become 0, 1 or 2 because the caller closed one of them. */
static void fill_standard_descriptors(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
}

/* An elastic job begins as large as the slots that are known allow. */
static void size_elastic(struct config *config, const struct host_list *hosts)
{
    int64_t slots = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        if (!hosts->host[i].slots)
            return;
        slots += hosts->host[i].slots;
    }
    if (config->max_np && slots > config->max_np)
        slots = config->max_np;
    if (slots > config->num_proc && config->max_np)
        config->num_proc = slots;
}

static int run_job(struct config *config, struct host_list *hosts, struct err *e)
{
    char hostname[256] = "";
    bool all;
    gethostname(hostname, sizeof hostname - 1);
    if (find_hosts(config, hostname, hosts, &all, e) < 0 || program_hosts_join(config, hosts, all, e) < 0 ||
        placement_read(&config->placement, config, e) < 0 ||
        (config->rsh && rsh_template_check_hosts(config->rsh, hosts, e) < 0))
        return -1;
    hosts_mark_own(hosts, hostname, hosts_full_name);
    for (size_t i = 0; config->slots_per_host && i < hosts->count; i++)
        hosts_resolve(&hosts->host[i], (uint32_t)config->slots_per_host);
    if (config->elastic)
        size_elastic(config, hosts);
    horovod_flags_say(config);
    if (job_check_early(config, hosts, hostname, e) < 0)
        return -1;
    if (config->dry_run)
        return dry_run_print(config, hosts, hostname, stdout, e);
    spawn_raise_descriptor_limit(RLIM_INFINITY); /* each host and each output file is one */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is a write that fails, as on a full disk */
    return restart_run(config, hosts, hostname, e);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct config config = {0};
    struct host_list hosts = {0};
    int status = -1;
    fill_standard_descriptors();
    bool topic = argc > 1 && strcmp(argv[1], "help") == 0; /* hvdrun -- help is a command of that name */
    if (!topic && config_parse(&config, argc, argv, environ, &e) < 0)
        return say_failure(&e);
    log_init("hvdrun",
             config.verbose && config.log_level > LOG_INFO ? LOG_INFO : (enum log_level)config.log_level);
    if (topic)
        (void)help_show(argv + 2, stdout, &e);
    else if (config.help)
        options_print_help(&config_program, stdout);
    else if (config.version)
        printf("hvdrun %s\n", HVD_VERSION);
    else if (config.check_build)
        check_build_print(stdout);
    else if (config.bash_completion)
        options_print_bash(&config_program, stdout);
    else if (config.zsh_completion)
        options_print_zsh(&config_program, stdout);
    else if (config.fish_completion)
        options_print_fish(&config_program, stdout);
    else
        status = run_job(&config, &hosts, &e);
    if (!config.programs.count)
        status = 0;
    if (fflush(stdout) != 0 && status == 0)
        err_sys(&e, errno, "cannot write to standard output");
    if (e.code)
        status = say_failure(&e);
    hosts_free(&hosts);
    config_free(&config);
    return status;
}
