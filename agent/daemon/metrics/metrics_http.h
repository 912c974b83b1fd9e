/* Module `metrics`: HTTP for the managed agent's metrics (libmicrohttpd), opened when the configuration asks
 * for them. It answers GET /metrics with what its owner writes, anything else with 404 or 405, and ends the
 * connection. At most METRICS_CLIENTS connect at once, each for at most METRICS_IDLE_S without a word. All on
 * the loop's thread. */
#ifndef HVD_AGENT_DAEMON_METRICS_METRICS_HTTP_H
#define HVD_AGENT_DAEMON_METRICS_METRICS_HTTP_H

#include <stdio.h>
#include <uv.h>

#include "common/base/err.h"

#define METRICS_MODULE  "metrics"
#define METRICS_SYMBOL  "hvd_metrics_http"
#define METRICS_CLIENTS 16
#define METRICS_IDLE_S  5

struct metrics_http;

struct metrics_http_ops {
    /* `listener` is the module's from now on, also when it fails. NULL with *e. */
    struct metrics_http *(*start)(uv_loop_t *loop, int listener, void (*write)(void *ctx, FILE *out),
                                  void *ctx, struct err *e);
    /* Closes everything; handles are done with when the loop has run again. */
    void (*stop)(struct metrics_http *h);
};

#endif
