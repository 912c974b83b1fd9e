/* Debuggers: the MPIR table when all ranks run, and --stop-on-exec. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/process/spawn.h"
#include "launcher/cli/programs.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

struct debugger_state {
    char **executable; /* by program; NULL: nothing was started yet */
    bool stops;        /* workers stop before their first instruction */
};

/* ---- MPIR ---------------------------------------------------------------------------------------------- */

/* MPIR, the interface by which a debugger learns where a job's processes are (MPIR Process Acquisition
 * Interface 1.1): the symbols that it looks for in hvdrun. One job at a time has the table.
 * The names and types are the interface's. A debugger reads and writes the variables from outside at any
 * time, so they are volatile, and no access may be optimised away. */

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

#define MPIR_DEBUG_SPAWNED  1
#define MPIR_DEBUG_ABORTING 2

extern MPIR_PROCDESC *MPIR_proctable;
extern int MPIR_proctable_size;
extern volatile int MPIR_being_debugged, MPIR_debug_state;
extern char *volatile MPIR_debug_abort_string;
extern int MPIR_i_am_starter, MPIR_partial_attach_ok, MPIR_ignore_queues, MPIR_force_to_main;
extern void MPIR_Breakpoint(void);

MPIR_PROCDESC *MPIR_proctable;
int MPIR_proctable_size;
volatile int MPIR_being_debugged, MPIR_debug_state;
char *volatile MPIR_debug_abort_string;
/* That they are there says: hvdrun is no rank itself; ranks that the debugger leaves alone are set going by
 * us; it need not look for message queues. */
int MPIR_i_am_starter, MPIR_partial_attach_ok, MPIR_ignore_queues;
/* Ranks are held at their first instruction, before main. */
int MPIR_force_to_main;

static MPIR_PROCDESC *table;
static uint32_t table_size;

void __attribute__((noinline, used)) MPIR_Breakpoint(void)
{
    __asm__ volatile("" ::: "memory");
}

static void mpir_end(void)
{
    MPIR_proctable = NULL;
    MPIR_proctable_size = 0;
    MPIR_debug_state = 0;
    MPIR_debug_abort_string = NULL;
    free(table);
    table = NULL;
    table_size = 0;
}

/* The table for `size` ranks; empty until it is shown. */
static int mpir_begin(uint32_t size, struct err *e)
{
    mpir_end();
    table = calloc(size, sizeof *table);
    table_size = size;
    return table ? 0 : err_set(e, ERR_MEMORY, "no memory for %u ranks", size);
}

/* `host` and `executable` must stay until mpir_end. */
static void mpir_set(uint32_t rank, const char *host, const char *executable, uint32_t pid)
{
    if (rank < table_size)
        table[rank] = (MPIR_PROCDESC){(char *)(uintptr_t)host, (char *)(uintptr_t)executable, (int)pid};
}

static void tell_debugger(int state)
{
    MPIR_debug_state = state;
    MPIR_Breakpoint();
}

/* All ranks run: the table can be read, and a debugger that waits for it is told. */
static void mpir_show(void)
{
    MPIR_proctable = table;
    MPIR_proctable_size = (int)table_size;
    tell_debugger(MPIR_DEBUG_SPAWNED);
}

/* The job has failed: a debugger is told why; `why` must stay until mpir_end. */
static void mpir_abort(const char *why)
{
    if (!MPIR_proctable)
        return;
    MPIR_debug_abort_string = (char *)(uintptr_t)why;
    tell_debugger(MPIR_DEBUG_ABORTING);
}

/* A debugger has started hvdrun, or is attached to it. */
static bool mpir_is_wanted(void)
{
    return MPIR_being_debugged;
}

/* ---- the part ------------------------------------------------------------------------------------------ */

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

/* Workers that come later in an elastic job are not in the debugger's table, and are not stopped. */
static int fill_spawn(struct job *j, Hvd__Spawn *m, struct err *e)
{
    struct debugger_state *s = state_of(j);
    if (s->executable)
        return 0;
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
