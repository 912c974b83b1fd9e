/* The workers' environment: what is handed on, what is not, and the order of --unset and -x. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/environment.h"

static struct option_list list_of(const char **item)
{
    struct option_list list = {.item = item};
    while (item[list.count])
        list.count++;
    return list;
}

#define LIST(...) list_of((const char *[]){__VA_ARGS__, NULL})

static void build(struct environment *env, char *const envp[], struct option_list set,
                  struct option_list unset, bool local_only)
{
    struct err e = ERR_INIT;
    ck_assert_msg(environment_build(env, envp, &set, &unset, local_only, &e) == 0, "%s", e.text);
    ck_assert_ptr_null(env->variable[env->count]);
}

/* kept: 2 always, 1 by a job on this host alone, 0 never */
static const struct {
    char *variable;
    int kept;
} handed_on[] = {
    {"PATH=/bin", 2},
    {"HOME=/root", 2},
    {"EMPTY=", 2},
    {"BASH_FUNC_f%%=() { :;\n}", 2},
    {"RANKING=1", 2},
    {"OMPI_MCA_btl=tcp,self", 2},
    {"SLURM_JOB_ID=7", 2},
    {"HOROVOD_CYCLE_TIME=5", 2},
    {"NCCL_DEBUG=INFO", 2},
    {"HVD_CONTAINMENT=subreaper", 2},
    {"HVDRUN_VERBOSE=1", 2},
    {"LD_LIBRARY_PATH=/opt/lib", 2},
    {"CUDA_VISIBLE_DEVICES=0", 1},
    {"XDG_RUNTIME_DIR=/run/user/0", 1},
    {"XDG_SESSION_ID=3", 1},
    {"SSH_AUTH_SOCK=/tmp/s", 1},
    {"SSH_CONNECTION=a b", 1},
    {"DBUS_SESSION_BUS_ADDRESS=unix:", 1},
    {"DISPLAY=:0", 1},
    {"TMPDIR=/tmp/job.7", 1},
    {"HOSTNAME=here", 1},
    {"RANK=3", 0},
    {"LOCAL_RANK=1", 0},
    {"WORLD_SIZE=8", 0},
    {"MASTER_ADDR=a", 0},
    {"HOROVOD_RANK=1", 0},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT=1", 0},
    {"SLURM_PROCID=1", 0},
    {"SLURM_LOCALID=1", 0},
    {"SLURM_NODEID=1", 0},
    {"PMI_FD=7", 0},
    {"PMI_RANK=7", 0},
    {"PMIX_RANK=7", 0},
    {"PMIX_SERVER_URI41=x", 0},
    {"OMPI_COMM_WORLD_RANK=2", 0},
    {"OMPI_COMMAND=hvdrun", 0},
    {"OMPI_ARGV=-np 1", 0},
    {"OMPI_MCA_initial_wdir=/home", 0},
    {"OMPI_MCA_btl_vader_backing_directory=/dev/shm/hvd-0/1-a-0", 0},
    {"OMPI_MCA_btl_vader_backing_directory=/dev/shm/mine", 2},
    {"OMPI_COMM_WORLD_LOCAL_SIZE=2", 0},
    {"HVD_RANK=3", 0},
    {"HVD_TOKEN=abc", 0},
    {"NOTIFY_SOCKET=/run/x", 0},
    {"no equals sign", 0},
};

#define HANDED_ON (sizeof handed_on / sizeof *handed_on)

START_TEST(what_is_handed_on)
{
    char *envp[HANDED_ON + 1] = {0};
    struct environment env;
    bool local_only = _i != 0;
    size_t wanted = 0;
    for (size_t i = 0; i < HANDED_ON; i++)
        envp[i] = handed_on[i].variable;
    build(&env, envp, (struct option_list){0}, (struct option_list){0}, local_only);
    for (size_t i = 0; i < HANDED_ON; i++) {
        bool keep = handed_on[i].kept + local_only >= 2, there = false;
        for (size_t j = 0; j < env.count; j++)
            there |= strcmp(env.variable[j], envp[i]) == 0;
        ck_assert_msg(there == keep, "%s is %s", envp[i], there ? "there" : "missing");
        wanted += keep;
    }
    ck_assert_uint_eq(env.count, wanted);
    environment_free(&env);
}
END_TEST

