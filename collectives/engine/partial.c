#include "collectives/engine/partial.h"

#include <math.h>
#include <stdbool.h>

#include "collectives/kernels/convert.h"

#define LOSS_MAX 1.001 /* times half of the smallest number: what all hosts' roundings may add up to; 1 */

static bool is_half(uint8_t dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16;
}

/* Without a scale it is one of the type's numbers. */
static bool is_exact(const struct tensor_op *op, const struct partial_shape *shape)
{
    return op->prescale == 1 && (shape->most == 1 || op->op == HVD_MIN || op->op == HVD_MAX);
}

/* With it a partial sum is no larger than an element. 0: there is none, since the result would show how small
 * numbers are rounded. A program that compresses has agreed to one such loss for each host. */
static double scale_of(const struct tensor_op *op, const struct partial_shape *shape)
{
    double after = fabs(op->op == HVD_AVERAGE ? op->postscale / shape->ranks : op->postscale);
    double growth = fabs(op->prescale) * shape->most;
    uint32_t losses = op->compression == HVD_COMPRESSION_NONE ? shape->hosts : 1;
    bool sums = op->op == HVD_SUM || op->op == HVD_AVERAGE;
    /* Both scales together become one factor; 0 would be taken for none. */
    return sums && isnormal(growth) && isnormal(after * growth) && after * growth * losses <= LOSS_MAX
               ? 1 / growth
               : 0;
}

struct partial partial_of(const struct tensor_op *op, const struct partial_shape *shape)
{
    struct partial p = {.dtype = (hvd_dtype)op->dtype, .scale = 1};
    bool compressed = op->compression != HVD_COMPRESSION_NONE;
    if (!op_reduces(op->kind) || op_is_adasum(op) || !(compressed || is_half(op->dtype)))
        return p;
    if (compressed)
        p.dtype = compressed_dtype((hvd_compression)op->compression);
    else if (is_exact(op, shape))
        return p;
    double scale = scale_of(op, shape);
    if (scale != 0)
        p.scale = scale;
    else if (!compressed)
        p.dtype = HVD_FLOAT32;
    return p;
}
