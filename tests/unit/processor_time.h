/* For cases that only compute, and wait for nobody outside of their process. Check's limit runs by the clock,
 * also while the machine does other work; theirs is the processor time they take (SIGXCPU ends them), and the
 * clock's only for one that hangs. */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <sys/resource.h>

#define PROCESSOR_SECONDS 20
#define HANGING_SECONDS   100 /* less than tests/run.sh gives a program */

static inline void limit_processor_time(void)
{
    const char *times = getenv("CK_TIMEOUT_MULTIPLIER");
    struct rlimit limit;
    struct rusage used;

    ck_assert(getrusage(RUSAGE_SELF, &used) == 0 && getrlimit(RLIMIT_CPU, &limit) == 0);
    limit.rlim_cur = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     PROCESSOR_SECONDS * (times ? strtoul(times, NULL, 10) : 1);
    ck_assert_int_eq(setrlimit(RLIMIT_CPU, &limit), 0);
}

static inline void case_computes(TCase *tc)
{
    tcase_add_checked_fixture(tc, limit_processor_time, NULL);
    tcase_set_timeout(tc, HANGING_SECONDS);
}
