/* The cgroup that counts kills for lack of memory, and the deaths that such a kill explains. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/worker/oom.h"
#include "tests/unit/scratch.h"

START_TEST(counts)
{
    ck_assert_uint_eq(oom_count("low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n"), 4);
    ck_assert_uint_eq(oom_count("oom_kill_disable 7\nunder_oom 8\noom_kill 9"), 9);
    ck_assert_uint_eq(oom_count("oom_kill_disable 7\nunder_oom 8\n"), 0);
    ck_assert_uint_eq(oom_count(""), 0);
}
END_TEST

#define MOUNTS                                                                                               \
    "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"                                                      \
    "31 30 0:27 / /sys/fs/cgroup/unified rw,memory - cgroup2 none rw\n"                                      \
    "33 30 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"

static const struct {
    const char *self, *mounts, *path; /* NULL: none */
} places[] = {
    {"4:memory:/a/b\n0::/\n", MOUNTS "34 30 0:3 / /cg/mem rw - cgroup cgroup rw,memory\n",
     "/cg/mem/a/b/memory.oom_control"},
    {"5:cpu:/\n4:hugetlb,memory:/\n", MOUNTS "34 30 0:3 / /cg/mem rw master:1 - cgroup x rw,hugetlb,memory\n",
     "/cg/mem/memory.oom_control"},
    {"4:memory:/docker/x/y\n", "34 30 0:3 /docker/x /cg/mem rw - cgroup cgroup rw,memory\n",
     "/cg/mem/y/memory.oom_control"},
    {"4:memory:/../z\n", "34 30 0:3 / /cg/mem rw - cgroup cgroup rw,memory\n", NULL},
    {"4:memory:/a\n", MOUNTS, NULL},
    {"5:cpu:/\n0::/x\n", MOUNTS "34 30 0:3 / /cg/mem rw - cgroup cgroup rw,memory\n", NULL},
    {"4:memoryless:/a\n", MOUNTS "34 30 0:3 / /cg/mem rw - cgroup cgroup rw,memory\n", NULL},
    {"", "", NULL},
};

START_TEST(a_place)
{
    char path[256];
    int rc = containment_place_v1(places[_i].self, places[_i].mounts, "memory", "memory.oom_control", path,
                                  sizeof path);
    ck_assert_int_eq(rc, places[_i].path ? 0 : -1);
    if (places[_i].path)
        ck_assert_str_eq(path, places[_i].path);
}
END_TEST

static void write_count(const char *directory, unsigned count)
{
    char file[300];
    snprintf(file, sizeof file, "%s/memory.events", directory);
    FILE *f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "oom 50\noom_kill %u\n", count);
    fclose(f);
}

START_TEST(each_kill_explains_one_death)
{
    char directory[SCRATCH_MAX], file[64];
    struct oom o;
    ck_assert_ptr_nonnull(scratch_dir(directory, "oom"));
    write_count(directory, 3);
    oom_open(&o, directory);
    ck_assert(!oom_explains(&o));
    write_count(directory, 5);
    ck_assert(oom_explains(&o));
    ck_assert(oom_explains(&o));
    ck_assert(!oom_explains(&o));
    snprintf(file, sizeof file, "%s/memory.events", directory);
    unlink(file);
    ck_assert(!oom_explains(&o));
    rmdir(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("oom");
    TCase *c = tcase_create("oom");
    tcase_add_test(c, counts);
    tcase_add_loop_test(c, a_place, 0, (int)(sizeof places / sizeof *places));
    tcase_add_test(c, each_kill_explains_one_death);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
