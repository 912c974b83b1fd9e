/* The contract in shared memory, in one process: ring, region, segments, operations of several members,
 * poison, bad writers. */
/* needs: algo */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/shm/doorbell.h"
#include "collectives/shm/region.h"
#include "collectives/shm/ring.h"
#include "collectives/shm/segment.h"
#include "collectives/local/tensor.h"
#include "tests/unit/processor_time.h"

#define MEMBERS 3u
#define COUNT   5000u /* elements of a tensor that does not fit into the region */

static struct region region;
static int region_fd;
static struct tensor_view view[MEMBERS + 1]; /* the last one is the engine's */
static float memory[MEMBERS][2 * COUNT];     /* stands for the segments: segment i is member i's */

static void *resolve(void *ctx, uint64_t address, uint64_t bytes)
{
    uint32_t segment = shm_address_segment(address);
    uint64_t offset = shm_address_offset(address);

    (void)ctx;
    if (segment >= MEMBERS || offset > sizeof memory[0] || bytes > sizeof memory[0] - offset)
        return NULL;
    return (char *)memory[segment] + offset;
}

static const struct tensor_resolver resolver = {resolve, NULL};

static struct team *team;

static void setup(void)
{
    struct region_shape shape = {MEMBERS, 1, MEMBERS, 1, NULL, 0, 0, false, 0, false};
    struct err e = ERR_INIT;

    region_fd = region_create(&region, &shape, &e);
    ck_assert_msg(region_fd >= 0, "%s", e.text);
    team = team_new(0, NULL, MEMBERS, NULL, MEMBERS);
    ck_assert_ptr_nonnull(team);
    for (uint32_t i = 0; i <= MEMBERS; i++)
        ck_assert_int_eq(tensor_view_init(&view[i], &region, team, SHM_SLOT_FIRST, i), 0);
}

static void teardown(void)
{
    for (uint32_t i = 0; i <= MEMBERS; i++)
        tensor_view_free(&view[i]);
    free(team);
    region_unmap(&region);
    close(region_fd);
}

#define OP(...)                                                                                              \
    {                                                                                                        \
        .prescale = 1, .postscale = 1, __VA_ARGS__                                                           \
    }
#define SUM(n) .kind = SHM_ALLREDUCE, .dtype = HVD_FLOAT32, .op = HVD_SUM, .count = (n)

static const struct tensor_op small = OP(SUM(4));
static const struct tensor_op large = OP(SUM(COUNT));

static void publish_large(uint32_t member, uint32_t sequence, const struct tensor_op *op)
{
    for (uint32_t i = 0; i < COUNT; i++)
        memory[member][i] = (float)(i + member);
    tensor_begin(&view[member], sequence);
    tensor_publish(&view[member], op,
                   &(struct tensor_where){.in = shm_address(member, 0),
                                          .out = shm_address(member, COUNT * sizeof(float))});
}

START_TEST(ring_keeps_order_and_limits)
{
    struct shm_ring *r = &region_mailbox(&region, 1)->ready;
    uint32_t slot;

    ck_assert_int_eq(ring_take(r, &slot), 0);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < SHM_SLOTS; i++)
            ck_assert(ring_put(r, (i * 7 + round) % SHM_SLOTS));
        ck_assert(!ring_put(r, 1));
        for (uint32_t i = 0; i < SHM_SLOTS; i++) {
            ck_assert_int_eq(ring_take(r, &slot), 1);
            ck_assert_uint_eq(slot, (i * 7 + round) % SHM_SLOTS);
        }
        ck_assert(ring_empty(r));
    }
    ck_assert(ring_put(r, 3));
    r->slot[atomic_load(&r->head) % SHM_SLOTS] = SHM_SLOTS; /* no such slot */
    ck_assert_int_eq(ring_take(r, &slot), -1);
    atomic_store(&r->tail, atomic_load(&r->head) + SHM_SLOTS + 1); /* more than it can hold */
    ck_assert_int_eq(ring_take(r, &slot), -1);
}
END_TEST

