/* Small tensors of a group that are packed: which, where, and that the results are those that they have
 * apart. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/gpu/fuse.h"
#include "tests/unit/gpu_ranks.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- the choice of tensors and their places ---- */

#define BUFFER 0x10000

static struct gpu_operation one(size_t at, size_t count)
{
    return (struct gpu_operation){.kind = GPU_ALLREDUCE,
                                  .dtype = HVD_FLOAT32,
                                  .op = HVD_SUM,
                                  .prescale = 1,
                                  .postscale = 1,
                                  .in = (void *)(0x50000 + at),
                                  .out = (void *)(0x90000 + at),
                                  .count = count};
}

static void plan(struct fuse *f, const struct gpu_operation *o, size_t n, size_t packed, size_t operations)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(fuse_plan(f, o, n, &e), 0);
    ck_assert_uint_eq(f->packed, packed);
    ck_assert_uint_eq(f->operations, operations);
}

START_TEST(sizes_decide)
{
    struct fuse f = {.buffer = BUFFER, .capacity = FUSE_ROOM};
    const size_t least = FUSE_TENSOR_MAX / 4, place[] = {48, 0, 52, 16};
    struct gpu_operation o[] = {one(1, 1), one(2, least + 1), one(3, 4), one(4, 0), one(5, 3), one(6, 8)};
    plan(&f, o, 6, 4, 3);
    ck_assert(fuse_is_whole(&f, &f.operation[0]) && !fuse_is_whole(&f, &f.operation[1]));
    ck_assert_uint_eq(f.operation[0].count, 16);
    ck_assert_ptr_eq(f.operation[0].in, (void *)BUFFER);
    ck_assert_ptr_eq(f.operation[0].out, (void *)BUFFER);
    ck_assert_mem_eq(&f.operation[1], &o[1], sizeof *o);
    ck_assert_mem_eq(&f.operation[2], &o[3], sizeof *o);
    for (size_t i = 0; i < 4; i++) {
        static const size_t which[] = {0, 2, 4, 5};
        ck_assert_uint_eq(f.in[i].to, BUFFER + place[i]);
        ck_assert_uint_eq(f.out[i].from, BUFFER + place[i]);
        ck_assert_uint_eq(f.in[i].from, (uintptr_t)o[which[i]].in);
        ck_assert_uint_eq(f.out[i].to, (uintptr_t)o[which[i]].out);
        ck_assert_uint_eq(f.in[i].count, o[which[i]].count * 4);
    }
    o[1].count = least;
    plan(&f, o, 6, 5, 2);
    fuse_free(&f);
}
END_TEST

START_TEST(what_stays_alone)
{
    struct fuse f = {.buffer = BUFFER, .capacity = 64};
    struct gpu_operation o[] = {one(1, 6), one(2, 6), one(3, 6), one(4, 4)};
    plan(&f, o, 4, 3, 2); /* the third has no room, the fourth has */
    ck_assert_mem_eq(&f.operation[1], &o[2], sizeof *o);
    f.capacity = 63;
    plan(&f, o, 4, 2, 3);
    f.capacity = 47; /* one alone */
    plan(&f, o, 3, 0, 3);
    ck_assert_mem_eq(f.operation, o, 3 * sizeof *o);
    f.capacity = 0;
    plan(&f, o, 4, 0, 4);
    ck_assert_mem_eq(f.operation, o, 4 * sizeof *o);
    f.capacity = FUSE_ROOM;
    o[0].kind = GPU_BROADCAST;
    plan(&f, o, 4, 3, 2);
    ck_assert(fuse_is_whole(&f, &f.operation[1]));
    o[1].dtype = 99; /* this type is refused later */
    o[2].prescale = 2;
    plan(&f, o, 4, 0, 4);
    fuse_free(&f);
}
END_TEST

