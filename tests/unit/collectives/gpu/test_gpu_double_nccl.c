/* The test double of NCCL: ranks are processes, each with a device of its own. Their results are right, a
 * call in which real ranks would hang hangs until it is aborted, and a difference between ranks is
 * noticed. */
#include "tests/gpu/double/nccl_api.h"
#include "tests/unit/scratch.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A child cannot fail a check of its parent: it says where it stood and ends. */
#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "rank %d: %s:%d: %s\n", my_rank, __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)
#define OK(call) MUST((call) == 0)

enum { COUNT = 100000 };

static int my_rank;
static ncclComm_t comm;
static CUstream stream;

static struct shared {
    ncclUniqueId id;
    int made;
} * shared;

static ncclResult_t settle(ncclComm_t c, ncclResult_t result)
{
    struct timespec ms = {0, 1000000};

    for (int i = 0; result == ncclInProgress && i < 10000; i++) {
        OK(ncclCommGetAsyncError(c, &result));
        nanosleep(&ms, NULL);
    }
    return result;
}

static ncclResult_t begin(int rank, int size, int device)
{
    CUcontext context;
    ncclConfig_t config;

    my_rank = rank;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = 0xcafebeef;
    config.version = 22800;
    if (rank == 0) {
        OK(ncclGetUniqueId(&shared->id));
        __atomic_store_n(&shared->made, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&shared->made, __ATOMIC_ACQUIRE))
        usleep(1000);
    MUST(ncclCommInitRankConfig(&comm, size, shared->id, rank, &config) == ncclInProgress);
    return settle(comm, ncclInProgress);
}

static void *buffer(size_t bytes)
{
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, bytes));
    return (void *)(uintptr_t)at;
}

static void put(void *at, const void *from, size_t bytes)
{
    OK(cuMemcpyHtoDAsync_v2((uintptr_t)at, from, bytes, stream));
}

static void get(void *to, const void *at, size_t bytes)
{
    OK(cuMemcpyDtoHAsync_v2(to, (uintptr_t)at, bytes, stream));
}

static void *of_floats(int n, float first, float step)
{
    float *values = malloc((size_t)n * 4);
    void *at = buffer((size_t)n * 4);

    for (int i = 0; i < n; i++)
        values[i] = first + step * (float)(i % 100);
    put(at, values, (size_t)n * 4);
    free(values);
    return at;
}

static void must_be(const void *at, int n, float first, float step)
{
    float *values = malloc((size_t)n * 4);

    get(values, at, (size_t)n * 4);
    for (int i = 0; i < n; i++)
        MUST(fabsf(values[i] - (first + step * (float)(i % 100))) < 1e-3f);
    free(values);
}

/* Runs `rank` in that many processes; true: all of them were content. */
static bool ranks_agree(int size, void (*rank)(int rank, int size))
{
    pid_t pids[8];
    bool good = true;
    int status;

    setenv("HVD_DOUBLE_GPUS", "4", 1);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    for (int i = 0; i < size; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            rank(i, size);
            exit(0);
        }
    }
    for (int i = 0; i < size; i++)
        good &= waitpid(pids[i], &status, 0) == pids[i] && status == 0;
    return good;
}

