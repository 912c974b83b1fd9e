/* Calls from a rank to an engine that runs NCCL: valid ones are read right, impossible ones are refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/gpu/gpu.h"
#include "collectives/shm/segment.h"

#define RANKS 3
#define RANK  1
#define AT    4096 /* of the description, in its segment */

static struct engine *engine;
static struct engine_gpus devices;
static struct gpu_owner owner;
static struct gpu_memory memory[2] = {{.gpu = 0, .at = 0x10000, .bytes = 1000},
                                      {.gpu = 1, .at = 0x20000, .bytes = 1000}};
static struct gpu_member gpu_member;
static struct segment segment;
static struct shm_device_call *call;

static void setup(void)
{
    struct err e = ERR_INIT;

    engine = calloc(1, sizeof *engine);
    ck_assert_ptr_nonnull(engine);
    owner = (struct gpu_owner){.memory = memory, .memories = 2};
    devices.owner = &owner;
    engine->gpus = &devices;
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++)
        engine->names.segment[i].fd = -1;
    engine->names.segment[0].fd = segment_create(&segment, 1 << 20, &e);
    ck_assert_int_ge(engine->names.segment[0].fd, 0);
    call = (void *)((char *)segment.base + AT);
    *call = (struct shm_device_call){.operation = 7, .pieces = 1};
    call->piece[0] = (struct shm_device_piece){.kind = GPU_ALLREDUCE,
                                               .dtype = HVD_INT32,
                                               .op = HVD_SUM,
                                               .prescale = 1,
                                               .postscale = 1,
                                               .count = 100,
                                               .in_memory = 1,
                                               .in_offset = 600,
                                               .out_memory = 1};
}

static void teardown(void)
{
    free(gpu_member.call.operation);
    free(gpu_member.call.counts);
    memset(&gpu_member, 0, sizeof gpu_member);
    segment_unmap(&engine->names.segment[0].map);
    close(engine->names.segment[0].fd);
    segment_unmap(&segment);
    free(engine);
}

static int take_at(uint64_t address)
{
    struct err e = ERR_INIT;
    int rc = engine_gpu_take_call(engine, 0, &gpu_member, RANK, RANKS, address, &e);

    ck_assert_int_eq(rc == 0, e.code == 0);
    return rc;
}

static int take(void)
{
    return take_at(shm_address(0, AT));
}

/* Each rank's `counts`, then `sent`. */
static void ragged(int kind, const uint64_t numbers[2 * RANKS])
{
    call->piece[0].kind = kind;
    call->ragged = RANKS;
    memcpy(&call->piece[1], numbers, 2 * RANKS * sizeof *numbers);
}

START_TEST(test_taken)
{
    const struct gpu_operation *o;

    ck_assert_int_eq(take(), 0);
    o = gpu_member.call.operation;
    ck_assert_uint_eq(gpu_member.operation, 7);
    ck_assert_uint_eq(gpu_member.call.operations, 1);
    ck_assert_uint_eq((uintptr_t)o->in, 0x10000 + 600);
    ck_assert_uint_eq((uintptr_t)o->out, 0x10000);
    ck_assert_uint_eq(o->count, 100);
}
END_TEST

START_TEST(test_ragged)
{
    const uint64_t fits[] = {50, 100, 100, 0, 0, 0}, too_many[] = {51, 100, 100, 0, 0, 0};
    const uint64_t sent[] = {1, 1, 1, 60, 40, 1}, huge[] = {1ull << 50, 0, 0, 0, 0, 0};

    call->piece[0].in_offset = 600; /* the rank's own are 100 of the 250 */
    ragged(GPU_ALLGATHER, fits);
    ck_assert_int_eq(take(), 0);
    ck_assert_uint_eq(gpu_member.call.operation[0].counts[2], 100);
    ragged(GPU_ALLGATHER, too_many);
    ck_assert_int_eq(take(), -1);
    ragged(GPU_ALLTOALL, sent); /* 101 elements of what has room for 100 */
    ck_assert_int_eq(take(), -1);
    call->piece[0].in_offset = 596;
    ck_assert_int_eq(take(), 0);
    ck_assert_uint_eq(gpu_member.call.operation[0].sent[0], 60);
    ragged(GPU_ALLGATHER, huge);
    ck_assert_int_eq(take(), -1);
    ragged(GPU_ALLREDUCE, fits); /* an allreduce has no table of counts */
    ck_assert_int_eq(take(), -1);
    ragged(GPU_ALLGATHER, fits);
    call->ragged = 0;
    ck_assert_int_eq(take(), -1);
    call->ragged = RANKS + 1;
    ck_assert_int_eq(take(), -1);
}
END_TEST

START_TEST(test_rows)
{
    call->piece[0].kind = GPU_REDUCESCATTER;
    call->piece[0].row_count = 10;
    call->piece[0].out_offset = 1000 - 3 * 40; /* 3 of the 10 rows */
    ck_assert_int_eq(take(), 0);
    call->piece[0].out_offset += 4;
    ck_assert_int_eq(take(), -1);
    call->piece[0].out_offset = 0;
    call->piece[0].row_count = 0;
    ck_assert_int_eq(take(), -1);
    call->piece[0].row_count = 7;
    ck_assert_int_eq(take(), -1);
}
END_TEST

#define REFUSED(member, value)                                                                               \
    do {                                                                                                     \
        __typeof__(member) before = member;                                                                  \
        member = value;                                                                                      \
        ck_assert_msg(take() == -1, "%s = %s", #member, #value);                                             \
        member = before;                                                                                     \
        ck_assert_int_eq(take(), 0);                                                                         \
    } while (0)

START_TEST(test_refused)
{
    struct shm_device_piece *p = call->piece;

    REFUSED(p->kind, DEVICE_SEND);
    REFUSED(p->kind, -1);
    REFUSED(p->dtype, 99);
    REFUSED(p->dtype, -1);
    REFUSED(p->op, 99);
    REFUSED(p->root, RANKS);
    REFUSED(p->root, -1);
    REFUSED(p->count, 101);
    REFUSED(p->count, 1ull << 62);
    REFUSED(p->in_memory, 0);
    REFUSED(p->in_memory, 2); /* of another GPU */
    REFUSED(p->in_memory, 3);
    REFUSED(p->in_offset, 601);
    REFUSED(p->in_offset, UINT64_MAX);
    REFUSED(p->in_offset, 598); /* not aligned */
    REFUSED(p->out_offset, 2);
    REFUSED(p->out_memory, UINT32_MAX);
    REFUSED(call->pieces, 0);
    REFUSED(call->pieces, SHM_DEVICE_PIECES_MAX + 1);
    REFUSED(call->pieces, SHM_DEVICE_PIECES_MAX); /* longer than the segment */
    memory[0].at = 0;                             /* it has gone */
    ck_assert_int_eq(take(), -1);
    memory[0].at = 0x10000;
    memory[0].closing = true;
    ck_assert_int_eq(take(), -1);
    memory[0].closing = false;
    ck_assert_int_eq(take(), 0);
    ck_assert_int_eq(take_at(shm_address(1, AT)), -1);
    ck_assert_int_eq(take_at(shm_address(0, (1 << 20) - 8)), -1);
    ck_assert_int_eq(take_at(UINT64_MAX), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("device_call");
    TCase *t = tcase_create("device_call");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_taken);
    tcase_add_test(t, test_ragged);
    tcase_add_test(t, test_rows);
    tcase_add_test(t, test_refused);
    suite_add_tcase(s, t);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
