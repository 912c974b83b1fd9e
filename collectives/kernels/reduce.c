/* A block of BLOCK elements is reduced in the first level cache and then stored to every output, so memory is
 * read once per input and written once per output. A reduction that needs no block (two inputs, nothing to
 * convert, to scale or to divide by another number than a power of two) is one loop over all elements. */
#include "collectives/kernels/reduce.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce_kernels.h"

#define BLOCK_BYTES 8192

/* ---- choice of the loops ------------------------------------------------------------------------------- */

#ifdef __x86_64__
/* The compiler's own test knows F16C only of late. */
static bool has_float16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

unsigned reduce_versions(const struct reduce_kernels *version[REDUCE_VERSIONS_MAX])
{
    unsigned n = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        version[n++] = &reduce_avx512;
    if (__builtin_cpu_supports("avx2") && has_float16())
        version[n++] = &reduce_avx2;
#endif
    version[n++] = &reduce_base;
    return n;
}

/* Asked once: under a hypervisor the question takes a microsecond. */
static const struct reduce_kernels *find_best(void)
{
    static const struct reduce_kernels *_Atomic chosen;
    const struct reduce_kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!k) {
        const struct reduce_kernels *version[REDUCE_VERSIONS_MAX];
        reduce_versions(version);
        k = version[0];
        atomic_store_explicit(&chosen, k, memory_order_relaxed);
    }
    return k;
}

/* ---- one call ------------------------------------------------------------------------------------------ */

/* A job, looked up. */
struct plan {
    const struct reduce_kernels *k;
    const struct reduce_job *job;
    const struct reduce_combine *combine;
    hvd_dtype lane, out; /* the types that it is reduced in and stored as */
    size_t size, lane_size, out_size;
    bool widens, narrows; /* on the way into the lane and out of it */
    double before, after; /* factors; 1: none */
    uint32_t divisor;     /* 1: none */
    double mean;          /* 0, or 1 / divisor, a power of two: the last sum is multiplied with it */
};

static double factor_of(double scale)
{
    return scale != 0 ? scale : 1;
}

static struct plan plan_of(const struct reduce_kernels *k, const struct reduce_job *job)
{
    struct plan p = {.k = k, .job = job, .lane = job->dtype, .before = 1, .after = 1};
    p.out = job->out_dtype ? job->out_dtype : job->dtype;
    p.size = dtype_size(job->dtype);
    p.out_size = dtype_size(p.out);
    p.divisor = job->op == HVD_AVERAGE && job->divisor > 1 ? job->divisor : 1;
    if (job->dtype != HVD_BOOL) {
        p.before = factor_of(job->prescale);
        p.after = factor_of(job->postscale);
    }
    if (p.after != 1) {
        p.after /= p.divisor;
        p.divisor = 1;
    }
    /* A single input that nothing is done to keeps its bits. */
    p.widens = k->widen[job->dtype] &&
               (p.out != job->dtype || job->inputs > 1 || p.before != 1 || p.after != 1 || p.divisor > 1);
    if (p.widens)
        p.lane = HVD_FLOAT32;
    p.narrows = p.out != p.lane;
    p.lane_size = dtype_size(p.lane);
    p.combine = &k->combine[p.lane][job->op];
    if (p.divisor > 1 && (p.divisor & (p.divisor - 1)) == 0 && job->inputs > 1 && k->mean[p.lane]) {
        p.mean = 1.0 / p.divisor;
        p.divisor = 1;
    }
    return p;
}

/* Elements of input i, as they are combined: where they lie, or in `room`. */
static const void *load_operand(const struct plan *p, size_t i, size_t first, size_t count, void *room)
{
    const void *from = (const char *)p->job->in[i] + first * p->size;
    if (p->widens) {
        p->k->widen[p->job->dtype](room, from, count);
        from = room;
    }
    if (p->before != 1) {
        p->k->scale[p->lane](room, from, count, p->before);
        from = room;
    }
    return from;
}

/* Elements a op b into both places, which may be one. `last`: no input follows. */
static void combine_inputs(const struct plan *p, bool last, void *to, void *too, const void *a, const void *b,
                           size_t count)
{
    if (last && p->mean != 0)
        p->k->mean[p->lane](to, too, a, b, count, p->mean);
    else if (to == too)
        p->combine->one(to, a, b, count);
    else
        p->combine->two(to, too, a, b, count);
}

/* Truth is 0 or 1, also of a single input. */
static bool is_logical(const struct plan *p)
{
    hvd_op op = p->job->op;
    return p->lane == HVD_BOOL || op == HVD_LAND || op == HVD_LOR || op == HVD_LXOR;
}

/* The result's elements before they are stored: in `block`, or where a single input lies. */
static const void *reduce_block(const struct plan *p, size_t first, size_t count, void *block, void *room)
{
    const void *sum = load_operand(p, 0, first, count, block);
    for (size_t i = 1; i < p->job->inputs; i++) {
        combine_inputs(p, i + 1 == p->job->inputs, block, block, sum, load_operand(p, i, first, count, room),
                       count);
        sum = block;
    }
    if (p->job->inputs == 1 && is_logical(p)) {
        p->k->combine[p->lane][HVD_LOR].one(block, sum, sum, count);
        sum = block;
    }
    if (p->after != 1) {
        p->k->scale[p->lane](block, sum, count, p->after);
        sum = block;
    } else if (p->divisor > 1) {
        if (sum != block)
            memcpy(block, sum, count * p->lane_size);
        p->k->divide[p->lane](block, count, p->divisor);
        sum = block;
    }
    if (p->narrows && sum != block && p->job->out[0] == p->job->in[0])
        sum = memcpy(block, sum, count * p->lane_size); /* its place is about to be written */
    return sum;
}

static void store_result(const struct plan *p, const void *sum, size_t first, size_t count)
{
    for (size_t i = 0; i < p->job->outputs; i++) {
        void *to = (char *)p->job->out[i] + first * p->out_size;
        if (p->narrows && i == 0)
            p->k->narrow[p->out](to, sum, count);
        else if (p->narrows)
            memcpy(to, (const char *)p->job->out[0] + first * p->out_size, count * p->out_size);
        else if (to != sum)
            memcpy(to, sum, count * p->out_size);
    }
}

/* Two inputs as they are: straight into at most two outputs. */
static bool reduce_two(const struct plan *p, size_t first, size_t count)
{
    const struct reduce_job *job = p->job;
    size_t at = first * p->size;
    if (job->inputs != 2 || job->outputs > 2 || job->outputs == 0 || p->widens || p->narrows ||
        p->before != 1 || p->after != 1 || p->divisor > 1)
        return false;
    combine_inputs(p, true, (char *)job->out[0] + at, (char *)job->out[job->outputs - 1] + at,
                   (const char *)job->in[0] + at, (const char *)job->in[1] + at, count);
    return true;
}

void reduce_range_by(const struct reduce_kernels *k, const struct reduce_job *job, size_t first, size_t count)
{
    struct plan p = plan_of(k, job);
    size_t most = BLOCK_BYTES / p.lane_size;
    if (reduce_two(&p, first, count))
        return;
    _Alignas(64) char block[BLOCK_BYTES], room[BLOCK_BYTES];
    while (count > 0) {
        size_t n = count < most ? count : most;
        store_result(&p, reduce_block(&p, first, n, block, room), first, n);
        first += n;
        count -= n;
    }
}

void reduce_range(const struct reduce_job *job, size_t first, size_t count)
{
    reduce_range_by(find_best(), job, first, count);
}
