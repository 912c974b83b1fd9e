/* The flight recorder's memory: what a rank writes, what the session reads. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/status/flight.h"
#include "tests/unit/run_test.h"

#define MOST (FLIGHT_RINGS * FLIGHT_RECORDS)

static struct flight session, engine;
static int fd;
static struct flight_operation seen[MOST];
static struct flight_worker who;

static void set_up(void)
{
    struct err e = ERR_INIT;
    fd = flight_create(&session, &e);
    ck_assert_msg(fd >= 0, "%s", e.text);
    ck_assert_msg(flight_map(&engine, fd, &e) == 0, "%s", e.text);
    flight_set_kind(&engine, 1, "allreduce");
    flight_set_type(&engine, 7, "float32");
    flight_set_name(&engine, 5, "layer.bias");
}

static void tear_down(void)
{
    flight_unmap(&engine);
    flight_unmap(&session);
    close(fd);
}

/* An operation of a worker, that ends or not. */
static struct flight_record *record_operation(uint32_t worker, uint32_t ring, uint32_t slot, bool ends)
{
    struct flight_ring *r = &flight_rings(&engine, worker)[ring];
    uint32_t number = atomic_fetch_add(&r->operations, 1) + 1;
    struct flight_record *one = &r->record[number % FLIGHT_RECORDS];
    atomic_store(&flight_rings(&engine, worker)->pid, 100 + worker);
    atomic_store(&flight_rings(&engine, worker)->rank, worker);
    atomic_store(&one->number, 0);
    one->slot = slot;
    one->kind = 1;
    one->type = 7;
    one->count = 10;
    one->operation = number + 5;
    one->bytes = 40;
    one->set = 3;
    one->began = flight_ticks();
    atomic_store(&one->status, FLIGHT_PENDING);
    atomic_store(&one->number, number);
    if (ends) {
        atomic_store(&one->ended, flight_ticks());
        atomic_store(&one->status, -4);
    }
    return one;
}

START_TEST(what_was_recorded_is_read)
{
    uint64_t before = clock_now();
    record_operation(2, 0, 5, true);
    record_operation(2, 0, 5, false);
    uint64_t after = clock_now();
    ck_assert_uint_eq(flight_read(&session, 2, &who, seen, MOST), 2);
    ck_assert_uint_eq(who.rank, 2);
    ck_assert_uint_eq(who.pid, 102);
    ck_assert_uint_eq(who.operations, 2);
    ck_assert_str_eq(seen[0].name, "layer.bias");
    ck_assert_str_eq(seen[0].kind, "allreduce");
    ck_assert_str_eq(seen[0].type, "float32");
    ck_assert_int_eq(seen[0].status, -4);
    ck_assert_int_eq(seen[0].set, 3);
    ck_assert_uint_eq(seen[0].count, 10);
    ck_assert_uint_eq(seen[0].bytes, 40);
    ck_assert_uint_eq(seen[1].operation, 7);
    ck_assert_uint_eq(seen[1].number, 2);
    ck_assert_int_eq(seen[1].status, FLIGHT_PENDING);
    ck_assert_uint_eq(seen[1].ended, 0);
    /* The two clocks are compared once: their rates differ by less than that. */
    ck_assert_uint_le(before, seen[0].began + NSEC_PER_MSEC);
    ck_assert_uint_le(seen[0].began, seen[0].ended);
    ck_assert_uint_le(seen[0].ended, seen[1].began);
    ck_assert_uint_le(seen[1].began, after + NSEC_PER_MSEC);
}
END_TEST

START_TEST(times_are_those_of_the_clock)
{
    uint64_t at = clock_now();
    record_operation(0, 0, 5, true);
    usleep(200000);
    ck_assert_uint_eq(flight_read(&session, 0, &who, seen, MOST), 1);
    ck_assert_uint_lt(seen[0].began < at ? at - seen[0].began : seen[0].began - at, 20 * NSEC_PER_MSEC);
}
END_TEST

START_TEST(the_newest_of_many_are_kept)
{
    for (int i = 0; i < 1000; i++)
        record_operation(1, 0, 5, true);
    ck_assert_uint_eq(flight_read(&session, 1, &who, seen, MOST), FLIGHT_RECORDS);
    ck_assert_uint_eq(seen[0].number, 1000 - FLIGHT_RECORDS + 1);
    ck_assert_uint_eq(seen[FLIGHT_RECORDS - 1].number, 1000);
    ck_assert_uint_eq(flight_read(&session, 1, &who, seen, 3), 3);
    ck_assert_uint_eq(seen[0].number, 998);
    ck_assert_uint_eq(seen[2].number, 1000);
}
END_TEST

START_TEST(both_rings_are_one_story)
{
    record_operation(1, 0, 5, true);
    record_operation(1, 1, 5, true);
    record_operation(1, 0, 5, true);
    ck_assert_uint_eq(flight_read(&session, 1, &who, seen, MOST), 3);
    ck_assert_uint_eq(who.operations, 3);
    ck_assert_uint_le(seen[0].began, seen[1].began);
    ck_assert_uint_le(seen[1].began, seen[2].began);
    ck_assert_uint_eq(seen[1].ring, 1);
    ck_assert_uint_eq(seen[2].ring, 0);
    ck_assert_uint_eq(seen[2].number, 2);
}
END_TEST

