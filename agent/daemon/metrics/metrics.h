/* Metrics of a managed agent for Prometheus, on the unix socket METRICS_SOCKET in its directory, for as long
 * as its configuration says so (`metrics`). Any user may ask the agent for the same: users and how much they
 * have, no names of jobs. It listens on no port: its unit has no network. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <uv.h>

#include "common/base/err.h"

#define METRICS_SOCKET "metrics.sock"

struct daemon;

struct metrics {
    struct metrics_http *http;              /* NULL: closed */
    uint64_t given, refused, ended, reload; /* leases and requests since the start */
};

/* Opens or closes, as the configuration says now. Failures are logged. */
void metrics_follow(struct daemon *d);
void metrics_close(struct daemon *d);

/* ---- the module ---------------------------------------------------------------------------------------- */

/* Module `metrics`: HTTP for the managed agent's metrics (libmicrohttpd), opened when the configuration asks
 * for them. It answers GET /metrics with what its owner writes, anything else with 404 or 405, and ends the
 * connection. At most METRICS_CLIENTS connect at once, each for at most METRICS_IDLE_S without a word. All on
 * the loop's thread. */

#define METRICS_MODULE  "metrics"
#define METRICS_SYMBOL  "hvd_metrics_http"
#define METRICS_CLIENTS 16
#define METRICS_IDLE_S  5

struct metrics_http;

struct metrics_http_ops {
    /* `listener` is the module's from now on, also when it fails. NULL with *e. */
    struct metrics_http *(*start)(uv_loop_t *loop, int listener, void (*write)(void *ctx, FILE *out),
                                  void *ctx, struct err *e);
    /* Closes everything; the handles are closed when the loop has run again. */
    void (*stop)(struct metrics_http *h);
};
