/* Reductions, their types and their chunks against plain arithmetic: integers modulo 2^64, floating point in
 * double, rounded by what IEEE 754 says and not by what the processor has. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/kernels/chunk.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/half.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/reduce_kernels.h"

#define INPUTS 4
#define MOST   9000 /* elements of any type */

/* ---- one element, plainly ------------------------------------------------------------------------------ */

struct number {
    uint64_t i; /* integers and bool, sign extended */
    double f;
};

static bool is_float(hvd_dtype t)
{
    return t == HVD_FLOAT16 || t == HVD_BFLOAT16 || t == HVD_FLOAT32 || t == HVD_FLOAT64;
}

static bool is_signed(hvd_dtype t)
{
    return t == HVD_INT8 || t == HVD_INT16 || t == HVD_INT32 || t == HVD_INT64;
}

/* A 16-bit format: bits of the mantissa, smallest and largest exponent. */
struct format {
    int mantissa, least, most;
};

static struct format format_of(hvd_dtype t)
{
    return t == HVD_FLOAT16 ? (struct format){10, -14, 15} : (struct format){7, -126, 127};
}

static double decode(struct format f, uint16_t bits)
{
    int exponent = (bits & 0x7fff) >> f.mantissa, mantissa = bits & ((1 << f.mantissa) - 1);
    double v;

    if (exponent == f.most - f.least + 2)
        v = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        v = ldexp(mantissa, f.least - f.mantissa);
    else
        v = ldexp(mantissa + (1 << f.mantissa), f.least + exponent - 1 - f.mantissa);
    return bits & 0x8000 ? -v : v;
}

static uint16_t encode(struct format f, double v)
{
    int infinite = (f.most - f.least + 2) << f.mantissa, exponent, bits;
    double a = fabs(v), whole;

    if (isnan(v))
        return (uint16_t)(infinite | 1 << (f.mantissa - 1));
    exponent = a > 0 && isfinite(a) && ilogb(a) > f.least ? ilogb(a) : f.least;
    whole = isfinite(a) ? nearbyint(ldexp(a, f.mantissa - exponent)) : 0;
    /* A mantissa that rounds up to the next power of two carries into the exponent. */
    bits = (int)whole + ((exponent - f.least) << f.mantissa);
    if (!isfinite(a) || exponent > f.most || bits > infinite)
        bits = infinite;
    return (uint16_t)(bits | (signbit(v) ? 0x8000 : 0));
}

static struct number load(hvd_dtype t, const uint8_t *at)
{
    size_t size = dtype_size(t);
    struct number n = {0};
    float f;

    memcpy(&n.i, at, size);
    if (t == HVD_FLOAT64) {
        memcpy(&n.f, at, size);
    } else if (t == HVD_FLOAT32) {
        memcpy(&f, at, size);
        n.f = f;
    } else if (is_float(t)) {
        n.f = decode(format_of(t), (uint16_t)n.i);
    } else if (is_signed(t)) {
        n.i = (uint64_t)((int64_t)(n.i << (64 - 8 * size)) >> (64 - 8 * size));
    } else if (t == HVD_BOOL) {
        n.i = n.i != 0;
    }
    return n;
}

static void save(hvd_dtype t, uint8_t *at, struct number n)
{
    size_t size = dtype_size(t);
    float f = isnan(n.f) ? __builtin_nanf("") : (float)n.f;

    if (t == HVD_FLOAT64)
        n.f = isnan(n.f) ? __builtin_nan("") : n.f, memcpy(at, &n.f, size);
    else if (t == HVD_FLOAT32)
        memcpy(at, &f, size);
    else if (is_float(t))
        n.i = encode(format_of(t), n.f), memcpy(at, &n.i, size);
    else
        memcpy(at, &n.i, size);
}

/* The running result as its type holds it: floats of up to 32 bits as float, integers wrapped. One operation
 * of floats, made in double and rounded to float, gives the result of the float operation. */
static struct number hold(hvd_dtype t, struct number n)
{
    uint8_t bytes[8] = {0};

