/* The last calls on communicators, in threads: those that nobody asks for any more are waited for as well. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectives/gpu/async_destroy.h"
#include "tests/unit/gpu_ranks.h"

static _Atomic int ended;

static nccl_result take_time(nccl_comm comm)
{
    (void)comm;
    usleep(300000);
    ended++;
    return NCCL_OK;
}

static void leave_two(struct gpu_rank *me)
{
    gpu_open(me);
    WANT(endings_wait(0));
    struct ending *one = ending_begin(me->d, me->context, take_time, NULL, 0);
    struct ending *other = ending_begin(me->d, me->context, take_time, NULL, 0);
    WANT(one && other);
    ending_leave(one);
    WANT(!endings_wait(20) && ended == 0, "it has waited for nothing");
    WANT(ending_wait(other, 5000) && ended > 0);
    ending_leave(other);
    WANT(endings_wait(5000) && ended == 2, "it has not waited for both");
    communicator_free(me->c);
    pack_close(me->pack);
}

START_TEST(both_are_waited_for)
{
    ck_assert_int_eq(gpu_run(1, -1, leave_two), 0);
}
END_TEST

int main(int argc, char **argv)
{
    gpu_with_doubles(argv);
    Suite *s = suite_create("gpu_ending");
    TCase *t = tcase_create("gpu_ending");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, both_are_waited_for);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    (void)argc;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
