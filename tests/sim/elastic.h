/* Runs of elastic jobs, and what their workers do with process sets. */
#pragma once

#include <stdint.h>

void elastic_failure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* elastic_sets.c: before a run; a worker's part after it has entered a membership, and in a step. A status.
 */
void elastic_sets_reset(void);
int elastic_sets_enter(void);
int elastic_sets_step(uint64_t seed, int32_t step);