    if (is_float(t)) {
        n.f = t == HVD_FLOAT64 ? n.f : (double)(float)n.f;
        return n;
    }
    memcpy(bytes, &n.i, sizeof bytes);
    return load(t, bytes);
}

static struct number apply(hvd_dtype t, hvd_op op, struct number a, struct number b)
{
    bool less = is_float(t)    ? a.f < b.f || isnan(a.f)
                : is_signed(t) ? (int64_t)a.i < (int64_t)b.i
                               : a.i < b.i;
    bool more = is_float(t)    ? a.f > b.f || isnan(a.f)
                : is_signed(t) ? (int64_t)a.i > (int64_t)b.i
                               : a.i > b.i;

    switch (op) {
    case HVD_AVERAGE:
    case HVD_SUM:
        return hold(t, (struct number){t == HVD_BOOL ? a.i | b.i : a.i + b.i, a.f + b.f});
    case HVD_PRODUCT:
        return hold(t, (struct number){a.i * b.i, a.f * b.f});
    case HVD_MIN:
        return less ? a : b;
    case HVD_MAX:
        return more ? a : b;
    case HVD_BAND:
        return (struct number){a.i & b.i, 0};
    case HVD_BOR:
        return (struct number){a.i | b.i, 0};
    case HVD_BXOR:
        return (struct number){a.i ^ b.i, 0};
    case HVD_LAND:
        return (struct number){a.i && b.i, 0};
    case HVD_LOR:
        return (struct number){a.i || b.i, 0};
    case HVD_LXOR:
        return (struct number){!a.i != !b.i, 0};
    default:
        ck_abort_msg("operation %d", op);
    }
}

static struct number scaled(hvd_dtype t, struct number n, double factor)
{
    unsigned bits = 8 * (unsigned)dtype_size(t);
    double top, r;

    if (factor == 1 || t == HVD_BOOL)
        return n;
    if (is_float(t))
        return hold(t, (struct number){0, n.f * factor});
    r = (is_signed(t) ? (double)(int64_t)n.i : (double)n.i) * factor;
    top = ldexp(1, (int)bits - is_signed(t));
    if (trunc(r) >= top)
        n.i = UINT64_MAX >> (64 - bits + is_signed(t));
    else if (r <= (is_signed(t) ? -top : 0))
        n.i = is_signed(t) ? UINT64_MAX << (bits - 1) : 0;
    else
        n.i = is_signed(t) ? (uint64_t)(int64_t)r : (uint64_t)r;
    return n;
}

static struct number divided(hvd_dtype t, struct number n, uint32_t divisor)
{
    if (is_float(t))
        return hold(t, (struct number){0, n.f / divisor});
    n.i = is_signed(t) ? (uint64_t)((int64_t)n.i / divisor) : n.i / divisor;
    return n;
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

static uint8_t *memory[INPUTS], *original[INPUTS], *apart, *again, *expected;

static void setup(void)
{
    for (int k = 0; k < INPUTS; k++) {
        memory[k] = malloc(MOST * 8 + 1);
        original[k] = malloc(MOST * 8 + 1);
    }
    apart = malloc(MOST * 8 + 1);
    again = malloc(MOST * 8 + 1);
    expected = malloc(MOST * 8);
}

static void teardown(void)
{
    for (int k = 0; k < INPUTS; k++) {
        free(memory[k]);
        free(original[k]);
    }
    free(apart);
    free(again);
    free(expected);
}

/* More than one block of the type. */
static size_t elements(hvd_dtype t)
{
    return 8192 / dtype_size(t) + 700;
}

static uint64_t random_state;

static uint64_t any_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 32 ^ random_state << 17;
}