/* Room is for the smallest, wherever they stand. */
START_TEST(the_smallest_first)
{
    struct fuse f = {.buffer = BUFFER, .capacity = 100000};
    struct gpu_operation o[] = {one(1, 20000), one(2, 9000), one(3, 2000), one(4, 9000), one(5, 1)};
    plan(&f, o, 5, 4, 2);
    ck_assert_mem_eq(&f.operation[0], &o[0], sizeof *o);
    ck_assert_uint_eq(f.operation[1].count, 20001);
    f.capacity = 80000;
    plan(&f, o, 5, 2, 4);
    fuse_free(&f);
}
END_TEST

/* ---- results ---- */

/* Elements: those of a large one, none, sizes of every step; rank 1 has all of them elsewhere in a line. */
static const size_t counts[] = {1, 13, 2, 70000, 3, 4, 0, 5, 257, 64, 8, 65536 / 8};
#define TENSORS COUNT(counts)
#define ALL     (70000 + 65536 / 8 + 1000)

static char image[ALL * 8], packed[ALL * 8], apart[ALL * 8];
static int reduces; /* calls of ncclAllReduce */
static nccl_result (*true_reduce)(const void *, void *, size_t, nccl_dtype, nccl_op, nccl_comm, cu_stream);

static nccl_result count_reduce(const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op,
                                nccl_comm comm, cu_stream stream)
{
    reduces++;
    return true_reduce(in, out, count, dtype, op, comm, stream);
}

/* Some positive number of every type. */
static void number(void *to, int dtype, int rank, size_t i)
{
    uint64_t noise = (i + 1) * 2654435761u + (uint64_t)rank * 40503u;
    uint64_t bits = 1 + noise % 5;
    switch (dtype) {
    case HVD_FLOAT16:
        bits = 0x3800 | noise % 0x400;
        break;
    case HVD_BFLOAT16:
        bits = 0x3f00 | noise % 0x80;
        break;
    case HVD_FLOAT32:
        bits = 0x3f000000 | noise % 0x800000;
        break;
    case HVD_FLOAT64:
        bits = 0x3fe0000000000000 | noise;
        break;
    case HVD_FLOAT8_E4M3:
        bits = 0x30 | noise % 8;
        break;
    case HVD_FLOAT8_E5M2:
        bits = 0x38 | noise % 4;
        break;
    }
    memcpy(to, &bits, dtype_size(dtype));
}

static struct nccl table;

/* A communicator that packs in so much room, with its own id; or without kernels. */
static void join(struct gpu_rank *me, size_t room, bool kernels, int which)
{
    static struct driver old;
    struct err e = ERR_INIT;
    struct nccl_id *id = which ? &me->shared->second_id : &me->shared->id;
    table = *me->n;
    true_reduce = table.ncclAllReduce;
    table.ncclAllReduce = count_reduce;
    if (!kernels) {
        old = *me->d;
        old.cuLaunchKernel = NULL;
        pack_close(me->pack);
        me->pack = pack_open(&old, &e);
    }
    communicator_free(me->c);
    struct communicator_member who = {.d = me->d,
                                      .n = &table,
                                      .pack = me->pack,
                                      .context = me->context,
                                      .ordinal = me->ordinal,
                                      .rank = me->rank,
                                      .size = me->size,
                                      .fuse = room};
    me->c = communicator_new(&who, "set 0", &e);
    if (me->rank == 0)
        WANT(communicator_id(me->n, id, &e) == 0, "%s", e.text);
    gpu_meet(me, which);
    WANT(communicator_connect(me->c, id, &e) == 0, "%s", e.text);
}

static void ready(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    WANT(gpu_while(me->c, COMMUNICATOR_CONNECTING, &e) == COMMUNICATOR_READY, "%s", e.text);
}

static void leave(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    WANT(communicator_finish(me->c, &e) == 0, "%s", e.text);
    gpu_while(me->c, COMMUNICATOR_FINISHING, &e);
    WANT(gpu_while(me->c, COMMUNICATOR_DESTROYING, &e) == COMMUNICATOR_FINISHED, "%s", e.text);
}