/* The slot serves another name since, or never had one. */
START_TEST(forgotten_names_are_not_guessed)
{
    record_operation(0, 0, 5, true);
    record_operation(0, 0, 6, true);
    flight_set_name(&engine, 5, "other");
    record_operation(0, 0, 5, true);
    ck_assert_uint_eq(flight_read(&session, 0, &who, seen, MOST), 3);
    ck_assert_str_eq(seen[0].name, "");
    ck_assert_str_eq(seen[1].name, "");
    ck_assert_str_eq(seen[2].name, "other");
}
END_TEST

START_TEST(a_record_that_is_being_written_is_left_out)
{
    struct flight_record *one = record_operation(0, 0, 5, true);
    record_operation(0, 0, 5, true);
    atomic_store(&one->number, 0);
    ck_assert_uint_eq(flight_read(&session, 0, &who, seen, MOST), 1);
}
END_TEST

static atomic_bool over;

/* All fields of a record say its number. */
static void *write_records(void *unused)
{
    struct flight_ring *r = flight_rings(&engine, 0);
    atomic_store(&r->pid, 1);
    for (uint32_t number = 1; !atomic_load(&over); number++) {
        struct flight_record *one = &r->record[number % 2];
        atomic_store_explicit(&one->number, 0, memory_order_relaxed);
        flight_fence();
        one->count = one->bytes = number;
        one->began = flight_ticks();
        atomic_store_explicit(&one->number, number, memory_order_release);
    }
    return unused;
}

START_TEST(no_record_is_half_of_another)
{
    pthread_t writer;
    uint32_t read = 0;
    ck_assert_int_eq(pthread_create(&writer, NULL, write_records, NULL), 0);
    for (uint64_t until = clock_now() + 300 * NSEC_PER_MSEC; clock_now() < until;) {
        size_t n = flight_read(&session, 0, &who, seen, MOST);
        for (size_t i = 0; n != SIZE_MAX && i < n; i++, read++) {
            ck_assert_uint_eq(seen[i].count, seen[i].number);
            ck_assert_uint_eq(seen[i].bytes, seen[i].number);
        }
    }
    atomic_store(&over, true);
    pthread_join(writer, NULL);
    ck_assert_uint_gt(read, 0);
}
END_TEST

START_TEST(long_names_are_cut)
{
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    flight_set_name(&engine, 5, name);
    record_operation(0, 0, 5, true);
    ck_assert_uint_eq(flight_read(&session, 0, &who, seen, MOST), 1);
    ck_assert_uint_eq(strlen(seen[0].name), FLIGHT_NAME_MAX);
}
END_TEST

/* A worker may write what it likes: the session lives and gets strings that end. */
START_TEST(garbage_is_survived)
{
    struct flight_ring *ring = flight_rings(&engine, 3);
    uint8_t *bytes = (uint8_t *)ring;
    srand(24);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < FLIGHT_RINGS * sizeof *ring; i++)
            bytes[i] = (uint8_t)rand();
        size_t n = flight_read(&session, 3, &who, seen, MOST);
        ck_assert(n == SIZE_MAX || n <= MOST);
        for (size_t i = 0; n != SIZE_MAX && i < n; i++) {
            ck_assert_uint_le(strnlen(seen[i].name, sizeof seen[i].name), FLIGHT_NAME_MAX);
            ck_assert_uint_le(seen[i].began, clock_now());
        }
    }
}
END_TEST

START_TEST(workers_that_never_came_have_nothing)
{
    ck_assert_uint_eq(flight_read(&session, 7, &who, seen, MOST), SIZE_MAX);
    ck_assert_uint_eq(flight_read(&session, FLIGHT_WORKERS, &who, seen, MOST), SIZE_MAX);
    ck_assert_uint_eq(flight_read(&(struct flight){NULL}, 0, &who, seen, MOST), SIZE_MAX);
}
END_TEST

static void expect_refusal(int other, const char *why)
{
    struct err e = ERR_INIT;
    struct flight map;
    ck_assert_int_ne(flight_map(&map, other, &e), 0);
    ck_assert_msg(strstr(e.text, why) != NULL, "%s", e.text);
    ck_assert_ptr_null(map.memory);
}

START_TEST(other_memory_is_refused)
{
    int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING), open_end;
    off_t size = lseek(fd, 0, SEEK_END);
    expect_refusal(other, "sealed");
    ck_assert_int_eq(ftruncate(other, size), 0);
    expect_refusal(other, "sealed");
    ck_assert_int_eq(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    expect_refusal(other, "version");
    /* The right contents, and somebody may make it smaller. */
    open_end = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *all = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(all, MAP_FAILED);
    ck_assert_int_eq(write(open_end, all, 4096), 4096);
    ck_assert_int_eq(ftruncate(open_end, size), 0);
    expect_refusal(open_end, "sealed");
    ck_assert_int_ne(ftruncate(fd, 4096), 0);
    munmap(all, (size_t)size);
    close(open_end);
    close(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flight");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, what_was_recorded_is_read);
    tcase_add_test(t, times_are_those_of_the_clock);
    tcase_add_test(t, the_newest_of_many_are_kept);
    tcase_add_test(t, both_rings_are_one_story);
    tcase_add_test(t, forgotten_names_are_not_guessed);
    tcase_add_test(t, a_record_that_is_being_written_is_left_out);
    tcase_add_test(t, no_record_is_half_of_another);
    tcase_add_test(t, long_names_are_cut);
    tcase_add_test(t, garbage_is_survived);
    tcase_add_test(t, workers_that_never_came_have_nothing);
    tcase_add_test(t, other_memory_is_refused);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