/* The first half of the elements is tame, the second any bits: NaN, infinities, subnormals, overflow. */
static void fill(hvd_dtype t)
{
    size_t size = dtype_size(t), most = elements(t);

    random_state = t;
    for (int k = 0; k < INPUTS; k++) {
        for (size_t i = 0; i < most; i++) {
            uint64_t bits = any_bits(), small = bits % 100;
            if (t == HVD_BOOL)
                bits = bits >> 9 & 1 ? bits : 0;
            if (i < most / 2)
                save(t, original[k] + i * size, (struct number){small, (double)small / 8 - 6});
            else
                memcpy(original[k] + i * size, &bits, size);
        }
    }
}

static void expect(const struct reduce_job *job)
{
    hvd_dtype t = job->dtype;
    size_t size = dtype_size(t), most = elements(t);
    bool logical = t == HVD_BOOL || job->op >= HVD_LAND;
    bool plain = job->inputs == 1 && job->prescale == 1 && job->postscale == 1 && job->divisor == 1;

    for (size_t i = 0; i < most; i++) {
        struct number r = scaled(t, load(t, original[0] + i * size), job->prescale);
        for (size_t k = 1; k < job->inputs; k++)
            r = apply(t, job->op, r, scaled(t, load(t, original[k] + i * size), job->prescale));
        if (logical)
            r.i = r.i != 0;
        if (job->op == HVD_AVERAGE && job->postscale == 1 && job->divisor != 1)
            r = divided(t, r, job->divisor);
        else
            r = scaled(t, r, job->op == HVD_AVERAGE ? job->postscale / job->divisor : job->postscale);
        if (plain && !logical) /* the very bits */
            memcpy(expected + i * size, original[0] + i * size, size);
        else
            save(t, expected + i * size, r);
    }
}

static void same(const struct reduce_job *job, const char *version, const char *what, const uint8_t *got,
                 const uint8_t *want, size_t first, size_t count)
{
    size_t size = dtype_size(job->dtype);

    for (size_t i = first; i < first + count; i++) {
        struct number g = load(job->dtype, got + i * size), w = load(job->dtype, want + i * size);
        if (memcmp(got + i * size, want + i * size, size) != 0)
            ck_abort_msg("%s: %s of %zu %s by %g, %g and %u, %s, element %zu: %#llx (%g), not %#llx (%g)",
                         version, op_name(job->op), job->inputs, dtype_name(job->dtype), job->prescale,
                         job->postscale, job->divisor, what, i, (unsigned long long)g.i, g.f,
                         (unsigned long long)w.i, w.f);
    }
}

/* Elements [first, first + count), all arrays `shift` bytes off; output 0 is in place on input 0. */
static void check_range(const struct reduce_kernels *k, struct reduce_job *job, size_t shift, size_t first,
                        size_t count)
{
    size_t size = dtype_size(job->dtype), most = elements(job->dtype), bytes = most * size;
    const void *in[INPUTS];
    void *out[] = {memory[0] + shift, apart + shift, again + shift};

    for (size_t i = 0; i < job->inputs; i++)
        in[i] = memcpy(memory[i] + shift, original[i], bytes);
    memset(apart, 0x5a, bytes + 1);
    memset(again, 0x5a, bytes + 1);
    job->in = in;
    job->out = out;
    reduce_range_by(k, job, first, count);
    for (size_t o = 0; o < job->outputs; o++)
        same(job, k->name, "result", out[o], expected, first, count);
    for (size_t i = 1; i < job->inputs; i++)
        ck_assert_msg(memcmp(in[i], original[i], bytes) == 0, "input %zu has changed", i);
    ck_assert_int_eq(memcmp(in[0], original[0], first * size), 0);
    ck_assert_int_eq(memcmp((const uint8_t *)in[0] + (first + count) * size,
                            original[0] + (first + count) * size, (most - first - count) * size),
                     0);
    for (size_t i = shift; i < shift + bytes; i++)
        if ((i - shift < first * size || i - shift >= (first + count) * size) && apart[i] != 0x5a)
            ck_abort_msg("%s: %s of %s writes outside its range, at byte %zu", k->name, op_name(job->op),
                         dtype_name(job->dtype), i);
}

