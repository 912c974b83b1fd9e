/* Metrics of a managed agent for Prometheus, on the unix socket METRICS_SOCKET in its directory, for as long
 * as its configuration says so (`metrics`). Any user may ask the agent for the same: users and how much they
 * have, no names of jobs. It listens on no port: its unit has no network. */
#ifndef HVD_AGENT_DAEMON_METRICS_METRICS_H
#define HVD_AGENT_DAEMON_METRICS_METRICS_H

#include <stdint.h>

#include "agent/daemon/metrics/metrics_http.h"

#define METRICS_SOCKET "metrics.sock"

struct daemon;

struct metrics {
    struct metrics_http *http;              /* NULL: closed */
    uint64_t given, refused, ended, reload; /* leases and requests since the start */
};

/* Opens or closes, as the configuration says now. Failures are logged. */
void metrics_follow(struct daemon *d);
void metrics_close(struct daemon *d);

#endif
