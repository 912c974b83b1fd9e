/* The path of the cgroup, the job's directory, facts about a host: the parts of the agent that need no
 * job. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/guard/job_dir.h"
#include "agent/worker/containment.h"
#include "agent/gpu/gpu.h"
#include "agent/gpu/gpu_scan.h"
#include "agent/worker/descendants.h"
#include "common/process/spawn.h"
#include "tests/unit/scratch.h"

#define UNIFIED "33 24 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
#define HYBRID                                                                                               \
    "30 24 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"                                                      \
    "31 30 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"                                      \
    "32 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"

static char path[CONTAINMENT_PATH_MAX];

static int place(const char *self, const char *mounts)
{
    return containment_place(self, mounts, "hvd-j-0", path, sizeof path);
}

START_TEST(cgroup_places)
{
    ck_assert_int_eq(place("0::/user.slice/session-3.scope\n", UNIFIED), 0);
    ck_assert_str_eq(path, "/sys/fs/cgroup/user.slice/session-3.scope/hvd-j-0");
    ck_assert_int_eq(place("4:memory:/a/b\n0::/\n", HYBRID), 0);
    ck_assert_str_eq(path, "/sys/fs/cgroup/unified/hvd-j-0");
    /* A container that sees a branch of the tree. */
    ck_assert_int_eq(place("0::/pods/x/y\n", "33 24 0:28 /pods/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                     0);
    ck_assert_str_eq(path, "/sys/fs/cgroup/y/hvd-j-0");
    ck_assert_int_eq(place("0::/../other\n", UNIFIED), -1);
    ck_assert_int_eq(place("4:memory:/a/b\n", UNIFIED), -1);
    ck_assert_int_eq(place("0::/\n", "31 30 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
                     -1);
    ck_assert_int_eq(containment_place("0::/a\n", UNIFIED, "a-name-that-is-too-long", path, 24), -1);
}
END_TEST

/* A container makes cgroups of its own in that of the job, and leaves them there. */
static void leave_a_container(const char *cgroup)
{
    char inner[CONTAINMENT_PATH_MAX + 32];
    snprintf(inner, sizeof inner, "%s/payload", cgroup);
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    snprintf(inner, sizeof inner, "%s/payload/inner", cgroup);
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    snprintf(inner, sizeof inner, "%s/payload/inner/cgroup.procs", cgroup);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    FILE *procs = fopen(inner, "we");
    ck_assert(procs && fprintf(procs, "%d", (int)child) > 0 && fclose(procs) == 0);
}

START_TEST(cgroup_comes_and_goes)
{
    struct containment c;
    char name[64];
    snprintf(name, sizeof name, "hvd-test-%d", (int)getpid());
    containment_find(&c, name);
    containment_make(&c);
    if (strcmp(containment_name(&c), "cgroup") == 0) {
        ck_assert_int_eq(access(c.path, F_OK), 0);
        leave_a_container(c.path);
        ck_assert_int_eq(containment_remove(c.path, 0), -1);
        containment_kill(c.path);
        ck_assert_int_eq(containment_remove(c.path, 1000), 0);
        ck_assert_int_ne(access(c.path, F_OK), 0);
    } else {
        ck_assert_str_eq(c.path, "");
    }
    containment_close(&c);
    setenv(CONTAINMENT_VARIABLE, "subreaper", 1);
    containment_find(&c, name);
    ck_assert_str_eq(c.path, "");
}
END_TEST

/* By somebody else: what would start in it is told which one has gone, and it can be made again. */
START_TEST(a_cgroup_that_somebody_removes)
{
    char name[64], *argv[] = {(char *)"true", NULL};
    struct containment c;
    struct spawn s = SPAWN_INIT;
    struct spawned child;
    struct err e = ERR_INIT;
    snprintf(name, sizeof name, "hvd-gone-%d", (int)getpid());
    containment_find(&c, name);
    containment_make(&c);
    ck_assert(containment_holds(&c));
    if (c.fd < 0)
        return; /* no cgroup can be made here */
    ck_assert_int_eq(containment_remove(c.path, 0), 0);
    ck_assert(!containment_holds(&c));
    s.path = "/bin/true";
    s.argv = argv;
    s.cgroup_fd = c.fd;
    ck_assert_int_eq(spawn_start(&s, &child, &e), -1);
    ck_assert_msg(strstr(e.text, name) && strstr(e.text, "cannot start /bin/true in cgroup /"), "%s", e.text);
    containment_close(&c);
    containment_make(&c);
    ck_assert_int_ge(c.fd, 0);
    ck_assert(containment_holds(&c));
    ck_assert_int_eq(containment_remove(c.path, 100), 0);
    containment_close(&c);
    ck_assert(containment_holds(&c)); /* there is none to lose */
}
END_TEST

static char base[SCRATCH_MAX];

static void use_base(void)
{
    ck_assert_ptr_nonnull(scratch_dir(base, "test"));
    setenv("XDG_RUNTIME_DIR", base, 1);
}

START_TEST(job_directory)
{
    struct job_dir d, other;
    struct err e = ERR_INIT;
    struct stat st;
    char user[JOB_DIR_MAX];
    use_base();
    ck_assert_int_eq(job_dir_create(&d, "job-0", NULL, &e), 0);
    ck_assert_int_eq(strncmp(d.path, base, strlen(base)), 0);
    ck_assert_int_eq(stat(d.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    ck_assert_int_eq(job_dir_create(&other, "job-1", NULL, &e), 0);
    /* The same name again is somebody else's job. */
    struct job_dir same;
    ck_assert_int_eq(job_dir_create(&same, "job-0", NULL, &e) == 0 && strcmp(same.path, d.path) == 0, 0);
    if (same.path[0])
        job_dir_remove(same.path);
    job_dir_remove(d.path);
    ck_assert_int_ne(access(d.path, F_OK), 0);
    job_dir_remove(other.path);
    job_dir_remove(other.path);
    snprintf(user, sizeof user, "%s/hvd-%u", base, (unsigned)geteuid());
    ck_assert_int_ne(access(user, F_OK), 0);
    job_dir_close(&d);
    job_dir_close(&other);
    ck_assert_int_eq(rmdir(base), 0);
}
END_TEST

/* Agents of several jobs begin and end all the time: each finds its directory, in the first place there is.
 */
START_TEST(agents_come_and_go_at_once)
{
    enum { AGENTS = 4, TIMES = 100 };
    pid_t child[AGENTS];
    use_base();
    for (int i = 0; i < AGENTS; i++) {
        if ((child[i] = fork()) != 0)
            continue;
        for (int k = 0; k < TIMES; k++) {
            struct job_dir d;
            struct err e = ERR_INIT;
            char name[32];
            snprintf(name, sizeof name, "job%d-%d", i, k);
            if (job_dir_create(&d, name, NULL, &e) < 0 || strncmp(d.path, base, strlen(base)) != 0)
                _exit(1);
            job_dir_remove(d.path);
            job_dir_close(&d);
        }
        _exit(0);
    }
    for (int i = 0; i < AGENTS; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(rmdir(base), 0);
}
END_TEST

/* A directory that another user may rename is no place for a socket. */
START_TEST(a_base_of_others_is_passed_over)
{
    struct job_dir d;
    struct err e = ERR_INIT;
    use_base();
    ck_assert_int_eq(chmod(base, _i ? 0777 : 0700), 0);
    if (!_i && (geteuid() != 0 || chown(base, 12345, 12345) < 0))
        _i = -1;                                      /* only root can give a directory away */
    if (job_dir_create(&d, "job-0", NULL, &e) == 0) { /* in one of the other places */
        ck_assert_int_eq(strncmp(d.path, base, strlen(base)) == 0, _i < 0);
        job_dir_remove(d.path);
        job_dir_close(&d);
    }
    ck_assert_int_eq(rmdir(base), 0);
}
END_TEST

START_TEST(stale_directories_are_swept)
{
    struct job_dir dead, living, next;
    struct err e = ERR_INIT;
    use_base();
    ck_assert_int_eq(job_dir_create(&dead, "dead-0", NULL, &e), 0);
    ck_assert_int_eq(job_dir_create(&living, "living-0", NULL, &e), 0);
    job_dir_close(&dead); /* as the death of its agent does */
    ck_assert_int_eq(job_dir_create(&next, "next-0", NULL, &e), 0);
    ck_assert_int_ne(access(dead.path, F_OK), 0);
    ck_assert_int_eq(access(living.path, F_OK), 0);
    job_dir_close(&next);
    job_dir_sweep("nobody", false);
    ck_assert_int_eq(access(next.path, F_OK), 0);
    job_dir_sweep("next", false);
    ck_assert_int_ne(access(next.path, F_OK), 0);
    job_dir_remove(living.path);
    job_dir_close(&living);
    ck_assert_int_eq(rmdir(base), 0);
}
END_TEST

/* hvd-<uid> exists, but is not ours alone, or is a link: it is not used. */
START_TEST(squatted_directories_are_refused)
{
    struct job_dir d;
    struct err e = ERR_INIT;
    char user[JOB_DIR_MAX], target[JOB_DIR_MAX];
    use_base();
    snprintf(user, sizeof user, "%s/hvd-%u", base, (unsigned)geteuid());
    snprintf(target, sizeof target, "%s/target", base);
    ck_assert_int_eq(mkdir(user, 0700), 0);
    ck_assert_int_eq(chmod(user, 0777), 0);
    ck_assert(job_dir_create(&d, "job-0", NULL, &e) < 0 || strncmp(d.path, base, strlen(base)) != 0);
    job_dir_remove(d.path);
    ck_assert_int_eq(rmdir(user), 0);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, user), 0);
    err_clear(&e);
    ck_assert(job_dir_create(&d, "job-0", NULL, &e) < 0 || strncmp(d.path, base, strlen(base)) != 0);
    job_dir_remove(d.path);
    ck_assert_int_eq(rmdir(target), 0); /* nothing was put there */
    unlink(user);
    rmdir(base);
}
END_TEST

START_TEST(slots)
{
    char dev[SCRATCH_MAX], file[64];
    static const char *const nodes[] = {"nvidia0",   "nvidia1",    "nvidia11",
                                        "nvidiactl", "nvidia-uvm", "nvidia"};
    struct gpu_places places = {.proc = "/no/such", .dev = dev};
    ck_assert_ptr_nonnull(scratch_dir(dev, "test"));
    ck_assert_uint_eq(gpu_scan_files(&places), 0);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(file, sizeof file, "%s/%s", dev, nodes[i]);
        ck_assert_int_eq(mkdir(file, 0700), 0);
    }
    ck_assert_uint_eq(gpu_scan_files(&places), 3);
    ck_assert_uint_eq(gpu_count_visible("0,2", 3), 2);
    ck_assert_uint_eq(gpu_count_visible("0,9,1", 3), 1);
    ck_assert_uint_eq(gpu_count_visible("GPU-5a,GPU-6b", 3), 2);
    ck_assert_uint_eq(gpu_count_visible("-1", 3), 0);
    ck_assert_uint_eq(gpu_count_visible("", 3), 0);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(file, sizeof file, "%s/%s", dev, nodes[i]);
        rmdir(file);
    }
    rmdir(dev);
}
END_TEST

START_TEST(descendants_are_found_and_spared)
{
    struct descendant list[8];
    int tell[2];
    char byte;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    ck_assert(!descendants_any(NULL));
    ck_assert_int_eq(pipe(tell), 0);
    pid_t spared = fork();
    if (spared == 0) {
        pause();
        _exit(0);
    }
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            setsid();
            ck_assert_int_eq((int)write(tell[1], "x", 1), 1);
            pause();
        }
        _exit(0); /* its child becomes ours */
    }
    ck_assert_int_eq((int)read(tell[0], &byte, 1), 1);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert_uint_eq(descendants_list(list, 8), 2);
    pid_t servers[] = {child, spared, 0};
    ck_assert_uint_eq(descendants_signal(SIGKILL, servers), 1);
    pid_t orphan = wait(NULL);
    ck_assert(orphan > 0 && orphan != spared && orphan != child);
    ck_assert(!descendants_any(servers));
    ck_assert(descendants_any(NULL));
    ck_assert_uint_eq(descendants_signal(SIGKILL, NULL), 1);
    ck_assert_int_eq(wait(NULL), spared);
    ck_assert(!descendants_any(NULL));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("containment");
    TCase *t = tcase_create("containment");
    tcase_add_test(t, cgroup_places);
    tcase_add_test(t, cgroup_comes_and_goes);
    tcase_add_test(t, a_cgroup_that_somebody_removes);
    tcase_add_test(t, job_directory);
    tcase_add_test(t, agents_come_and_go_at_once);
    tcase_add_loop_test(t, a_base_of_others_is_passed_over, 0, 2);
    tcase_add_test(t, stale_directories_are_swept);
    tcase_add_test(t, squatted_directories_are_refused);
    tcase_add_test(t, slots);
    tcase_add_test(t, descendants_are_found_and_spared);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
