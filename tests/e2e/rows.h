/* The elements that ranks give in the tests of all kinds of operations: a function of the rank and the
 * round. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tests/e2e/worker.h"

/* How many rows rank a gives (to rank b): nothing, a few, many; different in each round. */
static inline size_t rows_up_to(size_t largest, int a, int b)
{
    unsigned h = (unsigned)(a * 7 + b * 13) + (unsigned)worker_round * 5;

    return h % 4 == 0 ? 0 : h % 4 == 1 ? h % 11 : h % 4 == 2 ? largest / 3 + h % 17 : largest - h % 5;
}

/* Element k of what rank a gives (to rank b). Sums of a few of them are exact in float16. */
static inline int32_t element(int a, int b, size_t k)
{
    return (int32_t)((k * 31 + (size_t)a * 17 + (size_t)b * 3 + (size_t)worker_round) % 61) - 30;
}

static inline void check(const char *what, const int32_t *got, size_t at, int32_t want)
{
    if (got[at] != want)
        wrong("%s: element %zu is %d, not %d", what, at, got[at], want);
}
