/* From READY hosts to running workers: the plan, and the Spawn message that tells each session its part. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "launcher/cli/rendezvous_option.h"
#include "launcher/cli/engine_tuning.h"
#include "launcher/cli/horovod_flags.h"
#include "launcher/parts/debugger.h"
#include "launcher/job/job_internal.h"
#include "launcher/job/local_address.h"
#include "launcher/parts/limits_check.h"
#include "launcher/parts/preflight.h"
#include "launcher/cli/rlimit_option.h"
#include "launcher/plan/rankfile.h"
#include "launcher/io/terminal.h"

extern char **environ;

static bool all_local(const struct job *j)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        if (!hosts_is_local(&j->list->host[j->plan.host[i].index], j->common.hostname))
            return false;
    return true;
}

static int place_input(struct job *j, struct err *e)
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
    return input_init(&j->input, &j->loop, first, count, &job_input_events, j, e);
}

static bool gets_stdin(const struct job *j, uint32_t rank)
{
    return j->has_input && rank >= j->input.first && rank - j->input.first < j->input.count;
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
    j->rank = calloc(j->plan.size, sizeof *j->rank);
    j->host_names = calloc(j->plan.host_count, sizeof *j->host_names);
    if (!j->rank || !j->host_names)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    if (job_links_init(j, &j->engine_links, e) < 0 || job_links_init(j, &j->session_links, e) < 0 ||
        job_ends_init(j, e) < 0)
        return -1;
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        h->plan_index = i;
        h->planned = true;
        j->host_names[i] = h->label;
    }
    if (build_environments(j, e) < 0 || place_input(j, e) < 0 ||
        output_check_shown(j->config->show_rank, j->plan.size, e) < 0 || check_limits(j, e) < 0)
        return -1;
    j->output = output_new(&j->loop, j->config, &j->plan, j->host_names, j->epoch->number > 0,
                           &job_output_events, j, e);
    if (!j->output)
        return -1;
    j->planned = true;
    return 0;
}

/* What the rankfile binds a rank to; -1: no memory. */
static int fill_cores(const struct rankfile *file, Hvd__Worker *worker)
{
    const struct rankfile_rank *r = &file->rank[worker->rank];
    Hvd__CoreRange *range = calloc(r->count ? r->count : 1, sizeof *range);
    worker->cores = calloc(r->count ? r->count : 1, sizeof *worker->cores);
    if (!range || !worker->cores) {
        free(range);
        return -1;
    }
    worker->rankfile_line = r->line;
    worker->n_cores = r->count;
    worker->cores[0] = range; /* to be freed */
    for (uint32_t i = 0; i < r->count; i++) {
        hvd__core_range__init(&range[i]);
        range[i].in_socket = r->cores[i].in_socket;
        range[i].socket = r->cores[i].socket;
        range[i].first = r->cores[i].first;
        range[i].last = r->cores[i].last;
        worker->cores[i] = &range[i];
    }
    return 0;
}

static void free_cores(Hvd__Worker *workers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (workers[i].cores)
            free(workers[i].cores[0]);
        free(workers[i].cores);
        workers[i].cores = NULL;
    }
}

/* One host's workers; `workers` and `pointers` have room for plan.host[k].ranks. */
static int fill_workers(const struct job *j, uint32_t k, Hvd__Worker *workers, Hvd__Worker **pointers,
                        Hvd__Window *window)
{
    const struct plan_host *p = &j->plan.host[k];
    for (uint32_t i = 0; i < p->ranks; i++) {
        const struct plan_rank *r = &j->plan.rank[p->rank[i]];
        hvd__worker__init(&workers[i]);
        workers[i].rank = p->rank[i];
        workers[i].local_rank = r->local_rank;
        workers[i].cross_rank = r->cross_rank;
        workers[i].cross_size = r->cross_size;
        workers[i].has_stdin = gets_stdin(j, p->rank[i]);
        if (j->config->pty && workers[i].has_stdin)
            workers[i].terminal = window;
        if (j->config->placement.rankfile && fill_cores(j->config->placement.rankfile, &workers[i]) < 0)
            return -1;
        pointers[i] = &workers[i];
    }
    return 0;
}

