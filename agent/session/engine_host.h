/* The session's side of the collectives engine: a process and a socket.
 *
 *   listening  the worker socket exists in the job's directory; no worker has connected: no engine, no cost
 *   running    a worker connected: hvd-engine was started with a socket as its descriptor 3. The first frame
 *              there is EngineConfig, and the listener travels beside it; the engine accepts the waiting
 *              worker
 *   ended      the engine was told to end (its socket closed), or it failed: it died, broke the protocol, or
 *              did not send its Ping for too long and was killed. The owner is told of a failure once; the
 *              workers notice it themselves, because their sockets to the engine close
 *
 * Frames are those of common/protocol/frame.h with kind FRAME_CONTROL, session 0, one Engine message each,
 * sequences from 0. Messages before the engine runs (ranks that ended, links) wait in the queue behind the
 * config. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/session/child.h"
#include "common/base/buf.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"
#include "common/protocol/legal.h"

#define ENGINE_SOCKET_NAME "workers"

struct engine_host_events {
    void (*link)(void *ctx, Hvd__Link *link);
    void (*initialized)(void *ctx, Hvd__EngineRank *rank);
    void (*shut_down)(void *ctx, uint32_t rank);
    /* Calls end with HVD_ERR_PEER from now on, because of `rank` (UINT32_MAX: none of this host). `why` is
     * the sentence of a rank that gave up, else "". */
    void (*poisoned)(void *ctx, uint32_t rank, const char *why);
    void (*notice)(void *ctx, uint32_t level, const char *text, bool stall);
    /* It is about to end the job, for a reason that is no rank's end. */
    void (*fault)(void *ctx, Hvd__Fault *fault);
    /* The engine failed, as the sentence says; ranks that still need it get HVD_ERR_ENGINE. */
    void (*failed)(void *ctx, const char *text);
    /* The answer to engine_host_count. */
    void (*counters)(void *ctx, const Hvd__Counters *counters);
    /* Elastic jobs: a worker waits for a membership, or has said how far it is; a host cannot be reached. */
    void (*waits)(void *ctx, Hvd__EngineRank *rank);
    void (*stage)(void *ctx, Hvd__EngineRank *rank);
    void (*unreachable)(void *ctx, Hvd__Unreachable *host);
};

enum engine_host_state { ENGINE_NONE, ENGINE_LISTENING, ENGINE_RUNNING, ENGINE_ENDED };

struct engine_host {
    uv_loop_t *loop;
    const struct engine_host_events *events;
    void *ctx;
    enum engine_host_state state;
    int listener, flight, fd;
    uv_poll_t listener_poll, poll;
    struct child child;
    uint32_t silence_ms;
    struct buf in, out;
    struct legal legal; /* of what it sends */
    uint32_t next_in, next_out;
    char **envp;
    int cgroup_fd;
};

/* The place of the engine; envp (borrowed) and cgroup_fd are those of the workers. */
struct engine_place {
    const char *directory;
    char **envp;
    int cgroup_fd;
    int flight_fd;         /* memory of the flight recorder, which the engine gets; -1: none. Taken over */
    uint32_t heartbeat_ms; /* of the job */
};

/* Binds the worker socket. `config` is packed, not kept. -1 with *e; engine_host_close is still allowed then.
 */
int engine_host_listen(struct engine_host *h, uv_loop_t *loop, const struct engine_host_events *events,
                       void *ctx, const struct engine_place *place, Hvd__EngineConfig *config, struct err *e);
void engine_host_links(struct engine_host *h, Hvd__Links *links);
void engine_host_rank_ended(struct engine_host *h, Hvd__RankEnded *ended);
void engine_host_membership(struct engine_host *h, Hvd__Membership *m);
/* Asks what was counted, and what is `pending`. false: there is no engine to ask. */
bool engine_host_count(struct engine_host *h, bool pending);
/* Messages to it wait for this call, so that many which came together wake it once. */
void engine_host_flush(struct engine_host *h);
/* Handles whatever the engine has sent up to now. */
void engine_host_drain(struct engine_host *h);
/* Tells it to end; after a short time it is killed. */
void engine_host_end(struct engine_host *h);
/* It has failed, or closed its socket without being asked, so that it is about to be reaped. */
bool engine_host_is_failing(const struct engine_host *h);
/* True when `pid` was the engine. */
bool engine_host_reaped(struct engine_host *h, pid_t pid, uint32_t status, uint32_t signal);
void engine_host_close(struct engine_host *h);
