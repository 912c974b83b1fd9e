/* A session: one process per job and host. It ends the control channel, supervises the workers and leaves
 * nothing behind.
 *
 *   HELLO -> READY (-> WAITING) -> SPAWNING -> RUNNING -> DONE -> ENDING -> KILLING -> LEAVING -> OVER
 *
 *   HELLO     waits for the launcher's Hello
 *   READY     waits for its Spawn
 *   WAITING   a part (MPS) has to serve before the first worker starts
 *   SPAWNING  until every worker has executed its program
 *   REFUSING  a worker could not be started: the others are killed first
 *   RUNNING   until all workers have ended and their output was handed over
 *   DONE      waits for the launcher's Teardown, which may come in any state
 *   ENDING    the workers have their grace period after SIGTERM
 *   KILLING   SIGKILL ends what is left
 *   LEAVING   Ended was sent; waits for Bye
 *
 * A broken channel, a silent launcher, the guard's death and a signal to the session are the event LOST: the
 * job ends here at once, with its grace period. When the session itself dies, the guard does what is left
 * (guard.h).
 *
 * The files lie in three layers; calls go down only:
 *
 *   session.c, channel.c           the table of states, the table of messages
 *   hello.c, spawn.c, the parts    a feature each; a part owns its state and registers in parts.h
 *   core.c, parts.c                send, fail, check later; the walks over the table of parts
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/guard/guard.h"
#include "agent/guard/heartbeat.h"
#include "agent/guard/job_dir.h"
#include "agent/session/ports.h"
#include "agent/worker/containment.h"
#include "agent/worker/oom.h"
#include "agent/worker/reap.h"
#include "agent/worker/stdio.h"
#include "agent/worker/worker.h"
#include "common/base/fsm.h"
#include "common/net/auth.h"
#include "common/net/stream.h"
#include "common/protocol/channel.h"
#include "common/protocol/legal.h"

#define SESSION_STATES(X)                                                                                    \
    X(HELLO, "hello")                                                                                        \
    X(READY, "ready")                                                                                        \
    X(WAITING, "waiting")                                                                                    \
    X(SPAWNING, "spawning")                                                                                  \
    X(REFUSING, "refusing")                                                                                  \
    X(RUNNING, "running")                                                                                    \
    X(DONE, "done")                                                                                          \
    X(ENDING, "ending")                                                                                      \
    X(KILLING, "killing")                                                                                    \
    X(LEAVING, "leaving")                                                                                    \
    X(OVER, "over")

/*    EVENT         when
 *    HELLO         a Hello of this version has come
 *    OTHER_VERSION a Hello of another version was answered: the session ends
 *    WAIT          the workers wait for a part
 *    SPAWN         all that the workers need is there: they are to start
 *    REFUSED       a worker could not be started
 *    EXECUTED      all workers execute their programs
 *    FINISHED      all workers have ended and were reported
 *    TEARDOWN      the launcher ends the job
 *    LOST          the job cannot go on
 *    RELEASED      a part does not delay the end of the processes any more
 *    TIME_OVER     the current state has lasted as long as it may
 *    EMPTY         no process of the job is left, and all that was to be said is queued
 *    BYE           the launcher has dismissed the session */
#define SESSION_EVENTS(X)                                                                                    \
    X(HELLO, "hello")                                                                                        \
    X(OTHER_VERSION, "other version")                                                                        \
    X(WAIT, "wait")                                                                                          \
    X(SPAWN, "spawn")                                                                                        \
    X(REFUSED, "refused")                                                                                    \
    X(EXECUTED, "executed")                                                                                  \
    X(FINISHED, "finished")                                                                                  \
    X(TEARDOWN, "teardown")                                                                                  \
    X(LOST, "lost")                                                                                          \
    X(RELEASED, "released")                                                                                  \
    X(TIME_OVER, "time over")                                                                                \
    X(EMPTY, "empty")                                                                                        \
    X(BYE, "bye")

#define SESSION_STATE_NUMBER(name, text) SESSION_##name,
#define SESSION_EVENT_NUMBER(name, text) EV_##name,
enum session_state { SESSION_STATES(SESSION_STATE_NUMBER) };
enum session_event { SESSION_EVENTS(SESSION_EVENT_NUMBER) };

#define SESSION_TOKEN_SIZE  16
#define SESSION_WORKERS_MAX 65536
/* Of an elastic job, one after the other: a session counts those that have ended, too. */
#define SESSION_ELASTIC_WORKERS_MAX 4096

struct session_secrets {
    uint8_t key[AUTH_KEY_SIZE];
    uint8_t token[SESSION_TOKEN_SIZE];
    char token_text[2 * SESSION_TOKEN_SIZE + 1];
};

/* The other end of the control channel. */
struct session_launcher {
    struct stream stream;
    struct channel channel;
    struct legal legal; /* of the launcher's messages */
    struct heartbeat heartbeat;
    uint32_t heartbeats_missed;
    bool lost;         /* the channel is dead: no message reaches the launcher */
    bool dismissed;    /* Bye has come: the session is over once all is written */
    bool output_waits; /* outlets wait for room in the bulk queue */
};

/* The job as Hello describes it, and this host's facts for it. */
struct session_job {
    char name[65];
    char *host; /* the name of this host in the job */
    struct session_secrets *secrets;
    uint32_t grace_ms, heartbeat_ms;
    bool no_grace; /* Teardown allows the workers no grace period */
    char **address;
    size_t addresses;
    char *reached_at;       /* the address that the launcher's channel goes to; empty or NULL: not known */
    bool interfaces_chosen; /* by --network-interfaces */
    bool encrypt;           /* data links */
    uint32_t slots;
    uint32_t units; /* counted by --ppr: sockets, NUMA nodes or cores */
    struct session_ports ports;
    const char *gpus;   /* the list that workers are told of; NULL: none */
    uint32_t gpu_count; /* 0: nobody has counted them */
};

/* Something happened: the session checks and writes before the loop sleeps. */
struct session_turn {
    uv_prepare_t before_sleep;
    bool check_due;
};

struct session_end {
    Hvd__Cause cause; /* of the job's end: the first one */
    int exit_status;
};

/* Why the job cannot start here. */
struct session_refusal {
    struct err why;
    uint32_t rank;
};

struct session {
    uv_loop_t loop;
    struct guard *guard;
    struct fsm fsm;
    struct session_end end;
    uv_timer_t state_timer; /* posts EV_TIME_OVER */
    struct session_turn turn;
    struct reap reap;

    struct session_launcher launcher;
    struct session_job job;
    Hvd__Spawn *spawn; /* a copy of the launcher's Spawn; NULL: none has come */
    struct session_refusal refusal;

    struct containment containment;
    struct oom oom;
    struct job_dir dir;
    struct stdio stdio;
    struct workers workers;

    /* The features of a session. Each state belongs to the file of its part. */
    const struct session_part *const *parts; /* NULL at the end */
    struct session_liveness *liveness;
    struct session_spawning *spawning;
    struct session_programs *programs;
    struct session_preload *preload;
    struct session_status *status;
    struct session_binding *binding;
    struct session_rendezvous *rendezvous;
    struct session_engine *engine;
    struct session_mps *mps;
    struct session_stacks *stacks;
    struct session_report *report;
    struct session_elastic *elastic;
    struct session_timeline *timeline;
};

/* The messages that a launcher may send, by the state of the session (channel.c). */
extern const struct legal_table session_legal;

/* Runs until the job has ended here; returns the exit status. The channel is on descriptors 0 and 1. */
int session_main(struct guard *g);