/* The tensors one behind the other, rank 1's from its second element on; every second one in place. */
static void describe(const struct gpu_rank *me, struct gpu_operation *o, char *in, char *out, int dtype,
                     int op, double prescale, double postscale)
{
    size_t at = me->rank == 1;
    for (size_t i = 0; i < TENSORS; at += counts[i++]) {
        size_t offset = at * dtype_size(dtype);
        o[i] = (struct gpu_operation){.kind = GPU_ALLREDUCE,
                                      .dtype = dtype,
                                      .op = op,
                                      .prescale = prescale,
                                      .postscale = postscale,
                                      .in = i % 2 ? in + offset : out + offset,
                                      .out = out + offset,
                                      .count = counts[i]};
    }
}

/* A group's results, and all around them; how often NCCL was called. */
static int group(struct gpu_rank *me, char *into, int dtype, int op, double prescale, double postscale)
{
    struct gpu_operation o[TENSORS];
    size_t bytes = ALL * dtype_size(dtype);
    char *in = gpu_memory(me, image, bytes), *out = gpu_memory(me, image, bytes);
    describe(me, o, in, out, dtype, op, prescale, postscale);
    reduces = 0;
    gpu_do(me, o, TENSORS);
    gpu_read(me, into, in, bytes);
    WANT(memcmp(into, image, bytes) == 0, "inputs have changed");
    gpu_read(me, into, out, bytes);
    gpu_free(me, in);
    gpu_free(me, out);
    return reduces;
}

static const struct {
    int dtype, op;
    double prescale, postscale;
    bool kernels; /* it needs them */
} rows[] = {
    {HVD_UINT8, HVD_SUM, 1, 1, false},       {HVD_INT8, HVD_MIN, 1, 1, false},
    {HVD_INT32, HVD_MAX, 1, 1, false},       {HVD_INT64, HVD_PRODUCT, 1, 1, false},
    {HVD_UINT32, HVD_AVERAGE, 1, 1, false},  {HVD_UINT64, HVD_SUM, 1, 1, false},
    {HVD_FLOAT16, HVD_AVERAGE, 1, 1, false}, {HVD_BFLOAT16, HVD_PRODUCT, 1, 1, false},
    {HVD_FLOAT32, HVD_SUM, 1, 1, false},     {HVD_FLOAT64, HVD_AVERAGE, 1, 1, false},
    {HVD_FLOAT8_E4M3, HVD_SUM, 1, 1, false}, {HVD_FLOAT8_E5M2, HVD_MAX, 1, 1, false},
    {HVD_FLOAT32, HVD_SUM, 0.1, 3, false},   {HVD_FLOAT32, HVD_AVERAGE, 0.3, 1, false},
    {HVD_BFLOAT16, HVD_SUM, 0.5, 1, false},  {HVD_FLOAT16, HVD_SUM, 0.1, 1, true},
    {HVD_INT32, HVD_SUM, 3, 0.5, true},      {HVD_INT64, HVD_AVERAGE, 1, 3, true},
    {HVD_UINT8, HVD_PRODUCT, 2, 0.25, true}, {HVD_FLOAT32, HVD_MAX, 8, 0.3, true},
    {HVD_FLOAT64, HVD_MIN, 1, 0.7, true},    {HVD_INT32, HVD_AVERAGE, 2, 1, true},
};
static bool with_kernels;

static bool is_done(const struct gpu_rank *me, size_t i)
{
    struct gpu_operation o = {.kind = GPU_ALLREDUCE,
                              .dtype = rows[i].dtype,
                              .op = rows[i].op,
                              .prescale = rows[i].prescale,
                              .postscale = rows[i].postscale};
    return communicator_can(&o, me->size, gpu_abilities(me->n, &me->gpu, me->pack, 0), NULL);
}

/* NCCL's kernels multiply and add in one rounding. An element's place decides whose product is rounded
 * before, so a sum that is scaled inexactly may differ in its last bit. */
