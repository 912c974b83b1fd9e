#include "launcher/parts/debugger.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/process/spawn.h"
#include "launcher/parts/mpir.h"

/* The file that a debugger reads symbols from, as far as it can be known here. */
static char *executable(const struct job *j, size_t program)
{
    const struct program *p = &j->config->programs.item[program];
    uint32_t preloaded = preload_of(&j->preload, p->command[0]);
    const char *command = preloaded ? j->preload.file[preloaded - 1].path : p->command[0];
    struct err ignored = ERR_INIT;
    char path[4096];
    if (spawn_find(command, environment_get(&j->env[program], "PATH"), preloaded ? NULL : p->wdir, path,
                   sizeof path, &ignored) < 0)
        return strdup(command);
    char *whole = realpath(path, NULL);
    return whole ? whole : strdup(path);
}

bool job_debug_begin(struct job *j, struct err *e)
{
    j->stops = j->config->stop_on_exec || mpir_is_wanted();
    j->executable = calloc(j->config->programs.count, sizeof *j->executable);
    if (mpir_begin(j->plan.size, e) == 0 && !j->executable)
        err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    for (size_t i = 0; !e->code && i < j->config->programs.count; i++)
        if (!(j->executable[i] = executable(j, i)))
            err_set(e, ERR_MEMORY, "no memory for %u ranks", j->plan.size);
    return j->stops;
}

static void say_where(const struct job *j)
{
    for (uint32_t r = 0; r < j->plan.size; r++)
        log_say("hvdrun: rank %u on %s is stopped before its first instruction: pid %u\n", r,
                j->host_names[j->plan.rank[r].host], j->rank[r].pid);
    log_say("hvdrun: gdb -p PID there attaches a debugger; kill -CONT PID lets one go on, kill -CONT %d here "
            "all\n",
            (int)getpid());
}

void job_debug_started(struct job *j)
{
    for (uint32_t r = 0; r < j->plan.size; r++) {
        const struct host_spec *spec = job_host_of_plan(j, j->plan.rank[r].host)->spec;
        const char *host = hosts_is_local(spec, j->common.hostname) ? j->common.hostname : spec->name;
        mpir_set(r, host, j->executable[programs_of(&j->config->programs, r)], j->rank[r].pid);
    }
    if (j->config->stop_on_exec)
        say_where(j);
    mpir_show();
    /* The debugger has taken those that it wants. */
    if (j->stops && !j->config->stop_on_exec)
        job_signal_workers(j, SIGCONT, true);
}

void job_debug_end(struct job *j)
{
    mpir_end();
    for (size_t i = 0; j->executable && i < j->config->programs.count; i++)
        free(j->executable[i]);
    free(j->executable);
    j->executable = NULL;
}
