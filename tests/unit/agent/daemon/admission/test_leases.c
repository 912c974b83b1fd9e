/* The leases of a managed agent: the slots of a node, the words of a refusal, and the files on disk. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/admission/leases.h"
#include "agent/guard/job_dir.h"
#include "tests/unit/scratch.h"

static char directory[SCRATCH_MAX];
static struct leases l;
static struct lease_rules rules;

static void set_up(void)
{
    struct err e = ERR_INIT;
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(directory, "leases"));
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    rules = (struct lease_rules){.slots = 4};
}

static void tear_down(void)
{
    leases_close(&l);
    (void)remove_tree(AT_FDCWD, directory, 2);
}

static int ask(const char *job, uid_t uid, uint32_t slots, bool fewer, struct lease *lease, struct err *e)
{
    static const char *const users[] = {"root", "alice", "bob"};
    struct lease_want want = {.job = job, .user = users[uid], .uid = uid, .slots = slots, .fewer = fewer};
    err_clear(e);
    if (leases_admit(&l, &rules, &want, lease, e) < 0)
        return -1;
    return leases_add(&l, lease, e);
}

static size_t files(void)
{
    size_t count = 0;
    DIR *d = opendir(l.directory);
    for (struct dirent *entry; (entry = readdir(d));)
        count += entry->d_name[0] != '.';
    closedir(d);
    return count;
}

START_TEST(slots_belong_to_one_job)
{
    struct lease lease;
    struct err e = ERR_INIT;
    ck_assert_int_eq(ask("a-1", 1, 3, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.slots, 3);
    ck_assert_int_eq(ask("b-1", 2, 2, false, &lease, &e), -1);
    ck_assert_str_eq(e.text, "it is busy: 2 slots are wanted, 1 of 4 are free (alice 3)");
    ck_assert_int_eq(e.code, ERR_BUSY);
    ck_assert_int_eq(ask("b-1", 2, 2, true, &lease, &e), 0);
    ck_assert_uint_eq(lease.slots, 1);
    ck_assert_int_eq(ask("b-2", 2, 0, false, &lease, &e), -1);
    ck_assert_str_eq(e.text, "it is busy: 1 slot is wanted, 0 of 4 are free (alice 3, bob 1)");
    leases_drop(&l, "hvd-a-1.service");
    ck_assert_int_eq(ask("b-2", 2, 0, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.slots, 3);
    ck_assert_int_eq(ask("b-3", 2, 5, false, &lease, &e), -1);
    ck_assert_str_eq(e.text, "5 slots are wanted, it has 4");
}
END_TEST

START_TEST(shared_slots_and_limits_of_jobs)
{
    struct lease lease;
    struct err e = ERR_INIT;
    rules = (struct lease_rules){.slots = 4, .share = true, .max_jobs = 3, .max_jobs_per_user = 2};
    ck_assert_int_eq(ask("a-1", 1, 4, false, &lease, &e), 0);
    ck_assert_int_eq(ask("a-2", 1, 0, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.slots, 4);
    ck_assert_int_eq(ask("a-3", 1, 1, false, &lease, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "max_jobs_per_user"));
    ck_assert_int_eq(ask("b-1", 2, 5, false, &lease, &e), -1);
    ck_assert_int_eq(ask("b-1", 2, 4, false, &lease, &e), 0);
    ck_assert_int_eq(ask("b-2", 2, 1, false, &lease, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "(max_jobs)"));
}
END_TEST

START_TEST(each_session_has_a_unit_of_its_own)
{
    struct lease lease;
    struct err e = ERR_INIT;
    ck_assert_int_eq(ask("a-1", 1, 1, false, &lease, &e), 0);
    ck_assert_str_eq(lease.unit, "hvd-a-1.service");
    ck_assert_int_eq(ask("a-1", 2, 1, false, &lease, &e), 0);
    ck_assert_str_eq(lease.unit, "hvd-a-1.2.service");
    leases_drop(&l, "hvd-a-1.service");
    ck_assert_int_eq(ask("a-1", 1, 1, false, &lease, &e), 0);
    ck_assert_str_eq(lease.unit, "hvd-a-1.service");
    ck_assert_int_eq(ask("../x", 1, 1, false, &lease, &e), -1);
    ck_assert_int_eq(ask("", 1, 1, false, &lease, &e), -1);
    ck_assert_uint_eq(files(), 2);
}
END_TEST

START_TEST(no_job_waits_for_itself)
{
    struct lease lease;
    struct err e = ERR_INIT;
    struct lease_want want = {.job = "a-1", .user = "alice", .uid = 1, .slots = 2};
    ck_assert_int_eq(ask("a-1", 1, 3, false, &lease, &e), 0);
    ck_assert_int_eq(leases_admit(&l, &rules, &want, &lease, &e), LEASE_NEVER);
    ck_assert_str_eq(e.text, "2 slots are wanted beside the 3 that the same job has there already, it has 4");
    want.uid = 2;
    ck_assert_int_eq(leases_admit(&l, &rules, &want, &lease, &e), LEASE_BUSY);
    want.uid = 1;
    want.fewer = true;
    ck_assert_int_eq(leases_admit(&l, &rules, &want, &lease, &e), LEASE_GIVEN);
    rules.share = true;
    want.fewer = false;
    ck_assert_int_eq(leases_admit(&l, &rules, &want, &lease, &e), LEASE_GIVEN);
}
END_TEST

START_TEST(they_outlive_the_agent)
{
    struct lease lease;
    struct err e = ERR_INIT;
    struct stat st;
    char path[512];
    ck_assert_int_eq(ask("a-1", 1, 3, false, &lease, &e), 0);
    snprintf(path, sizeof path, "%s/hvd-a-1", l.directory);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    leases_close(&l);
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    ck_assert_uint_eq(l.count, 1);
    ck_assert_str_eq(l.item[0].unit, "hvd-a-1.service");
    ck_assert_str_eq(l.item[0].job, "a-1");
    ck_assert_str_eq(l.item[0].user, "alice");
    ck_assert_uint_eq(l.item[0].uid, 1);
    ck_assert_uint_eq(l.item[0].slots, 3);
    ck_assert_uint_eq(l.item[0].since, lease.since);
    ck_assert(!l.item[0].confirmed);
    leases_drop(&l, "hvd-a-1.service");
    leases_drop(&l, "hvd-a-1.service");
    ck_assert_uint_eq(files(), 0);
}
END_TEST

START_TEST(gpus_belong_to_one_job)
{
    struct lease a, b, c;
    struct err e = ERR_INIT;
    rules.gpus = 4;
    ck_assert_int_eq(ask("a-1", 1, 2, false, &a, &e), 0);
    ck_assert_uint_eq(a.gpus, 0x3);
    ck_assert_int_eq(ask("b-1", 2, 1, false, &b, &e), 0);
    ck_assert_uint_eq(b.gpus, 0x4);
    leases_drop(&l, "hvd-a-1.service");
    ck_assert_int_eq(ask("b-2", 2, 3, false, &c, &e), 0);
    ck_assert_uint_eq(c.gpus, 0xb);
    leases_close(&l);
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    ck_assert_uint_eq(leases_find(&l, "hvd-b-1.service")->gpus, 0x4);
    ck_assert_uint_eq(leases_find(&l, "hvd-b-2.service")->gpus, 0xb);
    ck_assert_int_eq(ask("b-3", 2, 0, false, &c, &e), -1);
}
END_TEST

START_TEST(a_part_of_the_slots_is_as_large_a_part_of_the_gpus)
{
    struct lease lease;
    struct err e = ERR_INIT;
    rules = (struct lease_rules){.slots = 8, .gpus = 2};
    ck_assert_int_eq(ask("a-1", 1, 1, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.gpus, 0x1);
    ck_assert_int_eq(ask("a-2", 1, 5, false, &lease, &e), -1);
    ck_assert_int_eq(ask("a-2", 1, 5, true, &lease, &e), 0);
    ck_assert_uint_eq(lease.slots, 4);
    ck_assert_uint_eq(lease.gpus, 0x2);
    ck_assert_int_eq(ask("a-3", 2, 1, false, &lease, &e), -1);
    ck_assert_str_eq(e.text, "it is busy: 1 slot is wanted, 3 of 8 are free, and 0 of 2 GPUs (alice 5)");
    rules = (struct lease_rules){.slots = 1, .gpus = 8, .share = true};
    ck_assert_int_eq(ask("a-4", 2, 1, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.gpus, 0);
    leases_close(&l);
    rules.share = false;
    ck_assert_int_eq(ask("a-5", 2, 1, false, &lease, &e), 0);
    ck_assert_uint_eq(lease.gpus, 0xff);
}
END_TEST

static const char *const spoilt[] = {"",
                                     "job: a\n",
                                     "job: a-1\nuser: alice\nuid: 1\nslots: 3\nsince: 5",
                                     "job: a-1\nuser: alice\nuid: 1\nslots: 0\nsince: 5\n",
                                     "job: a-1\nuser: alice\nuid: 1\nslots: 3\nsince: 5\nmore\n",
                                     "job: a-1\nuser: alice\nuid: 1\nslots: 3\nsince: 5\ngpus: 1,1\n",
                                     "job: a-1\nuser: alice\nuid: 1\nslots: 3\nsince: 5\ngpus: 64\n",
                                     "job: A/1\nuser: alice\nuid: 1\nslots: 3\nsince: 5\n"};

/* A job that needs less gives back slots and their part of the GPUs, also for an agent that starts again. */
START_TEST(a_lease_shrinks)
{
    struct err e = ERR_INIT;
    struct lease lease = {
        .job = "a-1", .unit = "hvd-a-1.service", .user = "alice", .uid = 1, .slots = 4, .gpus = 0xf0};
    ck_assert_int_eq(leases_add(&l, &lease, &e), 0);
    struct lease *own = leases_find(&l, "hvd-a-1.service");
    ck_assert_int_eq(leases_shrink(&l, own, 4, &e), 0);
    ck_assert_int_eq(leases_shrink(&l, own, 9, &e), 0);
    ck_assert_int_eq(leases_shrink(&l, own, 0, &e), 0);
    ck_assert_uint_eq(own->slots, 4);
    ck_assert_int_eq(leases_shrink(&l, own, 1, &e), 0);
    leases_close(&l);
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    own = leases_find(&l, "hvd-a-1.service");
    ck_assert_uint_eq(own->slots, 1);
    ck_assert_uint_eq(own->gpus, 0x10);
}
END_TEST

