/* Communicators of several processes on the doubles of CUDA and NCCL: every kind with every type, what NCCL
 * is not asked for, errors in the Nth call, ranks that die, aborts that block. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/kernels/dtype.h"
#include "collectives/gpu/communicator.h"
#include "tests/unit/gpu_ranks.h"

#define MOST 4096 /* elements */

/* ---- numbers of every type, small enough to be exact in each ---- */

static const struct {
    int fraction, bias;
} small[DTYPES] = {
    [HVD_FLOAT16] = {10, 15},
    [HVD_BFLOAT16] = {7, 127},
    [HVD_FLOAT8_E4M3] = {3, 7},
    [HVD_FLOAT8_E5M2] = {2, 15},
};

static void put(void *to, int dtype, size_t i, double x)
{
    char *at = (char *)to + i * dtype_size(dtype);
    if (dtype == HVD_FLOAT32) {
        memcpy(at, &(float){(float)x}, 4);
    } else if (dtype == HVD_FLOAT64) {
        memcpy(at, &x, 8);
    } else if (small[dtype].bias) {
        int e;
        double half = frexp(x, &e);
        int bits = x == 0 ? 0
                          : (e - 1 + small[dtype].bias) << small[dtype].fraction |
                                (int)ldexp(2 * half - 1, small[dtype].fraction);
        memcpy(at, &bits, dtype_size(dtype));
    } else {
        memcpy(at, &(int64_t){(int64_t)x}, dtype_size(dtype));
    }
}

static double get(const void *from, int dtype, size_t i)
{
    const char *at = (const char *)from + i * dtype_size(dtype);
    int64_t n = 0;
    memcpy(&n, at, dtype_size(dtype));
    if (dtype == HVD_FLOAT32) {
        float f;
        memcpy(&f, at, 4);
        return f;
    }
    if (dtype == HVD_FLOAT64) {
        double f;
        memcpy(&f, at, 8);
        return f;
    }
    if (!small[dtype].bias)
        return (double)n;
    int exponent = (int)(n >> small[dtype].fraction),
        fraction = (int)(n & ((1 << small[dtype].fraction) - 1));
    return n == 0 ? 0 : ldexp(1 + ldexp(fraction, -small[dtype].fraction), exponent - small[dtype].bias);
}

/* 1 or 2 of every rank: up to four of them have exact sums, products and averages in every type. */
static double value(int rank, size_t i)
{
    return 1 + (double)((i + (size_t)rank) % 2);
}

static double reduced(int op, int size, size_t i)
{
    double all = op == HVD_PRODUCT ? 1 : op == HVD_MIN ? 9 : 0;
    for (int r = 0; r < size; r++) {
        double x = value(r, i);
        all = op == HVD_PRODUCT ? all * x
              : op == HVD_MIN   ? (x < all ? x : all)
              : op == HVD_MAX   ? (x > all ? x : all)
                                : all + x;
    }
    return op == HVD_AVERAGE ? all / size : all;
}

static const int reduced_types[] = {HVD_UINT8,   HVD_INT8,     HVD_INT32,       HVD_INT64,
                                    HVD_UINT32,  HVD_UINT64,   HVD_FLOAT16,     HVD_FLOAT32,
                                    HVD_FLOAT64, HVD_BFLOAT16, HVD_FLOAT8_E4M3, HVD_FLOAT8_E5M2};
static const int reduced_ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static char host[MOST * 8];

static void fill(int dtype, int rank, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(host, dtype, i, value(rank, i));
}

static void check_numbers(struct gpu_rank *me, const struct gpu_operation *o, size_t first, size_t n,
                          double times)
{
    gpu_read(me, host, o->out, n * dtype_size(o->dtype));
    for (size_t i = 0; i < n; i++) {
        double expected = reduced(o->op, me->size, first + i) * times, got = get(host, o->dtype, i);
        if (o->op == HVD_AVERAGE && dtype_size(o->dtype) && !small[o->dtype].bias &&
            o->dtype != HVD_FLOAT32 && o->dtype != HVD_FLOAT64)
            expected = trunc(expected);
        WANT(got == expected, "%s of %s, element %zu: %g, not %g", op_name(o->op), dtype_name(o->dtype), i,
             got, expected);
    }
}

/* ---- every kind with every type ---- */

