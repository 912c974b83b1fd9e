/* The inside of a job, shared by job.c (lifecycle), setup.c (what it holds), dispatch.c (what hosts say)
 * and spawn_message.c (the Spawn message). */
#ifndef HVD_LAUNCHER_JOB_JOB_INTERNAL_H
#define HVD_LAUNCHER_JOB_JOB_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/fsm.h"
#include "launcher/cli/config.h"
#include "launcher/job/end_limit.h"
#include "launcher/cli/environment.h"
#include "launcher/host/host.h"
#include "launcher/plan/hosts.h"
#include "launcher/io/input.h"
#include "launcher/job/job_ends.h"
#include "launcher/job/job_links.h"
#include "launcher/job/job.h"
#include "launcher/job/outcome.h"
#include "launcher/io/output.h"
#include "launcher/plan/plan.h"
#include "launcher/parts/preload_files.h"
#include "launcher/io/progress.h"
#include "launcher/host/agent_upload.h"
#include "launcher/job/signals.h"

#define FANOUT_MAX   128 /* connections being made at once */
#define STATUS_LIMIT 124 /* of --timeout */

enum job_state {
    JOB_CONNECTING,
    JOB_PRELOADING, /* hosts get files */
    JOB_STARTING,
    JOB_RUNNING,
    JOB_INSPECTING, /* the time limit is over: where is everybody? */
    JOB_PARTING,
    JOB_INTERRUPTED,
    JOB_ENDING,
    JOB_SWEEPING, /* hosts that were lost */
    JOB_DRAINING,
    JOB_DONE
};

enum job_event {
    JOB_EV_READY,     /* every host is READY */
    JOB_EV_PRELOADED, /* and has its files */
    JOB_EV_STARTED,   /* every rank runs */
    JOB_EV_FINISHED,  /* every rank has ended and its output was read */
    JOB_EV_FAILED,    /* the outcome has a fault */
    JOB_EV_PEER_LOST, /* the same, and the workers learn it from their engines */
    JOB_EV_LIMIT,     /* the time limit is over, and said so in the outcome */
    JOB_EV_INSPECTED, /* the hosts have told where their ranks are, or will not */
    JOB_EV_ENOUGH,    /* they had their moment */
    JOB_EV_INTERRUPT, /* a signal that workers get first */
    JOB_EV_INSIST,    /* the grace period is over, or the signal came again */
    JOB_EV_GONE,      /* every host is CLOSED */
    JOB_EV_SWEPT,     /* what was lost was swept, or given up */
    JOB_EV_DRAINED    /* no output waits */
};

struct rank_state {
    uint32_t pid;
    uint64_t started;       /* launcher's clock; 0: not yet */
    uint64_t started_there; /* its host's clock */
    uint64_t ended;         /* the same; what follows is set with it */
    struct rank_end end;
    uint64_t peak_kib, user_us, system_us;
    bool exited;   /* Exited came, or its host is lost */
    bool read;     /* both streams have ended */
    bool finished; /* both of the above */
};

/* A process that could not be ended. */
struct leftover {
    const struct host *host;
    uint32_t pid;
    char name[64], state[16];
};

#define LEFTOVERS_EACH 64  /* of a host, as many as an agent names, are logged */
#define LEFTOVERS_MAX  256 /* are kept for the report */

struct job {
    const struct config *config;
    struct host_list *list;
    const struct job_epoch *epoch;
    uv_loop_t loop;
    struct host_common common;
    struct fsm fsm;
    char name[65];
    uint8_t *key; /* JOB_KEY_SIZE secret bytes */
    char program_dir[4096];
    char agent_local[4096 + 16];
    char agent_command[16384];
    struct sent_agent sent; /* --send-agent; else empty */
    struct preload preload;
    char **executable; /* of each program, for debuggers; NULL: not started yet */
    bool stops;        /* workers stop before their first instruction */
    uint64_t began;
    struct {
        uint64_t preloading, starting, running, ending;
    } phases; /* when each began, for --report; 0: it did not */