START_TEST(x_sets_copies_and_wins)
{
    char *envp[] = {"A=1", "B=2", "RANK=3", "CUDA_VISIBLE_DEVICES=5", "MY_1=x", "MY_2=y", "MY=z", NULL};
    struct environment env;
    build(&env, envp, LIST("A=7", "B", "RANK", "CUDA_VISIBLE_DEVICES", "NEW=a=b", "EMPTY=", "A=8", "NONE*"),
          LIST("B", "MY_*"), false);
    ck_assert_str_eq(environment_get(&env, "A"), "8");
    ck_assert_str_eq(environment_get(&env, "B"), "2"); /* -x is stronger than --unset */
    ck_assert_str_eq(environment_get(&env, "RANK"), "3");
    ck_assert_str_eq(environment_get(&env, "CUDA_VISIBLE_DEVICES"), "5");
    ck_assert_str_eq(environment_get(&env, "NEW"), "a=b");
    ck_assert_str_eq(environment_get(&env, "EMPTY"), "");
    ck_assert_ptr_null(environment_get(&env, "MY_1"));
    ck_assert_str_eq(environment_get(&env, "MY"), "z");
    ck_assert_uint_eq(env.count, 7);
    environment_free(&env);
}
END_TEST

START_TEST(x_prefix_brings_back)
{
    char *envp[] = {"SSH_A=1", "SSH_B=2", "SSHX=3", NULL};
    struct environment env;
    build(&env, envp, LIST("SSH_*"), LIST("*"), false);
    ck_assert_str_eq(environment_get(&env, "SSH_A"), "1");
    ck_assert_str_eq(environment_get(&env, "SSH_B"), "2");
    ck_assert_uint_eq(env.count, 2);
    environment_free(&env);
}
END_TEST

static const struct {
    const char *set, *unset, *said;
} bad[] = {
    {"MISSING", NULL, "-x: variable MISSING is not set"},
    {"=x", NULL, "-x: '=x'"},
    {"1A=x", NULL, "-x: '1A=x'"},
    {"A B=x", NULL, "-x: 'A B=x'"},
    {"A*B", NULL, "-x: 'A*B'"},
    {"A*=1", NULL, "-x: 'A*=1'"},
    {"A\n=1", NULL, "-x: 'A =1'"},
    {NULL, "A=1", "--unset: 'A=1'"},
    {NULL, "A*B", "--unset: 'A*B'"},
    {NULL, "", "--unset: ''"},
    {NULL, "A,B", "--unset: 'A,B'"},
};

START_TEST(bad_words_are_named)
{
    char *envp[] = {"A=1", "AB=2", NULL};
    struct environment env;
    struct err e = ERR_INIT;
    struct option_list set = LIST(bad[_i].set), unset = LIST(bad[_i].unset);
    ck_assert_int_eq(environment_build(&env, envp, &set, &unset, false, &e), -1);
    ck_assert_int_eq(err_exit_status(&e), 2);
    ck_assert_msg(strstr(e.text, bad[_i].said), "%s", e.text);
    ck_assert(env.count == 0 && !env.variable);
}
END_TEST

START_TEST(a_missing_variable_has_a_remedy)
{
    char *envp[] = {NULL};
    struct environment env;
    struct err e = ERR_INIT;
    struct option_list set = LIST("A"), none = {0};
    ck_assert_int_eq(environment_build(&env, envp, &set, &none, false, &e), -1);
    ck_assert_str_eq(e.hint, "give it a value with -x A=VALUE");
}
END_TEST

START_TEST(nothing_from_nothing)
{
    char *envp[] = {NULL};
    struct environment env;
    build(&env, envp, (struct option_list){0}, (struct option_list){0}, true);
    ck_assert_uint_eq(env.count, 0);
    ck_assert_ptr_null(environment_get(&env, "A"));
    environment_free(&env);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("environment");
    TCase *t = tcase_create("environment");
    suite_add_tcase(suite, t);
    tcase_add_loop_test(t, what_is_handed_on, 0, 2);
    tcase_add_test(t, x_sets_copies_and_wins);
    tcase_add_test(t, x_prefix_brings_back);
    tcase_add_loop_test(t, bad_words_are_named, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, a_missing_variable_has_a_remedy);
    tcase_add_test(t, nothing_from_nothing);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
