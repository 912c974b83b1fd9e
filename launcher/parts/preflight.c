/* All faults of all hosts at once, before the first worker is started anywhere: hosts that cannot be reached,
 * and what their sessions found missing (Welcome.problem) or too low (Welcome.limit).
 *
 * The first host that fails does not end the job at once. The other hosts get a moment to answer, so that a
 * user with four broken hosts reads of four. One fault is said as any other; more faults are listed
 * (fault_list.h), in the order of the hosts. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/job/core.h"
#include "launcher/parts/fault_list.h"
#include "launcher/parts/limits_check.h"
#include "launcher/parts/parts.h"

extern char **environ;

#define PATIENCE_MS 3000 /* other hosts have so long to answer, and as long again as the first took */

/* The state of a host. */
struct answer {
    Hvd__Welcome *told; /* the Welcome of the host when it names limits or problems, else NULL */
};

static struct answer *answer_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_preflight, h);
}

struct faults {
    struct fault *item;
    size_t count;
    uint32_t hosts;
    struct err *limit; /* by host: the texts of what a limit lacks */
};

/* ---- the question -------------------------------------------------------------------------------------- */

/* The PATH of its workers, to be freed. */
static int fill_program(Hvd__PreflightProgram *to, const struct program *p, struct err *e)
{
    struct environment env;
    if (environment_build(&env, environ, &p->set_env, &p->unset_env, true, e) < 0)
        return -1;
    const char *path = environment_get(&env, "PATH");
    to->has_path = path != NULL;
    to->path = strdup(path ? path : "");
    environment_free(&env);
    if (!to->path)
        return err_set(e, ERR_MEMORY, "no memory for a job");
    to->command = p->command[0];
    to->wdir = (char *)(uintptr_t)(p->wdir ? p->wdir : "");
    return 0;
}

static int open_preflight(struct job *j, struct err *e)
{
    Hvd__Preflight *asked = job_state(j, &part_preflight);
    char dir[PATH_MAX];
    const struct programs *programs = &j->config->programs;
    Hvd__PreflightProgram first = HVD__PREFLIGHT_PROGRAM__INIT;
    hvd__preflight__init(asked);
    j->common.preflight = asked;
    asked->launcher_dir = strdup(getcwd(dir, sizeof dir) ? dir : "");
    asked->program = calloc(programs->count, sizeof *asked->program);
    if (!asked->launcher_dir || !asked->program)
        return err_set(e, ERR_MEMORY, "no memory for a job");
    if (fill_program(&first, &programs->item[0], e) < 0)
        return -1;
    asked->has_path = first.has_path;
    asked->path = first.path;
    asked->wdir = first.wdir;
    asked->command = programs->item[0].command;
    asked->n_command = 1;
    asked->or_home = j->config->wdir_or_home;
    for (size_t i = 1; i < programs->count; i++) {
        Hvd__PreflightProgram *p = malloc(sizeof *p);
        if (!p)
            return err_set(e, ERR_MEMORY, "no memory for a job");
        hvd__preflight_program__init(p);
        asked->program[asked->n_program++] = p;
        if (fill_program(p, &programs->item[i], e) < 0)
            return -1;
        p->or_home = j->config->wdir_or_home;
    }
    return 0;
}

static void free_path(const char *path)
{
    if (path != protobuf_c_empty_string)
        free((char *)(uintptr_t)path);
}

static void free_preflight(struct job *j)
{
    Hvd__Preflight *asked = job_state(j, &part_preflight);
    for (uint32_t i = 0; j->host && i < j->host_count; i++)
        message_free(answer_of(j, &j->host[i])->told);
    if (!asked->base.descriptor)
        return;
    for (size_t i = 0; i < asked->n_program; i++) {
        free_path(asked->program[i]->path);
        free(asked->program[i]);
    }
    free(asked->program);
    free_path(asked->path);
    free_path(asked->launcher_dir);
}

static void keep_answer(struct job *j, struct host *h, const Hvd__Welcome *welcome)
{
    answer_of(j, h)->told = limits_keep(welcome);
}

bool preflight_has_problem(const struct job *j)
{
    for (uint32_t i = 0; i < j->host_count; i++) {
        const Hvd__Welcome *told = answer_of(j, &j->host[i])->told;
        if (told && told->n_problem > 0)
            return true;
    }
    return false;
}

/* ---- the answers --------------------------------------------------------------------------------------- */

static void add_fault(struct faults *f, const struct host *h, int code, const char *what, const char *why,
                      const char *fix)
{
    f->hosts += f->count == 0 || f->item[f->count - 1].host != h->label;
    f->item[f->count++] = (struct fault){h->label, code, what, why, fix, false};
}

/* Adds a fault if the host has too few descriptors or processes for its ranks. */
static void add_limit(struct faults *f, const struct job *j, const struct host *h, struct err *e)
{
    const struct plan_host *p = &j->plan.host[h->plan_index];
    const Hvd__Welcome *told = answer_of(j, h)->told;
    struct limits_need need = {.ranks = p->ranks};
    for (uint32_t k = 0; k < p->ranks; k++)
        need.inputs += job_gets_stdin(j, p->rank[k]);
    if (limits_check(told->limit, told->n_limit, &need, e) < 0)
        add_fault(f, h, err_exit_status(e), "limit", e->text, e->hint);
}

