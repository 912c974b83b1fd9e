/* What a job holds before its first host is reached, and how all of it is given back. The job is the only
 * owner: two jobs of one process, one after the other, share nothing but modules that stay open. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "common/process/module.h"
#include "common/base/secret.h"
#include "common/process/spawn.h"
#include "launcher/job/job.h"
#include "launcher/job/job_internal.h"
#include "launcher/job/report.h"
#include "launcher/parts/debugger.h"
#include "launcher/parts/sweep.h"
#include "launcher/parts/limits_check.h"
#include "launcher/parts/preflight.h"
#include "launcher/parts/stack_dump.h"
#include "launcher/transport/agent_command.h"

/* A name that no other job of this machine or user has: it names directories and cgroups on every host. */
static void name_job(struct job *j)
{
    uint8_t random[6];
    if (getrandom(random, sizeof random, 0) < 0 || getrandom(j->key, JOB_KEY_SIZE, 0) < 0)
        abort(); /* without the kernel's random numbers nothing here is safe */
    snprintf(j->name, sizeof j->name, "%ld-%02x%02x%02x%02x%02x%02x", (long)getpid(), random[0], random[1],
             random[2], random[3], random[4], random[5]);
}

static int split_interfaces(struct job *j, struct err *e)
{
    const char *p = j->config->network_interfaces;
    size_t max = 1;
    if (!p)
        return 0;
    for (const char *q = p; *q; q++)
        max += *q == ',';
    j->common.interfaces = calloc(max, sizeof *j->common.interfaces);
    while (j->common.interfaces && *p) {
        size_t len = strcspn(p, ",");
        if (len > 0 && !(j->common.interfaces[j->common.interface_count++] = strndup(p, len)))
            return err_set(e, ERR_MEMORY, "no memory");
        p += len + (p[len] == ',');
    }
    return j->common.interfaces ? 0 : err_set(e, ERR_MEMORY, "no memory");
}

/* What hvdagent is started as. */
static char *const *agent_words(int agent)
{
    static char *const words[][3] = {[AGENT_AUTO] = {"attach", NULL},
                                     [AGENT_MANAGED] = {"attach", "--managed", NULL},
                                     [AGENT_JOB] = {"session", NULL}};
    return words[agent];
}

/* Where hvdagent is, here and as a command line for other hosts. */
static int find_agent(struct job *j, struct err *e)
{
    char *const *words = agent_words(j->config->agent);
    struct err missing = ERR_INIT;
    const char *wanted = j->config->agent_path;
    char beside[sizeof j->agent_local];
    snprintf(beside, sizeof beside, "%s/hvdagent", j->program_dir);
    if (!wanted)
        wanted = access(beside, X_OK) == 0 ? beside : "hvdagent";
    if (spawn_find(wanted, getenv("PATH"), NULL, j->agent_local, sizeof j->agent_local, &missing) < 0)
        snprintf(j->agent_local, sizeof j->agent_local, "%s",
                 wanted); /* said by the local transport, if it is needed at all */
    if (j->config->send_agent != SEND_AGENT_NO) {
        struct sent_agent_want want = {j->config->send_agent, j->name, j->program_dir, j->config->agent_path,
                                       words};
        j->common.sent = &j->sent;
        return sent_agent_load(&j->sent, &want, e);
    }
    return agent_command(j->program_dir, j->config->agent_path, words, j->agent_command,
                         sizeof j->agent_command, e);
}

static int open_preload(struct job *j, struct err *e)
{
    const struct programs *programs = &j->config->programs;
    if (preload_open(&j->preload, &j->config->preload, e) < 0)
        return -1;
    for (size_t i = 0; i < programs->count; i++)
        if (preload_check_command(&j->preload, programs->item[i].command[0], e) < 0)
            return -1;
    return 0;
}

