/* float16 arrays to float32 and back with the processor's own conversion, for reduce_avx2.c and
 * reduce_avx512.c: both are the same loops, of LANES elements a turn.
 *
 * Before: LANES; WIDEN_LANES(to, from), NARROW_LANES(to, from): one turn, at any address. */
#include <string.h>

#include "collectives/kernels/half.h"

static void widen_float16(float *to, const void *from, size_t count)
{
    const char *x = from;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        WIDEN_LANES(to + i, x + 2 * i);
    for (; i < count; i++) {
        uint16_t h;
        memcpy(&h, x + 2 * i, sizeof h);
        to[i] = float16_widen(h);
    }
}

static void narrow_float16(void *to, const float *from, size_t count)
{
    char *t = to;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        NARROW_LANES(t + 2 * i, from + i);
    for (; i < count; i++) {
        uint16_t h = float16_narrow(from[i]);
        memcpy(t + 2 * i, &h, sizeof h);
    }
}

#define OWN_FLOAT16