/* Once round; one assertion for all: Check writes each one down. */
static bool slots_come_once(struct shm_ring *r, uint32_t *at)
{
    bool seen[SHM_SLOTS] = {false}, right = true;
    uint32_t slot;

    for (uint32_t i = 0; i < 3 * SHM_SLOTS; i++)
        right = right && ring_put_once(r, i * 7 % SHM_SLOTS, &at[i * 7 % SHM_SLOTS]);
    for (uint32_t i = 0; i < SHM_SLOTS / 2; i++) /* the later half is there still, the next time */
        right = right && ring_take(r, &slot) == 1;
    for (uint32_t i = 0; i < SHM_SLOTS; i++)
        right = right && ring_put_once(r, i, &at[i]);
    for (uint32_t i = 0; right && i < SHM_SLOTS; i++) {
        right = ring_take(r, &slot) == 1 && !seen[slot];
        seen[slot] = true;
    }
    return right && ring_empty(r);
}

START_TEST(a_ring_has_a_slot_once)
{
    struct shm_ring *r = &region_mailbox(&region, 1)->ready;
    uint32_t at[SHM_SLOTS] = {0}, slot;

    for (uint32_t round = 0; round < 5; round++)
        ck_assert_msg(slots_come_once(r, at), "round %u", round);
    ck_assert(ring_put_once(r, 5, &at[5]));
    ck_assert(ring_put_once(r, 6, &at[5])); /* that place is another one's, whatever counters have wrapped */
    ck_assert_int_eq(ring_take(r, &slot), 1);
    ck_assert_int_eq(ring_take(r, &slot), 1);
    ck_assert_uint_eq(slot, 6);
}
END_TEST

START_TEST(small_tensors_are_computed_by_each)
{
    float in[4] = {1, 2, 3, 4}, out[4];
    char text[SHM_TEXT_MAX];

    for (uint32_t k = 1; k <= 6; k++) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            tensor_begin(&view[i], k);
            ck_assert(!tensor_arrived(&view[i]));
            ck_assert_uint_eq(tensor_missing(&view[i]), i == 0 ? 0 : i);
            tensor_publish(&view[i], &small, &(struct tensor_where){.payload = in});
            ck_assert_int_eq(tensor_arrived(&view[i]), i == MEMBERS - 1);
        }
        for (uint32_t i = 0; i < MEMBERS; i++) {
            ck_assert(tensor_arrived(&view[i]));
            ck_assert_int_eq(tensor_open(&view[i], "t", &resolver, text, sizeof text), HVD_SUCCESS);
            tensor_compute(&view[i], out);
            ck_assert(out[0] == 3 && out[1] == 6 && out[2] == 9 && out[3] == 12);
        }
    }
}
END_TEST

START_TEST(large_tensors_are_shared_out)
{
    char text[SHM_TEXT_MAX];
    uint32_t all[] = {0, MEMBERS, 2, 1};

    for (uint32_t k = 1; k <= 4; k++) {
        for (uint32_t i = 0; i < MEMBERS; i++)
            publish_large(i, k, &large);
        tensor_begin(&view[MEMBERS], k);
        for (uint32_t i = 0; i <= MEMBERS; i++) {
            ck_assert(tensor_arrived(&view[i]));
            ck_assert_int_eq(tensor_open(&view[i], "t", &resolver, text, sizeof text), HVD_SUCCESS);
        }
        ck_assert_uint_ge(view[0].chunks.number, 2);
        ck_assert(!tensor_work(&view[MEMBERS])); /* nobody has offered it yet */
        if (k == 2)
            tensor_offer(&view[1]);
        uint32_t chunks = 0;
        for (uint32_t turn = 0; tensor_work(&view[all[turn % 4]]) || turn < 4; turn++) {
            chunks++;
            ck_assert(!tensor_done(&view[0]) || chunks >= view[0].chunks.number);
        }
        for (uint32_t i = 0; i <= MEMBERS; i++)
            ck_assert(tensor_done(&view[i]));
        for (uint32_t i = 0; i < MEMBERS * COUNT; i++)
            ck_assert(memory[i / COUNT][COUNT + i % COUNT] == (float)(3 * (i % COUNT) + 3));
    }
}
END_TEST

