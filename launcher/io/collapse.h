/* --collapse: lines that several ranks print at about the same time become one line with all their ranks.
 * Pure: time is an argument.
 *
 * Groups of equal lines wait in a queue, and leave it only at its front, so the lines of a stream keep their
 * order: a line joins a group only behind the one that the line before it is in, and one that joins none
 * begins its own there, after those that others have begun behind the same. The first group leaves when every
 * rank is in it, when any has waited COLLAPSE_PATIENCE, or when the queue is full; what it holds is bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/protocol/frame.h"

#define COLLAPSE_PATIENCE   (150 * NSEC_PER_MSEC)
#define COLLAPSE_GROUPS_MAX 256
#define COLLAPSE_BYTES_MAX  (256u << 10) /* of text and of ranks */

struct collapse_group {
    struct collapse_group *next;
    uint64_t place;  /* its name, from 1 */
    uint64_t behind; /* the place of the line before its first one */
    uint64_t since;
    uint64_t hash;
    enum frame_stream stream;
    uint32_t *rank;
    uint32_t count, room;
    size_t len;
    uint8_t bytes[]; /* the line with its end */
};

struct collapse {
    struct collapse_group *first;
    uint64_t places;
    size_t groups, bytes;
};

void collapse_init(struct collapse *c);
/* The length of the first line with its end; 0: none ends here. */
size_t collapse_line(const uint8_t *bytes, size_t len);
/* One line of a rank. *place is of its stream's line before it, 0 at first, and becomes this one's. -1:
 * no memory, nothing was taken. */
int collapse_put(struct collapse *c, enum frame_stream stream, uint32_t rank, uint64_t *place,
                 const uint8_t *bytes, size_t len, uint64_t now);
bool collapse_is_full(const struct collapse *c);
/* Is that group still here? */
bool collapse_has(const struct collapse *c, uint64_t place);
/* When the first group is to leave, even if nothing comes. UINT64_MAX without one. */
uint64_t collapse_due(const struct collapse *c);
/* Shall the first group leave? `everyone`: how many ranks there are. False without one. */
bool collapse_is_ready(const struct collapse *c, uint32_t everyone, uint64_t now);
/* The ranks of a group, ascending. */
void collapse_sort(struct collapse_group *g);
/* The first group has left. */
void collapse_drop(struct collapse *c);
void collapse_free(struct collapse *c);
