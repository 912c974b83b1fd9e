/* The making of a job before its first host is reached, and its end. The job is the only owner of all that it
 * holds: two jobs of one process, one after the other, share nothing but modules that stay open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/process/module.h"
#include "common/process/spawn.h"
#include "launcher/job/core.h"
#include "launcher/job/dispatch.h"
#include "launcher/job/report.h"
#include "launcher/parts/limits_check.h"
#include "launcher/plan/placement.h"
#include "launcher/transport/agent_command.h"

/* A name that no other job of this machine or user has: it names directories and cgroups on every host. */
static void name_job(struct job *j)
{
    uint8_t random[6];
    if (getrandom(random, sizeof random, 0) < 0 || getrandom(j->key, JOB_KEY_SIZE, 0) < 0)
        abort(); /* without the kernel's random numbers nothing here is safe */
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    snprintf(j->name, sizeof j->name, "%s-%02x%02x%02x%02x%02x%02x",
             j->config->job_name ? j->config->job_name : pid, random[0], random[1], random[2], random[3],
             random[4], random[5]);
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

/* The arguments of hvdagent. */
static char *const *agent_words(int agent)
{
    static char *const words[][3] = {[AGENT_AUTO] = {"attach", NULL},
                                     [AGENT_MANAGED] = {"attach", "--managed", NULL},
                                     [AGENT_JOB] = {"session", NULL}};
    return words[agent];
}

/* Finds hvdagent on this host, and makes the command line that starts it on other hosts. */
static int find_agent(struct job *j, struct err *e)
{
    char *const *words = agent_words(j->config->agent);
    struct err missing = ERR_INIT;
    const char *wanted = j->config->agent_path;
    char beside[sizeof j->agent.local];
    snprintf(beside, sizeof beside, "%s/hvdagent", j->agent.program_dir);
    if (!wanted)
        wanted = access(beside, X_OK) == 0 ? beside : "hvdagent";
    if (spawn_find(wanted, getenv("PATH"), NULL, j->agent.local, sizeof j->agent.local, &missing) < 0)
        snprintf(j->agent.local, sizeof j->agent.local, "%s",
                 wanted); /* said by the local transport, if it is needed at all */
    if (j->config->send_agent != SEND_AGENT_NO) {
        struct sent_agent_want want = {j->config->send_agent, j->name, j->agent.program_dir,
                                       j->config->agent_path, words};
        j->common.sent = &j->agent.sent;
        return sent_agent_load(&j->agent.sent, &want, e);
    }
    return agent_command(j->agent.program_dir, j->config->agent_path, words, j->agent.command,
                         sizeof j->agent.command, e);
}

/* How many ranks each host will have, where that can be said: managed agents lease so many slots. */
static void foresee_ranks(struct job *j, const struct plan_want *want)
{
    struct plan plan;
    struct err e = ERR_INIT;
    if (!plan_is_known(j->list, j->host_count, want) ||
        plan_make(&plan, j->list, j->host_count, want, &e) < 0)
        return; /* the fault is told when all hosts are ready */
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
    if (limits_own(j->host_count, files, e) < 0)
        return -1;
    j->host = calloc(j->room.hosts ? j->room.hosts : 1, sizeof *j->host);
    if (!j->host)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    for (uint32_t i = 0; i < j->host_count; i++)
        host_init(&j->host[i], &j->common, &j->list->host[i], i);
    foresee_ranks(j, &want);
    return 0;
}

static int set_up_job(struct job *j, struct err *e)
{
    struct plan_want want = placement_want(j->config);
    if (plan_check(j->list, &want, e) < 0 ||
        module_program_dir(j->agent.program_dir, sizeof j->agent.program_dir, e) < 0 ||
        find_agent(j, e) < 0 || split_interfaces(j, e) < 0)
        return -1;
    j->host_count = j->common.host_count = (uint32_t)plan_hosts(j->list, &want);
    j->room.hosts = j->host_count;
    if (j->config->elastic) {
        j->common.host_count = 2; /* hosts may come: addresses are wanted */
        j->room.hosts += ELASTIC_SESSIONS_MAX;
    }
    return job_parts_open(j, e) < 0 ? -1 : make_hosts(j, e);
}

struct job *job_new(const struct config *config, struct host_list *hosts, const char *hostname,
                    const struct job_epoch *epoch, struct err *e)
{
    struct job *j = calloc(1, sizeof *j);
    uint8_t *key = secret_new(JOB_KEY_SIZE);
    if (!j || !key || job_parts_init(j, job_parts) < 0) {
        if (j)
            job_parts_free(j);
        secret_free(key, JOB_KEY_SIZE);
        free(j);
        err_set(e, ERR_MEMORY, "no memory for a job");
        return NULL;
    }
    j->key = key;
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
                                     .program_dir = j->agent.program_dir,
                                     .hostname = hostname,
                                     .agent_local = j->agent.local,
                                     .agent_arguments = agent_words(config->agent),
                                     .agent_command = j->agent.command};
    if (set_up_job(j, e) == 0)
        return j;
    job_refuse(j, e);
    job_free(j);
    return NULL;
}

void job_refuse(struct job *j, const struct err *e)
{
    outcome_fault(&j->outcome, clock_now(), err_exit_status(e), e->text, e->hint);
    report_write_json(j, err_exit_status(e));
}

void job_free(struct job *j)
{
    for (uint32_t i = 0; i < j->host_count && j->host; i++)
        host_free(&j->host[i]);
    job_parts_free(j);
    for (size_t i = 0; i < j->common.interface_count; i++)
        free(j->common.interfaces[i]);
    free(j->common.interfaces);
    output_free(j->output);
    sent_agent_free(&j->agent.sent);
    free(j->host);
    free(j->rank);
    free(j->host_names);
    for (size_t i = 0; j->env && i < j->config->programs.count; i++)
        environment_free(&j->env[i]);
    free(j->env);
    plan_free(&j->plan);
    secret_free(j->key, JOB_KEY_SIZE);
    free(j);
}
