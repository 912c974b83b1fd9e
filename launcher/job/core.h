/* The core of a job: its struct, and the services that every part of the job may call.
 *
 * Calls go down. job.c (the table of states), dispatch.c (messages of the hosts) and the other files of
 * launcher/job stand on top. The parts in launcher/parts stand below them, and core.c at the bottom. A
 * part that has something to tell posts an event of the job, or the dispatcher calls a hook of the part
 * (part.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/fsm.h"
#include "launcher/cli/config.h"
#include "launcher/cli/environment.h"
#include "launcher/host/agent_upload.h"
#include "launcher/host/host.h"
#include "launcher/io/input.h"
#include "launcher/io/output.h"
#include "launcher/job/end_limit.h"
#include "launcher/job/job.h"
#include "launcher/job/outcome.h"
#include "launcher/job/part.h"
#include "launcher/job/signals.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/plan.h"

#define FANOUT_MAX   128 /* connections being made at once */
#define STATUS_LIMIT 124 /* the exit status of --timeout */
/* Workers and sessions that may come to an elastic job beyond its start, in all its time. */
#define ELASTIC_WORKERS_MAX  16384
#define ELASTIC_SESSIONS_MAX 1024

/* clang-format off */
/* A row: the state, its name in the log. job.h says what happens in each. */
#define JOB_STATES(X)               \
    X(CONNECTING,  "connecting")    \
    X(PREPARING,   "preparing")     \
    X(STARTING,    "starting")      \
    X(RUNNING,     "running")       \
    X(INSPECTING,  "inspecting")    \
    X(PARTING,     "parting")       \
    X(INTERRUPTED, "interrupted")   \
    X(ENDING,      "ending")        \
    X(SWEEPING,    "sweeping")      \
    X(DRAINING,    "draining")      \
    X(DONE,        "done")

/* A row: the event, its name in the log, its meaning. */
#define JOB_EVENTS(X)                                                                               \
    X(READY,     "ready")     /* every host is READY */                                             \
    X(PREPARED,  "prepared")  /* every part has prepared the hosts for their workers */             \
    X(STARTED,   "started")   /* every rank runs */                                                 \
    X(FINISHED,  "finished")  /* every rank has ended, and its output was read */                   \
    X(FAILED,    "failed")    /* the outcome has a fault */                                         \
    X(PEER_LOST, "peer lost") /* the outcome has a fault, and engines tell it to the workers */     \
    X(LIMIT,     "limit")     /* the time limit is over; the outcome says so */                     \
    X(INSPECTED, "inspected") /* the hosts have told where their ranks are, or are too late */      \
    X(ENOUGH,    "enough")    /* the moment of PARTING is over */                                   \
    X(INTERRUPT, "interrupt") /* a signal that the workers get first */                             \
    X(INSIST,    "insist")    /* the grace period is over, or the signal came again */              \
    X(GONE,      "gone")      /* every host is CLOSED */                                            \
    X(SWEPT,     "swept")     /* every lost host was swept or given up */                           \
    X(DRAINED,   "drained")   /* no output waits */
/* clang-format on */

#define AS_STATE(name, text) JOB_##name,
#define AS_EVENT(name, text) JOB_EV_##name,
enum job_state { JOB_STATES(AS_STATE) };
enum job_event { JOB_EVENTS(AS_EVENT) };
#undef AS_STATE
#undef AS_EVENT

/* One timer of each kind. Those before JOB_TIMER_HEARTBEAT stop when the job begins to end. */
enum job_timer {
    JOB_TIMER_TIME_LIMIT,  /* --timeout */
    JOB_TIMER_START_LIMIT, /* --start-timeout */
    JOB_TIMER_WAIT_LIMIT,  /* --wait */
    JOB_TIMER_PREFLIGHT,   /* a host has failed; other hosts may still tell their faults */
    JOB_TIMER_PROGRESS,    /* the line of progress is due */
    JOB_TIMER_CONSIDER,    /* elastic jobs: something has happened; is there another membership? */
    JOB_TIMER_ENTER,       /* likewise: ranks that have not entered the newest membership are too late */
    JOB_TIMER_SLOTS,       /* likewise: there were too few ranks for too long */
    JOB_TIMER_DISCOVERY,   /* likewise: hosts are looked for */
    JOB_TIMER_NEWCOMERS,   /* likewise: hosts that were taken have had time to answer */
    JOB_TIMER_TOGETHER,    /* likewise: workers that are ready have waited for others */
    JOB_TIMER_REPORTS,     /* likewise: engines cannot reach a host */
    JOB_TIMER_PATIENCE,    /* ranks still run after ^C: the user is told for how long */
    JOB_TIMER_DNS,         /* hosts without an address are collected for one message */
    JOB_TIMER_HEARTBEAT,
    JOB_TIMER_MOMENT, /* the state has a limited time; job.c, job_ending.c and stack_dump.c say which */
    JOB_TIMER_RANK_ENDS,
    JOB_TIMER_SWEEP,
    JOB_TIMERS
};