/* New for every epoch. */
static bool name_space(char *text, size_t size)
{
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    int n = snprintf(text, size, "hvd-");
    for (size_t i = 0; i < sizeof random; i++)
        n += snprintf(text + n, size - (size_t)n, "%02x", random[i]);
    return true;
}

/* The slots of all hosts, as far as they are known: hosts that are not needed were not asked. */
static uint32_t universe(const struct job *j)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < j->list->count; i++)
        slots += j->list->host[i].slots;
    return slots > UINT32_MAX ? UINT32_MAX : slots > j->plan.size ? (uint32_t)slots : j->plan.size;
}

/* What is the same for every host. */
static void fill_common(struct job *j, Hvd__Spawn *s, char *dir, size_t dir_size)
{
    struct host *first = job_host_of_plan(j, j->plan.rank[0].host);
    s->launcher_dir = getcwd(dir, dir_size) ? dir : (char *)"";
    s->size = j->plan.size;
    s->universe = universe(j);
    s->master_address = j->plan.host_count > 1 && first->address ? first->address : (char *)"127.0.0.1";
    s->master_port = first->free_port;
    s->coordinator_port = first->coordinator_port;
    s->epoch = j->epoch->number;
    s->max_restarts = (uint32_t)j->config->max_restarts;
    s->output_window = output_window(j->plan.size);
    s->max_line = (uint32_t)j->config->max_line;
    (void)contracts_parse(j->config->rendezvous, &s->contracts, NULL); /* config.c has checked it */
}

/* Where each of the host's ranks can listen for the others. */
static int fill_endpoints(const struct job *j, Hvd__HostRanks *to, const struct host *h, struct err *e)
{
    if (h->worker_ports < to->ranks)
        return err_set(e, ERR_HOST, "%s has only %zu free ports for its %u ranks", h->label, h->worker_ports,
                       to->ranks);
    to->address = j->plan.host_count > 1 && h->address ? h->address : (char *)"127.0.0.1";
    to->worker_port = h->worker_port;
    to->n_worker_port = to->ranks;
    return 0;
}

static void fill_host(Hvd__HostRanks *to, const char *name, const struct plan_host *host)
{
    hvd__host_ranks__init(to);
    to->name = (char *)name;
    to->first_rank = host->rank[0];
    to->ranks = host->ranks;
    if (plan_is_block(host))
        return;
    to->rank = (uint32_t *)host->rank;
    to->n_rank = host->ranks;
}

static size_t words_of(char **command)
{
    size_t n = 0;
    while (command[n])
        n++;
    return n;
}

static bool runs_here(const struct job *j, const struct plan_host *host, size_t program)
{
    for (uint32_t i = 0; i < host->ranks; i++)
        if (programs_of(&j->config->programs, host->rank[i]) == program)
            return true;
    return false;
}

/* The variables of a program go only to hosts that need them. `item` and `list` have room for all programs
 * but the first. */
static void fill_programs(const struct job *j, uint32_t k, Hvd__Spawn *s, Hvd__Program *item,
                          Hvd__Program **list)
{
    const struct programs *programs = &j->config->programs;
    for (size_t i = 0; i < programs->count; i++) {
        const struct program *p = &programs->item[i];
        const char *wdir = p->wdir ? p->wdir : "";
        size_t variables = runs_here(j, &j->plan.host[k], i) ? j->env[i].count : 0;
        if (i == 0) {
            s->argv = p->command;
            s->n_argv = words_of(p->command);
            s->env = j->env[i].variable;
            s->n_env = variables;
            s->wdir = (char *)(uintptr_t)wdir;
            s->preloaded = preload_of(&j->preload, p->command[0]);
            s->or_home = preflight_or_home(j);
            continue;
        }
        Hvd__Program *to = list[i - 1] = &item[i - 1];
        hvd__program__init(to);
        to->first_rank = p->first;
        to->argv = p->command;
        to->n_argv = words_of(p->command);
        to->env = j->env[i].variable;
        to->n_env = variables;
        to->wdir = (char *)(uintptr_t)wdir;
        to->preloaded = preload_of(&j->preload, p->command[0]);
        to->or_home = preflight_or_home(j);
    }
    s->program = list;
    s->n_program = programs->count - 1;
}

