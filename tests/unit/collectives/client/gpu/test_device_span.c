/* Allocations that a rank gives its engine, and wants one behind the other there: as it says, and nothing
 * that cannot be. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/shm/numbers.h"
#include "tests/unit/gpu_ranks.h"

#define PIECE  ((size_t)2 << 20)
#define PIECES 3
#define MARK   64 /* bytes at the begin of each piece */

static struct gpu_rank me;
static struct engine engine = {.workers = {.members = 1}};
static struct engine_gpus devices;
static struct gpu_owner owner;
static cu_allocation made[PIECES];
static uint32_t known[PIECES]; /* the engine's numbers of them */
static struct worker_message told;

static int ask(uint32_t type, uint32_t gpu, uint32_t id, int fd)
{
    struct worker_reader reader = {.number_of_fds = fd >= 0, .fds = {fd, -1}};
    struct worker_device q = {.gpu = gpu, .bytes = PIECE};

    reader.message.type = type;
    reader.message.id = id;
    memcpy(reader.message.text, &q, sizeof q);
    told = (struct worker_message){.type = type};
    ck_assert(engine_gpus_answer(&engine, 0, &reader, &told));
    if (fd >= 0)
        close(fd);
    return told.status;
}

/* The number; 0: refused. */
static uint32_t span(uint32_t gpu, size_t n, const uint32_t *number)
{
    int fd = numbers_write(number, n);

    ck_assert_int_ge(fd, 0);
    return ask(WORKER_DEVICE_SPAN, gpu, 0, fd) == HVD_SUCCESS ? told.id : 0;
}

#define SPAN(gpu, ...)                                                                                       \
    span(gpu, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]){__VA_ARGS__})

static void mark(cu_pointer at, int with)
{
    char content[MARK];

    memset(content, with, sizeof content);
    ck_assert_int_eq(me.d->cuMemcpyHtoDAsync(at, content, sizeof content, me.stream), CU_OK);
    ck_assert_int_eq(me.d->cuStreamSynchronize(me.stream), CU_OK);
}

static int mark_at(cu_pointer at)
{
    char content[MARK];

    gpu_read(&me, content, (const void *)(uintptr_t)at, sizeof content);
    return content[MARK - 1];
}

static void give_pieces(void)
{
    struct cu_allocation_properties how = {.type = CU_ALLOCATION_PINNED,
                                           .handle_types = CU_HANDLE_FD,
                                           .location = {CU_LOCATION_DEVICE, me.ordinal}};

    for (int i = 0; i < PIECES; i++) {
        int fd;
        ck_assert_int_eq(me.d->cuMemCreate(&made[i], PIECE, &how, 0), CU_OK);
        ck_assert_int_eq(me.d->cuMemExportToShareableHandle(&fd, made[i], CU_HANDLE_FD, 0), CU_OK);
        ck_assert_int_eq(ask(WORKER_DEVICE_MEMORY, 0, 0, fd), HVD_SUCCESS);
        known[i] = told.id;
        mark(owner.memory[known[i] - 1].at, 'a' + i);
    }
}

static void setup(void)
{
    setenv("HVD_DOUBLE_GPUS", "2", 1);
    me = (struct gpu_rank){.size = 1};
    gpu_open(&me);
    devices.driver = me.d;
    devices.owner = &owner;
    devices.gpu[0] = devices.gpu[1] = (struct opened_gpu){.what = me.gpu, .context = me.context};
    engine.gpus = &devices;
    give_pieces();
}

START_TEST(pieces_lie_as_they_are_named)
{
    uint32_t s = SPAN(0, known[2], known[0]), again = SPAN(0, known[2], known[0]), all;
    cu_pointer at;

    ck_assert_uint_ne(s, 0);
    ck_assert_uint_ne(again, s);
    ck_assert_uint_eq(owner.memory[s - 1].bytes, 2 * PIECE);
    at = owner.memory[s - 1].at;
    ck_assert_int_eq(mark_at(at), 'c');
    ck_assert_int_eq(mark_at(at + PIECE), 'a');
    mark(at + PIECE, 'x');
    ck_assert_int_eq(mark_at(owner.memory[known[0] - 1].at), 'x');
    all = SPAN(0, known[0], known[1], known[2]);
    ck_assert_uint_eq(owner.memory[all - 1].bytes, 3 * PIECE);
    ck_assert_int_eq(mark_at(owner.memory[all - 1].at), 'x');
}
END_TEST