    Hvd__Preflight preflight;
    struct host *host; /* host_count of them; index as in list */
    uint32_t host_count, next_to_start, ready, closed;
    struct host **held_host; /* --wait: in the order in which they are asked once all are there; else NULL */
    uint32_t held_count, next_to_ask;
    uint32_t held; /* at the moment */

    bool planned;
    struct plan plan;
    struct environment *env; /* by program */
    const char **host_names; /* by index in plan.host */
    struct rank_state *rank;
    uint32_t started, finished;
    struct output *output;
    struct input input;
    bool has_input;
    struct job_links engine_links, session_links;
    struct job_ends ends;

    struct job_where *where; /* NULL: nobody asked */
    struct job_sweep *sweep; /* NULL: no host was lost */
    struct leftover leftover[LEFTOVERS_MAX];
    uint32_t leftover_count;
    struct outcome outcome;
    bool lost_workers; /* the first that was known to go wrong: a host was lost that had started its own */
    bool final;        /* no epoch may follow, whatever went wrong first */
    int signal;        /* the first that ended the job, or 0 */
    bool grace_is_over;
    bool insisted;      /* a signal came again */
    bool output_waited; /* for its reader, when the time to end was over */
    struct end_limit end;
    struct signals signals;
    struct progress progress;
    uv_timer_t heartbeat, start_limit, time_limit, end_limit;
    uv_timer_t wait_limit; /* --wait */
    uv_timer_t settling;   /* a host has failed; the others may still say what is wrong with them */
    uv_timer_t gathering;  /* hosts whose names have no address yet, to be told together */
};

/* ---- job.c --------------------------------------------------------------------------------------------- */
/* Records a fault that is not a worker's and ends the job. */
void job_fault(struct job *j, uint64_t time, int exit_status, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The outcome has a fault: ends the job, or gives workers that use collectives a moment first. */
void job_failed(struct job *j);
/* To every worker; `ours`: the signal is our own word and not passed on. */
void job_signal_workers(struct job *j, int number, bool ours);
/* Sends the size of the user's terminal to the worker that has one, if that worker runs. */
void job_tell_window(struct job *j);
/* As job_fault, with an error's text, hint and exit status. */
void job_fault_err(struct job *j, const struct err *e);
/* A signal to hvdrun; ctx is the job. */
void job_on_signal(void *ctx, int number);

/* ---- start_timeout.c ---------------------------------------------------------------------------------- */
/* --start-timeout counts from now. */
void job_start_limit(struct job *j);
/* The hosts that the start of the workers still waits for and their phases, behind a comma; empty: none. */
void job_waiting_tell(const struct job *j, char *out, size_t size);
/* Files are on their way: the same. */
void job_preload_moved(struct job *j);
/* A managed agent has said where the job stands in its queue. */
void job_waiting(struct job *j, struct host *h);
/* --wait: hosts are asked one after the other. Nothing for a job of one host. */
int job_waiting_order(struct job *j, struct err *e);
/* A host has said which node it is. */
void job_held(struct job *j, struct host *h);
/* It is ready, or has gone: the next one may be asked. */
void job_held_no_more(struct job *j, struct host *h);

/* ---- dispatch.c --------------------------------------------------------------------------------------- */
extern const struct host_events job_host_events;
extern const struct output_events job_output_events;
extern const struct input_events job_input_events;
/* Starts hosts as long as fewer than FANOUT_MAX are on their way. */
void job_start_hosts(struct job *j);
struct host *job_host_of_plan(struct job *j, uint32_t plan_index);

/* ---- spawn_message.c ---------------------------------------------------------------------------------- */
/* Makes the plan and what follows from it (environment, output, input). */
int job_place(struct job *j, struct err *e);
/* Sends every host of the plan its workers, and lets the others go. */
void job_spawn(struct job *j);

#endif