static void one_reduction(struct gpu_rank *me, int dtype, int op, enum gpu_kind kind, size_t rows,
                          size_t row_count)
{
    size_t n = rows * row_count, first = 0, mine = n;
    fill(dtype, me->rank, n);
    void *in = gpu_memory(me, host, n * dtype_size(dtype)),
         *out = gpu_memory(me, NULL, n * dtype_size(dtype));
    struct gpu_operation o = {.kind = kind,
                              .dtype = dtype,
                              .op = op,
                              .prescale = 1,
                              .postscale = 1,
                              .in = in,
                              .out = n % 2 && kind == GPU_ALLREDUCE ? in : out,
                              .count = n,
                              .row_count = row_count};
    struct gpu_abilities all = gpu_abilities(me->n, &me->gpu, NULL, 0);
    struct gpu_why why;
    bool can = communicator_can(&o, me->size, all, &why);
    WANT(can || (gpu_real() && (dtype == HVD_FLOAT8_E4M3 || dtype == HVD_FLOAT8_E5M2)), "%s", why.text);
    if (!can)
        return;
    gpu_do(me, &o, 1);
    if (kind == GPU_REDUCESCATTER) {
        size_t least = rows / (size_t)me->size, more = rows % (size_t)me->size, r = (size_t)me->rank;
        mine = (least + (r < more)) * row_count;
        first = (r * least + (r < more ? r : more)) * row_count;
    }
    check_numbers(me, &o, first, mine, 1);
    gpu_free(me, in);
    gpu_free(me, out);
}

static void every_reduction(struct gpu_rank *me)
{
    gpu_open(me);
    gpu_join(me);
    for (size_t t = 0; t < COUNT(reduced_types); t++)
        for (size_t p = 0; p < COUNT(reduced_ops); p++) {
            bool thirds = me->size == 3 && reduced_ops[p] == HVD_AVERAGE && small[reduced_types[t]].bias;
            if (thirds ||
                (me->size == 3 && reduced_ops[p] == HVD_AVERAGE && dtype_size(reduced_types[t]) >= 4))
                continue; /* NCCL multiplies by what it has for 1/3 */
            one_reduction(me, reduced_types[t], reduced_ops[p], GPU_ALLREDUCE, 101 + t, 1);
            one_reduction(me, reduced_types[t], reduced_ops[p], GPU_REDUCESCATTER, (size_t)me->size * 5, 7);
            one_reduction(me, reduced_types[t], reduced_ops[p], GPU_REDUCESCATTER, 6 + t, 9);
        }
    one_reduction(me, HVD_FLOAT32, HVD_SUM, GPU_REDUCESCATTER, 1, 3); /* some ranks get nothing */
    one_reduction(me, HVD_FLOAT32, HVD_SUM, GPU_REDUCESCATTER, 0, 3);
    one_reduction(me, HVD_FLOAT32, HVD_SUM, GPU_ALLREDUCE, 0, 1);
    gpu_leave(me);
}

/* Element `i` that `from` sends to `to`; any bytes. */
static char byte_of(int from, int to, size_t i)
{
    return (char)(from * 31 + to * 7 + (int)i * 3 + 1);
}

static void fill_bytes(char *at, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = byte_of(from, to, i);
}

static void check_bytes(const char *at, int from, int to, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        WANT(at[i] == byte_of(from, to, i), "%s: byte %zu of %zu from %d", what, i, n, from);
}

static void move_alltoall(struct gpu_rank *me, int dtype, bool equal)
{
    size_t sent[16], counts[16], bytes = dtype_size(dtype), in_all = 0, out_all = 0, at = 0;
    for (int r = 0; r < me->size; r++) {
        sent[r] = equal ? 5 : (size_t)((me->rank + 2 * r) % 4) * 3;
        counts[r] = equal ? 5 : (size_t)((r + 2 * me->rank) % 4) * 3;
        fill_bytes(host + in_all, me->rank, r, sent[r] * bytes);
        in_all += sent[r] * bytes;
        out_all += counts[r] * bytes;
    }
    void *in = gpu_memory(me, host, in_all), *out = gpu_memory(me, NULL, out_all);
    struct gpu_operation o = {
        .kind = GPU_ALLTOALL, .dtype = dtype, .in = in, .out = out, .counts = counts, .sent = sent};
    gpu_do(me, &o, 1);
    gpu_read(me, host, out, out_all);
    for (int r = 0; r < me->size; r++) {
        check_bytes(host + at, r, me->rank, counts[r] * bytes, "alltoall");
        at += counts[r] * bytes;
    }
    gpu_free(me, in);
    gpu_free(me, out);
}

static void move_allgather(struct gpu_rank *me, int dtype, bool equal)
{
    size_t counts[16], bytes = dtype_size(dtype), all = 0, at = 0;
    for (int r = 0; r < me->size; r++) {
        counts[r] = equal ? 11 : (size_t)((r + 1) % 3) * 13;
        all += counts[r] * bytes;
    }
    fill_bytes(host, me->rank, 0, counts[me->rank] * bytes);
    void *in = gpu_memory(me, host, counts[me->rank] * bytes), *out = gpu_memory(me, NULL, all);
    struct gpu_operation o = {.kind = GPU_ALLGATHER, .dtype = dtype, .in = in, .out = out, .counts = counts};
    gpu_do(me, &o, 1);
    gpu_read(me, host, out, all);
    for (int r = 0; r < me->size; r++) {
        check_bytes(host + at, r, 0, counts[r] * bytes, "allgather");
        at += counts[r] * bytes;
    }
    gpu_free(me, in);
    gpu_free(me, out);
}

