/* The elements that hvd_bench checks results by, in every dtype: small whole numbers, so that their sums are
 * exact in all of them (integers wrap), which change along the buffer and from rank to rank, so that a chunk
 * that went missing or to another place shows. They repeat after PERIOD elements, which no size of a chunk is
 * a multiple of; so a large buffer is filled and compared as fast as memory is. */
#include "tests/bench/bench.h"

#include "collectives/kernels/half.h"

#include <stdint.h>
#include <string.h>

#define GIVING 32 /* ranks that give anything but zeros: bfloat16 has every whole number up to 256 */
#define PERIOD 61
#define WIDEST 8 /* bytes of an element */

const struct choice bench_dtypes[] = {{"u8", HVD_UINT8, 1},    {"i8", HVD_INT8, 1},
                                      {"u16", HVD_UINT16, 2},  {"i16", HVD_INT16, 2},
                                      {"u32", HVD_UINT32, 4},  {"i32", HVD_INT32, 4},
                                      {"u64", HVD_UINT64, 8},  {"i64", HVD_INT64, 8},
                                      {"f16", HVD_FLOAT16, 2}, {"bf16", HVD_BFLOAT16, 2},
                                      {"f32", HVD_FLOAT32, 4}, {"f64", HVD_FLOAT64, 8},
                                      {"bool", HVD_BOOL, 1},   {NULL, 0, 0}};

static int value(int rank, size_t i)
{
    return rank < GIVING ? (int)((i % PERIOD + (size_t)rank) % 4) : 0;
}

/* Of one rank, or BENCH_SUM. */
static int value_of(int who, size_t i)
{
    int sum = 0;

    if (who != BENCH_SUM)
        return value(who, i);
    for (int r = 0; r < bench_size && r < GIVING; r++)
        sum += value(r, i);
    return sum;
}

/* Integers of any width are the low bytes of a wide one: this machine is little-endian, as all are that
 * libhvd runs on. */
static void encode(hvd_dtype dtype, int value, void *element)
{
    uint64_t bits = (uint64_t)value;

    if (dtype == HVD_FLOAT16)
        bits = float16_narrow((float)value);
    else if (dtype == HVD_BFLOAT16)
        bits = bfloat16_narrow((float)value);
    else if (dtype == HVD_FLOAT32)
        bits = half_bits_of((float)value);
    else if (dtype == HVD_FLOAT64)
        memcpy(&bits, &(double){value}, sizeof bits);
    else if (dtype == HVD_BOOL)
        bits = value != 0;
    memcpy(element, &bits, sizeof bits);
}

/* PERIOD elements from the first one on. */
static void pattern_of(const struct choice *dtype, int who, size_t first, char *pattern)
{
    char element[WIDEST];

    for (size_t i = 0; i < PERIOD; i++) {
        encode((hvd_dtype)dtype->value, value_of(who, first + i), element);
        memcpy(pattern + i * dtype->size, element, dtype->size);
    }
}

void bench_fill(const struct choice *dtype, void *data, size_t count, int who, size_t first)
{
    const size_t bytes = count * dtype->size;
    size_t done = PERIOD * dtype->size;
    char pattern[PERIOD * WIDEST], *to = data;

    pattern_of(dtype, who, first, pattern);
    memcpy(to, pattern, done < bytes ? done : bytes);
    for (; done < bytes; done *= 2)
        memcpy(to + done, to, done < bytes - done ? done : bytes - done);
}

size_t bench_wrong(const struct choice *dtype, const void *data, size_t count, int who, size_t first)
{
    const size_t bytes = count * dtype->size, period = PERIOD * dtype->size;
    const char *is = data;
    char pattern[PERIOD * WIDEST];

    pattern_of(dtype, who, first, pattern);
    if (memcmp(is, pattern, bytes < period ? bytes : period) == 0 &&
        (bytes <= period || memcmp(is, is + period, bytes - period) == 0))
        return count;
    for (size_t i = 0; i < count; i++)
        if (memcmp(is + i * dtype->size, pattern + i % PERIOD * dtype->size, dtype->size) != 0)
            return i;
    return count;
}
