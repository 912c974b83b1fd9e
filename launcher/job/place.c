/* The plan of a job, once its hosts are ready, and what follows from the plan: environments, output,
 * input. */
#include <stdlib.h>

#include "launcher/cli/engine_tuning.h"
#include "launcher/cli/horovod_flags.h"
#include "launcher/job/core.h"
#include "launcher/job/dispatch.h"
#include "launcher/job/spawn_message.h"
#include "launcher/parts/limits_check.h"
#include "launcher/plan/placement.h"

extern char **environ;

static bool all_local(const struct job *j)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        if (!hosts_is_local(&j->list->host[j->plan.host[i].index], j->common.hostname))
            return false;
    return true;
}

static int open_input(struct job *j, struct err *e)
{
    int64_t who = j->config->stdin_rank;
    if (who >= (int64_t)j->plan.size)
        return err_set(e, ERR_USAGE, "--stdin %lld: there are only ranks 0 to %u", (long long)who,
                       j->plan.size - 1);
    bool was_read = j->epoch->number > 0 && !j->config->pty; /* by the epochs before, as far as they came */
    if (who == CONFIG_STDIN_NONE || was_read || (!j->config->pty && !input_is_useful()))
        return 0;
    uint32_t first = who == CONFIG_STDIN_ALL ? 0 : (uint32_t)who;
    uint32_t count = who == CONFIG_STDIN_ALL ? j->plan.size : 1;
    j->has_input = true;
    return input_init(&j->input, j->loop, first, count, &job_input_events, j, e);
}

/* Is there room for what was placed here? (On the hosts: preflight.c.) */
static int check_limits(const struct job *j, struct err *e)
{
    return j->config->output_filename ? limits_own(0, 2 * (uint64_t)j->plan.size, e) : 0;
}

static int build_environments(struct job *j, struct err *e)
{
    const struct programs *programs = &j->config->programs;
    bool local = all_local(j);
    j->env = calloc(programs->count, sizeof *j->env);
    if (!j->env)
        return err_set(e, ERR_MEMORY, "no memory for the environment");
    for (size_t i = 0; i < programs->count; i++) {
        const struct program *p = &programs->item[i];
        if (environment_build(&j->env[i], environ, &p->set_env, &p->unset_env, local, e) < 0 ||
            engine_tuning_export(j->config, &j->env[i], e) < 0 ||
            horovod_flags_export(j->config, &j->env[i], e) < 0)
            return -1;
    }
    return 0;
}

int job_place(struct job *j, struct err *e)
{
    struct plan_want want = placement_want(j->config);
    if (plan_make(&j->plan, j->list, j->host_count, &want, e) < 0)
        return -1;
    j->tally.ranks_first = j->plan.size;
    j->room.ranks = j->plan.size + (j->config->elastic ? ELASTIC_WORKERS_MAX : 0);
    j->rank = calloc(j->room.ranks, sizeof *j->rank);
    j->host_names = calloc(j->room.hosts + 1, sizeof *j->host_names);
    if (!j->rank || !j->host_names)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        h->plan_index = i;
        h->planned = true;
        j->host_names[i] = h->label;
    }
    if (build_environments(j, e) < 0 || open_input(j, e) < 0 ||
        output_check_shown(j->config->show_rank, j->plan.size, e) < 0 || check_limits(j, e) < 0)
        return -1;
    j->output = output_new(j->loop, j->config, &j->plan, j->room.ranks, j->host_names, j->epoch->number > 0,
                           &job_output_events, j, e);
    if (!j->output)
        return -1;
    j->planned = true;
    return JOB_PARTS_TRY(j, placed, j, e);
}
