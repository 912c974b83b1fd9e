/* A session: one process per job and host. It ends the control channel, supervises the workers and leaves
 * nothing behind.
 *
 *   HELLO -> READY (-> WAITING) -> SPAWNING -> RUNNING -> DONE -> ENDING -> KILLING -> LEAVING -> OVER
 *
 * HELLO waits for the launcher's Hello, READY for its Spawn, WAITING for MPS (--mps); SPAWNING until every
 * worker has executed its program (or one could not: REFUSING kills the others first); RUNNING until all have
 * ended and their output was handed over; DONE for the launcher's Teardown, which may come in any state.
 * ENDING gives the workers their grace after SIGTERM, KILLING ends what is left; LEAVING has told Ended and
 * waits for Bye.
 *
 * Whatever breaks (the channel's end, silence of the launcher, the guard's death, a signal to us) is the
 * event LOST: the job ends here at once, with the same grace. When the session itself dies, the guard does
 * what is left to do (guard.h). The table is in session.c. */
#ifndef HVD_AGENT_SESSION_SESSION_H
#define HVD_AGENT_SESSION_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/session/engine_host.h"
#include "agent/guard/guard.h"
#include "agent/guard/heartbeat.h"
#include "agent/session/status_server.h"
#include "agent/guard/job_dir.h"
#include "agent/session/mps_clients.h"
#include "agent/session/mps_host.h"
#include "agent/session/preload_files.h"
#include "agent/rendezvous/pmix_client/pmix_host.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/session/links.h"
#include "agent/session/ports.h"
#include "agent/worker/containment.h"
#include "agent/worker/cpus.h"
#include "agent/worker/oom.h"
#include "agent/worker/reap.h"
#include "agent/worker/stdio.h"
#include "agent/inspect/stacks.h"
#include "agent/worker/worker.h"
#include "common/net/auth.h"
#include "common/protocol/channel.h"
#include "common/base/fsm.h"
#include "common/protocol/legal.h"
#include "common/net/stream.h"

enum session_state {
    SESSION_HELLO,
    SESSION_READY,
    SESSION_WAITING,
    SESSION_SPAWNING,
    SESSION_REFUSING,
    SESSION_RUNNING,
    SESSION_DONE,
    SESSION_ENDING,
    SESSION_KILLING,
    SESSION_LEAVING,
    SESSION_OVER
};

enum session_event {
    EV_HELLO,    /* a Hello that we can serve */
    EV_STRANGER, /* a Hello of another version: answered, then over */
    EV_WAIT,     /* workers wait for what they need */
    EV_SPAWN,    /* workers were started, their execs are not confirmed yet */
    EV_REFUSED,  /* a worker could not be started */
    EV_EXECUTED, /* all workers execute their programs */
    EV_FINISHED, /* all workers have ended and were reported */
    EV_TEARDOWN,
    EV_LOST,
    EV_PATIENCE, /* the current state's time is over */
    EV_EMPTY,    /* no process of the job is left and all that was to be said is queued */
    EV_BYE
};

/* What the workers that run a program start with. */
struct session_program {
    char path[4096], wdir[4096];
    struct worker_env env;
};

struct session;

/* CUDA's multi-process service. */
struct session_mps {
    struct mps_host host;
    char *gpus; /* UUIDs of those that it is to serve; NULL: it is not to be started */
    char *visible, **envp;
    const char *there; /* where a service of somebody else may be; NULL: it is ours, or there are no GPUs */
    struct mps_clients clients; /* of that one */
    char *there_variable, **there_envp;
    bool all;                        /* not only those that SIGTERM kills */
    void (*then)(struct session *s); /* what waits for that */
    char program[4096], pipes[JOB_DIR_MAX + 16], logs[JOB_DIR_MAX + 16];
};

#define SESSION_TOKEN_SIZE 16

struct session_secrets {
    uint8_t key[AUTH_KEY_SIZE];
    uint8_t token[SESSION_TOKEN_SIZE];
    char token_text[2 * SESSION_TOKEN_SIZE + 1];
};

