/* CPU time and memory that a worker uses now, with all processes below it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct usage {
    char state; /* of the process itself, as in /proc/PID/stat; 0: it has gone */
    uint64_t cpu_ms;
    uint64_t memory_kib; /* resident; what processes share counts once for each */
    uint64_t delay_ms;   /* of the process itself, ready and without a processor */
    uint64_t read_kib;   /* likewise, from storage */
};

struct usage usage_of(pid_t pid);
