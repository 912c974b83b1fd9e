/* Limits: what is read from the kernel's texts, and the arithmetic with which a job is refused beforehand. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/inspect/limits.h"
#include "common/protocol/message.h"
#include "launcher/parts/limits_check.h"

static const char status[] = "Name:\thvdagent\nUmask:\t0022\nUid:\t1001\t0\t0\t0\nThreads:\t7\n"
                             "CapInh:\t0000000000000000\nCapEff:\t0000000001000000\n";

START_TEST(numbers_of_the_kernel)
{
    ck_assert_uint_eq(limits_number("4096\n"), 4096);
    ck_assert_uint_eq(limits_number("max\n"), UINT64_MAX);
    ck_assert_uint_eq(limits_number(""), UINT64_MAX);
    ck_assert_uint_eq(limits_number("-1\n"), UINT64_MAX);
    ck_assert_uint_eq(limits_tasks("0.20 0.18 0.12 3/345 11206\n"), 345);
    ck_assert_uint_eq(limits_tasks("nothing"), 0);
    ck_assert_uint_eq(limits_tasks("1/x"), 0);
}
END_TEST

START_TEST(threads_of_a_user)
{
    ck_assert_uint_eq(limits_threads_of(status, 1001), 7); /* the real user, not the effective one */
    ck_assert_uint_eq(limits_threads_of(status, 0), 0);
    ck_assert_uint_eq(limits_threads_of("Name:\tx\n", 0), 0);
    ck_assert(limits_exempt(status)); /* CAP_SYS_RESOURCE */
    ck_assert(limits_exempt("CapEff:\t000001ffffffffff\n"));
    ck_assert(limits_exempt("CapEff:\t0000000000200000\n"));  /* CAP_SYS_ADMIN */
    ck_assert(!limits_exempt("CapEff:\t0000000000000001\n")); /* CAP_CHOWN */
    ck_assert(!limits_exempt("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n"));
    ck_assert(!limits_exempt(""));
}
END_TEST

START_TEST(only_what_might_not_suffice_is_told)
{
    struct limit processes = {.limit = 100, .used = 10};
    struct limit descriptors = {.descriptors = true, .limit = 100, .used = 10};
    struct limit none = {.limit = UINT64_MAX, .used = 10};
    ck_assert(!limit_is_near(&processes, 90));
    ck_assert(limit_is_near(&processes, 91));
    ck_assert(!limit_is_near(&descriptors, 30)); /* three each */
    ck_assert(limit_is_near(&descriptors, 31));
    ck_assert(!limit_is_near(&none, 1000000));
    ck_assert(limit_is_near(&processes, 0)); /* it is not known how many will come */
    ck_assert(!limit_is_near(&none, 0));
}
END_TEST

/* The limit found is RLIMIT_NOFILE of this process. In a child, which may lower its limit for good. */
START_TEST(our_own_descriptors_are_read)
{
    pid_t child = fork();
    if (child == 0) {
        static struct limits l;
        struct rlimit low = {64, 200};
        setrlimit(RLIMIT_NOFILE, &low);
        limits_read(&l, 500);
        size_t i = 0;
        while (i < l.count && !l.item[i].descriptors)
            i++;
        bool told = i < l.count && l.item[i].limit == 200 && l.item[i].used >= 3 && l.item[i].used < 100;
        limits_read(&l, 1);
        for (i = 0; i < l.count; i++)
            told = told && !l.item[i].descriptors;
        _exit(told ? 0 : 1);
    }
    int ended;
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert_int_eq(ended, 0);
}
END_TEST

static Hvd__Limit limit_of(bool descriptors, uint64_t limit, uint64_t used)
{
    Hvd__Limit l = HVD__LIMIT__INIT;
    l.descriptors = descriptors;
    l.limit = limit;
    l.used = used;
    l.name = descriptors ? (char *)"RLIMIT_NOFILE, ulimit -Hn" : (char *)"kernel.pid_max";
    l.hint = (char *)"use more hosts";
    return l;
}

