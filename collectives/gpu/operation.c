/* NCCL reduces numbers with sum, product, minimum, maximum and average, and multiplies inputs of a sum by a
 * factor in the elements' own format. NCCL scales if that format holds the factor exactly, or if libhvd
 * multiplies in that format on the host too (float32, float64). Kernels of libhvd scale everything else,
 * before and after. Operations that only move elements move bytes, so any type will do.
 *
 * Unequal parts have no call of their own in NCCL: they are one broadcast, reduction or exchange for each
 * rank, in one group. */
#include "collectives/gpu/operation.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/dtype.h"

/* ---- numbers ---- */

enum family { NO_NUMBER, INTEGER, FLOATING, SMALL_FLOAT };

static const struct number {
    enum family family;
    nccl_dtype nccl;
    int fraction, bias; /* of a small float: bits behind the point, and what its exponent is counted from */
} numbers[DTYPES] = {
    [HVD_UINT8] = {INTEGER, NCCL_UINT8, 0, 0},
    [HVD_INT8] = {INTEGER, NCCL_INT8, 0, 0},
    [HVD_INT32] = {INTEGER, NCCL_INT32, 0, 0},
    [HVD_INT64] = {INTEGER, NCCL_INT64, 0, 0},
    [HVD_UINT32] = {INTEGER, NCCL_UINT32, 0, 0},
    [HVD_UINT64] = {INTEGER, NCCL_UINT64, 0, 0},
    [HVD_FLOAT32] = {FLOATING, NCCL_FLOAT32, 0, 0},
    [HVD_FLOAT64] = {FLOATING, NCCL_FLOAT64, 0, 0},
    [HVD_FLOAT16] = {SMALL_FLOAT, NCCL_FLOAT16, 10, 15},
    [HVD_BFLOAT16] = {SMALL_FLOAT, NCCL_BFLOAT16, 7, 127},
    [HVD_FLOAT8_E4M3] = {SMALL_FLOAT, NCCL_FLOAT8_E4M3, 3, 7},
    [HVD_FLOAT8_E5M2] = {SMALL_FLOAT, NCCL_FLOAT8_E5M2, 2, 15},
};

static bool is_float8(int dtype)
{
    return dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2;
}

/* Is `x`, positive or not, exactly a number of this small format? Its bits without the sign, else -1. */
static int small_bits(const struct number *f, double x)
{
    int exponent;
    double size = fabs(x), half = frexp(size, &exponent); /* size = half * 2^exponent, half in [0.5, 1) */
    exponent += f->bias - 1;
    if (!(size > 0) || exponent >= 2 * f->bias + 1)
        return size == 0 ? 0 : -1;
    bool normal = exponent >= 1;
    double fraction = normal ? ldexp(2 * half - 1, f->fraction) : ldexp(size, f->bias - 1 + f->fraction);
    if (fraction != floor(fraction))
        return -1;
    return (normal ? exponent << f->fraction : 0) | (int)fraction;
}

static bool factor_fits(const struct number *f, double factor)
{
    if (f->nccl == NCCL_FLOAT64)
        return isnormal(factor) || factor == 0;
    if (f->nccl == NCCL_FLOAT32)
        return isnormal((float)factor) || factor == 0;
    return f->family == SMALL_FLOAT && small_bits(f, factor) >= 0;
}

static const struct number *number_of(nccl_dtype dtype)
{
    size_t i = 0;
    while (numbers[i].family == NO_NUMBER || numbers[i].nccl != dtype)
        i++;
    return &numbers[i];
}

union reduction_scalar reduction_scalar(const struct reduction *r)
{
    union reduction_scalar s = {0};
    const struct number *f = number_of(r->dtype);
    unsigned bits = f->family == SMALL_FLOAT ? (unsigned)small_bits(f, r->factor) : 0, sign = r->factor < 0;
    if (r->dtype == NCCL_FLOAT64)
        s.float64 = r->factor;
    else if (r->dtype == NCCL_FLOAT32)
        s.float32 = (float)r->factor;
    else if (r->dtype == NCCL_FLOAT16 || r->dtype == NCCL_BFLOAT16)
        s.bits16 = (uint16_t)(bits | sign << 15);
    else
        s.bits8 = (uint8_t)(bits | sign << 7);
    return s;
}

nccl_result scales_find(struct scales *s, const struct nccl *n, nccl_comm comm, const struct reduction *r,
                        nccl_op *op)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->scale[i].dtype == r->dtype && memcmp(&s->scale[i].factor, &r->factor, sizeof r->factor) == 0) {
            *op = s->scale[i].op;
            return NCCL_OK;
        }
    union reduction_scalar scalar = reduction_scalar(r);
    nccl_result result = n->ncclRedOpCreatePreMulSum(op, &scalar, r->dtype, NCCL_SCALAR_HOST, comm);
    if (result != NCCL_OK)
        return result;
    bool full = s->n == SCALES;
    unsigned place = full ? s->oldest++ % SCALES : s->n++;
    if (full)
        n->ncclRedOpDestroy(s->scale[place].op, comm);
    s->scale[place] = (struct scale){r->dtype, r->factor, *op};
    return NCCL_OK;
}