static void move_broadcast(struct gpu_rank *me, int dtype, int root)
{
    size_t n = 77, bytes = n * dtype_size(dtype);
    fill_bytes(host, me->rank, 0, bytes);
    void *at = gpu_memory(me, host, bytes);
    struct gpu_operation o = {.kind = GPU_BROADCAST, .dtype = dtype, .out = at, .count = n, .root = root};
    gpu_do(me, &o, 1);
    gpu_read(me, host, at, bytes);
    check_bytes(host, root, 0, bytes, "broadcast");
    gpu_free(me, at);
}

/* Around a ring: what goes out and what comes in are one group, so nobody waits for anybody. */
static void move_ring(struct gpu_rank *me, int dtype)
{
    size_t n = 33, bytes = n * dtype_size(dtype);
    int to = (me->rank + 1) % me->size, from = (me->rank + me->size - 1) % me->size;
    fill_bytes(host, me->rank, to, bytes);
    void *in = gpu_memory(me, host, bytes), *out = gpu_memory(me, NULL, bytes);
    struct gpu_operation o[] = {
        {.kind = DEVICE_SEND, .dtype = dtype, .in = in, .count = n, .root = to},
        {.kind = DEVICE_RECEIVE, .dtype = dtype, .out = out, .count = n, .root = from}};
    gpu_do(me, o, 2);
    gpu_read(me, host, out, bytes);
    check_bytes(host, from, me->rank, bytes, "receive");
    gpu_free(me, in);
    gpu_free(me, out);
}

static void every_move(struct gpu_rank *me)
{
    gpu_open(me);
    gpu_join(me);
    for (int dtype = 0; dtype < DTYPES; dtype++) {
        struct gpu_operation o = {.kind = DEVICE_SEND, .dtype = dtype};
        WANT(communicator_can(&o, me->size, (struct gpu_abilities){NCCL_OLDEST, 50, false, 0}, NULL));
        for (int equal = 0; equal < 2; equal++) {
            move_alltoall(me, dtype, equal);
            move_allgather(me, dtype, equal);
        }
        move_broadcast(me, dtype, dtype % me->size);
        move_ring(me, dtype);
    }
    gpu_leave(me);
}

START_TEST(reductions_of_every_type)
{
    ck_assert_int_eq(gpu_run(_i, -1, every_reduction), 0);
}
END_TEST

START_TEST(moves_of_every_type)
{
    ck_assert_int_eq(gpu_run(_i, -1, every_move), 0);
}
END_TEST

/* ---- groups, scaling ---- */

#define GROUP 40

/* Tensors of several types, some scaled, as one group; more scales than are kept. */
static void a_group(struct gpu_rank *me)
{
    struct gpu_operation o[GROUP];
    gpu_open(me);
    gpu_join(me);
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < GROUP; k++) {
            int dtype = k % 3 == 0 ? HVD_FLOAT32 : k % 3 == 1 ? HVD_BFLOAT16 : HVD_FLOAT64;
            size_t n = 10 + (size_t)k;
            fill(dtype, me->rank, n);
            o[k] = (struct gpu_operation){.kind = GPU_ALLREDUCE,
                                          .dtype = dtype,
                                          .op = k % 2 ? HVD_AVERAGE : HVD_SUM,
                                          .prescale = k % 4 ? ldexp(1, k % 30) : 1,
                                          .postscale = k % 5 ? 0.25 : 1,
                                          .in = gpu_memory(me, host, n * dtype_size(dtype)),
                                          .count = n};
            o[k].out = (void *)(uintptr_t)o[k].in;
            WANT(communicator_can(&o[k], me->size, (struct gpu_abilities){me->n->version, 80, false, 0},
                                  NULL));
        }
        gpu_do(me, o, GROUP);
        for (int k = 0; k < GROUP; k++) {
            check_numbers(me, &o[k], 0, o[k].count, o[k].prescale * o[k].postscale);
            gpu_free(me, o[k].out);
        }
    }
    gpu_leave(me);
}

