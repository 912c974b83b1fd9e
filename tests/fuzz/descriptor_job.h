/* The job of fuzz_descriptor: engines of one host or several, linked by the simulation's network, and the
 * mappings of their ranks. Guard pages surround each mapping of an engine. In an engine's mapping of the
 * region the gaps between fields are fenced too, so an array that runs into the next one is seen. Ranks have
 * mappings of their own, without fences. */
#pragma once

#include "collectives/engine/engine.h"

#define JOB_HOSTS   3
#define JOB_RANKS   3 /* of a host */
#define JOB_TENSORS 16

/* A rank's segment. */
#define SEGMENT_BYTES  (1u << 20)
#define OUT_AT         (256u << 10)
#define TABLE_AT       (SEGMENT_BYTES - 8192)
#define RECV_COUNTS_AT (SEGMENT_BYTES - 4096)

struct owner { /* a rank */
    struct segment memory;
    uint32_t segment;
    struct tensor_view view[JOB_TENSORS]; /* of a tensor in which it has arrived */
    bool has_view[JOB_TENSORS];
};

struct place { /* a host */
    struct engine *engine;
    struct region region; /* as the ranks map it */
    int session;
    uint32_t slot[JOB_TENSORS]; /* UINT32_MAX: no rank of this host takes part */
    struct owner owner[JOB_RANKS];
};

extern struct place place[JOB_HOSTS];
extern uint32_t hosts;

/* Makes the job; which, says `shape`. */
void job_begin(uint8_t shape);
/* One turn of each engine's loop. */
void job_turn(void);
void job_end(void);
