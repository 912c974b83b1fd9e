/* The metrics of a node, once each: number, name, help, unit, source. The managed agent, its file, hvdctl and
 * what both tell Prometheus follow from the lists here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/protocol/control.pb-c.h"

#define SUMS_LAYOUT 1 /* of the file; grows when a number changes its meaning */
#define SUM_KINDS   6 /* of collective operations */

/* clang-format off */

/* Sums of a node. Name, metric, help. */
#define SUMS_OF_NODE(X) \
    X(STARTED, "hvd_node_workers_started_total", "Ranks that were started here.") \
    X(RESTARTS, "hvd_node_restarts_total", "Jobs that were started again and came here.") \
    X(MISSED, "hvd_node_heartbeats_missed_total", "Heartbeats of launchers that did not come in time.")

/* Sums of each kind of operation. Name, field of Collective, unit, the most that a host grows in a second,
 * end of the metric name, help for a node, help for a job. */
#define SUMS_OF_KIND(X) \
    X(OPERATIONS, operations, 1, OPERATIONS_A_SECOND, "operations_total", \
      "Operations of all ranks that ended well.", "Operations that ended well, of all ranks here.") \
    X(BYTES, bytes, 1, BYTES_A_SECOND, "bytes_total", \
      "Bytes that the ranks gave.", "Bytes that the ranks here gave.") \
    X(NS, ns, 1e9, NS_A_SECOND, "seconds_total", \
      "Time from the calls to their results; partly an estimate.", \
      "Time from the calls to their results; partly an estimate.")

/* The state of a node now. Field of NodeNow, unit, metric, help. */
#define NODE_GAUGES(X) \
    X(running, 1, "hvd_node_jobs_running", "Jobs that run here.") \
    X(waiting, 1, "hvd_node_jobs_waiting", "Jobs that wait for slots.") \
    X(ranks, 1, "hvd_node_workers", "Ranks that run here.") \
    X(stalls, 1, "hvd_node_stalled_tensors", "Operations that wait for ranks that have not called them.") \
    X(silence_ms, 1e3, "hvd_node_launcher_silence_seconds", \
      "For how long a job here has not heard its launcher.") \
    X(report_ms, 1e3, "hvd_node_report_age_seconds", "For how long a session here has not told its figures.")

/* clang-format on */

/* A second of a host: 1 TiB over memory or wire, a billion operations, 65536 ranks that wait. */
#define BYTES_A_SECOND      (UINT64_C(1) << 40)
#define OPERATIONS_A_SECOND UINT64_C(1000000000)
#define RANKS_MOST          65536
#define NS_A_SECOND         (RANKS_MOST * UINT64_C(1000000000))

#define SUM_ENUM(name, ...) SUM_##name,
enum sum_of_kind { SUMS_OF_KIND(SUM_ENUM) SUM_OF_KIND };
enum sum {
    SUMS_OF_NODE(SUM_ENUM) SUM_KIND, /* from here on SUM_OF_KIND of each kind */
    SUMS = SUM_KIND + SUM_KINDS * SUM_OF_KIND
};

#define SUM_CAUSES (HVD__CAUSE__CAUSE_SESSION_LOST + 1)

extern const char *const sum_kinds[SUM_KINDS];   /* "allreduce" */
extern const char *const sum_causes[SUM_CAUSES]; /* "exit_status" */

struct node_sum {
    const char *name, *help;
};
extern const struct node_sum node_sums[SUM_KIND];

struct kind_sum {
    const char *node_name, *job_name, *node_help, *job_help;
    size_t field; /* of Collective, a uint64_t */
    double unit;
    uint64_t most; /* that it grows in a second */
};
extern const struct kind_sum kind_sums[SUM_OF_KIND];
uint64_t kind_sum_of(const Hvd__Collective *c, const struct kind_sum *sum);

struct node_gauge {
    const char *name, *help;
    size_t field; /* of NodeNow, a uint32_t */
    double unit;
};
extern const struct node_gauge node_gauges[];
extern const size_t node_gauge_count;

#define SUM_PEERS      64 /* hosts by name, */
#define SUM_PEERS_OF   32 /* of which one user's jobs may bring so many; */
#define SUM_PEER_NAME  64 /* longer names are cut */
#define SUM_PEER_OTHER "(others)"

/* ---- for Prometheus ------------------------------------------------------------------------------------ */

/* The metrics of a managed agent's node for Prometheus: the agent itself and hvdctl write the same. */

struct render_node {
    uint32_t slots, taken;
    bool drained;
};

void render_node(FILE *out, const struct render_node *n);
/* Writes the metrics of the node's jobs. Nothing when `sums` is of another table. */
void render_jobs(FILE *out, const Hvd__NodeSums *sums, const Hvd__NodeNow *now);
/* Nothing when it has none. */
void render_gpus(FILE *out, const Hvd__Gpus *g);
