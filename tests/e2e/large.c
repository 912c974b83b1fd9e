/* One operation on more than 2^31 elements: each rank compares its result at places where a number of 31 or
 * 32 bits would have wrapped. Prints "rank N: all right".
 *
 *   large KIND DTYPE     KIND: allreduce broadcast allgather reducescatter alltoall; DTYPE: u8 u16 f32 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/worker.h"

#define COUNT ((1ull << 31) + 3)

static int rank, size;
static size_t width; /* bytes of an element: 1 u8, 2 u16, 4 f32 */

/* Element k of rank r; sums of a few stay below 256. */
static unsigned element(size_t k, int r)
{
    return (unsigned)((k ^ k >> 20 ^ k >> 31) % 29) + (unsigned)r * 3;
}

static void fill(void *at, size_t count, size_t first)
{
    for (size_t k = 0; k < count && width == 1; k++)
        ((uint8_t *)at)[k] = (uint8_t)element(first + k, rank);
    for (size_t k = 0; k < count && width == 2; k++)
        ((uint16_t *)at)[k] = (uint16_t)element(first + k, rank);
    for (size_t k = 0; k < count && width == 4; k++)
        ((float *)at)[k] = (float)element(first + k, rank);
}

static void *memory(size_t count)
{
    void *p = hvd_alloc(count * width);

    if (!p)
        wrong("hvd_alloc");
    return p;
}

static void expect(const void *at, size_t k, unsigned want)
{
    unsigned got = width == 1   ? ((const uint8_t *)at)[k]
                   : width == 2 ? ((const uint16_t *)at)[k]
                                : (unsigned)((const float *)at)[k];

    if (got != want)
        wrong("element %zu is %u, not %u", k, got, want);
}

static unsigned sum(size_t k)
{
    unsigned s = 0;

    for (int r = 0; r < size; r++)
        s += element(k, r);
    return s;
}

/* Every 4099th, and the first and last ones. */
static size_t next(size_t k, size_t count)
{
    return k < 64 || k + 4200 > count ? k + 1 : k + 4099;
}

static void allreduce(hvd_dtype dtype)
{
    void *x = memory(COUNT);

    fill(x, COUNT, 0);
    must(hvd_allreduce("x", x, x, COUNT, dtype, HVD_SUM, NULL), "hvd_allreduce");
    for (size_t k = 0; k < COUNT; k = next(k, COUNT))
        expect(x, k, sum(k));
}

static void broadcast(hvd_dtype dtype)
{
    void *x = memory(COUNT);

    fill(x, COUNT, 0);
    must(hvd_broadcast("x", x, COUNT, dtype, size - 1, NULL), "hvd_broadcast");
    for (size_t k = 0; k < COUNT; k = next(k, COUNT))
        expect(x, k, element(k, size - 1));
}

/* The result is that large; its parts are not even. Rows of 3. */
static void allgather(hvd_dtype dtype)
{
    size_t all = COUNT / 3, mine = all / (size_t)size + (rank == 0 ? all % (size_t)size : 0);
    size_t rows[64], at = 0;
    void *in = memory(mine * 3), *out = memory(all * 3);

    fill(in, mine * 3, 0);
    must(hvd_allgather("x", in, mine, 3, dtype, out, all, rows, NULL), "hvd_allgather");
    for (int r = 0; r < size; at += rows[r++] * 3)
        for (size_t k = 0; k < rows[r] * 3; k = next(k, rows[r] * 3))
            expect(out, at + k, element(k, r));
    if (at != all * 3)
        wrong("%zu rows are told, not %zu", at, all * 3);
}

static void reducescatter(hvd_dtype dtype)
{
    size_t part = COUNT / (size_t)size, more = COUNT % (size_t)size, me = (size_t)rank;
    size_t mine = part + (me < more), first = me * part + (me < more ? me : more);
    void *in = memory(COUNT), *out = memory(mine);

    fill(in, COUNT, 0);
    must(hvd_reducescatter("x", in, COUNT, 1, dtype, HVD_SUM, out, NULL), "hvd_reducescatter");
    for (size_t k = 0; k < mine; k = next(k, mine))
        expect(out, k, sum(first + k));
}

/* All that a rank sends goes to the last one but for a few rows. */
static void alltoall(hvd_dtype dtype)
{
    size_t splits[64], received[64], give = COUNT / (size_t)size + 1, get = 0;
    bool last = rank == size - 1;

    for (int r = 0; r < size; r++) {
        splits[r] = r == size - 1 ? give : 5;
        get += last ? give : 5;
    }
    void *in = memory(give + 5 * (size_t)(size - 1)), *out = memory(get);
    fill(in, give + 5 * (size_t)(size - 1), 0);
    must(hvd_alltoall("x", in, give + 5 * (size_t)(size - 1), splits, 1, dtype, out, get, received, NULL),
         "hvd_alltoall");
    for (int r = 0; r < size; r++) {
        size_t count = last ? give : 5, from = last ? 5 * (size_t)(size - 1) : 5 * (size_t)rank;
        if (received[r] != count)
            wrong("rank %d gave %zu elements, not %zu", r, received[r], count);
        for (size_t k = 0; k < count; k = next(k, count))
            expect(out, (size_t)r * count + k, element(from + k, r));
    }
}

static const struct {
    const char *name;
    void (*run)(hvd_dtype dtype);
} kinds[] = {{"allreduce", allreduce},
             {"broadcast", broadcast},
             {"allgather", allgather},
             {"reducescatter", reducescatter},
             {"alltoall", alltoall}};

int main(int argc, char **argv)
{
    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    width = argc > 2 && strcmp(argv[2], "f32") == 0 ? 4 : argc > 2 && strcmp(argv[2], "u16") == 0 ? 2 : 1;
    for (size_t i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].name) == 0)
            kinds[i].run(width == 1 ? HVD_UINT8 : width == 2 ? HVD_UINT16 : HVD_FLOAT32);
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    return 0;
}