struct job_timer_slot {
    uv_timer_t uv;
    struct job *job;
    void (*over)(struct job *j);
};

struct rank_state {
    uint32_t pid;
    uint64_t started;       /* launcher's clock; 0: not yet */
    uint64_t started_there; /* its host's clock */
    uint64_t ended;         /* launcher's clock; 0: not yet. The next four are set with it */
    struct rank_end end;
    uint64_t peak_kib, user_us, system_us;
    char gave_up[RANK_SENTENCE_MAX]; /* its words in hvd_abort; "": it did not give up */
    bool exited;                     /* Exited came, or its host is lost */
    bool read;                       /* both streams have ended */
    bool finished;                   /* exited and read */
};

/* The program hvdagent, for hosts of the job. */
struct job_agent {
    char program_dir[4096]; /* hvdrun's own directory */
    char local[4096 + 16];  /* path on this host */
    char command[16384];    /* shell command line for other hosts */
    struct sent_agent sent; /* --send-agent; else empty */
};

struct job_tally {
    uint32_t next_to_start; /* index of the first host that was not started */
    uint32_t ready, closed; /* hosts that have been READY; that are CLOSED */
    uint32_t ranks_started, ranks_finished;
    uint32_t ranks_first; /* that the job begins with */
};

/* For how many there is room in arrays: more than there are when more may come. */
struct job_room {
    uint32_t hosts, ranks;
};

/* When each began, for --report; 0: it did not. */
struct job_phases {
    uint64_t starting, running, ending;
};

/* How the job comes to its end. */
struct job_stop {
    bool final;        /* no epoch may follow */
    bool lost_workers; /* the first fault known was a lost host whose ranks had started */
    int signal;        /* the first that ended the job, or 0 */
    bool grace_is_over;
    bool insisted;      /* a signal came again */
    bool output_waited; /* bytes waited for the reader of the output when the time to end was over */
    struct end_limit limit;
};

struct job {
    const struct config *config;
    struct host_list *list;
    const struct job_epoch *epoch;
    uv_loop_t *loop;
    struct signals *signals;
    struct host_common common;
    struct fsm fsm;
    char name[65];
    uint8_t *key; /* JOB_KEY_SIZE secret bytes */
    struct job_agent agent;
    uint64_t began;
    struct job_phases phases;
    struct job_timer_slot timer[JOB_TIMERS];
    struct job_parts parts;

    struct host *host; /* host_count of them; index as in list */
    uint32_t host_count;
    struct job_room room;
    struct job_tally tally;

    bool planned;
    struct plan plan;
    struct environment *env; /* by program */
    const char **host_names; /* by index in plan.host */
    struct rank_state *rank;
    bool has_engines; /* a host's engine listens: engines tell workers of lost peers */
    struct output *output;
    struct input input;
    bool has_input;

    struct outcome outcome;
    struct job_stop stop;
};

/* ---- faults -------------------------------------------------------------------------------------------- */

/* Records a fault that is not a worker's and ends the job. */
void job_fault(struct job *j, uint64_t time, int exit_status, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* As job_fault, with an error's text, hint and exit status. */
void job_fault_err(struct job *j, const struct err *e);
/* The outcome has a fault: ends the job, or gives workers that use collectives a moment first. */
void job_failed(struct job *j);
/* Records that a limit or a signal ends the job. */
void job_stop(struct job *j, int exit_status, const char *text);

/* ---- hosts and ranks ----------------------------------------------------------------------------------- */

struct host *job_host_of_plan(struct job *j, uint32_t plan_index);
struct host *job_host_of_rank(struct job *j, uint32_t rank);
/* The rank if it is one of this host's, else NULL: a session speaks for its own ranks only. */
struct rank_state *job_rank_of_host(struct job *j, const struct host *h, uint32_t rank);
/* Starts hosts as long as few enough are on their way. */
void job_start_hosts(struct job *j);
/* Sends to every host of the plan. */
void job_send_all(struct job *j, const Hvd__Control *m);
/* Sends a signal to every worker; `ours`: the signal is a word of hvdrun and is not passed on by workers. */
void job_signal_workers(struct job *j, int number, bool ours);
/* Does the rank get hvdrun's stdin? */
bool job_gets_stdin(const struct job *j, uint32_t rank);

/* ---- timers -------------------------------------------------------------------------------------------- */

void job_timers_init(struct job *j);
/* Starts the timer anew; `over` is called once, `ms` from now. */
void job_timer_start(struct job *j, enum job_timer which, uint64_t ms, void (*over)(struct job *j));
void job_timer_stop(struct job *j, enum job_timer which);
bool job_timer_runs(const struct job *j, enum job_timer which);
/* The job begins to end: stops every timer that counts for a start or for the run. */
void job_timers_end(struct job *j);
void job_timers_close(struct job *j);