/* How many ranks each host will have, where that can be said: managed agents lease so many slots. */
static void foresee_ranks(struct job *j, const struct plan_want *want)
{
    struct plan plan;
    struct err e = ERR_INIT;
    if (!plan_is_known(j->list, j->host_count, want) ||
        plan_make(&plan, j->list, j->host_count, want, &e) < 0)
        return; /* it is said when all hosts are there */
    for (uint32_t i = 0; i < j->host_count; i++)
        j->host[i].ranks = 1; /* no session without a slot */
    for (uint32_t i = 0; i < plan.host_count; i++)
        j->host[plan.host[i].index].ranks = plan.host[i].ranks;
    plan_free(&plan);
}

static int make_hosts(struct job *j, struct err *e)
{
    uint64_t files = j->config->output_filename ? 2 * (uint64_t)j->config->num_proc : 0;
    struct plan_want want = placement_want(j->config);
    j->host_count = (uint32_t)plan_hosts(j->list, &want);
    if (limits_own(j->host_count, files, e) < 0)
        return -1;
    j->common.host_count = j->host_count;
    j->common.preflight = &j->preflight;
    j->host = calloc(j->host_count ? j->host_count : 1, sizeof *j->host);
    if (!j->host)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    for (uint32_t i = 0; i < j->host_count; i++)
        host_init(&j->host[i], &j->common, &j->list->host[i], i);
    foresee_ranks(j, &want);
    return job_waiting_order(j, e);
}

/* What has handles on the loop comes last: before it, there is nothing to close but the loop. */
static int set_up(struct job *j, struct err *e)
{
    if (module_program_dir(j->program_dir, sizeof j->program_dir, e) < 0 || find_agent(j, e) < 0 ||
        split_interfaces(j, e) < 0 || open_preload(j, e) < 0 || preflight_ask(j, e) < 0 ||
        make_hosts(j, e) < 0)
        return -1;
    if (loop_init(&j->loop, e) < 0)
        return -1;
    j->common.loop = &j->loop;
    if (signals_init(&j->signals, &j->loop, j->config->forwarded, job_on_signal, j) < 0)
        return err_sys(e, errno, "cannot watch signals");
    return 0;
}

struct job *job_new(const struct config *config, struct host_list *hosts, const char *hostname,
                    const struct job_epoch *epoch, struct err *e)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j || !(j->key = secret_new(JOB_KEY_SIZE))) {
        free(j);
        err_set(e, ERR_MEMORY, "no memory for a job");
        return NULL;
    }
    struct plan_want want = placement_want(config);
    j->config = config;
    j->list = hosts;
    j->epoch = epoch;
    j->began = clock_now();
    name_job(j);
    j->common = (struct host_common){.config = config,
                                     .events = &job_host_events,
                                     .ctx = j,
                                     .job = j->name,
                                     .key = j->key,
                                     .program_dir = j->program_dir,
                                     .hostname = hostname,
                                     .agent_local = j->agent_local,
                                     .agent_arguments = agent_words(config->agent),
                                     .agent_command = j->agent_command};
    if (plan_check(hosts, &want, e) == 0 && set_up(j, e) == 0)
        return j;
    outcome_fault(&j->outcome, clock_now(), err_exit_status(e), e->text, e->hint);
    report_write(j, err_exit_status(e));
    job_free(j);
    return NULL;
}

void job_free(struct job *j)
{
    for (uint32_t i = 0; i < j->host_count && j->host; i++)
        host_free(&j->host[i]);
    job_links_free(j, &j->engine_links);
    job_links_free(j, &j->session_links);
    job_ends_free(j);
    for (size_t i = 0; i < j->common.interface_count; i++)
        free(j->common.interfaces[i]);
    free(j->common.interfaces);
    output_free(j->output);
    job_sweep_free(j);
    sent_agent_free(&j->sent);
    job_debug_end(j);
    preload_close(&j->preload);
    preflight_free(j);
    job_where_free(j);
    free(j->host);
    free(j->held_host);
    free(j->rank);
    free(j->host_names);
    for (size_t i = 0; j->env && i < j->config->programs.count; i++)
        environment_free(&j->env[i]);
    free(j->env);
    plan_free(&j->plan);
    if (j->common.loop && uv_loop_close(&j->loop) < 0)
        log_warning("a handle of the event loop was not closed");
    secret_free(j->key, JOB_KEY_SIZE);
    free(j);
}