struct session {
    uv_loop_t loop;
    struct guard *guard;
    struct fsm fsm;
    int exit_status;

    /* the launcher */
    struct stream stream;
    struct channel channel;
    struct legal legal; /* of what the launcher sends */
    struct heartbeat launcher;
    uint64_t beat_at; /* when we showed that we live */
    uv_timer_t heart, patience;
    uv_prepare_t prepare;
    bool marked; /* something happened: check and write before the loop sleeps */
    uv_poll_t guard_poll;
    struct heartbeat guard_heart;
    uint64_t guard_moved; /* guard_moves when we looked last */
    bool guard_woken;
    bool lost;         /* the channel is dead: there is nobody to tell */
    bool dismissed;    /* Bye has come: over, once all is written (control frames overtake output) */
    bool resume_later; /* outlets wait for room in the bulk queue */
    struct reap reap;

    /* the job, from Hello and Spawn */
    char job[65];
    char *host; /* our name there */
    struct session_secrets *secrets;
    uint32_t grace_ms, heartbeat_ms;
    bool impatient; /* the launcher gives no grace */
    char **address;
    size_t address_count;
    char *reached_at; /* the one that the launcher's channel goes to; empty or NULL: not known */
    bool chosen;      /* by --network-interfaces */
    bool encrypt;     /* data links */
    uint32_t slots;
    uint32_t parts; /* what --ppr counts: sockets, NUMA nodes or cores */
    struct session_ports ports;
    Hvd__Spawn *spawn;

    struct containment containment;
    struct oom oom;
    struct job_dir dir;
    struct preload preload; /* --preload */
    uint32_t preload_owed;  /* written, and not granted again yet */
    struct stdio stdio;
    struct workers workers;
    struct cpus *cpus;               /* [n_worker], what they are bound to; NULL: none is */
    struct session_program *program; /* by program; empty where none of its ranks is here */
    const char **wdir;               /* the same */
    struct rlimits limits;           /* of the workers */
    struct engine_host engine;
    struct pmix_host pmix;
    struct session_mps mps;
    struct where where;
    struct inquiries inquiries;
    struct session_answer *answer; /* status.c */
    Hvd__Counters *counters;       /* the engine's last ones; NULL: none */
    uint64_t counters_at;          /* when they came */
    Hvd__Cause cause;              /* the first that went wrong; report.c, as what follows */
    uint32_t started;              /* workers */
    uint32_t heartbeats_missed;    /* of the launcher */
    const char *gpus;              /* that workers are told of; NULL: none */
    bool report_waits;             /* for the engine's counters */
    uv_timer_t report_timer;
    struct session_links links;
    struct rendezvous rendezvous;
    uv_timer_t abort_timer; /* for ranks that have asked for the end of the job */
    bool poisoned;          /* the engine has told the workers HVD_ERR_PEER */
    uint32_t poisoned_by;
    uint32_t said; /* lines of ranks' libraries that were shown as warnings */
    int report_fd; /* reading end: failures between clone and exec; its end means that all have executed */
    uv_poll_t report_poll;
    bool report_watched;
    struct err refusal;
    uint32_t refused_rank;
};

/* Runs until the job has ended here; returns the exit status. The channel is on descriptors 0 and 1. */
int session_main(struct guard *g);

