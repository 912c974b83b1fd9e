/* Every member's output is the reduction of all inputs: one pass that reads each input once and writes each
 * output once. The shared form writes one output, the first member's; the others read it there. */
#include "collectives/kernels/reduce.h"
#include "collectives/local/kind.h"
#include "collectives/local/tensor.h"

static void reduce_from(const struct tensor_view *v, const void *const *in, void *const *out, size_t outputs,
                        size_t first, size_t count)
{
    struct reduce_job job = {
        .in = in,
        .inputs = v->team->members,
        .out = out,
        .outputs = outputs,
        .dtype = (hvd_dtype)v->op.dtype,
        .op = (hvd_op)v->op.op,
        .divisor = v->team->size,
        .prescale = v->op.prescale,
        .postscale = v->op.postscale,
    };
    reduce_range(&job, first, count);
}

void kind_reduce(const struct tensor_view *v, void *const *out, size_t outputs, size_t first, size_t count)
{
    reduce_from(v, v->in, out, outputs, first, count);
}

void kind_reduce_from(const struct tensor_view *v, const void *const *in, void *const *out, size_t first,
                      size_t count)
{
    reduce_from(v, in, out, v->team->members, first, count);
}

static void reduce_partly(const struct tensor_view *v, const void *const *in, void *out, hvd_dtype dtype,
                          double scale, size_t first, size_t count)
{
    struct reduce_job job = {
        .in = in,
        .inputs = v->team->members,
        .out = &out,
        .outputs = 1,
        .dtype = (hvd_dtype)v->op.dtype,
        .op = (hvd_op)v->op.op,
        .prescale = v->op.prescale,
        .postscale = scale,
        .out_dtype = dtype,
    };
    reduce_range(&job, first, count);
}

void tensor_reduce_local(const struct tensor_view *v, void *out, hvd_dtype dtype, double scale, size_t first,
                         size_t count)
{
    reduce_partly(v, v->in, out, dtype, scale, first, count);
}

void kind_reduce_partly(const struct tensor_view *v, const void *const *in, void *out, size_t first,
                        size_t count)
{
    reduce_partly(v, in, out, (hvd_dtype)v->op.dtype, 1, first, count);
}

static uint64_t measure_output(const struct tensor_view *v, uint32_t member)
{
    return v->count[member] * tensor_element_size(v);
}

static uint64_t measure_shared(const struct tensor_view *v, uint32_t member)
{
    return member == 0 ? measure_output(v, member) : 0;
}

static uint64_t plan_allreduce(struct tensor_view *v, char *wrong, size_t size)
{
    (void)wrong, (void)size;
    for (uint32_t i = 0; i < v->team->members; i++)
        v->get[i] = v->op.count;
    return v->op.count;
}

static void reduce_part(const struct tensor_view *v, size_t first, size_t count)
{
    kind_reduce(v, v->out, v->team->members, first, count);
}

static void reduce_part_shared(const struct tensor_view *v, size_t first, size_t count)
{
    kind_reduce(v, v->out, 1, first, count);
}

static void reduce_mine(const struct tensor_view *v, void *out)
{
    kind_reduce(v, &out, 1, 0, v->op.count);
}

const struct kind kind_allreduce = {measure_output, plan_allreduce, reduce_part, reduce_mine};
const struct kind kind_allreduce_shared = {measure_shared, plan_allreduce, reduce_part_shared, reduce_mine};
