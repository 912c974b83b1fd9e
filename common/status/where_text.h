/* Stacks of the ranks of a job as text: ranks with the same stack share its lines. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"

struct where_rank {
    uint32_t rank;
    const char *host;
    const Hvd__Where *where; /* NULL: its host has not answered */
};

#define WHERE_SWAPPED_KIB 65536u /* of a process: worth a word */

/* Since data came or was sent on a connection of the process; it has some. */
uint32_t where_quiet_ms(const Hvd__WhereProcess *p);
/* No text in it steers a terminal any more; a stack keeps its lines. */
void where_printable(Hvd__Where *where);
/* "0-6,9" of ascending numbers; what does not fit is counted: "0,2,4 and 97 others". */
void where_ranges(const uint32_t *ranks, size_t count, char *out, size_t size);
/* At most `max_lines` lines, and one more when ranks are left out. `ranks` is reordered. */
void where_text(struct where_rank *ranks, size_t count, size_t max_lines,
                void (*line)(void *ctx, const char *text), void *ctx);