/* The engine looks at an operation, sleeps, and comes back when everybody is two operations further. */
START_TEST(a_late_engine_takes_no_chunk_of_the_next_operation)
{
    char text[SHM_TEXT_MAX];

    for (uint32_t i = 0; i < MEMBERS; i++)
        publish_large(i, 1, &large);
    tensor_offer(&view[0]);
    tensor_begin(&view[MEMBERS], 1);
    ck_assert(tensor_arrived(&view[MEMBERS]));
    ck_assert_int_eq(tensor_open(&view[MEMBERS], "t", &resolver, text, sizeof text), HVD_SUCCESS);
    for (uint32_t k = 1; k <= 2; k++) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            if (k == 2)
                publish_large(i, k, &large);
        }
        ck_assert(tensor_arrived(&view[0]));
        ck_assert_int_eq(tensor_open(&view[0], "t", &resolver, text, sizeof text), HVD_SUCCESS);
        if (k == 1)
            while (tensor_work(&view[0]))
                ;
    }
    tensor_offer(&view[0]);
    ck_assert(!tensor_work(&view[MEMBERS]));
    ck_assert(tensor_work(&view[0]));
}
END_TEST

/* The engine sleeps before it reads the entries: those of two operations later stand there, and the claim
 * word is still that of the first. */
START_TEST(a_late_look_is_noticed)
{
    struct tensor_view *engine = &view[MEMBERS];
    struct tensor_op shorter = OP(SUM(SHM_INLINE_MAX / sizeof(float) + 1)); /* one chunk */
    char text[SHM_TEXT_MAX];
    float elements[4] = {0};

    for (uint32_t i = 0; i < MEMBERS; i++)
        publish_large(i, 1, &shorter);
    tensor_begin(engine, 1);
    ck_assert(tensor_arrived(engine));
    ck_assert(!tensor_is_over(engine));
    ck_assert(tensor_arrived(&view[0]));
    ck_assert_int_eq(tensor_open(&view[0], "t", &resolver, text, sizeof text), HVD_SUCCESS);
    while (tensor_work(&view[0]))
        ;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        ck_assert(!tensor_is_over(engine));
        tensor_begin(&view[i], 2);
        tensor_publish(&view[i], &small, &(struct tensor_where){.payload = elements});
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        publish_large(i, 3, &large);
    ck_assert_int_eq(tensor_open(engine, "t", &resolver, text, sizeof text), HVD_SUCCESS);
    ck_assert(tensor_has_chunk(engine)); /* of an operation that never had it */
    ck_assert(tensor_is_over(engine));
}
END_TEST

/* An operation that could not be opened has no elements: nothing may be written with those of the one before.
 */
START_TEST(chunks_belong_to_one_operation)
{
    struct tensor_op shorter = large;
    char text[SHM_TEXT_MAX];

    shorter.count = COUNT / 2;
    for (uint32_t k = 1; k <= 2; k++) {
        for (uint32_t i = 0; i < MEMBERS; i++)
            publish_large(i, k, k == 2 && i == 1 ? &shorter : &large);
        tensor_begin(&view[MEMBERS], k);
        ck_assert(tensor_arrived(&view[MEMBERS]));
        ck_assert_int_eq(tensor_open(&view[MEMBERS], "t", &resolver, text, sizeof text),
                         k == 1 ? HVD_SUCCESS : HVD_ERR_MISMATCH);
        tensor_offer(&view[0]);
        ck_assert_int_eq(tensor_has_chunk(&view[MEMBERS]), k == 1);
        ck_assert_int_eq(tensor_work(&view[MEMBERS]), k == 1);
    }
}
END_TEST

static void expect(const char *part, int status, uint32_t as)
{
    char text[SHM_TEXT_MAX] = "";

    ck_assert(tensor_arrived(&view[as]));
    ck_assert_int_eq(tensor_open(&view[as], "grad", &resolver, text, sizeof text), status);
    ck_assert_msg(strstr(text, part) && strstr(text, "grad"), "\"%s\" is not in \"%s\"", part, text);
}