START_TEST(what_is_no_lease_is_removed)
{
    struct err e = ERR_INIT;
    char path[512];
    snprintf(path, sizeof path, "%s/hvd-a-1", l.directory);
    FILE *f = fopen(path, "w");
    fputs(spoilt[_i], f);
    fclose(f);
    leases_close(&l);
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    ck_assert_uint_eq(l.count, 0);
    ck_assert_uint_eq(files(), 0);
}
END_TEST

/* A later release has written it, and an earlier one starts after it. */
START_TEST(keys_of_later_releases_are_left_alone)
{
    struct err e = ERR_INIT;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/leases/hvd-a-1", directory);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs("job: a-1\nuser: alice\nuid: 1\nslots: 3\nsince: 5\nlater: x y\ngpus: 0,1\nlast:  \n", f);
    fclose(f);
    leases_close(&l);
    ck_assert_int_eq(leases_open(&l, directory, &e), 0);
    ck_assert_uint_eq(l.count, 1);
    ck_assert_uint_eq(l.item[0].slots, 3);
    ck_assert_uint_eq(l.item[0].gpus, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("leases");
    TCase *all = tcase_create("all");
    suite_add_tcase(suite, all);
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, slots_belong_to_one_job);
    tcase_add_test(all, shared_slots_and_limits_of_jobs);
    tcase_add_test(all, each_session_has_a_unit_of_its_own);
    tcase_add_test(all, no_job_waits_for_itself);
    tcase_add_test(all, they_outlive_the_agent);
    tcase_add_test(all, gpus_belong_to_one_job);
    tcase_add_test(all, a_part_of_the_slots_is_as_large_a_part_of_the_gpus);
    tcase_add_test(all, a_lease_shrinks);
    tcase_add_test(all, keys_of_later_releases_are_left_alone);
    tcase_add_loop_test(all, what_is_no_lease_is_removed, 0, sizeof spoilt / sizeof *spoilt);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
