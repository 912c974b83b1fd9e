/* CPU time and memory that a worker uses now, with all processes below it. */
#ifndef HVD_AGENT_INSPECT_USAGE_H
#define HVD_AGENT_INSPECT_USAGE_H

#include <stdint.h>
#include <sys/types.h>

struct usage {
    char state; /* of the process itself, as in /proc/PID/stat; 0: it has gone */
    uint64_t cpu_ms;
    uint64_t memory_kib; /* resident; what processes share counts once for each */
};

struct usage usage_of(pid_t pid);

#endif
