/* The arrivals of a host's workers at operations, for one who compares those of all hosts.
 *
 * A window has more operations than can be told. Each host chooses those with the lowest ids (flight.h), so
 * all hosts choose the same without a word. Ids are spread evenly: what is chosen is a fair sample. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status/flight.h"

/* An operation at which all workers of the host have arrived. */
struct arrival {
    uint64_t id;
    char name[FLIGHT_NAME_MAX + 1];
    uint32_t *pid;             /* [count], owned */
    uint64_t *began;           /* [count], owned */
    uint32_t count, operation; /* how often the tensor was reduced */
};

struct arrivals;

/* `most` operations of a window are chosen. NULL: no memory. */
struct arrivals *arrivals_new(uint32_t most);
void arrivals_free(struct arrivals *a);

/* Reads what the rings have got since the last look. An operation is complete with the arrivals of `expected`
 * workers. true: some operation has begun since. Without memory, operations are missing. */
bool arrivals_look(struct arrivals *a, const struct flight *f, uint32_t expected);
/* The operations chosen of the window up to now, the lowest id first; valid until the next call. */
const struct arrival *arrivals_chosen(const struct arrivals *a, size_t *count);
/* Arrivals at operations that are not complete. For tests. */
size_t arrivals_waiting(const struct arrivals *a);
/* The next window begins. */
void arrivals_clear(struct arrivals *a);