/* Kernels of libhvd scale, before and after, where NCCL does not. */
static void by_kernels(struct gpu_rank *me)
{
    static const struct {
        int kind, dtype, op;
        double pre, post;
    } row[] = {
        {GPU_ALLREDUCE, HVD_INT32, HVD_SUM, 3, 1},       {GPU_ALLREDUCE, HVD_INT64, HVD_SUM, 1, 0.5},
        {GPU_ALLREDUCE, HVD_UINT8, HVD_PRODUCT, 2, 0.5}, {GPU_ALLREDUCE, HVD_FLOAT32, HVD_MAX, 8, 0.25},
        {GPU_ALLREDUCE, HVD_FLOAT64, HVD_MIN, 1, 3},     {GPU_ALLREDUCE, HVD_INT32, HVD_AVERAGE, 1, 3},
        {GPU_REDUCESCATTER, HVD_INT32, HVD_SUM, 1, 4},   {GPU_REDUCESCATTER, HVD_FLOAT16, HVD_MAX, 1, 7},
    };
    gpu_open(me);
    WANT(pack_has_kernels(me->pack));
    gpu_join(me);
    for (size_t i = 0; i < COUNT(row); i++) {
        size_t n = 12, bytes = n * dtype_size(row[i].dtype);
        fill(row[i].dtype, me->rank, n);
        void *in = gpu_memory(me, host, bytes), *out = gpu_memory(me, NULL, bytes);
        struct gpu_operation o = {.kind = (enum gpu_kind)row[i].kind,
                                  .dtype = row[i].dtype,
                                  .op = row[i].op,
                                  .in = in,
                                  .prescale = row[i].pre,
                                  .postscale = row[i].post,
                                  .out = out,
                                  .count = n,
                                  .row_count = 1};
        WANT(communicator_can(&o, me->size, (struct gpu_abilities){me->n->version, 80, true, 0}, NULL));
        WANT(!communicator_can(&o, me->size, (struct gpu_abilities){me->n->version, 80, false, 0}, NULL));
        gpu_do(me, &o, 1);
        size_t mine = o.kind == GPU_ALLREDUCE ? n : n / (size_t)me->size,
               first = n == mine ? 0 : mine * (size_t)me->rank;
        /* A product has a factor for every rank. */
        double times = (o.op == HVD_PRODUCT ? pow(o.prescale, me->size) : o.prescale) * o.postscale;
        gpu_read(me, host, out, mine * dtype_size(o.dtype));
        for (size_t k = 0; k < mine; k++) {
            double expected = reduced(o.op, me->size, first + k) * times, got = get(host, o.dtype, k);
            expected = dtype_size(o.dtype) && !small[o.dtype].bias && o.dtype != HVD_FLOAT32 &&
                               o.dtype != HVD_FLOAT64
                           ? trunc(expected)
                           : expected;
            WANT(got == expected, "row %zu, element %zu: %g, not %g", i, k, got, expected);
        }
        gpu_free(me, in);
        gpu_free(me, out);
    }
    gpu_leave(me);
}

START_TEST(scaled_by_kernels)
{
    if (!pack_was_built())
        return; /* there was no nvcc */
    ck_assert_int_eq(gpu_run(2, -1, by_kernels), 0);
}
END_TEST

START_TEST(a_group_of_tensors)
{
    ck_assert_int_eq(gpu_run(2, -1, a_group), 0);
}
END_TEST

static bool can(int kind, int dtype, int op, double pre, double post, int size, struct gpu_abilities all,
                struct gpu_why *why)
{
    struct gpu_operation o = {
        .kind = (enum gpu_kind)kind, .dtype = dtype, .op = op, .prescale = pre, .postscale = post};
    return communicator_can(&o, size, all, why);
}

