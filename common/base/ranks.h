/* Lists of ranks, ascending: what a host of a job has. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* The index of `rank` in the list; UINT32_MAX: it is not there. */
uint32_t ranks_find(const uint32_t *list, uint32_t count, uint32_t rank);
/* "3", "0 to 3", "0, 2, 4 to 6": cut with "..." where the text ends. Returns text. */
const char *ranks_text(const uint32_t *list, uint32_t count, char *text, size_t size);

/* "3", "0-3", "0,2,4-6" */
const char *ranks_text_short(const uint32_t *list, uint32_t count, char *text, size_t size);

/* Is the text a list such as "0,2-5"? *highest: the largest rank in it. ERR_USAGE, without naming whose list
 * it is. */
int ranks_check(const char *list, uint32_t *highest, struct err *e);
/* Is the rank in a list that was checked? */
bool ranks_listed(const char *list, uint32_t rank);
