/* Arrivals of a host's workers at operations, out of a flight recorder. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/status/arrivals.h"
#include "tests/unit/run_test.h"

#define MOST 8

static struct flight hosts[2], *flight;
static int fd[2];
static struct arrivals *arrivals;

static void set_up(void)
{
    struct err e = ERR_INIT;
    for (int h = 0; h < 2; h++)
        ck_assert_msg((fd[h] = flight_create(&hosts[h], &e)) >= 0, "%s", e.text);
    flight = &hosts[0];
    arrivals = arrivals_new(MOST);
    ck_assert_ptr_nonnull(arrivals);
}

static void tear_down(void)
{
    arrivals_free(arrivals);
    for (int h = 0; h < 2; h++) {
        flight_unmap(&hosts[h]);
        close(fd[h]);
    }
}

static void name_slots(struct flight *f, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "layer.%u", i);
        flight_set_name(f, first + i, name);
    }
}

/* A worker begins the `operation`th of the slot. */
static void begin_operation(struct flight *f, uint32_t worker, uint32_t ring, uint32_t slot,
                            uint32_t operation, int32_t set)
{
    struct flight_ring *r = &flight_rings(f, worker)[ring];
    uint32_t number = atomic_fetch_add(&r->operations, 1) + 1;
    struct flight_record *one = &r->record[number % FLIGHT_RECORDS];
    atomic_store(&flight_rings(f, worker)->pid, 100 + worker);
    atomic_store(&one->number, 0);
    one->slot = slot;
    one->operation = operation;
    one->set = set;
    one->began = flight_ticks();
    atomic_store(&one->status, FLIGHT_PENDING);
    atomic_store(&one->number, number);
}

static size_t count_chosen(void)
{
    size_t count;
    arrivals_chosen(arrivals, &count);
    return count;
}

START_TEST(an_operation_is_complete_with_all_workers)
{
    name_slots(flight, 5, 1);
    ck_assert(!arrivals_look(arrivals, flight, 3));
    begin_operation(flight, 0, 0, 5, 1, 0);
    begin_operation(flight, 2, 1, 5, 1, 0); /* by another thread */
    begin_operation(flight, 1, 0, 5, 2, 0); /* another operation of the tensor */
    ck_assert(arrivals_look(arrivals, flight, 3));
    ck_assert_uint_eq(count_chosen(), 0);
    begin_operation(flight, 1, 0, 5, 1, 0);
    ck_assert(arrivals_look(arrivals, flight, 3));
    size_t count;
    const struct arrival *a = arrivals_chosen(arrivals, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(a->name, "layer.0");
    ck_assert_uint_eq(a->count, 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(a->pid[i], 100 + i);
    ck_assert(a->began[0] <= a->began[2] && a->began[2] <= a->began[1]);
    ck_assert(!arrivals_look(arrivals, flight, 3));
    arrivals_clear(arrivals);
    ck_assert_uint_eq(count_chosen(), 0);
}
END_TEST

/* Slots of one name differ, and so do the moments of looks. */
START_TEST(all_hosts_choose_the_same)
{
    uint64_t id[2][MOST];
    for (int h = 0; h < 2; h++) {
        name_slots(&hosts[h], 100 * h, 20);
        arrivals_free(arrivals);
        arrivals = arrivals_new(MOST);
        for (uint32_t operation = 1; operation <= 10; operation++)
            for (uint32_t i = 0; i < 20; i++) {
                for (uint32_t worker = 0; worker < 2; worker++)
                    begin_operation(&hosts[h], worker, 0, 100 * h + (h ? 19 - i : i), operation, 0);
                if ((i + operation) % (h ? 3 : 7) == 0)
                    arrivals_look(arrivals, &hosts[h], 2);
            }
        arrivals_look(arrivals, &hosts[h], 2);
        ck_assert_uint_eq(count_chosen(), MOST);
        size_t count;
        const struct arrival *a = arrivals_chosen(arrivals, &count);
        for (size_t i = 0; i < MOST; i++) {
            id[h][i] = a[i].id;
            ck_assert(i == 0 || a[i].id > a[i - 1].id);
        }
    }
    ck_assert_mem_eq(id[0], id[1], sizeof id[0]);
}
END_TEST

START_TEST(others_than_operations_of_all_ranks_are_left_out)
{
    name_slots(flight, 5, 1);
    for (uint32_t worker = 0; worker < 2; worker++) {
        begin_operation(flight, worker, 0, 5, 1, 7); /* of a process set */
        begin_operation(flight, worker, 0, 6, 1, 0); /* without a name */
    }
    ck_assert(!arrivals_look(arrivals, flight, 2));
    ck_assert_uint_eq(count_chosen(), 0);
}
END_TEST

/* A worker that is started again gets the same rings. */
START_TEST(a_new_process_begins_anew)
{
    name_slots(flight, 5, 1);
    begin_operation(flight, 0, 0, 5, 1, 0);
    arrivals_look(arrivals, flight, 2);
    struct flight_ring *ring = flight_rings(flight, 0);
    atomic_store(&ring->pid, 200);
    atomic_store(&ring->operations, 0);
    begin_operation(flight, 0, 0, 5, 2, 0);
    atomic_store(&ring->pid, 200);
    ck_assert(arrivals_look(arrivals, flight, 1));
    ck_assert_uint_eq(count_chosen(), 2);
}
END_TEST

/* More than the rings keep, of which one rank has none: nothing grows without an end. */
START_TEST(what_never_becomes_complete_is_dropped)
{
    name_slots(flight, 5, 100);
    begin_operation(flight, 1, 0, 5, 1000000, 0);
    for (uint32_t i = 0; i < 100000; i++) {
        begin_operation(flight, 0, 0, 5 + i % 100, i / 100, 0);
        if (i % 200 == 0)
            arrivals_look(arrivals, flight, 2);
    }
    ck_assert_uint_eq(count_chosen(), 0);
    ck_assert(arrivals_waiting(arrivals) > 1000 && arrivals_waiting(arrivals) < 20000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arrivals");
    TCase *t = tcase_create("looks");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, an_operation_is_complete_with_all_workers);
    tcase_add_test(t, all_hosts_choose_the_same);
    tcase_add_test(t, others_than_operations_of_all_ranks_are_left_out);
    tcase_add_test(t, a_new_process_begins_anew);
    tcase_add_test(t, what_never_becomes_complete_is_dropped);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
