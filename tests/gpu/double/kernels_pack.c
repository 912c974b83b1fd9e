/* The kernels of collectives/gpu/pack.cu, computed on the host piece by piece. */
#include "tests/gpu/double/double.h"

#include <string.h>

#include "collectives/kernels/half.h"
#include "collectives/gpu/pack_batch.h"
#include "collectives/hvd.h"
#include "tests/gpu/double/kernels_pack.h"

static size_t width(int dtype)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
        return 1;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        return 2;
    case HVD_INT32:
    case HVD_UINT32:
    case HVD_FLOAT32:
        return 4;
    default:
        return 8;
    }
}

/* Each piece has blocks, and the last one the grid's last. */
static bool fits(const struct double_launch *l, const struct pack_batch *batch)
{
    bool good = batch->n > 0 && batch->n <= PACK_BATCH && l->grid[1] == 1 && l->block[0] == PACK_THREADS;

    for (unsigned i = 0; good && i < batch->n; i++)
        good = i == 0 ? batch->first[i] == 0 : batch->first[i] > batch->first[i - 1];
    if (good && batch->first[batch->n - 1] < l->grid[0])
        return true;
    double_misuse("a batch of %u pieces in a grid of %u blocks", batch->n, l->grid[0]);
    return false;
}

void double_pack_copy(const struct double_launch *l)
{
    const struct pack_batch *batch = l->values[0];

    for (unsigned i = 0; fits(l, batch) && i < batch->n; i++) {
        size_t bytes = batch->piece[i].count;
        char *to = double_reach_or_break(l->context, batch->piece[i].to, bytes, PACK_COPY);
        char *from = double_reach_or_break(l->context, batch->piece[i].from, bytes, PACK_COPY);
        if (to && from)
            memcpy(to, from, bytes);
    }
}

#define INTEGER(type, least, most)                                                                           \
    {                                                                                                        \
        type x;                                                                                              \
        memcpy(&x, from, sizeof x);                                                                          \
        double r = (double)x * factor;                                                                       \
        x = r != r ? 0 : r >= (double)(most) ? (most) : r <= (double)(least) ? (least) : (type)r;            \
        memcpy(to, &x, sizeof x);                                                                            \
        return;                                                                                              \
    }

static void scale_one(char *to, const char *from, int dtype, double factor)
{
    uint16_t bits;
    float f;
    double d;

    switch (dtype) {
    case HVD_UINT8:
        INTEGER(uint8_t, 0, UINT8_MAX)
    case HVD_INT8:
        INTEGER(int8_t, INT8_MIN, INT8_MAX)
    case HVD_UINT16:
        INTEGER(uint16_t, 0, UINT16_MAX)
    case HVD_INT16:
        INTEGER(int16_t, INT16_MIN, INT16_MAX)
    case HVD_INT32:
        INTEGER(int32_t, INT32_MIN, INT32_MAX)
    case HVD_UINT32:
        INTEGER(uint32_t, 0, UINT32_MAX)
    case HVD_INT64:
        INTEGER(int64_t, INT64_MIN, INT64_MAX)
    case HVD_UINT64:
        INTEGER(uint64_t, 0, UINT64_MAX)
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        memcpy(&bits, from, 2);
        f = (float)((dtype == HVD_FLOAT16 ? float16_widen(bits) : bfloat16_widen(bits)) * factor);
        bits = dtype == HVD_FLOAT16 ? float16_narrow(f) : bfloat16_narrow(f);
        memcpy(to, &bits, 2);
        return;
    case HVD_FLOAT32:
        memcpy(&f, from, 4);
        f = (float)(f * factor);
        memcpy(to, &f, 4);
        return;
    case HVD_FLOAT64:
        memcpy(&d, from, 8);
        d *= factor;
        memcpy(to, &d, 8);
        return;
    default:
        double_misuse("%s of type %d", PACK_SCALE, dtype);
    }
}

void double_pack_scale(const struct double_launch *l)
{
    const struct pack_batch *batch = l->values[0];
    double factor;
    int dtype;

    memcpy(&dtype, l->values[1], sizeof dtype);
    memcpy(&factor, l->values[2], sizeof factor);
    for (unsigned i = 0; fits(l, batch) && i < batch->n; i++) {
        size_t each = width(dtype), n = batch->piece[i].count;
        char *to = double_reach_or_break(l->context, batch->piece[i].to, n * each, PACK_SCALE);
        char *from = double_reach_or_break(l->context, batch->piece[i].from, n * each, PACK_SCALE);
        for (size_t k = 0; to && from && k < n; k++)
            scale_one(to + k * each, from + k * each, dtype, factor);
    }
}