/* Operations that NCCL is not asked for, and the sentences about them. */
START_TEST(what_nccl_cannot)
{
    const struct gpu_abilities new = {22809, 90, 0, 0}, kernels = {22809, 90, 1, 0}, old = {22105, 90, 1, 0},
                               small_gpu = {22809, 80, 1, 0};
    const int sum = HVD_SUM, reduce = GPU_ALLREDUCE, scatter = GPU_REDUCESCATTER;
    struct gpu_why why;
    static const struct {
        int kind, dtype, op;
        double pre, post;
        int size;
        const char *with_kernels; /* why not, or NULL */
        const char *without;
    } row[] = {
        {GPU_ALLREDUCE, HVD_BOOL, HVD_MAX, 1, 1, 4, "NCCL does not reduce bool", "NCCL does not reduce bool"},
        {GPU_ALLREDUCE, HVD_INT16, HVD_SUM, 1, 1, 4, "NCCL does not reduce int16",
         "NCCL does not reduce int16"},
        {GPU_ALLREDUCE, HVD_INT32, HVD_LAND, 1, 1, 4, "NCCL has no logical and", "NCCL has no logical and"},
        {GPU_ALLREDUCE, HVD_FLOAT32, HVD_ADASUM, 1, 1, 4, "NCCL has no adasum", "NCCL has no adasum"},
        {GPU_ALLREDUCE, 99, HVD_SUM, 1, 1, 4, "NCCL does not reduce unknown", "NCCL does not reduce unknown"},
        {GPU_ALLREDUCE, HVD_FLOAT32, HVD_SUM, 0.1, 3, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 0.5, 1, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 0.1, 1, 4, NULL,
         "NCCL cannot scale sum of float16 by 0.1 exactly"},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 1 + 0x1p-10, 1, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 0x1p-24, 1, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 0x1p-25, 1, 4, NULL,
         "NCCL cannot scale sum of float16 by 2.98023e-08 exactly"},
        {GPU_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 65536, 1, 4, NULL,
         "NCCL cannot scale sum of float16 by 65536 exactly"},
        {GPU_ALLREDUCE, HVD_BFLOAT16, HVD_SUM, 65536, 1, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_BFLOAT16, HVD_AVERAGE, 2, 1, 3, NULL,
         "NCCL cannot scale average of bfloat16 by 2 exactly"},
        {GPU_ALLREDUCE, HVD_BFLOAT16, HVD_AVERAGE, 1, 1, 3, NULL, NULL},
        {GPU_ALLREDUCE, HVD_INT32, HVD_SUM, 2, 1, 4, NULL, "NCCL cannot scale sum of int32 by 2 exactly"},
        {GPU_ALLREDUCE, HVD_FLOAT32, HVD_MAX, 2, 1, 4, NULL, "NCCL cannot scale max of float32 by 2 exactly"},
        {GPU_REDUCESCATTER, HVD_FLOAT32, HVD_MAX, 2, 1, 4,
         "the input of a reducescatter cannot be scaled in place",
         "the input of a reducescatter cannot be scaled in place"},
        {GPU_REDUCESCATTER, HVD_FLOAT32, HVD_MAX, 1, 2, 4, NULL,
         "NCCL cannot scale max of float32 by 2 exactly"},
        {GPU_ALLREDUCE, HVD_FLOAT8_E4M3, HVD_SUM, 1, 1, 4, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT8_E4M3, HVD_AVERAGE, 1, 1, 3, "1/3 is no number of float8_e4m3",
         "1/3 is no number of float8_e4m3"},
        {GPU_ALLREDUCE, HVD_FLOAT8_E5M2, HVD_SUM, 0.1, 1, 4, "0.1 is no number of float8_e5m2",
         "0.1 is no number of float8_e5m2"},
        {GPU_ALLREDUCE, HVD_FLOAT8_E4M3, HVD_AVERAGE, 1, 1, 1, NULL, NULL},
        {GPU_ALLREDUCE, HVD_FLOAT8_E4M3, HVD_AVERAGE, 0.5, 1, 1,
         "NCCL does not scale float8_e4m3 of one rank", "NCCL does not scale float8_e4m3 of one rank"},
        {GPU_ALLREDUCE, HVD_BFLOAT16, HVD_SUM, 0.5, 1, 1, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        for (int with = 0; with < 2; with++) {
            const char *expected = with ? row[i].with_kernels : row[i].without;
            bool does = can(row[i].kind, row[i].dtype, row[i].op, row[i].pre, row[i].post, row[i].size,
                            with ? kernels : new, &why);
            ck_assert_msg(does == !expected, "row %zu, kernels %d: %d, %s", i, with, does, why.text);
            if (expected)
                ck_assert_str_eq(why.text, expected);
        }
    ck_assert(!can(reduce, HVD_FLOAT8_E4M3, sum, 1, 1, 4, old, &why));
    ck_assert_str_eq(why.text, "NCCL 2.21.5 does not reduce float8_e4m3");
    ck_assert(!can(scatter, HVD_FLOAT8_E5M2, sum, 1, 1, 4, small_gpu, &why));
    ck_assert_str_eq(why.text, "GPUs of capability 8.0 do not reduce float8_e5m2");
    ck_assert(!can(DEVICE_SEND, HVD_FLOAT32, sum, 1, 1, 4,
                   gpu_abilities_meet(new, (struct gpu_abilities){0, 90, 1, 0}), &why));
    ck_assert_str_eq(why.text, "not all ranks have NCCL");
    ck_assert(!can(DEVICE_SEND, 99, sum, 1, 1, 4, new, &why));
}
END_TEST

/* ---- parts of a communicator ---- */

static void reach_ready(struct gpu_rank *me, struct communicator *c)
{
    struct err e = ERR_INIT;
    WANT(gpu_while(c, COMMUNICATOR_CONNECTING, &e) == COMMUNICATOR_READY, "%s", e.text);
    (void)me;
}

static void finish(struct communicator *c)
{
    struct err e = ERR_INIT;
    WANT(communicator_finish(c, &e) == 0, "%s", e.text);
    gpu_while(c, COMMUNICATOR_FINISHING, &e);
    WANT(gpu_while(c, COMMUNICATOR_DESTROYING, &e) == COMMUNICATOR_FINISHED, "%s", e.text);
    communicator_free(c);
}

static void sum_is(struct gpu_rank *me, struct communicator *c, double expected)
{
    struct communicator *whole = me->c;
    float x = (float)(me->rank + 1), none = 0;
    void *in = gpu_memory(me, &x, sizeof x), *at = gpu_memory(me, &none, sizeof none);
    struct gpu_operation o = {.kind = GPU_ALLREDUCE,
                              .dtype = HVD_FLOAT32,
                              .op = HVD_SUM,
                              .prescale = 1,
                              .postscale = 1,
                              .in = in,
                              .out = at,
                              .count = 1};
    me->c = c;
    gpu_do(me, &o, 1);
    me->c = whole;
    gpu_read(me, &x, at, sizeof x);
    WANT(x == expected, "%g, not %g", x, expected);
    gpu_free(me, in);
    gpu_free(me, at);
}

static nccl_result (*true_deregister)(nccl_comm, void *);
static int deregistered;

static nccl_result count_deregister(nccl_comm comm, void *handle)
{
    deregistered++;
    return true_deregister(comm, handle);
}

static void register_memory(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    gpu_open(me);
    struct nccl table = *me->n;
    true_deregister = table.ncclCommDeregister;
    table.ncclCommDeregister = count_deregister;
    communicator_free(me->c);
    struct communicator_member who = {me->d, &table, NULL, me->context, me->ordinal, me->rank, me->size, 0};
    me->c = communicator_new(&who, "set 0", &e);
    gpu_join(me);
    void *a = gpu_memory(me, NULL, 1 << 20), *b = gpu_memory(me, NULL, 1 << 20);
    WANT(communicator_register(me->c, a, 1 << 20) && communicator_register(me->c, b, 1 << 20));
    WANT(communicator_register(me->c, a, 1 << 20)); /* not twice: the double would say so */
    communicator_deregister(me->c, a);
    WANT(deregistered == 1);
    communicator_deregister(me->c, a); /* not any more */
    WANT(deregistered == 1);
    gpu_leave(me);
    WANT(deregistered == 2);
}

START_TEST(memory_is_registered)
{
    ck_assert_int_eq(gpu_run(2, -1, register_memory), 0);
}
END_TEST

/* ---- faults ---- */

static const char *failing;
static bool harmless;

/* A communicator that has failed does not stand in the way of another one. */
static void start_anew(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    struct nccl_id id;
    struct communicator_member who = {me->d, me->n, NULL, me->context, me->ordinal, 0, 1, 0};
    setenv("HVD_DOUBLE_FAIL", "", 1);
    WANT(communicator_id(me->n, &id, &e) == 0, "%s", e.text);
    me->c = communicator_new(&who, "anew", &e);
    WANT(communicator_connect(me->c, &id, &e) == 0, "%s", e.text);
    reach_ready(me, me->c);
    sum_is(me, me->c, me->rank + 1);
    finish(me->c);
}

static bool gone(struct gpu_rank *me, struct err *e)
{
    if (communicator_state(me->c) != COMMUNICATOR_FAILED && !me->shared->failed)
        return false;
    me->shared->failed = 1;
    if (communicator_state(me->c) == COMMUNICATOR_FAILED) {
        char who[40];
        snprintf(who, sizeof who, "set 0: rank %d of 2 on GPU %d: ", me->rank, me->ordinal);
        communicator_poll(me->c, e);
        WANT(strncmp(e->text, who, strlen(who)) == 0 && e->code, "%s", e->text);
    }
    uint64_t begin = gpu_now_ms();
    bool at_its_end = communicator_state(me->c) >= COMMUNICATOR_DESTROYING;
    WANT(communicator_abort(me->c, gpu_limits()->abort_ms), "the abort goes on");
    WANT(gpu_now_ms() - begin < (uint64_t)gpu_limits()->abort_ms);
    WANT(communicator_state(me->c) == (at_its_end ? COMMUNICATOR_FINISHED : COMMUNICATOR_ABORTED));
    WANT(me->d->cuStreamSynchronize(me->stream) != CU_NOT_READY);
    communicator_free(me->c);
    start_anew(me);
    return true;
}

/* Waits for another state, or for another rank's failure. */
static bool until_not(struct gpu_rank *me, enum communicator_state now, struct err *e)
{
    uint64_t until = gpu_now_ms() + (uint64_t)gpu_limits()->connect_ms;
    while (communicator_poll(me->c, e) == now && !me->shared->failed) {
        WANT(gpu_now_ms() < until, "it waits for ever: %d", (int)now);
        usleep(100);
    }
    return !gone(me, e);
}

/* Nothing is in the stream any more, as those must see to who have registered memory. */
static bool until_idle(struct gpu_rank *me, struct err *e)
{
    uint64_t until = gpu_now_ms() + (uint64_t)gpu_limits()->connect_ms;
    while (me->d->cuStreamQuery(me->stream) == CU_NOT_READY && !me->shared->failed) {
        WANT(gpu_now_ms() < until, "the stream goes on for ever");
        usleep(100);
    }
    return !gone(me, e);
}

/* A whole life: it ends well, or with a sentence and an abort. */
static void one_life(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    if (me->rank == 1)
        setenv("HVD_DOUBLE_FAIL", failing, 1);
    gpu_open(me);
    if (me->rank == 0)
        WANT(communicator_id(me->n, &me->shared->id, &e) == 0);
    gpu_meet(me, 0);
    communicator_connect(me->c, &me->shared->id, &e);
    if (!until_not(me, COMMUNICATOR_CONNECTING, &e))
        return;
    fill(HVD_FLOAT32, me->rank, 100);
    void *at = gpu_memory(me, host, 400), *known = gpu_memory(me, host, 400);
    communicator_register(me->c, known, 400); /* may fail, and does no harm */
    struct gpu_operation o[] = {
        {.kind = GPU_ALLREDUCE,
         .dtype = HVD_FLOAT32,
         .op = HVD_SUM,
         .prescale = 3,
         .postscale = 1,
         .in = at,
         .out = at,
         .count = 100},
        {.kind = GPU_BROADCAST, .dtype = HVD_FLOAT32, .out = at, .count = 100},
    };
    for (int round = 0; round < 2; round++) {
        communicator_run(me->c, o, 2, me->stream, &e);
        if (!until_not(me, COMMUNICATOR_LAUNCHING, &e))
            return;
    }
    if (!until_idle(me, &e))
        return;
    communicator_finish(me->c, &e);
    if (!until_not(me, COMMUNICATOR_FINISHING, &e) || !until_not(me, COMMUNICATOR_DESTROYING, &e))
        return;
    communicator_free(me->c);
    WANT(harmless || me->rank == 0, "%s: nothing failed", failing);
}

static const struct {
    const char *fault;
    bool harmless; /* or it may come too late */
} calls[] = {
    {"ncclCommInitRankConfig:1", false},
    {"ncclCommGetAsyncError:1", false},
    {"ncclCommGetAsyncError:3", false},
    {"ncclCommGetAsyncError:4:1", true},
    {"ncclCommGetAsyncError:5", true},
    {"ncclCommGetAsyncError:1:6", false},
    {"ncclGroupStart:1", false},
    {"ncclGroupStart:2", false},
    {"ncclGroupEnd:1", false},
    {"ncclGroupEnd:2", false},
    {"ncclAllReduce:1", false},
    {"ncclAllReduce:2", false},
    {"ncclBroadcast:1", false},
    {"ncclBroadcast:2", false},
    {"ncclRedOpCreatePreMulSum:1", false},
    {"ncclCommRegister:1", true},
    {"ncclCommDeregister:1", true},
    {"ncclRedOpDestroy:1", true},
    {"ncclCommFinalize:1", false},
};

START_TEST(every_call_fails_once)
{
    failing = calls[_i].fault;
    harmless = calls[_i].harmless;
    ck_assert_int_eq(gpu_run(2, -1, one_life), 0);
}
END_TEST

/* ---- deaths and aborts ---- */

/* Rank 1 dies while rank 0's operation is in its stream and cannot end. */
static void a_death(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    gpu_open(me);
    gpu_join(me);
    fill(HVD_FLOAT32, me->rank, 100);
    void *at = gpu_memory(me, host, 400);
    struct gpu_operation o = {.kind = GPU_ALLREDUCE,
                              .dtype = HVD_FLOAT32,
                              .op = HVD_SUM,
                              .prescale = 1,
                              .postscale = 1,
                              .in = at,
                              .out = at,
                              .count = 100};
    gpu_do(me, &o, 1);
    gpu_meet(me, 5);
    if (me->rank == 1)
        raise(SIGKILL);
    bool begun = communicator_run(me->c, &o, 1, me->stream, &e) == 0 &&
                 gpu_while(me->c, COMMUNICATOR_LAUNCHING, &e) == COMMUNICATOR_READY;
    WANT(begun || gpu_real(), "%s", e.text); /* a real NCCL may have heard of the death */
    usleep(50000);
    WANT(!begun || me->d->cuStreamQuery(me->stream) == CU_NOT_READY);
    uint64_t begin = gpu_now_ms();
    WANT(communicator_abort(me->c, gpu_limits()->abort_ms));
    me->d->cuStreamSynchronize(me->stream);
    WANT(gpu_now_ms() - begin < (uint64_t)gpu_limits()->abort_ms, "it took %d ms",
         (int)(gpu_now_ms() - begin));
    WANT(communicator_run(me->c, &o, 1, me->stream, &e) < 0);
    communicator_free(me->c);
}

START_TEST(a_rank_dies)
{
    ck_assert_int_eq(gpu_run(2, 1, a_death), 0);
}
END_TEST

/* Rank 1 never comes. */
static void alone(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    if (me->rank == 1)
        return;
    gpu_open(me);
    WANT(communicator_id(me->n, &me->shared->id, &e) == 0);
    WANT(communicator_connect(me->c, &me->shared->id, &e) == 0);
    for (int i = 0; i < 50; i++)
        WANT(communicator_poll(me->c, &e) == COMMUNICATOR_CONNECTING, "%s", e.text);
    uint64_t begin = gpu_now_ms();
    WANT(communicator_abort(me->c, gpu_limits()->abort_ms));
    WANT(gpu_now_ms() - begin < (uint64_t)gpu_limits()->abort_ms);
    communicator_free(me->c);
}

START_TEST(nobody_comes)
{
    ck_assert_int_eq(gpu_run(2, -1, alone), 0);
}
END_TEST

static nccl_result (*true_abort)(nccl_comm);
static _Atomic int aborts;

static nccl_result slow_abort(nccl_comm comm)
{
    usleep(400000);
    nccl_result result = true_abort(comm);
    aborts++;
    return result;
}

/* NCCL's abort takes its time: the caller gets back when it said it would. */
static void slow(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    gpu_open(me);
    struct nccl table = *me->n;
    true_abort = table.ncclCommAbort;
    table.ncclCommAbort = slow_abort;
    struct communicator_member who = {me->d, &table, NULL, me->context, me->ordinal, me->rank, 2, 0};
    communicator_free(me->c);
    for (int leaves = 0; leaves < 2; leaves++) {
        me->c = communicator_new(&who, "slow", &e);
        if (me->rank == 0)
            WANT(communicator_id(me->n, leaves ? &me->shared->second_id : &me->shared->id, &e) == 0);
        gpu_meet(me, 6 + leaves);
        WANT(communicator_connect(me->c, leaves ? &me->shared->second_id : &me->shared->id, &e) == 0);
        reach_ready(me, me->c);
        uint64_t begin = gpu_now_ms();
        WANT(!communicator_abort(me->c, 50));
        WANT(gpu_now_ms() - begin < 350);
        WANT(communicator_poll(me->c, &e) == COMMUNICATOR_ABORTING);
        if (!leaves)
            WANT(gpu_while(me->c, COMMUNICATOR_ABORTING, &e) == COMMUNICATOR_ABORTED);
        communicator_free(me->c); /* the second time the thread is still at it */
    }
    while (aborts < 2) /* the alarm ends it */
        usleep(1000);
    usleep(20000);
}

START_TEST(an_abort_that_blocks)
{
    ck_assert_int_eq(gpu_run(2, -1, slow), 0);
}
END_TEST

/* Two ranks on one GPU: NCCL says no, and so do we, in a sentence. */
static void same_gpu(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    unsetenv("NCCL_HOSTID");
    int rank = me->rank;
    me->rank = 0;
    gpu_open(me);
    me->rank = rank;
    struct communicator_member who = {me->d, me->n, NULL, me->context, 0, rank, 2, 0};
    communicator_free(me->c);
    me->c = communicator_new(&who, "set 0", &e);
    if (rank == 0)
        WANT(communicator_id(me->n, &me->shared->id, &e) == 0);
    gpu_meet(me, 0);
    WANT(communicator_connect(me->c, &me->shared->id, &e) == 0);
    WANT(gpu_while(me->c, COMMUNICATOR_CONNECTING, &e) == COMMUNICATOR_FAILED);
    /* Before 2.30, and since. */
    WANT(strstr(e.text, "on GPU 0: connecting: NCCL: ") &&
             (strstr(e.text, "Duplicate GPU") || strstr(e.text, "Multiple Ranks are using the same GPU")),
         "%s", e.text);
    WANT(communicator_finish(me->c, NULL) < 0);
    WANT(communicator_abort(me->c, gpu_limits()->abort_ms));
    communicator_free(me->c);
}

START_TEST(two_ranks_on_one_gpu)
{
    if (_i && !gpu_real())
        setenv("HVD_DOUBLE_NCCL", "23003", 1); /* that version has other words for it */
    ck_assert_int_eq(gpu_run(2, -1, same_gpu), 0);
}
END_TEST

int main(int argc, char **argv)
{
    if (!gpu_real())
        gpu_with_doubles(argv);
    setenv("HVD_DOUBLE_DELAY_US", "20", 0);
    setenv("HVD_DOUBLE_LAZY", "30", 0);
    Suite *s = suite_create("gpu_communicator");
    TCase *t = tcase_create("gpu_communicator");
    tcase_set_timeout(t, gpu_limits()->test_s);
    tcase_add_loop_test(t, reductions_of_every_type, 1, gpu_ranks_most() + 1);
    tcase_add_loop_test(t, moves_of_every_type, 1, gpu_ranks_most() + 1);
    tcase_add_test(t, a_group_of_tensors);
    tcase_add_test(t, scaled_by_kernels);
    tcase_add_test(t, what_nccl_cannot);
    tcase_add_test(t, memory_is_registered);
    if (!gpu_real()) /* a real NCCL does not fail on demand */
        tcase_add_loop_test(t, every_call_fails_once, 0, COUNT(calls));
    tcase_add_test(t, a_rank_dies);
    tcase_add_test(t, nobody_comes);
    tcase_add_test(t, an_abort_that_blocks);
    tcase_add_loop_test(t, two_ranks_on_one_gpu, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
