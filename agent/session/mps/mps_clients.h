/* Processes of the job that are clients of an MPS service of somebody else, before they are killed: CUDA
 * leaves it undefined what becomes of the service and its other clients when a client ends while kernels of
 * it are under way. So the service is told first to end that work (terminate_client).
 *
 *   idle -> servers -> clients -> ending -> idle
 *
 * SERVERS asks for the servers, CLIENTS each of these for its clients, ENDING tells it which of them to end.
 * There is a limit for all of it: what is not done then stays undone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "agent/session/mps/mps_tell.h"
#include "common/base/fsm.h"

#define MPS_CLIENTS_MS                                                                                       \
    1000 /* in all; twice in the end of a job, which its launcher awaits for so much longer */
#define MPS_SERVERS_MAX 16
#define MPS_CLIENTS_MAX 256

struct mps_clients_events {
    /* Is it a process of the job that is about to be killed? */
    bool (*wanted)(void *ctx, pid_t pid);
    /* All is done that can be done; `late`: the service did not answer in time. Once. */
    void (*over)(void *ctx, bool late);
};

struct mps_clients {
    const struct mps_clients_events *events;
    void *ctx;
    struct fsm fsm;
    struct mps_place place;
    uv_timer_t limit;
    bool opened;
    pid_t teller; /* 0: none that lives */
    int answer;   /* the program's output; -1: none */
    pid_t server[MPS_SERVERS_MAX];
    size_t servers, asked;
    char commands[MPS_CLIENTS_MAX * 48];
    size_t ended; /* clients that are named in there */
};

/* `over` is called later, unless it returns -1: nobody can be asked. One that goes on already begins anew. */
int mps_clients_end(struct mps_clients *m, uv_loop_t *loop, const struct mps_clients_events *events,
                    void *ctx, const struct mps_place *place);
/* Ends the questions; `over` does not come. */
void mps_clients_cancel(struct mps_clients *m);
/* True when `pid` was of it. */
bool mps_clients_reaped(struct mps_clients *m, pid_t pid, bool well);
void mps_clients_close(struct mps_clients *m);