static bool same_results(size_t i, size_t bytes)
{
    bool fused =
        gpu_real() && rows[i].dtype == HVD_FLOAT32 && (rows[i].prescale != 1 || rows[i].postscale != 1);
    if (!fused || rows[i].kernels)
        return memcmp(packed, apart, bytes) == 0;
    for (size_t k = 0; k < ALL; k++) {
        float a, b;
        memcpy(&a, packed + k * sizeof a, sizeof a);
        memcpy(&b, apart + k * sizeof b, sizeof b);
        if (!(fabsf(a - b) <= FLT_EPSILON * fabsf(a)))
            return false;
    }
    return true;
}

/* Two communicators, one that packs. */
static void all_alike(struct gpu_rank *me)
{
    gpu_open(me);
    join(me, 0, with_kernels, 0);
    ready(me);
    struct communicator *plain = me->c;
    me->c = NULL;
    join(me, FUSE_ROOM, true, 1);
    ready(me);
    struct communicator *packing = me->c;
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t element = dtype_size(rows[i].dtype), bytes = ALL * element, calls = 1;
        if (!is_done(me, i)) {
            WANT(rows[i].kernels || gpu_real(), "row %zu", i);
            continue;
        }
        for (size_t k = 0; k < ALL; k++)
            number(image + k * element, rows[i].dtype, me->rank, k);
        me->c = plain;
        WANT(group(me, apart, rows[i].dtype, rows[i].op, rows[i].prescale, rows[i].postscale) == TENSORS - 1);
        me->c = packing;
        for (size_t k = 0; k < TENSORS; k++)
            calls += counts[k] * element > FUSE_TENSOR_MAX;
        WANT((size_t)group(me, packed, rows[i].dtype, rows[i].op, rows[i].prescale, rows[i].postscale) ==
                 calls,
             "row %zu: %d calls", i, reduces);
        WANT(same_results(i, bytes), "row %zu differs", i);
        WANT(memcmp(packed, image, bytes) != 0 || rows[i].op == HVD_MIN || rows[i].op == HVD_MAX);
    }
    leave(me);
    communicator_free(me->c);
    me->c = plain;
    gpu_leave(me);
}

START_TEST(packed_is_as_apart)
{
    with_kernels = _i;
    if (with_kernels && !pack_was_built())
        return;
    ck_assert_int_eq(gpu_run(2, -1, all_alike), 0);
}
END_TEST

#define MANY  300
#define TURNS 6

/* Nobody waits between groups: the buffer's next use comes behind its last one. The results of one are the
 * inputs of the next, three ranks' sums. */
static void one_after_the_other(struct gpu_rank *me)
{
    static int32_t x[MANY * 7];
    struct gpu_operation o[MANY];
    struct err e = ERR_INIT;
    gpu_open(me);
    join(me, FUSE_ROOM, true, 0);
    ready(me);
    for (int i = 0; i < MANY * 7; i++)
        x[i] = i;
    int32_t *at = gpu_memory(me, x, sizeof x);
    for (size_t i = 0, begin = 0; i < MANY; begin += 1 + i++ % 7) {
        o[i] = one(0, 1 + i % 7);
        o[i].dtype = HVD_INT32;
        o[i].in = o[i].out = at + begin;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        WANT(communicator_run(me->c, o, MANY, me->stream, &e) == 0, "%s", e.text);
        WANT(gpu_while(me->c, COMMUNICATOR_LAUNCHING, &e) == COMMUNICATOR_READY, "%s", e.text);
    }
    WANT(reduces == TURNS, "%d calls", reduces);
    gpu_read(me, x, at, sizeof x);
    for (size_t i = 0; i < sizeof x / 4; i++) {
        size_t end =
            (size_t)(o[MANY - 1].out == NULL ? 0 : (int32_t *)o[MANY - 1].out - at) + o[MANY - 1].count;
        WANT(x[i] == (int32_t)i * (i < end ? 729 : 1), "element %zu: %d", i, x[i]);
    }
    gpu_free(me, at);
    gpu_leave(me);
}