static void let_go(struct host *h)
{
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    teardown.reason = (char *)(uintptr_t) "no rank is placed on this host";
    host_teardown(h, &teardown);
}

void job_spawn(struct job *j)
{
    char dir[PATH_MAX], space[64] = "";
    struct err e = ERR_INIT;
    Hvd__Spawn s = HVD__SPAWN__INIT;
    Hvd__Window window = HVD__WINDOW__INIT;
    Hvd__EngineTuning tuning;
    struct propagate limits;
    Hvd__Binding binding;
    Hvd__HostRanks *hosts = calloc(j->plan.host_count, sizeof *hosts);
    Hvd__HostRanks **host_pointers = calloc(j->plan.host_count, sizeof(Hvd__HostRanks *));
    Hvd__Worker *workers = calloc(j->plan.size, sizeof *workers);
    Hvd__Worker **worker_pointers = calloc(j->plan.size, sizeof(Hvd__Worker *));
    Hvd__Program *programs = calloc(j->config->programs.count, sizeof *programs);
    Hvd__Program **program_pointers = calloc(j->config->programs.count, sizeof(Hvd__Program *));
    s.namespace_ = name_space(space, sizeof space) ? space : s.namespace_;
    if (!hosts || !host_pointers || !workers || !worker_pointers || !programs || !program_pointers) {
        err_set(&e, ERR_MEMORY, "no memory to start %u ranks", j->plan.size);
        job_fault_err(j, &e);
        goto out;
    }
    local_address_settle(j);
    fill_common(j, &s, dir, sizeof dir);
    terminal_size(&window);
    s.stop_on_exec = job_debug_begin(j, &e);
    if (e.code) {
        job_fault_err(j, &e);
        goto out;
    }
    for (uint32_t k = 0; k < j->plan.host_count; k++) {
        fill_host(&hosts[k], j->host_names[k], &j->plan.host[k]);
        host_pointers[k] = &hosts[k];
        if ((s.contracts & CONTRACTS_ENDPOINTS) &&
            fill_endpoints(j, &hosts[k], job_host_of_plan(j, k), &e) < 0) {
            job_fault_err(j, &e);
            goto out;
        }
    }
    engine_tuning_fill(j->config, &j->env[0], &tuning);
    s.tuning = &tuning;
    (void)propagate_read(&limits, j->config->propagate_limits, NULL); /* config.c has checked it */
    s.limit = limits.list;
    s.n_limit = limits.count;
    placement_binding(j->config, &binding);
    s.binding = &binding;
    s.host = host_pointers;
    s.n_host = j->plan.host_count;
    for (uint32_t k = 0; k < j->plan.host_count; k++) {
        if (fill_workers(j, k, workers, worker_pointers, &window) < 0) {
            err_set(&e, ERR_MEMORY, "no memory to start %u ranks", j->plan.size);
            job_fault_err(j, &e);
            free_cores(workers, j->plan.host[k].ranks);
            goto out;
        }
        s.worker = worker_pointers;
        s.n_worker = j->plan.host[k].ranks;
        s.host_index = k;
        fill_programs(j, k, &s, programs, program_pointers);
        host_spawn(job_host_of_plan(j, k), &s);
        free_cores(workers, s.n_worker);
    }
    for (uint32_t i = 0; i < j->host_count; i++)
        if (!j->host[i].planned)
            let_go(&j->host[i]);
out:
    free(hosts);
    free(host_pointers);
    free(workers);
    free(worker_pointers);
    free(programs);
    free(program_pointers);
}
