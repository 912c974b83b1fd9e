/* The engine's part in the flight recorder of its host (common/status/flight.h): it names slots, and gives
 * rings to workers. The memory is the session's. */
#pragma once

#include "collectives/engine/core.h"
#include "common/status/flight.h"

struct run;
struct worker_message;

struct flight_desk {
    int fd; /* of the memory; -1: nothing is recorded */
    struct flight map;
    struct flight_ring *ring; /* the engine's own; NULL: there is none */
    uint32_t given;           /* rings of workers, so far */
};

extern const struct engine_part flight_part;

/* Answers a worker that wants its rings: `id` is their number. Returns the descriptor that goes with it; -1:
 * there is none. When more workers have come than there are rings, the oldest get another owner. */
int flight_give(struct engine *engine, struct worker_message *answer);

/* A run has begun, and has ended, in the engine's own ring. */
void flight_run_begins(struct run *run);
void flight_run_ends(const struct run *run, int status);