/* In whatever order: what is mapped stays, what is not has gone. */
START_TEST(a_span_goes_by_itself)
{
    uint32_t s = SPAN(0, known[0], known[1]);
    cu_pointer at = owner.memory[s - 1].at, base;
    size_t bytes;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ask(WORKER_DEVICE_FORGET, 0, known[i], -1), HVD_SUCCESS);
        ck_assert_int_eq(me.d->cuMemRelease(made[i]), CU_OK);
    }
    ck_assert_int_eq(mark_at(at), 'a');
    ck_assert_int_eq(mark_at(at + PIECE), 'b');
    ck_assert_uint_eq(SPAN(0, known[0], known[2]), 0);
    ck_assert_int_eq(ask(WORKER_DEVICE_FORGET, 0, s, -1), HVD_SUCCESS);
    ck_assert_int_ne(me.d->cuMemGetAddressRange(&base, &bytes, at), CU_OK);
    ck_assert_uint_eq(SPAN(0, s, known[2]), 0);
    ck_assert_uint_ne(SPAN(0, known[2]), 0);
}
END_TEST

START_TEST(what_is_none)
{
    uint32_t s = SPAN(0, known[0], known[1]);
    int nothing = numbers_write(NULL, 0), pipes[2];

    ck_assert_uint_eq(SPAN(1, known[0], known[1]), 0); /* of another GPU */
    ck_assert_uint_eq(SPAN(2, known[0], known[1]), 0); /* that nobody has opened */
    ck_assert_uint_eq(SPAN(UINT32_MAX, known[0]), 0);
    ck_assert_uint_eq(SPAN(0, known[0], known[0]), 0); /* twice */
    ck_assert_uint_eq(SPAN(0, s, known[2]), 0);        /* no allocation */
    ck_assert_uint_eq(SPAN(0, known[0], 0), 0);
    ck_assert_uint_eq(SPAN(0, known[0], s + 1), 0);
    ck_assert_uint_eq(SPAN(0, known[0], UINT32_MAX), 0);
    ck_assert_int_ne(ask(WORKER_DEVICE_SPAN, 0, 0, -1), HVD_SUCCESS);
    ck_assert_int_ne(ask(WORKER_DEVICE_SPAN, 0, 0, nothing), HVD_SUCCESS);
    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_ne(ask(WORKER_DEVICE_SPAN, 0, 0, pipes[0]), HVD_SUCCESS);
    close(pipes[1]);
    uint32_t *many = calloc(ENGINE_GPU_MEMORIES_MAX + 1, sizeof *many);
    ck_assert_ptr_nonnull(many);
    ck_assert_uint_eq(span(0, ENGINE_GPU_MEMORIES_MAX + 1, many), 0);
    free(many);
    ck_assert_uint_ne(SPAN(0, known[0], known[1]), 0);
}
END_TEST

/* No part of it stays mapped: there is room for as many again when the pieces have gone. */
START_TEST(a_driver_that_cannot)
{
    setenv("HVD_DOUBLE_FAIL", "cuMemMap:5", 1); /* the second of it: three were for the pieces */
    setenv("HVD_DOUBLE_MEMORY", "11534336",
           1); /* five and a half: two are there twice when the third is made */
    setup();
    ck_assert_uint_eq(SPAN(0, known[0], known[1], known[2]), 0);
    ck_assert_ptr_nonnull(strstr(told.text, "mapping memory of GPU 0: "));
    for (int i = 0; i < PIECES; i++) {
        ck_assert_int_eq(ask(WORKER_DEVICE_FORGET, 0, known[i], -1), HVD_SUCCESS);
        ck_assert_int_eq(me.d->cuMemRelease(made[i]), CU_OK);
    }
    give_pieces();
    ck_assert_uint_ne(SPAN(0, known[0], known[1], known[2]), 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("device_span");
    TCase *t = tcase_create("device_span"), *faults = tcase_create("faults");
    SRunner *runner;
    int failed;

    (void)argc;
    gpu_with_doubles(argv);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, pieces_lie_as_they_are_named);
    tcase_add_test(t, a_span_goes_by_itself);
    tcase_add_test(t, what_is_none);
    tcase_add_test(faults, a_driver_that_cannot);
    suite_add_tcase(s, t);
    suite_add_tcase(s, faults);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
