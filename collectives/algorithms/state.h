/* The common begin and end of all algorithms between hosts: memory, stage, the sum in host order.
 *
 * An algorithm's state begins with a struct state; `state_end` frees all of it. */
#pragma once

#include "collectives/algorithms/endpoint.h"

struct state {
    struct collective c; /* its part arrays are the caller's and valid during start only */
    uint8_t *stage;
    size_t stage_size;
    const void **input; /* [hosts], for state_sum */
};

/* `size` zeroed bytes that begin with a struct state of `c`. NULL with *e. */
void *state_new(const struct collective *c, size_t size, struct err *e);
/* Borrows the stage (none for 0 bytes); it is given back at the end. -1 with *e. */
int state_stage(void *state, size_t size, struct err *e);
/* The reduction of the arrays in `input`, in host order, of `bytes`, the average's division too, becomes the
 * result from byte `at` of data on, where that is not rounded; the bytes are final. */
void state_sum(struct state *s, uint64_t at, uint64_t bytes);
/* The place of the result; and the offset or size in it that one in data becomes. */
uint8_t *state_result(const struct state *s);
uint64_t state_result_bytes(const struct state *s, uint64_t bytes);
void state_end(void *state);
