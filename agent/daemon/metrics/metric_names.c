#include "agent/daemon/metrics/metric_names.h"

const char *const sum_kinds[SUM_KINDS] = {"allreduce", "reducescatter", "allgather",
                                          "alltoall",  "broadcast",     "barrier"};

const char *const sum_causes[SUM_CAUSES] = {
    "none",      "exit_status", "signal",  "out_of_memory", "no_shutdown", "not_started", "launcher_lost",
    "heartbeat", "host_lost",   "timeout", "cancelled",     "other_rank",  "fault",       "session_lost"};
