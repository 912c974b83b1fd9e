/* The Spawn message: it tells each session its workers. */
#include "launcher/job/spawn_message.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/cli/engine_tuning.h"
#include "common/protocol/contracts.h"
#include "launcher/cli/list_options.h"
#include "launcher/io/terminal.h"
#include "launcher/job/core.h"
#include "launcher/plan/placement.h"
#include "launcher/plan/rankfile.h"

/* The cores to which the rankfile binds a rank; -1: no memory. */
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
        workers[i].has_stdin = job_gets_stdin(j, p->rank[i]);
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
static uint32_t universe_size(const struct job *j)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < j->list->count; i++)
        slots += j->list->host[i].slots;
    return slots > UINT32_MAX ? UINT32_MAX : slots > j->plan.size ? (uint32_t)slots : j->plan.size;
}

static void fill_host(Hvd__HostRanks *to, const char *name, const struct plan_host *host, bool elastic)
{
    hvd__host_ranks__init(to);
    to->name = (char *)name;
    to->first_rank = host->rank[0];
    to->ranks = host->ranks;
    if (elastic) {
        to->id = host->index;
        to->worker = (uint32_t *)host->rank;
        to->n_worker = host->ranks;
    }
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

/* ---- the message --------------------------------------------------------------------------------------- */

/* Spawn and the memory behind its arrays. The message is the same for all hosts, except for the workers
 * and for the variables of programs that have no rank on a host. */
struct spawn_message {
    Hvd__Spawn spawn;
    Hvd__HostRanks *hosts, **host_list;
    Hvd__Worker *workers, **worker_list;    /* room for the ranks of any host */
    Hvd__Program *programs, **program_list; /* room for all programs but the first */
    Hvd__Window window;
    Hvd__EngineTuning tuning;
    Hvd__Binding binding;
    struct propagate limits;
    char dir[PATH_MAX], namespace[64];
};

static void free_message(struct spawn_message *m)
{
    free(m->hosts);
    free(m->host_list);
    free(m->workers);
    free(m->worker_list);
    free(m->programs);
    free(m->program_list);
    free(m);
}

static struct spawn_message *new_message(const struct job *j)
{
    struct spawn_message *m = calloc(1, sizeof *m);
    size_t programs = j->config->programs.count;
    if (!m)
        return NULL;
    hvd__spawn__init(&m->spawn);
    hvd__window__init(&m->window);
    m->hosts = calloc(j->plan.host_count, sizeof *m->hosts);
    m->host_list = calloc(j->plan.host_count, sizeof(Hvd__HostRanks *));
    m->workers = calloc(j->plan.size, sizeof *m->workers);
    m->worker_list = calloc(j->plan.size, sizeof(Hvd__Worker *));
    m->programs = calloc(programs, sizeof *m->programs);
    m->program_list = calloc(programs, sizeof(Hvd__Program *));
    if (m->hosts && m->host_list && m->workers && m->worker_list && m->programs && m->program_list)
        return m;
    free_message(m);
    return NULL;
}

static void fill_programs(const struct job *j, struct spawn_message *m)
{
    const struct programs *programs = &j->config->programs;
    const struct program *first = &programs->item[0];
    Hvd__Spawn *s = &m->spawn;
    s->argv = first->command;
    s->n_argv = words_of(first->command);
    s->env = j->env[0].variable;
    s->wdir = (char *)(uintptr_t)(first->wdir ? first->wdir : "");
    s->or_home = j->config->wdir_or_home;
    for (size_t i = 1; i < programs->count; i++) {
        const struct program *p = &programs->item[i];
        Hvd__Program *to = m->program_list[i - 1] = &m->programs[i - 1];
        hvd__program__init(to);
        to->first_rank = p->first;
        to->argv = p->command;
        to->n_argv = words_of(p->command);
        to->env = j->env[i].variable;
        to->wdir = (char *)(uintptr_t)(p->wdir ? p->wdir : "");
        to->or_home = j->config->wdir_or_home;
    }
    s->program = m->program_list;
    s->n_program = programs->count - 1;
}

/* Fills the fields that are the same for every host. The parts add theirs. */
static int fill_message(struct job *j, struct spawn_message *m, struct err *e)
{
    Hvd__Spawn *s = &m->spawn;
    s->namespace_ = name_space(m->namespace, sizeof m->namespace) ? m->namespace : s->namespace_;
    s->launcher_dir = getcwd(m->dir, sizeof m->dir) ? m->dir : (char *)"";
    s->size = j->plan.size;
    s->universe = universe_size(j);
    s->epoch = j->epoch->number;
    s->max_restarts = (uint32_t)j->config->max_restarts;
    s->output_window = output_window(j->plan.size);
    s->max_line = (uint32_t)j->config->max_line;
    (void)contracts_parse(j->config->rendezvous, &s->contracts, NULL); /* config.c has checked it */
    s->elastic = j->config->elastic;
    s->least = (uint32_t)j->config->min_np;
    s->most = (uint32_t)j->config->max_np;
    if (s->elastic) /* libraries that cannot change their size are not served */
        s->contracts = (s->contracts & CONTRACT_ENV) |
                       (s->contracts & (CONTRACT_PMIX | CONTRACT_PMI1) ? CONTRACT_NO_MPI : 0);
    terminal_size(&m->window);
    engine_tuning_fill(j->config, &j->env[0], &m->tuning);
    s->tuning = &m->tuning;
    (void)propagate_read(&m->limits, j->config->propagate_limits, NULL); /* config.c has checked it */
    s->limit = m->limits.list;
    s->n_limit = m->limits.count;
    placement_binding(j->config, &m->binding);
    s->binding = &m->binding;
    for (uint32_t k = 0; k < j->plan.host_count; k++) {
        fill_host(&m->hosts[k], j->host_names[k], &j->plan.host[k], j->config->elastic);
        m->host_list[k] = &m->hosts[k];
    }
    s->host = m->host_list;
    s->n_host = j->plan.host_count;
    fill_programs(j, m);
    return JOB_PARTS_TRY(j, spawn, j, s, e);
}

/* Sends one host its workers. The variables of a program go only to hosts that need them. */
static int spawn_on_host(struct job *j, struct spawn_message *m, uint32_t k, struct err *e)
{
    const struct plan_host *host = &j->plan.host[k];
    Hvd__Spawn *s = &m->spawn;
    int rc = fill_workers(j, k, m->workers, m->worker_list, &m->window);
    s->worker = m->worker_list;
    s->n_worker = host->ranks;
    s->host_index = s->newcomer ? 0 : k;
    s->n_env = runs_here(j, host, 0) ? j->env[0].count : 0;
    for (size_t i = 0; i < s->n_program; i++)
        s->program[i]->n_env = runs_here(j, host, i + 1) ? j->env[i + 1].count : 0;
    if (rc == 0)
        host_spawn(job_host_of_plan(j, k), s);
    else
        err_set(e, ERR_MEMORY, "no memory to start %u ranks", j->plan.size);
    free_cores(m->workers, host->ranks);
    return rc;
}

/* ---- elastic jobs -------------------------------------------------------------------------------------- */

void job_spawn_newcomers(struct job *j, uint32_t plan_host, struct err *e)
{
    struct spawn_message *m = new_message(j);
    if (!m) {
        err_set(e, ERR_MEMORY, "no memory to start more ranks");
        return;
    }
    if (fill_message(j, m, e) == 0) {
        m->spawn.newcomer = true;
        m->host_list[0] = &m->hosts[plan_host];
        m->spawn.n_host = 1;
        (void)spawn_on_host(j, m, plan_host, e);
    }
    free_message(m);
}

void job_recruit(struct job *j, uint32_t plan_host, const uint32_t *rank, uint32_t n)
{
    Hvd__Worker worker[RECRUITS_MAX], *list[RECRUITS_MAX];
    Hvd__Recruit recruit = HVD__RECRUIT__INIT;
    for (uint32_t i = 0; i < n && i < RECRUITS_MAX; i++) {
        hvd__worker__init(&worker[i]);
        worker[i].rank = rank[i];
        worker[i].local_rank = j->plan.rank[rank[i]].local_rank;
        worker[i].cross_rank = j->plan.rank[rank[i]].cross_rank;
        worker[i].cross_size = j->plan.rank[rank[i]].cross_size;
        list[recruit.n_worker++] = &worker[i];
    }
    recruit.worker = list;
    CONTROL(m, RECRUIT, recruit, &recruit);
    host_send(job_host_of_plan(j, plan_host), &m);
}

static void release_host(struct host *h)
{
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    teardown.reason = (char *)(uintptr_t) "no rank is placed on this host";
    host_teardown(h, &teardown);
}

void job_spawn(struct job *j)
{
    struct err e = ERR_INIT;
    struct spawn_message *m = new_message(j);
    if (!m)
        err_set(&e, ERR_MEMORY, "no memory to start %u ranks", j->plan.size);
    else
        (void)fill_message(j, m, &e);
    for (uint32_t k = 0; !e.code && k < j->plan.host_count; k++)
        (void)spawn_on_host(j, m, k, &e);
    for (uint32_t i = 0; !e.code && i < j->host_count; i++)
        if (!j->host[i].planned)
            release_host(&j->host[i]);
    if (e.code)
        job_fault_err(j, &e);
    if (m)
        free_message(m);
}
