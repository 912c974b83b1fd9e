/* Operations between the only ranks of several hosts. Their callers have handles, and promise to wait next.
 *
 * needs: hvd-engine client tests/unit/job.c */
#include <stdio.h>
#include <sys/resource.h>

#include "collectives/client/link/way.h"

#include "tests/unit/linked_ranks.h"

#define FLOATS(bytes) ((bytes) / sizeof(float))
#define LARGE         FLOATS(3u << 20) /* a stream of more than one piece for each of two or three ranks */

static const hvd_options waits_next = {.will_wait = 2};

struct elements {
    float *x; /* [count] */
    size_t count;
    hvd_handle handle;
};

static void begin_elements(struct elements *e, const char *name)
{
    e->x = calloc(e->count, sizeof *e->x);
    job_check(e->x);
    for (size_t k = 0; k < e->count; k++)
        e->x[k] = (float)(k % 1000) + (float)client.rank;
    job_check(hvd_allreduce_async(name, e->x, e->x, e->count, HVD_FLOAT32, HVD_SUM, &waits_next,
                                  &e->handle) == HVD_SUCCESS);
}

static void check_elements(struct elements *e, const char *name)
{
    job_check(was_carried(name));
    for (size_t k = 0; k < e->count; k++)
        job_check(e->x[k] == (float)client.size * ((float)(k % 1000) + (float)(client.size - 1) / 2));
    free(e->x);
}

static void end_elements(struct elements *e, const char *name)
{
    job_check(hvd_wait(e->handle) == HVD_SUCCESS);
    check_elements(e, name);
}

/* Some ranks block, others have handles, and wait a millisecond at a time or poll. */
static int stream_by_handles(const struct job *job, int rank)
{
    struct elements e = {.count = LARGE};
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("large", 2);
    for (int i = 0; i < 12; i++) {
        if ((rank + i) % 4 == 0) {
            sum_once("large", LARGE);
            continue;
        }
        begin_elements(&e, "large");
        while ((rank + i) % 4 == 1 && hvd_wait_for(e.handle, 1) == HVD_ERR_TIMEOUT)
            ;
        while ((rank + i) % 4 == 2 && hvd_poll(e.handle) == 0)
            ;
        if ((rank + i) % 4 == 1)
            check_elements(&e, "large");
        else
            end_elements(&e, "large");
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_call_that_waits_next_streams, kinds[_i], stream_by_handles)

/* Rank 1 does so in place of a wait for its operation, and the others when theirs has ended. */
enum { CALLS_KNOWN, CALLS_NEW, POLLS_NEW, JOINS, NEVER_WAITS, SHUTS_DOWN, INSTEADS };

/* "known" goes from rank to rank, other names go by the engines. */
static void do_something_else(int way, size_t count)
{
    char name[40];
    float x = 1;
    hvd_handle handle;
    int last;
    snprintf(name, sizeof name, "new%zu", count);
    if (way == CALLS_KNOWN || way == NEVER_WAITS)
        sum_once("known", 2);
    else if (way == CALLS_NEW)
        sum_once(name, 2);
    else if (way == JOINS)
        job_check(hvd_join(&last) == HVD_SUCCESS);
    if (way != POLLS_NEW)
        return;
    job_check(hvd_allreduce_async(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle) == HVD_SUCCESS);
    while (hvd_poll(handle) == 0)
        usleep(1000);
    job_check(hvd_wait(handle) == HVD_SUCCESS);
}

/* The others come to that when their operation has ended, for which they need rank 1. */
static int give_up_waiting(const struct job *job, int rank)
{
    static const size_t counts[] = {2, FLOATS(LINK_WHOLE_MAX) + 1, LARGE};
    int way = *(int *)job->ctx;
    bool is_last = way == JOINS || way == SHUTS_DOWN; /* nothing goes from rank to rank behind that */
    char name[40];
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("known", 2);
    shrink_buffers(50000);
    for (size_t k = is_last ? 2 : 0; k < 3; k++) {
        size_t count = counts[k];
        struct elements e = {.count = count};
        snprintf(name, sizeof name, "given%zu", count);
        sum_often(name, 2);
        usleep(rank == 1 ? 0 : 100000);
        begin_elements(&e, name);
        if (rank == 1 && way != NEVER_WAITS)
            job_check(hvd_wait_for(e.handle, 1) == HVD_ERR_TIMEOUT);
        else if (rank != 1)
            end_elements(&e, name);
        do_something_else(way, count);
        if (rank == 1 && way != SHUTS_DOWN)
            end_elements(&e, name);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(an_operation_goes_on_though_its_caller_does_something_else)
{
    const struct kind some[] = {two, three, three_crowded};
    run_way(some[_i / INSTEADS], give_up_waiting, _i % INSTEADS);
}
END_TEST

static long own_sleeps(void)
{
    struct rusage use;
    job_check(getrusage(RUSAGE_SELF, &use) == 0);
    return use.ru_nvcsw;
}

/* A wait that was given up and begun again sleeps as long as any other. */
static int wait_again(const struct job *job, int rank)
{
    struct elements e = {.count = LARGE};
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("large", 2);
    usleep(rank == 1 ? 0 : 1000000);
    begin_elements(&e, "large");
    if (rank == 1)
        job_check(hvd_wait_for(e.handle, 1) == HVD_ERR_TIMEOUT);
    long before = own_sleeps();
    if (rank == 1)
        job_check(hvd_wait_for(e.handle, 800) == HVD_ERR_TIMEOUT && own_sleeps() - before < 40);
    end_elements(&e, "large");
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_wait_may_be_given_up_and_begun_again, two, wait_again)

int main(void)
{
    Suite *suite = suite_create("rank handles");
    TCase *tc = tcase_create("handles");
    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, a_call_that_waits_next_streams, 0, KINDS);
    tcase_add_loop_test(tc, an_operation_goes_on_though_its_caller_does_something_else, 0, 3 * INSTEADS);
    tcase_add_test(tc, a_wait_may_be_given_up_and_begun_again);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