void scales_forget(struct scales *s, const struct nccl *n, nccl_comm comm)
{
    for (unsigned i = 0; i < s->n; i++)
        n->ncclRedOpDestroy(s->scale[i].op, comm);
    s->n = 0;
}

/* ---- abilities of NCCL --------------------------------------------------------------------------------- */

bool operation_reduces(const struct gpu_operation *o)
{
    return o->kind == GPU_ALLREDUCE || o->kind == GPU_REDUCESCATTER;
}

static int refuse_operation(struct gpu_why *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int refuse_operation(struct gpu_why *why, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (why)
        vsnprintf(why->text, sizeof why->text, format, list);
    va_end(list);
    return -1;
}

static int builtin_op(int op)
{
    switch (op) {
    case HVD_SUM:
        return NCCL_SUM;
    case HVD_AVERAGE:
        return NCCL_AVERAGE;
    case HVD_MIN:
        return NCCL_MIN;
    case HVD_MAX:
        return NCCL_MAX;
    case HVD_PRODUCT:
        return NCCL_PRODUCT;
    default:
        return -1;
    }
}

/* Sums and averages are linear: both factors, and the number of ranks, can become one for the inputs. */
static void plan_linear(const struct gpu_operation *o, int size, const struct number *f,
                        struct reduction *into)
{
    double factor = o->prescale * o->postscale;
    if (factor == 1)
        return;
    double all = o->op == HVD_AVERAGE ? factor / size : factor;
    if (f->family != INTEGER && factor_fits(f, all)) {
        into->op = NCCL_SUM;
        into->factor = all;
        return;
    }
    into->before = o->prescale;
    into->after = o->postscale;
    if (f->family == INTEGER && o->op == HVD_AVERAGE && o->postscale != 1) {
        into->op = NCCL_SUM; /* else it would be cut toward zero twice */
        into->after = o->postscale / size;
    }
}

int reduction_plan(const struct gpu_operation *o, int size, struct reduction *into, struct gpu_why *why)
{
    if (o->dtype < 0 || o->dtype >= DTYPES || numbers[o->dtype].family == NO_NUMBER)
        return refuse_operation(why, "NCCL does not reduce %s", dtype_name(o->dtype));
    int op = builtin_op(size == 1 && o->op == HVD_AVERAGE ? HVD_SUM : o->op);
    if (op < 0)
        return refuse_operation(why, "NCCL has no %s", op_name(o->op));
    const struct number *f = &numbers[o->dtype];
    *into = (struct reduction){.dtype = f->nccl, .op = (nccl_op)op, .factor = 1, .before = 1, .after = 1};
    if (is_float8(o->dtype) && o->op == HVD_AVERAGE && !factor_fits(f, 1.0 / size))
        return refuse_operation(why, "1/%d is no number of %s", size, dtype_name(o->dtype));
    if (op == NCCL_SUM || op == NCCL_AVERAGE) {
        plan_linear(o, size, f, into);
    } else {
        into->before = o->prescale;
        into->after = o->postscale;
    }
    if (size == 1 && into->factor != 1 && is_float8(o->dtype)) /* an invalid argument there, up to 2.28 */
        return refuse_operation(why, "NCCL does not scale %s of one rank", dtype_name(o->dtype));
    if ((into->before != 1 || into->after != 1) && is_float8(o->dtype))
        return refuse_operation(why, "%g is no number of %s", o->prescale * o->postscale,
                                dtype_name(o->dtype));
    if (into->before != 1 && o->kind == GPU_REDUCESCATTER)
        return refuse_operation(why, "the input of a reducescatter cannot be scaled in place");
    return 0;
}

bool communicator_can(const struct gpu_operation *o, int size, struct gpu_abilities all, struct gpu_why *why)
{
    if (all.nccl == 0)
        return refuse_operation(why, "not all ranks have NCCL") == 0;
    if (!operation_reduces(o))
        return dtype_size(o->dtype) > 0 || refuse_operation(why, "there is no such element type") == 0;
    struct reduction r;
    if (reduction_plan(o, size, &r, why) < 0)
        return false;
    if (is_float8(o->dtype) && all.nccl < NCCL_FLOAT8_SINCE)
        return refuse_operation(why, "NCCL %s does not reduce %s", nccl_version_text(all.nccl).text,
                                dtype_name(o->dtype)) == 0;
    if (is_float8(o->dtype) && all.capability < 90)
        return refuse_operation(why, "GPUs of capability %d.%d do not reduce %s", all.capability / 10,
                                all.capability % 10, dtype_name(o->dtype)) == 0;
    if ((r.before != 1 || r.after != 1) && !all.kernels)
        return refuse_operation(why, "NCCL cannot scale %s of %s by %g exactly", op_name(o->op),
                                dtype_name(o->dtype), o->prescale * o->postscale) == 0;
    return true;
}

struct gpu_abilities gpu_abilities(const struct nccl *n, const struct driver_device *device,
                                   const struct pack *pack, uint32_t fuse)
{
    return (struct gpu_abilities){n ? n->version : 0, device->capability, pack && pack_has_kernels(pack),
                                  pack ? (int32_t)fuse : 0};
}

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

struct gpu_abilities gpu_abilities_meet(struct gpu_abilities a, struct gpu_abilities b)
{
    return (struct gpu_abilities){least_of(a.nccl, b.nccl), least_of(a.capability, b.capability),
                                  least_of(a.kernels, b.kernels), least_of(a.fuse, b.fuse)};
}

/* ---- calls ---- */

static const char *offset_pointer(const void *base, size_t bytes)
{
    return (const char *)base + bytes;
}

static char *at_out(void *base, size_t bytes)
{
    return (char *)base + bytes;
}

size_t operation_part(const struct gpu_operation *o, int size, int rank)
{
    size_t rows = o->row_count ? o->count / o->row_count : 0, n = (size_t)size;
    return (rows / n + ((size_t)rank < rows % n)) * o->row_count;
}

static nccl_result call_reducescatter(const struct operation_target *t, const struct gpu_operation *o,
                                      nccl_dtype dtype, nccl_op op)
{
    nccl_result first = NCCL_OK;
    size_t bytes = dtype_size(o->dtype), begin = 0, part = operation_part(o, t->size, 0);
    if (part == operation_part(o, t->size, t->size - 1))
        return part ? t->n->ncclReduceScatter(o->in, o->out, part, dtype, op, t->comm, t->stream) : NCCL_OK;
    for (int r = 0; r < t->size; r++) {
        part = operation_part(o, t->size, r);
        if (part > 0)
            nccl_take(&first,
                      t->n->ncclReduce(offset_pointer(o->in, begin * bytes), r == t->rank ? o->out : NULL,
                                       part, dtype, op, r, t->comm, t->stream));
        begin += part;
    }
    return first;
}

static bool all_equal(const size_t *counts, int n)
{
    for (int r = 1; r < n; r++)
        if (counts[r] != counts[0])
            return false;
    return true;
}

static nccl_result call_allgather(const struct operation_target *t, const struct gpu_operation *o,
                                  size_t bytes)
{
    nccl_result first = NCCL_OK;
    size_t begin = 0, each = o->counts[0] * bytes;
    if (all_equal(o->counts, t->size))
        return each ? t->n->ncclAllGather(o->in, o->out, each, NCCL_UINT8, t->comm, t->stream) : NCCL_OK;
    for (int r = 0; r < t->size; r++) {
        size_t part = o->counts[r] * bytes;
        void *to = at_out(o->out, begin);
        if (part > 0)
            nccl_take(&first, t->n->ncclBroadcast(r == t->rank ? o->in : to, to, part, NCCL_UINT8, r, t->comm,
                                                  t->stream));
        begin += part;
    }
    return first;
}

static nccl_result call_alltoall(const struct operation_target *t, const struct gpu_operation *o,
                                 size_t bytes)
{
    nccl_result first = NCCL_OK;
    size_t from = 0, to = 0;
    for (int r = 0; r < t->size; r++) {
        size_t sent = o->sent[r] * bytes, received = o->counts[r] * bytes;
        if (sent > 0)
            nccl_take(&first,
                      t->n->ncclSend(offset_pointer(o->in, from), sent, NCCL_UINT8, r, t->comm, t->stream));
        if (received > 0)
            nccl_take(&first,
                      t->n->ncclRecv(at_out(o->out, to), received, NCCL_UINT8, r, t->comm, t->stream));
        from += sent;
        to += received;
    }
    return first;
}

nccl_result operation_call(const struct operation_target *t, const struct gpu_operation *o,
                           const struct reduction *r, nccl_op op)
{
    size_t bytes = dtype_size(o->dtype), all = o->count * bytes;
    const void *in = operation_reduces(o) && r->before != 1 ? o->out : o->in;
    switch (o->kind) {
    case GPU_ALLREDUCE:
        return o->count ? t->n->ncclAllReduce(in, o->out, o->count, r->dtype, op, t->comm, t->stream)
                        : NCCL_OK;
    case GPU_REDUCESCATTER:
        return call_reducescatter(t, o, r->dtype, op);
    case GPU_BROADCAST:
        return all ? t->n->ncclBroadcast(o->out, o->out, all, NCCL_UINT8, o->root, t->comm, t->stream)
                   : NCCL_OK;
    case GPU_ALLGATHER:
        return call_allgather(t, o, bytes);
    case GPU_ALLTOALL:
        return call_alltoall(t, o, bytes);
    case DEVICE_SEND:
        return all ? t->n->ncclSend(o->in, all, NCCL_UINT8, o->root, t->comm, t->stream) : NCCL_OK;
    case DEVICE_RECEIVE:
        return all ? t->n->ncclRecv(o->out, all, NCCL_UINT8, o->root, t->comm, t->stream) : NCCL_OK;
    case DEVICE_KINDS:
        break;
    }
    return NCCL_INVALID_ARGUMENT;
}