START_TEST(groups_in_a_row)
{
    ck_assert_int_eq(gpu_run(3, -1, one_after_the_other), 0);
}
END_TEST

/* ---- faults ---- */

static const struct {
    const char *fault, *says; /* the end of a sentence of rank 1 */
    bool kernels;
} faults[] = {
    {"cuMemAlloc@1:1", "set 0: rank 1 of 2 on GPU 1: allocating 4194304 bytes: ", true},
    {"cuLaunchKernel@1:1", "starting a kernel for 10 tensors: ", true},
    {"cuLaunchKernel@1:2", "set 0: rank 1 of 2 on GPU 1: starting a kernel for 10 tensors: ", true},
    {"cuMemcpyDtoDAsync@1:1", "copying 10 tensors on a GPU: ", false},
    {"cuMemcpyDtoDAsync@1:10", "copying 10 tensors on a GPU: ", false},
    {"cuMemcpyDtoDAsync@1:11", "set 0: rank 1 of 2 on GPU 1: copying 10 tensors on a GPU: ", false},
    {"cuMemcpyDtoDAsync@1:20", "set 0: rank 1 of 2 on GPU 1: copying 10 tensors on a GPU: ", false},
    {"ncclAllReduce@1:1", "set 0: rank 1 of 2 on GPU 1: starting operations: NCCL: ", true},
};
static size_t fault;

/* Rank 1 has the sentence; both end. */
static void a_fault(struct gpu_rank *me)
{
    struct gpu_operation o[TENSORS];
    struct err e = ERR_INIT;
    setenv("HVD_DOUBLE_FAIL", faults[fault].fault, 1);
    gpu_open(me);
    join(me, FUSE_ROOM, faults[fault].kernels, 0);
    enum communicator_state now = gpu_while(me->c, COMMUNICATOR_CONNECTING, &e);
    WANT(now == COMMUNICATOR_READY || me->rank == 1, "%s", e.text);
    if (now == COMMUNICATOR_READY) {
        char *at = gpu_memory(me, NULL, ALL * 4);
        describe(me, o, at, at, HVD_FLOAT32, HVD_SUM, 1, 1);
        if (communicator_run(me->c, o, TENSORS, me->stream, &e) == 0)
            gpu_while(me->c, COMMUNICATOR_LAUNCHING, &e);
    }
    WANT(me->rank == 0 ? !e.code : strncmp(e.text, faults[fault].says, strlen(faults[fault].says)) == 0, "%s",
         e.text);
    gpu_meet(me, 5);
    WANT(communicator_abort(me->c, 2000));
    communicator_free(me->c);
    pack_close(me->pack);
}

START_TEST(what_fails_says_so)
{
    fault = (size_t)_i;
    if (faults[fault].kernels && !pack_was_built() && strstr(faults[fault].fault, "Kernel"))
        return;
    ck_assert_int_eq(gpu_run(2, -1, a_fault), 0);
}
END_TEST

int main(int argc, char **argv)
{
    (void)argc;
    if (!gpu_real())
        gpu_with_doubles(argv);
    setenv("HVD_DOUBLE_DELAY_US", "20", 0);
    setenv("HVD_DOUBLE_LAZY", "30", 0);
    Suite *s = suite_create("gpu_fuse");
    TCase *t = tcase_create("gpu_fuse");
    tcase_set_timeout(t, gpu_limits()->test_s);
    tcase_add_test(t, sizes_decide);
    tcase_add_test(t, what_stays_alone);
    tcase_add_test(t, the_smallest_first);
    tcase_add_loop_test(t, packed_is_as_apart, 0, 2);
    tcase_add_test(t, groups_in_a_row);
    if (!gpu_real()) /* a real driver does not fail on demand */
        tcase_add_loop_test(t, what_fails_says_so, 0, COUNT(faults));
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
