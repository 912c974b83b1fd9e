/* The start of a program where the kernel, or what stands for it, lacks the newer calls. Each test is a
 * process of its own, so that the filter of its system calls ends with it. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/spawn.h"
#include "tests/unit/run_test.h"

/* clone3 is not there; with `emulated`, clone knows no CLONE_PIDFD. */
static void take_calls_away(bool emulated)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, emulated ? SYS_clone : 0xffffffffu, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PIDFD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static struct spawned start_script(const char *script, int cgroup_fd, struct err *e)
{
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)script, NULL};
    struct spawn s = SPAWN_INIT;
    struct spawned child = {0};
    s.path = "/bin/sh";
    s.argv = argv;
    s.cgroup_fd = cgroup_fd;
    (void)spawn_start(&s, &child, e);
    return child;
}

static void expect_exit(struct spawned child, int status)
{
    struct pollfd ended = {child.pidfd, POLLIN, 0};
    int how;
    ck_assert_int_ge(child.pidfd, 0);
    ck_assert_int_eq(poll(&ended, 1, 5000), 1);
    ck_assert_int_eq(waitpid(child.pid, &how, 0), child.pid);
    ck_assert(WIFEXITED(how));
    ck_assert_int_eq(WEXITSTATUS(how), status);
}

START_TEST(programs_start)
{
    struct err e = ERR_INIT;
    if (_i > 0)
        take_calls_away(_i == 2);
    struct spawned child = start_script("exit 7", -1, &e);
    ck_assert_str_eq(e.text, "");
    expect_exit(child, 7);
}
END_TEST

/* The file of the directory stands for that of a cgroup: the child writes that it wants to be there. */
START_TEST(they_enter_their_cgroup)
{
    struct err e = ERR_INIT;
    char directory[] = "/tmp/hvd-test-XXXXXX", path[64], text[8] = "";
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/cgroup.procs", directory);
    fclose(fopen(path, "w"));
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    take_calls_away(_i == 1);
    expect_exit(start_script("exit 0", fd, &e), 0);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    fclose(f);
    ck_assert_str_eq(text, "0");
    unlink(path);
    (void)start_script("exit 0", fd, &e);
    ck_assert_int_ne(e.code, 0);
    ck_assert_str_eq(e.text, "cannot put /bin/sh into the job's cgroup: No such file or directory");
    rmdir(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spawn");
    TCase *t = tcase_create("calls that are not there");
    tcase_add_loop_test(t, programs_start, 0, 3);
    tcase_add_loop_test(t, they_enter_their_cgroup, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
