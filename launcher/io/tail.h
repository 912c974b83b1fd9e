/* The last lines that a rank wrote to stderr, for the report when it failed. A ring of TAIL_MAX bytes, which
 * takes memory only once something was written. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TAIL_MAX   1024 /* bytes */
#define TAIL_LINES 5

struct tail {
    uint8_t *ring; /* NULL until the first byte; zeros are an empty tail */
    size_t at;     /* the place of the next byte */
    size_t len;
};

/* Without memory for the ring nothing is kept. */
void tail_put(struct tail *t, const void *bytes, size_t len);
/* At most TAIL_LINES lines, safe for a terminal, separated by '\n', without one at the end; empty lines are
 * left out, and so is the rest of a line whose beginning was overwritten, unless it is all there is. Returns
 * the length. */
size_t tail_lines(const struct tail *t, char out[TAIL_MAX + 1]);
void tail_free(struct tail *t);