START_TEST(disagreement_is_named)
{
    static const struct {
        struct tensor_op op;
        const char *text;
    } other[] = {
        {OP(SUM(5)), "rank 0 asks for allreduce sum of 4 float32, rank 1 for allreduce sum of 5"},
        {OP(.kind = SHM_ALLREDUCE, .dtype = HVD_INT32, .op = HVD_SUM, .count = 4),
         "of 4 float32, rank 1 for allreduce sum of 4 int32"},
        {OP(.kind = SHM_ALLREDUCE, .dtype = HVD_FLOAT32, .op = HVD_MAX, .count = 4),
         "rank 1 for allreduce max"},
        {OP(.kind = SHM_BROADCAST, .dtype = HVD_FLOAT32, .root = 2, .count = 4),
         "rank 1 for broadcast from rank 2"},
        {OP(.kind = SHM_BARRIER), "rank 1 for barrier"},
        {OP(.kind = 99), "rank 1 for an unknown operation"},
        {OP(SUM(COUNT)), "rank 1 for allreduce sum of 5000"},
        {OP(SUM(4), .set = 3),
         "float32, process set 0, rank 1 for allreduce sum of 4 float32, process set 3"},
        {{SUM(4), .prescale = 0.5, .postscale = 1},
         "float32, prescale 1, rank 1 for allreduce sum of 4 float32, prescale 0.5"},
        {{SUM(4), .prescale = 1, .postscale = 2},
         "postscale 1, rank 1 for allreduce sum of 4 float32, postscale 2"},
        {OP(SUM(4), .compression = HVD_COMPRESSION_FLOAT16),
         "compression none, rank 1 for allreduce sum of 4 float32, compression float16"},
        {OP(SUM(4), .row = 9), "0 elements a row, rank 1 for allreduce sum of 4 float32, 9 elements a row"},
        {OP(SUM(4), .root = 9),
         "no shape of its own, rank 1 for allreduce sum of 4 float32, a shape of its own"},
        {OP(SUM(4), .group = 2), "one tensor, rank 1 for allreduce sum of 4 float32, a group of 2 tensors"},
        {OP(SUM(4), .device = 1),
         "float32, in memory of the host, rank 1 for allreduce sum of 4 float32, in memory of a GPU"},
    };
    const struct tensor_op *op = &other[_i].op;
    float in[8] = {0};

    for (uint32_t i = 0; i < MEMBERS; i++) {
        tensor_begin(&view[i], 1);
        if (i == 1)
            tensor_publish(&view[i], op,
                           &(struct tensor_where){.payload = tensor_bytes(op) <= sizeof in ? in : NULL});
        else
            tensor_publish(&view[i], &small, &(struct tensor_where){.payload = in});
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        expect(other[_i].text, HVD_ERR_MISMATCH, i);
}
END_TEST

/* A worker's entry may hold anything: nobody may read or write outside because of it. */
START_TEST(broken_entries_are_refused)
{
    struct shm_entry *entry = region_entry(&region, SHM_SLOT_FIRST, 2, 1);
    struct shm_entry good;

    for (uint32_t i = 0; i < MEMBERS; i++)
        publish_large(i, 1, &large);
    memcpy(&good, entry, sizeof good);
    for (int what = 0; what < 7; what++) {
        memcpy((void *)entry, &good, sizeof good);
        switch (what) {
        case 0:
            entry->in = shm_address(7, 0);
            break;
        case 1:
            entry->out = shm_address(2, sizeof memory[2] - 4);
            break;
        case 2:
            entry->in = shm_address(2, (1ull << SHM_OFFSET_BITS) - 4);
            break;
        case 3:
            entry->out = shm_address(2, 2); /* between two elements */
            break;
        case 4:
            entry->place = SHM_INLINE;
            break;
        case 5:
            entry->place = 139; /* and no details */
            break;
        case 6:
            entry->in = UINT64_MAX;
            break;
        }
        expect("rank 2's buffer", HVD_ERR_INVALID, 0);
        expect("rank 2's buffer", HVD_ERR_INVALID, 2);
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        region_entry(&region, SHM_SLOT_FIRST, i, 1)->count = UINT64_MAX / 2;
    expect("rank 0 has written", HVD_ERR_INVALID, MEMBERS - 1);
    for (uint32_t i = 0; i < MEMBERS; i++)
        region_entry(&region, SHM_SLOT_FIRST, i, 1)->kind = SHM_BROADCAST;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        region_entry(&region, SHM_SLOT_FIRST, i, 1)->count = COUNT;
        region_entry(&region, SHM_SLOT_FIRST, i, 1)->root = MEMBERS;
    }
    expect("rank 0 has written", HVD_ERR_INVALID, 1);
}
END_TEST

/* The engine makes a buffer of the parts and reduces all elements into it: none may be left over. */
START_TEST(parts_have_all_elements)
{
    struct tensor_op op = OP(.kind = SHM_REDUCESCATTER, .dtype = HVD_FLOAT32, .op = HVD_SUM, .count = COUNT);

    op.group = 2;
    for (uint32_t sequence = 1; sequence <= 2; sequence++) {
        op.row = sequence == 1 ? 0x123456789abc : COUNT - 1; /* of a group a hash */
        for (uint32_t i = 0; i < MEMBERS; i++)
            publish_large(i, sequence, &op);
        tensor_begin(&view[MEMBERS], sequence);
        expect("rank 0's buffer", HVD_ERR_INVALID, MEMBERS);
    }
}
END_TEST

START_TEST(poison_is_for_ever_and_wakes)
{
    struct shm_mailbox *m = region_mailbox(&region, 0);
    uint32_t prepared = doorbell_prepare(m);
    char text[64];

    ck_assert(doorbell_has_sleeper(m));
    region_poison(&region, HVD_ERR_PEER, "first");
    region_poison(&region, HVD_ERR_ENGINE, "second");
    ck_assert(doorbell_sleep(m, prepared, 5000)); /* rung: does not sleep at all */
    ck_assert(!doorbell_has_sleeper(m));
    prepared = doorbell_prepare(m);
    ck_assert(!doorbell_sleep(m, prepared, 1)); /* nobody rings */
    ck_assert_int_eq(region_poison_read(&region, text, sizeof text), HVD_ERR_PEER);
    ck_assert_str_eq(text, "first");
    memset(region.header->poison_text, 'x', SHM_TEXT_MAX); /* no end */
    region.header->poison_status = 5;
    ck_assert_int_eq(region_poison_read(&region, text, sizeof text), HVD_ERR_ENGINE);
    ck_assert_uint_eq(strlen(text), sizeof text - 1);
}
END_TEST

/* 100 moves; of two processors chance would take the thread back in half of the cases. */
START_TEST(a_thread_moves_to_another_processor)
{
    cpu_set_t before, after;
    int moved = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2)
        return;
    for (int i = 0; i < 100; i++) {
        int from = sched_getcpu();
        doorbell_move();
        moved += sched_getcpu() != from;
    }
    ck_assert_int_ge(moved, 90);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    CPU_ZERO(&after);
    CPU_SET((unsigned)sched_getcpu(), &after);
    ck_assert_int_eq(sched_setaffinity(0, sizeof after, &after), 0);
    doorbell_move(); /* there is no other one */
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert(CPU_EQUAL(&before, &after));
}
END_TEST

