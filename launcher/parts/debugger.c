/* Debuggers: the MPIR table when all ranks run, and --stop-on-exec. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/process/spawn.h"
#include "launcher/cli/programs.h"
#include "launcher/job/core.h"
#include "launcher/parts/mpir.h"
#include "launcher/parts/parts.h"

struct debugger_state {
    char **executable; /* by program; NULL: nothing was started yet */
    bool stops;        /* workers stop before their first instruction */
};

static struct debugger_state *state_of(const struct job *j)
{
    return job_state(j, &part_debugger);
}

/* The file from which a debugger reads symbols, as far as it can be known here. */
static char *find_executable(const struct job *j, size_t program)
{
    const struct program *p = &j->config->programs.item[program];
    const char *preloaded = preload_local_path(j, p->command[0]);
    const char *command = preloaded ? preloaded : p->command[0];
    struct err ignored = ERR_INIT;
    char path[4096];
    if (spawn_find(command, environment_get(&j->env[program], "PATH"), preloaded ? NULL : p->wdir, path,
                   sizeof path, &ignored) < 0)
        return strdup(command);
    char *whole = realpath(path, NULL);
    return whole ? whole : strdup(path);
}

static int fill_spawn(struct job *j, Hvd__Spawn *m, struct err *e)
{
    struct debugger_state *s = state_of(j);
    s->stops = j->config->stop_on_exec || mpir_is_wanted();
    s->executable = calloc(j->config->programs.count, sizeof *s->executable);
    if (mpir_begin(j->plan.size, e) == 0 && !s->executable)
        err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    for (size_t i = 0; !e->code && i < j->config->programs.count; i++) {
        s->executable[i] = find_executable(j, i);
        if (!s->executable[i])
            err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    }
    m->stop_on_exec = s->stops;
    return e->code ? -1 : 0;
}

static void say_pids(const struct job *j)
{
    for (uint32_t r = 0; r < j->plan.size; r++)
        log_say("hvdrun: rank %u on %s is stopped before its first instruction: pid %u\n", r,
                j->host_names[j->plan.rank[r].host], j->rank[r].pid);
    log_say("hvdrun: gdb -p PID there attaches a debugger; kill -CONT PID lets one go on, kill -CONT %d here "
            "all\n",
            (int)getpid());
}

static void on_started(struct job *j)
{
    const struct debugger_state *s = state_of(j);
    for (uint32_t r = 0; r < j->plan.size; r++) {
        const struct host_spec *spec = job_host_of_rank(j, r)->spec;
        const char *host = hosts_is_local(spec, j->common.hostname) ? j->common.hostname : spec->name;
        mpir_set(r, host, s->executable[programs_of(&j->config->programs, r)], j->rank[r].pid);
    }
    if (j->config->stop_on_exec)
        say_pids(j);
    mpir_show();
    /* The debugger has taken the ranks that it wants. */
    if (s->stops && !j->config->stop_on_exec)
        job_signal_workers(j, SIGCONT, true);
}

static void on_ending(struct job *j)
{
    if (j->outcome.failed)
        mpir_abort(j->outcome.text);
}

static void free_debugger(struct job *j)
{
    struct debugger_state *s = state_of(j);
    mpir_end();
    for (size_t i = 0; s->executable && i < j->config->programs.count; i++)
        free(s->executable[i]);
    free(s->executable);
}

const struct job_part part_debugger = {
    .state_size = sizeof(struct debugger_state),
    .spawn = fill_spawn,
    .started = on_started,
    .ending = on_ending,
    .free = free_debugger,
};
