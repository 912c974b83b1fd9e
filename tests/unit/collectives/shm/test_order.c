/* The order of operations on devices: members begin names in orders of their own, some with many at once, and
 * all of them take the same list. */
/* needs: algo */
#include <check.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/shm/order.h"
#include "tests/unit/processor_time.h"

#define MEMBERS 3u
#define NAMES   7u
#define ROUNDS  4000u
#define HEAD    SHM_SLOT_FIRST
#define ALL     (NAMES * ROUNDS)
#define DAWDLE  500 /* turns; giving the processor away would cost a time slice of whoever else computes */
#define LOOKS   200 /* for the others, before a member sleeps */

static struct region region;
static int region_fd;
static uint32_t taken[MEMBERS][ALL];
static _Atomic uint32_t appended; /* slept on */

static void setup(void)
{
    struct region_shape shape = {MEMBERS, 1, MEMBERS, 1, NULL, 0, 0, false, 0, false};
    struct err e = ERR_INIT;

    region_fd = region_create(&region, &shape, &e);
    ck_assert_msg(region_fd >= 0, "%s", e.text);
}

static void teardown(void)
{
    region_unmap(&region);
    close(region_fd);
}

static _Atomic uint32_t *arrival(uint32_t slot, uint32_t member, uint32_t operation)
{
    return &region_entry(&region, slot, member, operation)->sequence;
}

/* As the library does: arrive, and see whether all have. */
static void begin(uint32_t member, uint32_t slot, uint32_t operation)
{
    atomic_store(arrival(slot, member, operation), operation);
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (atomic_load(arrival(slot, i, operation)) != operation)
            return;
    if (!order_claim(&region, slot, operation))
        return;
    if (!order_append(&region, HEAD, slot))
        abort();
    atomic_fetch_add(&appended, 1);
    syscall(SYS_futex, &appended, FUTEX_WAKE_PRIVATE, MEMBERS, NULL, NULL, 0);
}

static uint32_t random_of(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static void dawdle(uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        __asm__ volatile("" ::: "memory");
}

/* All that is left is to wait for the others: with other work on the machine they may be long without a
 * processor, and looking on would keep them from one. */
static bool must_wait(const bool busy[NAMES], const uint32_t operation[NAMES])
{
    for (uint32_t i = 0; i < NAMES; i++)
        if (!busy[i] && operation[i] < ROUNDS)
            return false;
    return true;
}

/* Begins whatever of its names is free, up to so many in flight, takes what comes, at times slowly. */
static void *member_main(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg, state = me * 77 + 5, operation[NAMES] = {0}, got = 0, looks = 0;
    bool busy[NAMES] = {false};
    struct order o = order_start(HEAD);

    while (got < ALL) {
        uint32_t name = random_of(&state) % NAMES, slot, seen = atomic_load(&appended);
        if (!busy[name] && operation[name] < ROUNDS && random_of(&state) % 4 != 0) {
            busy[name] = true;
            begin(me, HEAD + 1 + name, 2 * ++operation[name] - 1); /* even numbers are on no list */
        }
        if (random_of(&state) % (8 << me) == 0)
            dawdle(random_of(&state) % DAWDLE);
        int rc = order_next(&o, &region, &slot);
        if (rc < 0)
            abort();
        if (rc == 0 && must_wait(busy, operation) && ++looks % LOOKS == 0)
            syscall(SYS_futex, &appended, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        if (rc == 0 || random_of(&state) % 3 == 0)
            continue;
        name = slot - HEAD - 1;
        if (name >= NAMES || !busy[name])
            abort(); /* this member has not begun it, so it cannot be complete */
        order_take(&o, slot, operation[name]);
        busy[name] = false;
        taken[me][got++] = operation[name] * NAMES + name;
    }
    return NULL;
}

START_TEST(all_take_the_same_list)
{
    pthread_t thread[MEMBERS];

    for (uintptr_t i = 0; i < MEMBERS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, member_main, (void *)i), 0);
    for (uint32_t i = 0; i < MEMBERS; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 1; i < MEMBERS; i++)
        ck_assert_mem_eq(taken[0], taken[i], sizeof taken[0]);
}
END_TEST

/* A member that is late reads a slot twice when the list has it twice: each has a link of its own. */
START_TEST(a_slot_may_be_there_twice)
{
    struct order slow = order_start(HEAD), quick = slow;
    const uint32_t slots[] = {9, 5, 9, 5, 7}, operations[] = {1, 1, 2, 2, 1};
    uint32_t slot;

    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_int_eq(order_next(&quick, &region, &slot), 0);
        ck_assert(order_claim(&region, slots[i], operations[i]));
        ck_assert(!order_claim(&region, slots[i], operations[i]));
        ck_assert(order_append(&region, HEAD, slots[i]));
        ck_assert_int_eq(order_next(&quick, &region, &slot), 1);
        order_take(&quick, slot, operations[i]);
    }
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_int_eq(order_next(&slow, &region, &slot), 1);
        ck_assert_uint_eq(slot, slots[i]);
        order_take(&slow, slot, operations[i]);
    }
    ck_assert_int_eq(order_next(&slow, &region, &slot), 0);
}
END_TEST

START_TEST(garbage_is_found)
{
    struct order o = order_start(HEAD);
    uint32_t slot;

    ck_assert(order_append(&region, HEAD, 9));
    atomic_store(&region_slot(&region, HEAD)->next[0], SHM_SLOTS);
    ck_assert_int_eq(order_next(&o, &region, &slot), -1);
    atomic_store(&region_slot(&region, HEAD)->last, shm_tagged(1, SHM_SLOTS));
    ck_assert(!order_append(&region, HEAD, 9));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("order");
    TCase *tc = tcase_create("order");
    SRunner *runner;
    int failed;

    case_computes(tc);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, all_take_the_same_list);
    tcase_add_test(tc, a_slot_may_be_there_twice);
    tcase_add_test(tc, garbage_is_found);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
