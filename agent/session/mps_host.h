/* The session's side of CUDA's multi-process service (MPS): NVIDIA's nvidia-cuda-mps-control in the
 * foreground, a child of the session and in the job's cgroup, whose files are in the job's directory. When a
 * process opens CUDA and finds its socket, it starts the server through which that process, and all others of
 * the job, use the GPUs.
 *
 *   none -> starting -> serving -> quitting -> killing -> over
 *
 * STARTING lasts until it answers: its socket is waited for (inotify), and then the same program, started
 * again without -f, is told a question, as its manual has it; that ends with 0 when there was an answer.
 * SERVING until it ends, which costs every process its GPU and is a failure unless it was asked for. QUITTING
 * it was told to quit in the same way; it waits for those that still use it, and is KILLING when that takes
 * too long. Whatever its servers leave is for the owner's walk over his descendants, and for the guard's. */
#ifndef HVD_AGENT_SESSION_MPS_HOST_H
#define HVD_AGENT_SESSION_MPS_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/session/mps_tell.h"
#include "agent/gpu/gpu.h"
#include "common/base/err.h"
#include "common/base/fsm.h"

#define MPS_SOCKET         "control" /* in its pipe directory */
#define MPS_DIRECTORY      "mps"     /* in the job's */
#define MPS_LOG            "mps-log"
#define MPS_PIPE_DIRECTORY "/tmp/nvidia-mps" /* where CUDA looks without the variable */

#define MPS_END_MS 4000 /* enough to end it in order, after the engine */

enum mps_state { MPS_NONE, MPS_STARTING, MPS_SERVING, MPS_QUITTING, MPS_KILLING, MPS_OVER };

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

#endif