START_TEST(every_op_of_every_type)
{
    static const double factors[][2] = {{1, 1}, {0.3, 1}, {1, 1.7}, {-1.25, 3}, {1, 1}};
    const struct reduce_kernels *version[REDUCE_VERSIONS_MAX];
    unsigned versions = reduce_versions(version);
    hvd_dtype t = (hvd_dtype)(_i / OPS);
    hvd_op op = (hvd_op)(_i % OPS);

    if (op_refused(t, op) || !op_elementwise(op))
        return;
    setup();
    fill(t);
    for (unsigned f = 0; f < sizeof factors / sizeof *factors; f++) {
        for (unsigned inputs = 1; inputs <= INPUTS; inputs *= 2) {
            struct reduce_job job = {.inputs = inputs, .outputs = 1 + inputs % 3, .dtype = t, .op = op};
            job.prescale = factors[f][0];
            job.postscale = factors[f][1];
            job.divisor = op != HVD_AVERAGE || inputs == 1 ? 1 : f == 4 ? 64 : inputs + 46;
            expect(&job);
            for (unsigned v = 0; v < versions; v++) {
                check_range(version[v], &job, 0, 0, elements(t));
                check_range(version[v], &job, 1, 17, 1);
                check_range(version[v], &job, 1, 1000, elements(t) - 1023);
                check_range(version[v], &job, 0, 5, 0);
                job.outputs = 2; /* two of two: no block */
                check_range(version[v], &job, 1, 3, elements(t) - 5);
            }
        }
    }
    teardown();
}
END_TEST

static void check_widen(struct format f, float (*widen)(uint16_t), uint16_t (*narrow)(float), uint16_t bits)
{
    double v = decode(f, bits);

    if (isnan(v) ? !isnan(widen(bits)) : widen(bits) != v || narrow((float)v) != bits)
        ck_abort_msg("%#x (%g) becomes %g and goes back to %#x", bits, v, widen(bits), narrow((float)v));
}

static void check_narrow(struct format f, uint16_t (*narrow)(float), float v)
{
    if (narrow(v) != encode(f, v))
        ck_abort_msg("%a becomes %#x, not %#x", v, narrow(v), encode(f, v));
}

START_TEST(halves)
{
    struct format f = format_of(HVD_FLOAT16), b = format_of(HVD_BFLOAT16);

    for (uint32_t i = 0; i < 65536; i++) {
        check_widen(f, float16_widen, float16_narrow, (uint16_t)i);
        check_widen(b, bfloat16_widen, bfloat16_narrow, (uint16_t)i);
    }
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4093) {
        check_narrow(f, float16_narrow, half_float_of((uint32_t)bits));
        check_narrow(b, bfloat16_narrow, half_float_of((uint32_t)bits));
    }
    /* Ties, the largest, the smallest. */
    ck_assert_uint_eq(float16_narrow(65519.996f), 0x7bff);
    ck_assert_uint_eq(float16_narrow(65520), 0x7c00);
    ck_assert_uint_eq(float16_narrow(0x1p-25f), 0);
    ck_assert_uint_eq(float16_narrow(-0x1.000002p-25f), 0x8001);
    ck_assert_uint_eq(bfloat16_narrow(0x1.01p0f), 0x3f80);
    ck_assert_uint_eq(bfloat16_narrow(0x1.03p0f), 0x3f82);
    ck_assert_uint_eq(bfloat16_narrow(3.4e38f), 0x7f80);
}
END_TEST

/* 16-bit inputs are rounded once: 2048 + 1 + 1 is 2050, where rounding at each step gives 2048. */
START_TEST(halves_are_rounded_once)
{
    uint16_t x = float16_narrow(2048), y = float16_narrow(1), r;
    const void *in[] = {&x, &y, &y};
    void *out[] = {&r};
    struct reduce_job job = {in, 3, out, 1, HVD_FLOAT16, HVD_SUM, 0, 0, 0, 0};

    reduce_range(&job, 0, 1);
    ck_assert_uint_eq(r, float16_narrow(2050));
}
END_TEST

