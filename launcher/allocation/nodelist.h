/* Slurm's short forms of lists, written out. Pure.
 *
 *   nodes   a,node[1-3,7],rack[0-1]n[08-10]-ib    several groups, several brackets, zeros kept
 *   counts  4(x2),3                               4, 4, 3 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define NODELIST_BRACKETS_MAX 8 /* in one group */
#define NODELIST_DIGITS_MAX   9 /* of a number in brackets */
#define NODELIST_BYTES_MAX    (16 * 1024 * 1024)

/* Appends every name, each ended by NUL, to `names`, and adds their number to *count; at most HOSTS_MAX.
 * `from` is the variable, for messages: ERR_USAGE with the place. The characters of a name are checked
 * elsewhere. */
int nodelist_expand(const char *text, const char *from, struct buf *names, size_t *count, struct err *e);
/* Fills counts[0 .. count-1]; more or fewer in the text are an error. */
int nodelist_counts(const char *text, const char *from, uint32_t *counts, size_t count, struct err *e);
