/* CPU time and memory that a worker uses now, with all processes below it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct usage {
    char state; /* of the process itself, as in /proc/PID/stat; 0: it has gone */
    uint64_t cpu_ms;
    uint64_t memory_kib;   /* resident; what processes share counts once for each */
    uint64_t delay_ms;     /* of the process itself, ready and without a processor */
    uint64_t read_kib;     /* likewise, from storage */
    uint64_t throttled_ms; /* a limit of its cgroups has held it back (throttle.c) */
    int nice;              /* of the process itself */
    unsigned policy;       /* likewise, as in sched(7) */
    unsigned cpu;          /* likewise, the processor on which it has run last */
    unsigned weight;       /* cgroup_weight; 0 as long as the process has hardly waited for a processor */
};

struct usage usage_of(pid_t pid);

/* throttle.c: milliseconds since the cgroup was made, of the cgroup of the process or one above it that was
 * held back most; with several processors each counts. 0: none has a limit, or nothing can be read. */
uint64_t throttled_ms(pid_t pid);
/* The sum in the text of a cpu.stat, of either version of cgroups. */
uint64_t throttle_parse(const char *text);

/* throttle.c: the least weight of the processors that a cgroup of the process or one above it has, in percent
 * of the usual one, at least 1. 0: none has less than that, or nothing can be read. */
unsigned cgroup_weight(pid_t pid);
/* Likewise, of one cgroup, from the text of its cpu.weight (usual: 100) or cpu.shares (1024); 100: it has no
 * less. */
unsigned weight_parse(const char *text, unsigned usual);

/* ---- processors that make themselves slower (heat.c) --------------------------------------------------- */

/* Because of heat, by the kernel's own account (x86 only); and their present frequency, which says less. */

#define HEAT_CPUS "/sys/devices/system/cpu" /* tests have another */

struct heat {
    uint64_t events; /* of all processors and packages */
    uint64_t ms;     /* of the one that was slow for longest; 0: an older kernel does not say */
};

/* Since the machine was started; all 0 where the kernel does not count. */
struct heat heat_look(const char *cpus);
/* Since the first call of this process. */
struct heat heat_of_job(void);
/* In percent of the processor's highest frequency; 0: not known. */
unsigned heat_frequency(const char *cpus, unsigned cpu);