START_TEST(scaling_that_is_not_asked_for)
{
    int32_t a = 49, b = 0, r;
    const void *in[] = {&a, &b};
    void *out[] = {&r};
    struct reduce_job job = {in, 2, out, 1, HVD_INT32, HVD_AVERAGE, 49, 0, 0, 0};

    reduce_range(&job, 0, 1);
    ck_assert_int_eq(r, 1); /* 49 * (1 / 49.0) is less than 1 */
    job.op = HVD_SUM;
    reduce_range(&job, 0, 1);
    ck_assert_int_eq(r, 49); /* not divided */
}
END_TEST

/* The order is part of the result: 1e8 - 1e8 + 1 in f32 depends on it. */
START_TEST(the_order_of_inputs_is_kept)
{
    float x[20000], y[20000], z[20000], out[20000], again_[20000];
    const void *in[] = {x, y, z};
    void *first[] = {out}, *second[] = {again_};

    for (int i = 0; i < 20000; i++) {
        x[i] = 1e8f;
        y[i] = -1e8f;
        z[i] = 1;
    }
    struct reduce_job job = {in, 3, first, 1, HVD_FLOAT32, HVD_SUM, 0, 0, 0, 0};
    reduce_range(&job, 0, 20000);
    job.out = second;
    for (size_t i = 0; i < 20000; i += 1250) /* other chunks, same bits */
        reduce_range(&job, i, 1250);
    ck_assert_int_eq(memcmp(out, again_, sizeof out), 0);
    ck_assert(out[0] == 1 && out[19999] == 1);
    in[1] = z;
    in[2] = y;
    reduce_range(&job, 0, 20000);
    ck_assert(again_[7] == 0);
}
END_TEST

#define WINDOW     (2ull << 20)
#define HUGE_COUNT ((1ull << 31) + WINDOW - 3)

/* HUGE_COUNT bytes of address space over one window of memory again and again, and a last one of its own. */
static uint8_t *repeated(int value)
{
    int fd = memfd_create("window", MFD_CLOEXEC);
    uint8_t *base =
        mmap(NULL, (1ull << 31) + WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert(fd >= 0 && base != MAP_FAILED && ftruncate(fd, 2 * WINDOW) == 0);
    for (uint64_t at = 0; at <= 1ull << 31; at += WINDOW)
        ck_assert_ptr_ne(mmap(base + at, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                              at == 1ull << 31 ? WINDOW : 0),
                         MAP_FAILED);
    close(fd);
    memset(base, value, WINDOW);
    memset(base + (1ull << 31), value, WINDOW);
    return base;
}

START_TEST(more_than_2_31_elements)
{
    uint8_t *a = repeated(3), *b = repeated(5), *c = repeated(0), *last = c + (1ull << 31);
    const void *in[] = {a, b};
    void *out[] = {c};
    struct reduce_job job = {in, 2, out, 1, HVD_UINT8, HVD_SUM, 0, 0, 0, 0};

    b[HUGE_COUNT - 1] = 7;
    reduce_range(&job, 0, HUGE_COUNT);
    ck_assert(c[0] == 8 && c[WINDOW - 1] == 8 && last[0] == 8 && last[WINDOW - 5] == 8);
    ck_assert(last[WINDOW - 4] == 10 && last[WINDOW - 3] == 0 && last[WINDOW - 1] == 0);
    job.op = HVD_AVERAGE; /* by blocks */
    job.divisor = 2;
    reduce_range(&job, (1ull << 31) - 9000, 9000 + 1);
    ck_assert(c[WINDOW - 1] == 4 && c[0] == 8 && last[0] == 4 && last[1] == 8);
    for (int i = 0; i < 3; i++)
        munmap((uint8_t *[]){a, b, c}[i], (1ull << 31) + WINDOW);
}
END_TEST

START_TEST(chunks_cover_everything_once)
{
    static const size_t counts[] = {
        0, 1, 15, 16, 17, 1023, 4096, 100000, 1 << 20, (64 << 20) + 3, (size_t)1 << 40};

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t size = 4; size <= 8; size *= 2) {
            for (uint32_t workers = 1; workers <= 64; workers = workers * 3 + 1) {
                struct chunks k = chunks_cut(counts[c], size, workers);
                size_t next = 0, first, count;
                for (uint32_t i = 0; i < k.number && i < 3000; i++) {
                    chunks_range(&k, i, &first, &count);
                    if (first != next || count == 0 || first * size % 64 != 0)
                        ck_abort_msg("chunk %u of %zu: %zu elements at %zu", i, counts[c], count, first);
                    next = first + count;
                }
                if (k.number) {
                    chunks_range(&k, k.number - 1, &first, &count);
                    next = first + count;
                }
                ck_assert_uint_eq(next, counts[c]);
                ck_assert(counts[c] * size < 1 << 20 || k.number >= 1);
            }
        }
    }
    /* Large ones give everybody something to do. */
    ck_assert_uint_ge(chunks_cut(1 << 20, 4, 8).number, 8);
    ck_assert_uint_eq(chunks_cut(2048, 4, 2).number, 2);
}
END_TEST

