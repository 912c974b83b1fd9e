/* Compares the declarations of collectives/gpu with the headers of CUDA and NCCL (tests/gpu/headers.c), if
 * these are in CUDA_HOME, by default /usr/local/cuda. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOURCE "tests/gpu/headers.c"

static char include[512];

static int compile(const char *more)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("cc", "cc", "-std=gnu17", "-fsyntax-only", "-I.", "-Icollectives", include, more, SOURCE,
               (char *)NULL);
        _exit(127);
    }
    int status = 0;
    ck_assert(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(our_declarations_are_theirs)
{
    ck_assert_int_eq(compile("-DHVD_AS_IT_IS"), 0);
}
END_TEST

/* That a difference would be seen. */
START_TEST(another_size_is_noticed)
{
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    ck_assert_int_ne(compile("-Dcu_device=long"), 0);
    ck_assert_int_ne(compile("-DncclSum=NCCL_MIN"), 0);
}
END_TEST

int main(void)
{
    const char *home = getenv("CUDA_HOME");
    char file[600];
    snprintf(include, sizeof include, "-I%s/include", home && *home ? home : "/usr/local/cuda");
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", include + 2, i ? "nccl.h" : "cuda.h");
        if (access(file, R_OK) != 0) {
            printf("there is no %s (CUDA_HOME)\n", file);
            return 77;
        }
    }
    Suite *s = suite_create("gpu_headers");
    TCase *t = tcase_create("gpu_headers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, our_declarations_are_theirs);
    tcase_add_test(t, another_size_is_noticed);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
