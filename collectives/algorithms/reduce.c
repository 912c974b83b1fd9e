/* The inner loops. Each is a plain loop over restrict-less pointers with one fixed shape, so that the
 * compiler makes vector code of it; a block of BLOCK elements is reduced in the first level cache and then
 * stored to every output, so memory is read once per input and written once per output. */
#include "collectives/algorithms/reduce.h"

#include <string.h>

#include "collectives/algorithms/dtype.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Copies of the loops for processors with wider vectors, chosen when the program starts. Sanitizers cannot
 * run the chooser. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define NO_CLONES 1
#endif
#endif
#if defined(__x86_64__) && !defined(NO_CLONES) && !defined(__SANITIZE_ADDRESS__) &&                          \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#define BLOCK_BYTES 8192

#define ADD(a, b) ((a) + (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))

/* acc = a op b; acc may be a. */
#define COMBINE(suffix, type, name, expr)                                                                    \
    WIDE static void name##_##suffix(void *acc, const void *a, const void *b, size_t count)                  \
    {                                                                                                        \
        type *t = acc;                                                                                       \
        const type *x = a, *y = b;                                                                           \
        for (size_t i = 0; i < count; i++)                                                                   \
            t[i] = expr(x[i], y[i]);                                                                         \
    }

/* Sums of integers are taken unsigned: they wrap, which signed ones may not. */
COMBINE(f32, float, sum, ADD)
COMBINE(f32, float, min, MIN)
COMBINE(f32, float, max, MAX)
COMBINE(f64, double, sum, ADD)
COMBINE(f64, double, min, MIN)
COMBINE(f64, double, max, MAX)
COMBINE(i32, uint32_t, sum, ADD)
COMBINE(i32, int32_t, min, MIN)
COMBINE(i32, int32_t, max, MAX)
COMBINE(i64, uint64_t, sum, ADD)
COMBINE(i64, int64_t, min, MIN)
COMBINE(i64, int64_t, max, MAX)

#define DIVIDE(suffix, type)                                                                                 \
    WIDE static void divide_##suffix(void *data, size_t count, uint32_t divisor)                             \
    {                                                                                                        \
        type *t = data;                                                                                      \
        for (size_t i = 0; i < count; i++)                                                                   \
            t[i] = (type)(t[i] / (type)divisor);                                                             \
    }
DIVIDE(f32, float)
DIVIDE(f64, double)
DIVIDE(i64, int64_t)

/* A divisor is at most 2^32 - 1, which an int32_t cannot hold. */
static void divide_i32(void *data, size_t count, uint32_t divisor)
{
    int32_t *t = data;

    for (size_t i = 0; i < count; i++)
        t[i] = (int32_t)(t[i] / (int64_t)divisor);
}

typedef void (*combine_fn)(void *acc, const void *a, const void *b, size_t count);

static combine_fn combine_for(hvd_dtype dtype, hvd_op op)
{
    static const struct {
        combine_fn sum, min, max;
    } table[] = {
        [HVD_INT32] = {sum_i32, min_i32, max_i32},
        [HVD_INT64] = {sum_i64, min_i64, max_i64},
        [HVD_FLOAT32] = {sum_f32, min_f32, max_f32},
        [HVD_FLOAT64] = {sum_f64, min_f64, max_f64},
    };
    return op == HVD_MIN ? table[dtype].min : op == HVD_MAX ? table[dtype].max : table[dtype].sum;
}

void reduce_into(void *to, const void *from, size_t count, hvd_dtype dtype, hvd_op op)
{
    combine_for(dtype, op)(to, to, from, count);
}

void reduce_divide(void *data, size_t count, hvd_dtype dtype, uint32_t divisor)
{
    if (divisor <= 1)
        return;
    switch (dtype) {
    case HVD_INT32:
        divide_i32(data, count, divisor);
        break;
    case HVD_INT64:
        divide_i64(data, count, divisor);
        break;
    case HVD_FLOAT32:
        divide_f32(data, count, divisor);
        break;
    case HVD_FLOAT64:
        divide_f64(data, count, divisor);
        break;
    default:
        break;
    }
}

/* One block of two or more inputs into `acc`, which overlaps none of them. */
static void reduce_block(const struct reduce_job *job, combine_fn combine, void *acc, size_t offset,
                         size_t count)
{
    combine(acc, (const char *)job->in[0] + offset, (const char *)job->in[1] + offset, count);
    for (size_t i = 2; i < job->inputs; i++)
        combine(acc, acc, (const char *)job->in[i] + offset, count);
    if (job->op == HVD_AVERAGE)
        reduce_divide(acc, count, job->dtype, job->divisor);
}

void reduce_range(const struct reduce_job *job, size_t first, size_t count)
{
    size_t size = dtype_size(job->dtype), per_block = BLOCK_BYTES / size;
    combine_fn combine = combine_for(job->dtype, job->op);
    _Alignas(64) char block[BLOCK_BYTES];

    while (count > 0) {
        size_t n = count < per_block ? count : per_block, offset = first * size;
        if (job->inputs == 1) {
            memcpy(block, (const char *)job->in[0] + offset, n * size);
            if (job->op == HVD_AVERAGE)
                reduce_divide(block, n, job->dtype, job->divisor);
        } else {
            reduce_block(job, combine, block, offset, n);
        }
        for (size_t i = 0; i < job->outputs; i++)
            memcpy((char *)job->out[i] + offset, block, n * size);
        first += n;
        count -= n;
    }
}
