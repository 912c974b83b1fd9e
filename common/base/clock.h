/* Time: monotonic, in nanoseconds. Pure parts take it as an argument. */
#pragma once

#include <stdint.h>

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC  1000000000ULL

uint64_t clock_now(void); /* CLOCK_MONOTONIC; does not run while the machine is suspended */