/* ---- results ---- */
static void all_kinds(int rank, int size)
{
    void *in, *out, *all;
    float sum = (float)(size * (size + 1) / 2), scale = 0.5f;
    ncclRedOp_t half;

    OK(begin(rank, size, rank));
    in = of_floats(COUNT, (float)rank + 1, 1);
    out = of_floats(COUNT, 0, 0);
    all = buffer(COUNT * 4 * (size_t)size);
    OK(settle(comm, ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, stream)));
    must_be(out, COUNT, sum, (float)size);
    OK(settle(comm, ncclAllReduce(in, out, COUNT, ncclFloat32, ncclAvg, comm, stream)));
    must_be(out, COUNT, sum / (float)size, 1);
    OK(settle(comm, ncclAllReduce(in, out, COUNT, ncclFloat32, ncclMax, comm, stream)));
    must_be(out, COUNT, (float)size, 1);
    OK(ncclRedOpCreatePreMulSum(&half, &scale, ncclFloat32, ncclScalarHostImmediate, comm));
    OK(settle(comm, ncclAllReduce(in, out, COUNT, ncclFloat32, half, comm, stream)));
    must_be(out, COUNT, sum / 2, (float)size / 2);
    OK(ncclRedOpDestroy(half, comm));
    OK(settle(comm, ncclReduce(in, out, COUNT, ncclFloat32, ncclSum, 1, comm, stream)));
    if (rank == 1)
        must_be(out, COUNT, sum, (float)size);
    OK(settle(comm, ncclBroadcast(in, out, COUNT, ncclFloat32, size - 1, comm, stream)));
    must_be(out, COUNT, (float)size, 1);
    OK(settle(comm, ncclAllGather(in, all, COUNT, ncclFloat32, comm, stream)));
    for (int r = 0; r < size; r++)
        must_be((char *)all + (size_t)r * COUNT * 4, COUNT, (float)r + 1, 1);
    OK(settle(comm, ncclReduceScatter(all, out, COUNT, ncclFloat32, ncclSum, comm, stream)));
    must_be(out, COUNT, (float)(size * (rank + 1)), (float)size);
    OK(settle(comm, ncclCommFinalize(comm)));
    OK(ncclCommDestroy(comm));
}

START_TEST(every_kind_computes)
{
    ck_assert(ranks_agree(3, all_kinds));
}
END_TEST

/* Processes with numbers of their own meet in a directory, and leave nothing there. */
START_TEST(ranks_meet_in_a_directory)
{
    char dir[SCRATCH_MAX];

    ck_assert_ptr_nonnull(scratch_dir(dir, "gpu-double"));
    setenv("HVD_DOUBLE_DIR", dir, 1);
    ck_assert(ranks_agree(2, all_kinds));
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

/* All pairs at once, more than fits into the mail between them, and an allreduce in the same group. */
static void exchange(int rank, int size)
{
    void *in, *out[8], *sum;

    OK(begin(rank, size, rank));
    in = of_floats(COUNT, (float)rank, 1);
    sum = of_floats(COUNT, 0, 0);
    OK(ncclGroupStart());
    for (int r = 0; r < size; r++) {
        out[r] = of_floats(COUNT, -1, 0);
        OK(ncclSend(in, COUNT, ncclFloat32, r, comm, stream));
        OK(ncclRecv(out[r], COUNT, ncclFloat32, r, comm, stream));
    }
    OK(ncclAllReduce(in, sum, COUNT, ncclFloat32, ncclSum, comm, stream));
    OK(settle(comm, ncclGroupEnd()));
    for (int r = 0; r < size; r++)
        must_be(out[r], COUNT, (float)r, 1);
    must_be(sum, COUNT, (float)(size * (size - 1) / 2), (float)size);
}

START_TEST(a_group_exchanges_everything_at_once)
{
    ck_assert(ranks_agree(3, exchange));
}
END_TEST

/* 1.5 + 2.5 and the like are exact in every type; 8 bit integers wrap. */
static void all_types(int rank, int size)
{
    static const struct {
        ncclDataType_t type;
        uint64_t one, two, three;
        size_t width;
    } rows[] = {
        {ncclInt8, 100, 100, 0xc8, 1},
        {ncclUint8, 200, 100, 44, 1},
        {ncclInt32, 0xffffffff, 5, 4, 4},
        {ncclUint32, 0x80000000, 0x7fffffff, 0xffffffff, 4},
        {ncclInt64, (uint64_t)-7, 5, (uint64_t)-2, 8},
        {ncclUint64, 1ull << 63, 1, (1ull << 63) + 1, 8},
        {ncclFloat16, 0x3e00, 0x4100, 0x4400, 2},
        {ncclBfloat16, 0x3fc0, 0x4020, 0x4080, 2},
        {ncclFloat8e4m3, 0x3c, 0x42, 0x48, 1},
        {ncclFloat8e5m2, 0x3e, 0x41, 0x44, 1},
        {ncclFloat64, 0x3ff8000000000000, 0x4004000000000000, 0x4010000000000000, 8},
    };

    OK(begin(rank, size, rank));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *at = buffer(8);
        uint64_t value = 0;

        put(at, rank ? &rows[i].two : &rows[i].one, rows[i].width);
        OK(settle(comm, ncclAllReduce(at, at, 1, rows[i].type, ncclSum, comm, stream)));
        get(&value, at, rows[i].width);
        MUST(value == rows[i].three);
    }
}

