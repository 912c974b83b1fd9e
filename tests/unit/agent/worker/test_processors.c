/* Ranks and the processors that they have: what the kernel's texts say, and when they are too few. */
#include <check.h>
#include <sched.h>
#include <stdlib.h>

#include "agent/worker/processors.h"

START_TEST(quotas_of_the_kernel)
{
    ck_assert_uint_eq(processors_quota("max 100000\n"), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota("150000 100000\n"), 1500);
    ck_assert_uint_eq(processors_quota("400000 200000\n"), 2000);
    ck_assert_uint_eq(processors_quota("1000 0\n"), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota("1000"), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota(""), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota("99999999999999999999 1\n"), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota_v1("-1\n", "100000\n"), PROCESSORS_UNLIMITED);
    ck_assert_uint_eq(processors_quota_v1("50000\n", "100000\n"), 500);
    ck_assert_uint_eq(processors_quota_v1("50000\n", ""), PROCESSORS_UNLIMITED);
}
END_TEST

static struct cpus processors(uint32_t first, uint32_t last)
{
    struct cpus set = {0};
    for (uint32_t cpu = first; cpu <= last; cpu++)
        cpus_add(&set, cpu);
    return set;
}

START_TEST(more_ranks_than_processors)
{
    struct cpus four = processors(0, 3), none[5] = {0};
    ck_assert(!processors_overlap(&four, NULL, 4));
    ck_assert(processors_overlap(&four, NULL, 5));
    ck_assert(!processors_overlap(&four, none, 4)); /* none is bound */
    ck_assert(processors_overlap(&four, none, 5));
}
END_TEST

START_TEST(bound_ranks_count_where_they_are_bound)
{
    struct cpus eight = processors(0, 7), bound[4];
    for (uint32_t i = 0; i < 4; i++)
        bound[i] = processors(2 * i, 2 * i + 1);
    ck_assert(!processors_overlap(&eight, bound, 4));
    bound[0] = bound[1] = bound[2] = processors(0, 1); /* three on two */
    ck_assert(processors_overlap(&eight, bound, 4));
    bound[0] = processors(0, 0); /* within those of the others */
    ck_assert(processors_overlap(&eight, bound, 4));
    bound[2] = (struct cpus){0}; /* goes where there is room */
    ck_assert(!processors_overlap(&eight, bound, 4));
    bound[0] = bound[1] = bound[2] = processors(64, 66);
    ck_assert(!processors_overlap(&eight, bound, 3));
    ck_assert_uint_eq(cpus_count(&bound[0]), 3);
}
END_TEST

/* In a child, which may bind itself for good. */
START_TEST(our_own_affinity_is_read)
{
    cpu_set_t mine, one;
    ck_assert(!processors_are_short(NULL, 1));
    ck_assert_int_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &mine))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert(processors_are_short(NULL, 2));
    ck_assert(!processors_are_short(NULL, 1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("processors");
    TCase *t = tcase_create("processors");
    tcase_add_test(t, quotas_of_the_kernel);
    tcase_add_test(t, more_ranks_than_processors);
    tcase_add_test(t, bound_ranks_count_where_they_are_bound);
    tcase_add_test(t, our_own_affinity_is_read);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