START_TEST(a_host_has_room_or_not)
{
    static const struct {
        bool descriptors;
        uint64_t limit, used;
        struct limits_need need;
        const char *said; /* NULL: there is room */
    } cases[] = {
        {true, 1024, 24, {500, 0}, NULL},
        {true,
         1023,
         24,
         {500, 0},
         "500 ranks need about 1,024 descriptors, but the limit is 1,023 (RLIMIT_NOFILE"},
        {true, 1024, 24, {500, 1}, "500 ranks need about 1,025 descriptors"},
        {true, 10, 24, {1, 0}, "1 ranks need about 26 descriptors"},
        {false, 524, 24, {500, 500}, NULL},
        {false,
         523,
         24,
         {500, 0},
         "500 ranks need as many processes, but 24 are in use and the limit is 523"},
        {false, 1000000, 1000000, {1, 0}, "1,000,000 are in use and the limit is 1,000,000 (kernel.pid_max)"},
        {false, 5, UINT64_MAX, {1, 0}, "the limit is 5"},
        {true, UINT64_MAX, 0, {1000000, 1000000}, NULL},
    };
    struct err e = ERR_INIT;
    Hvd__Limit l = limit_of(cases[_i].descriptors, cases[_i].limit, cases[_i].used), *list[] = {&l};
    int rc = limits_check(list, 1, &cases[_i].need, &e);
    ck_assert_int_eq(rc, cases[_i].said ? -1 : 0);
    if (!cases[_i].said)
        return;
    ck_assert_msg(strstr(e.text, cases[_i].said), "%s", e.text);
    ck_assert_str_eq(e.hint, "use more hosts");
    ck_assert_int_eq(err_exit_status(&e), 125);
}
END_TEST

START_TEST(the_worst_limit_is_named)
{
    Hvd__Limit a = limit_of(true, 90, 0), b = limit_of(false, 10, 0), c = limit_of(true, 95, 0);
    Hvd__Limit *list[] = {&a, &b, &c};
    struct limits_need need = {50, 0};
    struct err e = ERR_INIT;
    ck_assert_int_eq(limits_check(list, 3, &need, &e), -1);
    ck_assert_msg(strstr(e.text, "kernel.pid_max"), "%s", e.text);
    ck_assert_int_eq(limits_check(NULL, 0, &need, &e), 0);
}
END_TEST

START_TEST(the_launcher_counts_hosts_and_files)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(limits_check_own(1024, 10, 300, 0, &e), 0);
    ck_assert_int_eq(limits_check_own(1024, 10, 16, 940, &e), 0);
    ck_assert_int_eq(limits_check_own(1024, 10, 16, 1000, &e), -1);
    ck_assert_msg(strstr(e.text, "16 hosts and 1,000 output files need about 1,074 descriptors"), "%s",
                  e.text);
    ck_assert_msg(strstr(e.hint, "--output-filename"), "%s", e.hint);
}
END_TEST

START_TEST(a_welcome_without_limits_is_not_kept)
{
    Hvd__Welcome w = HVD__WELCOME__INIT;
    Hvd__Limit l = limit_of(false, 10, 5), *list[] = {&l};
    ck_assert_ptr_null(limits_keep(&w));
    w.limit = list;
    w.n_limit = 1;
    Hvd__Welcome *kept = limits_keep(&w);
    ck_assert_ptr_nonnull(kept);
    ck_assert_uint_eq(kept->limit[0]->limit, 10);
    ck_assert_str_eq(kept->limit[0]->name, "kernel.pid_max");
    message_free(kept);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("limits");
    TCase *t = tcase_create("limits");
    tcase_add_test(t, numbers_of_the_kernel);
    tcase_add_test(t, threads_of_a_user);
    tcase_add_test(t, only_what_might_not_suffice_is_told);
    tcase_add_test(t, our_own_descriptors_are_read);
    tcase_add_loop_test(t, a_host_has_room_or_not, 0, 9);
    tcase_add_test(t, the_worst_limit_is_named);
    tcase_add_test(t, the_launcher_counts_hosts_and_files);
    tcase_add_test(t, a_welcome_without_limits_is_not_kept);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