/* Workers take turns, or one of them does everything: every chunk once. */
START_TEST(chunks_are_taken_once_own_ones_first)
{
    for (uint32_t number = 0; number <= 300; number += number < 50 ? 1 : 49) {
        struct chunks c = {.total = number, .each = 1, .number = number};
        for (uint32_t workers = 1; workers <= 40; workers += workers < 9 ? 1 : 31) {
            for (uint32_t alone = 0; alone <= workers + 1; alone++) {
                uint32_t taken = 0, then = 0, seen[300] = {0}, chunk, n = 0;
                for (;; taken = then, n++) {
                    uint32_t worker = alone <= workers ? alone : n % (workers + 1);
                    chunk = chunks_pick(&c, taken, worker, workers, false, &then);
                    if (chunk == CHUNK_NONE)
                        break;
                    ck_assert_uint_lt(chunk, number);
                    ck_assert_uint_eq(seen[chunk]++, 0);
                }
                ck_assert_uint_eq(n, number);
            }
        }
    }
    struct chunks c = {.total = 8, .each = 1, .number = 8};
    uint32_t then, again_;
    ck_assert_uint_eq(chunks_pick(&c, 0, 0, 2, false, &then), 0);
    ck_assert_uint_eq(chunks_pick(&c, then, 1, 2, false, &then), 4);
    ck_assert_uint_eq(chunks_pick(&c, then, 0, 2, false, &then), 1);
    ck_assert_uint_eq(chunks_pick(&c, then, 2, 2, false, &again_), 7); /* the engine */
    ck_assert_uint_eq(chunks_pick(&c, 0xf0, 1, 2, false, &then), 3);   /* helps */
    ck_assert_uint_eq(chunks_pick(&c, 0xff, 1, 2, false, &then), CHUNK_NONE);
}
END_TEST