START_TEST(regions_and_segments_are_checked)
{
    struct region other = {0};
    struct segment a, b;
    struct err e = ERR_INIT;
    int fd;

    ck_assert_int_eq(region_map(&other, region_fd, &e), 0);
    ck_assert_uint_eq(other.members, MEMBERS);
    region_unmap(&other);
    ck_assert_int_ne(ftruncate(region_fd, 4096), 0); /* sealed */
    region.header->members = 1000;
    ck_assert_int_eq(region_map(&other, region_fd, &e), -1);
    ck_assert_ptr_null(other.header);
    err_clear(&e);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
    ck_assert_int_eq(region_map(&other, fd, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "not sealed"));
    err_clear(&e);
    ck_assert_int_eq(segment_map(&b, fd, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "not sealed"));
    close(fd);
    err_clear(&e);
    fd = segment_create(&a, 1 << 20, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(ftruncate(fd, 0), 0);
    ck_assert_int_eq(segment_map(&b, fd, &e), 0);
    ((char *)a.base)[12345] = 7;
    ck_assert_int_eq(((char *)b.base)[12345], 7);
    segment_unmap(&a);
    segment_unmap(&b);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shm");
    TCase *tc = tcase_create("shm");
    SRunner *runner;
    int failed;

    case_computes(tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, ring_keeps_order_and_limits);
    tcase_add_test(tc, a_ring_has_a_slot_once);
    tcase_add_test(tc, small_tensors_are_computed_by_each);
    tcase_add_test(tc, large_tensors_are_shared_out);
    tcase_add_test(tc, a_late_engine_takes_no_chunk_of_the_next_operation);
    tcase_add_test(tc, chunks_belong_to_one_operation);
    tcase_add_loop_test(tc, disagreement_is_named, 0, 14);
    tcase_add_test(tc, broken_entries_are_refused);
    tcase_add_test(tc, parts_have_all_elements);
    tcase_add_test(tc, a_late_look_is_noticed);
    tcase_add_test(tc, poison_is_for_ever_and_wakes);
    tcase_add_test(tc, a_thread_moves_to_another_processor);
    tcase_add_test(tc, regions_and_segments_are_checked);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
