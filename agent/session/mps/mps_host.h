/* The session's side of CUDA's multi-process service (MPS): NVIDIA's nvidia-cuda-mps-control in the
 * foreground, a child of the session and in the job's cgroup, with files in the job's directory. A process
 * that opens CUDA finds the daemon's socket there, and the daemon starts the server through which all
 * processes of the job use the GPUs.
 *
 *   none -> starting -> serving -> quitting -> killing -> over
 *
 *   STARTING  until the daemon answers: its socket is awaited (inotify), then the same program, started again
 *             without -f, passes a question on, as its manual says; it ends with 0 when there was an answer
 *   SERVING   until the daemon ends. Its end costs every process its GPU, and is a failure unless it was
 *             asked for
 *   QUITTING  the daemon was told to quit in the same way, and waits for its clients
 *   KILLING   quitting took too long
 *
 * Processes that the daemon's servers leave are ended by the session's walk over its descendants, and by the
 * guard's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/session/mps/mps_tell.h"
#include "agent/gpu/gpu.h"
#include "common/base/err.h"
#include "common/base/fsm.h"

#define MPS_SOCKET         "control" /* in its pipe directory */
#define MPS_DIRECTORY      "mps"     /* in the job's */
#define MPS_LOG            "mps-log"
#define MPS_PIPE_DIRECTORY "/tmp/nvidia-mps" /* CUDA's default */

#define MPS_END_MS 4000 /* enough to end it in order, after the engine */

#define MPS_STATES(X)                                                                                        \
    X(NONE, "none")                                                                                          \
    X(STARTING, "starting")                                                                                  \
    X(SERVING, "serving")                                                                                    \
    X(QUITTING, "quitting")                                                                                  \
    X(KILLING, "killing")                                                                                    \
    X(OVER, "over")

#define MPS_STATE_NUMBER(name, text) MPS_##name,
enum mps_state { MPS_STATES(MPS_STATE_NUMBER) };

struct mps_events {
    void (*serves)(void *ctx);
    /* It did not start, or has ended unasked, as the sentence says. Once. */
    void (*failed)(void *ctx, bool served, const char *text);
    void (*over)(void *ctx);
};

struct mps_host {
    uv_loop_t *loop;
    const struct mps_events *events;
    void *ctx;
    struct fsm fsm;
    struct mps_place place; /* its variables name its two directories; borrowed until it is over */
    int inotify;
    uv_poll_t poll;
    uv_timer_t limit, again;
    bool opened;
    pid_t pid, teller; /* 0: none that lives */
    char how[256];     /* it ended */
};

/* Makes its directories and starts it. -1 with *e and nothing left. */
int mps_host_start(struct mps_host *h, uv_loop_t *loop, const struct mps_events *events, void *ctx,
                   const struct mps_place *place, struct err *e);
/* Tells it to quit, and kills it when it does not. */
void mps_host_end(struct mps_host *h);
/* Kills it: so is whoever uses it. */
void mps_host_kill(struct mps_host *h);
/* The process that lives; 0: none does. */
pid_t mps_host_pid(const struct mps_host *h);
/* True when `pid` was of it. */
bool mps_host_reaped(struct mps_host *h, pid_t pid, uint32_t status, uint32_t signal);
void mps_host_close(struct mps_host *h);

/* Is there a control daemon behind the socket of `directory`, both of this user or of root? */
bool mps_is_served(const char *directory);
