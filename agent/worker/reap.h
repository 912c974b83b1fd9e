/* Ended children: one signalfd, one waitid(P_ALL) loop, for workers, the engine and adopted orphans alike. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/base/err.h"

struct reaped {
    pid_t pid;
    uint32_t status, signal; /* one of them is 0 */
    bool core_dumped;
    uint64_t peak_kib, user_us, system_us; /* its own and of the children it waited for */
};

struct reap_events {
    void (*ended)(void *ctx, const struct reaped *child);
    /* After a batch of ended children. */
    void (*batch)(void *ctx);
    /* Somebody asked this process to end: SIGTERM, SIGINT, SIGHUP, SIGQUIT. */
    void (*asked_to_end)(void *ctx, int number);
};

struct reap {
    uv_poll_t poll;
    int fd;
    const struct reap_events *events;
    void *ctx;
};

/* Blocks the signals it takes; children unblock them (spawn.h does). */
int reap_open(struct reap *r, uv_loop_t *loop, const struct reap_events *events, void *ctx, struct err *e);
/* Reaps all that have ended already; `ended` comes from within, `batch` does not. */
void reap_now(struct reap *r);
void reap_close(struct reap *r);
