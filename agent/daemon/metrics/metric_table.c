#include "agent/daemon/metrics/metric_table.h"

const char *const sum_kinds[SUM_KINDS] = {"allreduce", "reducescatter", "allgather",
                                          "alltoall",  "broadcast",     "barrier"};

const char *const sum_causes[SUM_CAUSES] = {
    "none",      "exit_status", "signal",  "out_of_memory", "no_shutdown", "not_started", "launcher_lost",
    "heartbeat", "host_lost",   "timeout", "cancelled",     "other_rank",  "fault",       "session_lost"};

#define NODE_SUM(name, metric, help) {metric, help},
const struct node_sum node_sums[SUM_KIND] = {SUMS_OF_NODE(NODE_SUM)};

#define KIND_SUM(name, field, unit, most, end, node_help, job_help)                                          \
    {"hvd_node_collective_" end,                                                                             \
     "hvd_collective_" end,                                                                                  \
     node_help,                                                                                              \
     job_help,                                                                                               \
     offsetof(Hvd__Collective, field),                                                                       \
     unit,                                                                                                   \
     most},
const struct kind_sum kind_sums[SUM_OF_KIND] = {SUMS_OF_KIND(KIND_SUM)};

uint64_t kind_sum_of(const Hvd__Collective *c, const struct kind_sum *sum)
{
    return *(const uint64_t *)(const void *)((const char *)c + sum->field);
}

#define NODE_GAUGE(field, unit, metric, help) {metric, help, offsetof(Hvd__NodeNow, field), unit},
const struct node_gauge node_gauges[] = {NODE_GAUGES(NODE_GAUGE)};
const size_t node_gauge_count = sizeof node_gauges / sizeof *node_gauges;
