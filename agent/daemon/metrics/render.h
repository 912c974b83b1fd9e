/* The metrics of a managed agent's node for Prometheus: the agent itself and hvdctl write the same. */
#ifndef HVD_AGENT_DAEMON_METRICS_RENDER_H
#define HVD_AGENT_DAEMON_METRICS_RENDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/protocol/control.pb-c.h"

struct render_node {
    uint32_t slots, taken;
    bool drained;
};

void render_node(FILE *out, const struct render_node *n);
/* Writes the metrics of the node's jobs. Nothing when `sums` is not of metric_table.h. */
void render_jobs(FILE *out, const Hvd__NodeSums *sums, const Hvd__NodeNow *now);
/* Nothing when it has none. */
void render_gpus(FILE *out, const Hvd__Gpus *g);

#endif
