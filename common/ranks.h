/* Lists of ranks, ascending: what a host of a job has. */
#ifndef HVD_COMMON_RANKS_H
#define HVD_COMMON_RANKS_H

#include <stddef.h>
#include <stdint.h>

/* The index of `rank` in the list; UINT32_MAX: it is not there. */
uint32_t ranks_find(const uint32_t *list, uint32_t count, uint32_t rank);
/* "3", "0 to 3", "0, 2, 4 to 6": cut with "..." where the text ends. Returns text. */
const char *ranks_text(const uint32_t *list, uint32_t count, char *text, size_t size);

/* "3", "0-3", "0,2,4-6" */
const char *ranks_text_short(const uint32_t *list, uint32_t count, char *text, size_t size);

#endif