/* Does a problem of this program concern the host? Before the plan, only in a job of one program. */
static bool concerns_host(const struct job *j, const struct host *h, size_t program)
{
    const struct programs *programs = &j->config->programs;
    if (programs->count < 2)
        return true;
    for (uint32_t i = 0; j->planned && i < j->plan.host[h->plan_index].ranks; i++)
        if (programs_of(programs, j->plan.host[h->plan_index].rank[i]) == program)
            return true;
    return false;
}

/* Was the same problem named for another program? */
static bool was_said(const Hvd__Welcome *told, size_t problem)
{
    for (size_t i = 0; i < problem; i++)
        if (strcmp(told->problem[i]->what, told->problem[problem]->what) == 0 &&
            strcmp(told->problem[i]->why, told->problem[problem]->why) == 0)
            return true;
    return false;
}

static void add_host(struct faults *f, const struct job *j, struct host *h)
{
    const Hvd__Welcome *told = answer_of(j, h)->told;
    if (h->err.code) {
        add_fault(f, h, 125, h->err.code == ERR_VERSION ? "agent version" : h->failed_in, h->err.text,
                  h->err.hint);
        f->item[f->count - 1].unreached = true;
    }
    if (h->err.code || !told || (j->planned && !h->planned))
        return;
    for (size_t i = 0; i < told->n_problem; i++) {
        const Hvd__Problem *p = told->problem[i];
        if (!concerns_host(j, h, p->program) || was_said(told, i))
            continue;
        log_printable(p->what);
        log_printable(p->why);
        log_printable(p->fix);
        add_fault(f, h, p->code == 126 || p->code == 127 ? (int)p->code : 125, p->what, p->why, p->fix);
    }
    if (j->planned)
        add_limit(f, j, h, &f->limit[h->index]);
}

static int collect_faults(struct faults *f, const struct job *j)
{
    size_t room = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        const Hvd__Welcome *told = answer_of(j, &j->host[i])->told;
        room += 2 + (told ? told->n_problem : 0);
    }
    *f = (struct faults){.item = calloc(room, sizeof *f->item),
                         .limit = calloc(j->room.hosts, sizeof *f->limit)};
    if (!f->item || !f->limit)
        return -1;
    for (uint32_t i = 0; i < j->host_count; i++)
        add_host(f, j, &j->host[i]);
    return 0;
}

/* ---- the words to the user ---------------------------------------------------------------------------- */

/* 126 or 127, as of a shell, if every fault is a command that cannot be executed; else 125. */
static int exit_status(const struct faults *f)
{
    int status = 0;
    for (size_t i = 0; i < f->count; i++) {
        if (f->item[i].code == 125)
            return 125;
        status = f->item[i].code > status ? f->item[i].code : status;
    }
    return status;
}

/* True when the same fault is on every host: one line is enough. */
static bool is_one_fault(const struct faults *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->item[i].unreached || !faults_are_alike(&f->item[i], &f->item[0]))
            return false;
    return true;
}

/* Makes the faults the first fault of the outcome, in place of earlier ones. */
static void record_faults(struct job *j, const struct faults *f)
{
    const struct fault *only = &f->item[0];
    char text[ERR_TEXT_MAX + 400], names[FAULTS_NAMES_MAX];
    uint32_t silent = j->host_count > j->tally.ready + j->tally.closed
                          ? j->host_count - j->tally.ready - j->tally.closed
                          : 0;
    if (f->count == 1 && only->unreached)
        return; /* said already, with the phase */
    if (is_one_fault(f)) {
        faults_name_hosts(f->item, f->count, names, sizeof names);
        snprintf(text, sizeof text, "%s: %s", names, only->why);
        outcome_fault(&j->outcome, j->began, exit_status(f), text, only->fix);
        return;
    }
    faults_say(f->item, f->count);
    int n = snprintf(text, sizeof text, "%zu faults on %u host%s; no worker was started", f->count, f->hosts,
                     f->hosts == 1 ? "" : "s");
    if (silent)
        snprintf(text + n, sizeof text - (size_t)n, " (%u host%s had not answered)", silent,
                 silent == 1 ? "" : "s");
    outcome_fault(&j->outcome, j->began, exit_status(f), text, NULL);
}

int preflight_conclude(struct job *j)
{
    struct faults f;
    int rc = collect_faults(&f, j);
    if (rc < 0)
        outcome_fault(&j->outcome, clock_now(), 125, "no memory for what the hosts said", NULL);
    else if (f.count > 0)
        record_faults(j, &f);
    rc = rc < 0 || f.count > 0 ? -1 : 0;
    free(f.item);
    free(f.limit);
    return rc;
}

/* ---- the wait for answers ------------------------------------------------------------------------------ */

static void end_wait(struct job *j)
{
    (void)preflight_conclude(j);
    job_failed(j);
}

void preflight_settle(struct job *j)
{
    uint64_t elapsed = (clock_now() - j->began) / NSEC_PER_MSEC,
             limit = (uint64_t)j->config->start_timeout_ms;
    uint64_t left = limit > elapsed ? (limit - elapsed) / 2 : 0, wait = PATIENCE_MS + elapsed;
    if (j->tally.ready + j->tally.closed >= j->host_count || left == 0)
        end_wait(j);
    else if (!job_timer_runs(j, JOB_TIMER_PREFLIGHT))
        job_timer_start(j, JOB_TIMER_PREFLIGHT, wait < left ? wait : left, end_wait);
    job_start_hosts(j);
}

const struct job_part part_preflight = {
    .state_size = sizeof(Hvd__Preflight),
    .host_state_size = sizeof(struct answer),
    .open = open_preflight,
    .host_ready = keep_answer,
    .free = free_preflight,
};