START_TEST(every_type_adds)
{
    ck_assert(ranks_agree(2, all_types));
}
END_TEST

/* An operation "in progress" is not in the stream yet: an event recorded too early does not wait for it. */
static void late(int rank, int size)
{
    void *at;
    CUevent event;
    ncclResult_t result;

    OK(begin(rank, size, rank));
    at = of_floats(10, 1, 0);
    result = ncclAllReduce(at, at, 10, ncclFloat32, ncclSum, comm, stream);
    MUST(result == ncclInProgress);
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    OK(cuEventSynchronize(event));
    must_be(at, 10, 1, 0);
    MUST(ncclAllReduce(at, at, 10, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
    OK(settle(comm, result));
    must_be(at, 10, (float)size, 0);
}

START_TEST(what_is_in_progress_is_not_in_the_stream)
{
    setenv("HVD_DOUBLE_LOG", "/dev/null", 1);
    ck_assert(ranks_agree(2, late));
}
END_TEST

/* ---- faults ---- */
static void leaves_rank_0_alone(int rank, int size)
{
    void *at;
    struct timespec ms = {0, 100000000};

    OK(begin(rank, size, rank));
    at = of_floats(10, 1, 0);
    if (rank)
        _exit(0); /* dies */
    OK(settle(comm, ncclAllReduce(at, at, 10, ncclFloat32, ncclSum, comm, stream)));
    nanosleep(&ms, NULL);
    MUST(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    OK(ncclCommAbort(comm));
    OK(cuStreamSynchronize(stream));
    MUST(ncclCommAbort(comm) == ncclInvalidArgument);
}

START_TEST(a_missing_rank_hangs_until_the_abort)
{
    setenv("HVD_DOUBLE_LOG", "/dev/null", 1);
    ck_assert(ranks_agree(2, leaves_rank_0_alone));
}
END_TEST

static void differ(int rank, int size)
{
    void *at;
    ncclResult_t result;

    OK(begin(rank, size, rank));
    at = of_floats(10, 1, 0);
    OK(settle(comm, ncclAllReduce(at, at, rank ? 10 : 9, ncclFloat32, ncclSum, comm, stream)));
    OK(cuStreamSynchronize(stream));
    OK(ncclCommGetAsyncError(comm, &result));
    MUST(result == ncclInvalidUsage);
    must_be(at, 10, 1, 0);
}

/* The double's messages when `rank` runs in so many processes. */
static const char *said(int size, void (*rank)(int rank, int size))
{
    static char lines[4000];
    char log[SCRATCH_MAX];
    int fd = scratch_file(log, "gpu-double");
    ssize_t n;

    setenv("HVD_DOUBLE_LOG", log, 1);
    ck_assert(ranks_agree(size, rank));
    n = read(fd, lines, sizeof lines - 1);
    lines[n > 0 ? n : 0] = '\0';
    close(fd);
    unlink(log);
    return lines;
}

START_TEST(different_calls_are_noticed)
{
    const char *line = said(2, differ);

    ck_assert_msg(strstr(line, "rank 0 calls ncclAllReduce(count 9") &&
                      strstr(line, "rank 1 calls ncclAllReduce(count 10"),
                  "it says: %s", line);
}
END_TEST

static void wrong_buffers(int rank, int size)
{
    void *at;
    char host[16];

    OK(begin(rank, size, rank));
    at = buffer(4096);
    MUST(ncclAllReduce(at, at, 1025, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
    MUST(ncclAllReduce(host, host, 4, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
    OK(cuMemFree_v2((uintptr_t)at));
    MUST(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
}

START_TEST(buffers_must_be_alive)
{
    setenv("HVD_DOUBLE_LOG", "/dev/null", 1);
    ck_assert(ranks_agree(1, wrong_buffers));
}
END_TEST

static void wrong_memory(int rank, int size)
{
    void *plain, *made, *known, *there;
    CUcontext other;

    OK(begin(rank, size, rank));
    plain = buffer(4096);
    OK(ncclMemAlloc(&made, 100));
    MUST(ncclCommRegister(comm, &plain, 8, &known) == ncclInvalidArgument);
    MUST(ncclCommRegister(comm, plain, 4097, &known) == ncclInvalidArgument);
    OK(ncclCommRegister(comm, made, 2 << 20, &known));
    MUST(ncclCommRegister(comm, made, 2 << 20, &known) == ncclInvalidArgument);
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent_v2(other));
    there = buffer(4096);
    OK(cuCtxPopCurrent_v2(&other));
    MUST(ncclCommRegister(comm, there, 4096, &known) == ncclInvalidArgument);
    MUST(ncclMemFree(plain) == ncclInvalidArgument);
    OK(ncclMemFree(made));
    MUST(cuMemFree_v2((uintptr_t)made) == CUDA_ERROR_INVALID_VALUE);
    OK(ncclCommDestroy(comm));
}

static void known_to_one_alone(int rank, int size)
{
    void *at, *known;
    ncclResult_t result;

    OK(begin(rank, size, rank));
    at = of_floats(10, 1, 0);
    if (rank == 1)
        OK(ncclCommRegister(comm, at, 40, &known));
    OK(settle(comm, ncclAllReduce(at, at, 10, ncclFloat32, ncclSum, comm, stream)));
    OK(cuStreamSynchronize(stream));
    OK(ncclCommGetAsyncError(comm, &result));
    MUST(result == ncclInvalidUsage);
}

START_TEST(registered_memory_is_watched)
{
    static const char *const wrong[] = {
        "it is no memory of a device",       "4097 bytes",
        "it is registered already",          "it is of another device",
        "is not from ncclMemAlloc",          "memory is freed that 1 communicators have registered",
        "is not the start of an allocation", "ncclCommDestroy of a communicator that has memory registered"};
    const char *lines = said(1, wrong_memory);

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(strstr(lines, wrong[i]) != NULL, "not \"%s\": %s", wrong[i], lines);
    lines = said(2, known_to_one_alone);
    ck_assert_msg(strstr(lines, "registered 0), rank 1 calls") && strstr(lines, "registered 1)"), "%s",
                  lines);
}
END_TEST

static void on_one_device(int rank, int size)
{
    MUST(begin(rank, size, 0) == ncclInvalidUsage);
    MUST(strstr(ncclGetLastError(comm), "Duplicate GPU"));
    OK(ncclCommAbort(comm));
}

static void on_one_device_with_names(int rank, int size)
{
    void *at;

    setenv("NCCL_HOSTID", rank ? "b" : "a", 1);
    OK(begin(rank, size, 0));
    at = of_floats(10, 1, 0);
    OK(settle(comm, ncclAllReduce(at, at, 10, ncclFloat32, ncclSum, comm, stream)));
    must_be(at, 10, 2, 0);
}

START_TEST(two_ranks_need_two_devices_or_names)
{
    ck_assert(ranks_agree(2, on_one_device));
    ck_assert(ranks_agree(2, on_one_device_with_names));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu double nccl");
    TCase *tests = tcase_create("nccl");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, every_kind_computes);
    tcase_add_test(tests, ranks_meet_in_a_directory);
    tcase_add_test(tests, a_group_exchanges_everything_at_once);
    tcase_add_test(tests, every_type_adds);
    tcase_add_test(tests, what_is_in_progress_is_not_in_the_stream);
    tcase_add_test(tests, a_missing_rank_hangs_until_the_abort);
    tcase_add_test(tests, different_calls_are_noticed);
    tcase_add_test(tests, buffers_must_be_alive);
    tcase_add_test(tests, registered_memory_is_watched);
    tcase_add_test(tests, two_ranks_need_two_devices_or_names);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
