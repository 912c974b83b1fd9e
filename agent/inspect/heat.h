/* Processors that make themselves slower: because of heat, by the kernel's own account (x86 only), and their
 * present frequency, which says less. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

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