/* channel.c: the launcher's messages in, ours out. */
int session_channel_open(struct session *s, struct err *e);
void session_channel_close(struct session *s);
void session_send(struct session *s, const Hvd__Control *message);
/* What is wrong here, and why the job fails: the launcher ends it. */
void session_fault(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void session_notice(struct session *s, uint32_t level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes what is queued, as far as the channel takes it. */
void session_flush(struct session *s);
void session_heartbeat_start(struct session *s, uint32_t heartbeat_ms);
/* From inside of work that keeps the loop waiting: shows that we live when it is time to. */
void session_heartbeat_busy(struct session *s);
extern const struct stdio_events session_stdio_events;

/* spawn.c: from Hello and Spawn to running workers. */
void session_hello(struct session *s, const Hvd__Hello *hello);
void session_spawn(struct session *s, const Hvd__Spawn *spawn);
/* Makes the job's directory; `need` may be NULL. */
int session_directory(struct session *s, const struct job_dir_need *need, struct err *e);
/* When all is there that they need. */
void session_spawn_workers(struct session *s);
void session_spawned(struct session *s); /* tells all pids */
void session_spawn_close_report(struct session *s);
void session_spawn_close(struct session *s);

/* preload.c: files for the workers. */
void session_preload(struct session *s, const Hvd__Preload *asked);
void session_preload_data(struct session *s, const struct frame *f);

/* programs.c: what the workers execute, where, with which environment. First the directories, then
 * the rest: that asks for what was opened in between. */
int session_programs_open(struct session *s, struct err *e);
int session_programs_find(struct session *s, const struct worker_env_job *job, struct err *e);
/* The environment of this host's workers, of the first of its programs, without any rank's own. */
char **session_programs_base(struct session *s);
void session_programs_close(struct session *s);

/* gpus.c: fills in which GPUs the workers are told of, and tells the user what is wrong with them. */
void session_gpus(struct session *s, struct worker_env_job *job);
/* mps.c: between those and the workers' environments, is MPS to be started? -1 with *e: the job
 * cannot do without. Then it is: 1 when it was and the workers wait for it, else 0. */
int session_mps_choose(struct session *s, struct worker_env_job *job, struct err *e);
int session_mps_start(struct session *s, struct err *e);
/* Does a service of somebody else have clients among the processes that are about to be killed, by SIGTERM or
 * (`all`) by SIGKILL? Then it is told to end their work first, and `then` is called afterwards, at most
 * MPS_CLIENTS_MS later. */
bool session_mps_releases(struct session *s, bool all, void (*then)(struct session *s));
bool session_mps_reaped(struct session *s, const struct reaped *child);
void session_mps_close(struct session *s);

/* servers.c: processes of ours that workers may need. */
struct session_servers {
    pid_t pid[4]; /* 0 at its end */
};
struct session_servers session_servers(const struct session *s);
/* Those first that nobody who is left may need; again when one has ended. */
void session_servers_end(struct session *s);
/* True when `child` was one of them. */
bool session_servers_reaped(struct session *s, const struct reaped *child);
/* The worker socket, and what its engine will be told if it is ever needed. */
int session_engine_listen(struct session *s, struct err *e);

/* binding.c: the workers' processors, before they start and when they run. */
int session_bind(struct session *s, struct err *e);
/* session.parts, when Hello asks. */
int session_count_parts(struct session *s, const Hvd__Hello *hello, struct err *e);
/* NULL: the i-th worker is not bound. */
const struct cpus *session_cpus_of(const struct session *s, size_t i);
/* For --report-bindings; `text` must outlive the message. */
void session_bound(const struct session *s, size_t i, Hvd__Spawned *told, char *text, size_t size);

/* status.c: for hvdctl. */
int session_inquiry_open(struct session *s, struct err *e);
void session_inquiry_free(struct session *s);
/* The engine's counters have come. */
void session_counted(void *session, const Hvd__Counters *counters);

/* report.c: for the managed agent, and the journal. */
void session_journal_open(struct session *s);
void session_rank_ended(struct session *s, const struct worker *w, const Hvd__Exited *told);
void session_report_start(struct session *s);
/* A report that waited for the engine's counters has them. */
void session_report_counted(struct session *s);
void session_report_end(struct session *s);
/* Why the job fails here; the first one counts. */
void session_blame(struct session *s, Hvd__Cause cause);

/* rendezvous.c: the workers' libraries, and links to other sessions; between Spawn and the workers.
 */
int session_rendezvous_open(struct session *s, struct err *e);
void session_rendezvous_close(struct session *s);

/* session.c */
void session_teardown(struct session *s, const Hvd__Teardown *teardown);
/* The job cannot go on; `dead`: the channel cannot be used any more either. */
void session_lose(struct session *s, bool dead, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Something happened that may lead on: before the loop sleeps, workers that have ended are reported, what
 * follows from what is left is posted, and what is queued is written. Once for many events. */
void session_mark(struct session *s);

#endif