/* A worker that has begun its own part keeps it, as long as the other workers are patient. */
START_TEST(patient_ones_help_who_has_not_begun)
{
    struct chunks c = {.each = 1};
    uint32_t then;

    for (c.number = 0; c.number <= 32; c.number++) {
        for (uint32_t workers = 1; workers <= 40; workers++) {
            uint32_t taken = 0, n = 0;
            for (; chunks_pick(&c, taken, 0, workers, true, &then) != CHUNK_NONE; taken = then)
                n++; /* nobody else has begun: it may do everything */
            ck_assert_uint_eq(n, c.number);
        }
    }
    c.number = 8;
    ck_assert_uint_eq(chunks_pick(&c, 0x0f, 0, 2, true, &then), 7);
    ck_assert_uint_eq(chunks_pick(&c, 0x8f, 0, 2, true, &then), 6);
    ck_assert_uint_eq(chunks_pick(&c, 0xcf, 1, 2, true, &then), 4);
    ck_assert_uint_eq(chunks_pick(&c, 0x1f, 0, 2, true, &then), CHUNK_NONE);
    ck_assert_uint_eq(chunks_pick(&c, 0x1f, 1, 2, true, &then), 5);
    ck_assert_uint_eq(chunks_pick(&c, 0x1f, 0, 2, false, &then), 7);
    ck_assert_uint_eq(chunks_pick(&c, 0x11, 2, 2, true, &then), CHUNK_NONE);
    c.number = 32;
    ck_assert_uint_eq(chunks_pick(&c, 0x80000000, 0, 1, true, &then), 0);
    ck_assert_uint_eq(chunks_pick(&c, 0x00ffffff, 0, 4, true, &then), 31);
    ck_assert_uint_eq(chunks_pick(&c, 0x01ffffff, 0, 4, true, &then), CHUNK_NONE);
    ck_assert_uint_eq(chunks_pick(&c, 0x01ff00ff, 0, 4, true, &then), 15);
    c.number = 1000;
    ck_assert_uint_eq(chunks_pick(&c, 0, 3, 4, true, &then), 750);
    ck_assert_uint_eq(chunks_pick(&c, then, 3, 4, true, &then), 751);
    ck_assert_uint_eq(then, 0x02000000);
    ck_assert_uint_eq(chunks_pick(&c, 0xfa000001, 3, 4, true, &then), CHUNK_NONE);
    ck_assert_uint_eq(chunks_pick(&c, 0xfa000001, 3, 4, false, &then), 1);
    ck_assert_uint_eq(chunks_pick(&c, 0xfa0000fa, 3, 4, false, &then), 250);
    ck_assert_uint_eq(chunks_pick(&c, 0xfafafafa, 4, 4, false, &then), CHUNK_NONE);
    c.number = 1020; /* no room */
    ck_assert_uint_eq(chunks_pick(&c, 7, 3, 4, true, &then), 7);
}
END_TEST

START_TEST(numbers_from_outside)
{
    for (int i = -3; i < 300; i++) {
        bool dtype = i >= 0 && i <= 14, op = i >= 0 && i <= 11;
        ck_assert_int_eq(dtype_size(i) != 0, dtype);
        ck_assert_int_eq(op_valid(i), op);
        ck_assert_int_eq(op_elementwise(i), op && i != HVD_ADASUM);
        ck_assert_int_eq(strcmp(dtype_name(i), "unknown") != 0, dtype);
        ck_assert_int_eq(strcmp(op_name(i), "unknown") != 0, op);
        ck_assert_int_eq(op_refused(i, HVD_SUM) == NULL, dtype && i < HVD_FLOAT8_E4M3);
        ck_assert_int_eq(dtype_of_devices(i), dtype && i >= HVD_FLOAT8_E4M3);
        ck_assert_int_eq(op_refused(HVD_INT8, i) == NULL, op && i != HVD_ADASUM);
        ck_assert_int_eq(op_refused(HVD_BFLOAT16, i) == NULL, op && i <= HVD_PRODUCT);
        ck_assert_int_eq(op_refused(HVD_BOOL, i) == NULL, op && i != HVD_ADASUM && i != HVD_AVERAGE);
    }
    ck_assert_str_eq(op_refused(HVD_FLOAT32, HVD_BAND), "bitwise operations need integers or bool");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reduce");
    TCase *tc = tcase_create("reduce");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_op_of_every_type, 0, DTYPES * OPS);
    tcase_add_test(tc, halves);
    tcase_add_test(tc, halves_are_rounded_once);
    tcase_add_test(tc, scaling_that_is_not_asked_for);
    tcase_add_test(tc, the_order_of_inputs_is_kept);
    tcase_add_test(tc, more_than_2_31_elements);
    tcase_add_test(tc, chunks_cover_everything_once);
    tcase_add_test(tc, chunks_are_taken_once_own_ones_first);
    tcase_add_test(tc, patient_ones_help_who_has_not_begun);
    tcase_add_test(tc, numbers_from_outside);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
