/* --host-discovery-script: a program that prints the hosts. One run at a time, on the loop.
 *
 * A run ends when the script has closed its output and ended. A script that runs for DISCOVERY_MS is killed.
 * Failures are: a killed script, an exit status other than 0, and output that is no list of hosts. */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "launcher/plan/hosts.h"

#define DISCOVERY_PERIOD_MS 1000
#define DISCOVERY_MS        30000 /* that a run may take */

struct discovery {
    uv_loop_t *loop;
    const char *script;
    uint32_t slots; /* of hosts without a number; 0: what they report */
    /* The hosts, which the callee takes over and which may be none; or NULL with *e. */
    void (*found)(void *ctx, struct host_list *hosts, const struct err *e);
    void *ctx;
    uv_timer_t limit;
    uv_poll_t output, end;
    struct buf bytes;
    int fd, pidfd; /* -1: none */
    int pid;       /* 0: none runs */
    int status;    /* of waitpid */
    bool read, ended, late;
    uint32_t closing; /* handles */
};

void discovery_init(struct discovery *d, uv_loop_t *loop, const char *script, uint32_t slots,
                    void (*found)(void *ctx, struct host_list *hosts, const struct err *e), void *ctx);
/* Starts a run, unless one is under way. `found` is called later. */
void discovery_start(struct discovery *d);
/* Ends a run that is under way, without a word. The loop runs once more before the struct goes. */
void discovery_stop(struct discovery *d);
/* At the start of a job: runs the script until its hosts have `slots_wanted` slots, at most limit_ms. -1 with
 * *e: the script failed, or there are too few slots. */
int discovery_first(const char *script, uint32_t slots, uint32_t slots_wanted, uint64_t limit_ms,
                    struct host_list *hosts, struct err *e);
