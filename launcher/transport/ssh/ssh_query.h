/* Runs `ssh -G host` beside everything else and collects what it prints. */
#pragma once

#include <stdbool.h>

#include "common/base/buf.h"
#include "launcher/transport/transport.h"

struct ssh_query {
    struct transport *process;
    uv_timer_t deadline;
    int open_handles;
    struct buf output;
    char complaint[256]; /* the beginning of its stderr, on one line */
    bool finished;       /* output is whole, or err is filled */
    struct err err;
    void (*done)(void *ctx);   /* not after ssh_query_close */
    void (*closed)(void *ctx); /* only after ssh_query_close */
    void *ctx;
    bool closing;
};

/* Fills the callbacks and ctx beforehand. -1 with q->err: ssh could not be started; nothing is open then.
 * `config`: a file to read instead of ssh's own, or NULL. */
int ssh_query_start(struct ssh_query *q, uv_loop_t *loop, const struct transport_target *target,
                    const char *config);
void ssh_query_close(struct ssh_query *q);
