/* --rsh templates as argument vectors. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "launcher/transport/rsh_template.h"

#define SSH "ssh|-o|BatchMode=yes|-T|"

static const struct {
    const char *rsh;
    const char *user;
    uint16_t port;
    const char *identity;
    const char *words; /* joined by | */
} good[] = {
    {NULL, NULL, 0, NULL, SSH "h|CMD"},
    {"ssh", "u", 0, NULL, SSH "u@h|CMD"},
    {"ssh", NULL, 2222, "/k", SSH "-p|2222|-i|/k|h|CMD"},
    {"/usr/bin/ssh -J gateway", NULL, 0, NULL, "/usr/bin/ssh|-o|BatchMode=yes|-T|-J|gateway|h|CMD"},
    {"ssh -p {port} {user}@{host}", "u", 9, NULL, SSH "-p|9|u@h|CMD"},
    {"ssh -p {port} {user}@{host}", NULL, 0, NULL, SSH "h|CMD"},
    {"ssh -v -p{port} {host}", NULL, 0, NULL, SSH "-v|h|CMD"},
    {"ssh -l {user} {host}", NULL, 0, NULL, SSH "h|CMD"},
    {"ssh {user}", NULL, 0, NULL, SSH "h|CMD"},
    {"  srun   --nodelist={host} -n1 sh -c ", "u", 9, "/k", "srun|--nodelist=h|-n1|sh|-c|CMD"},
    {"./my\\ script 'a b' \"c \\\" d\" e'f'g ''", NULL, 0, NULL, "./my script|a b|c \" d|efg||h|CMD"},
    {"'ssh'", NULL, 0, NULL, SSH "h|CMD"},
    {"run '$HOME' \"`x`\" {HOST} {} {", NULL, 0, NULL, "run|$HOME|`x`|{HOST}|{}|{|h|CMD"},
    {"run \"a\\b\" c\\\\d '\\'", NULL, 0, NULL, "run|a\\b|c\\d|\\|h|CMD"},
    {"run {host}-{host}:{port}", NULL, 7, NULL, "run|h-h:7|CMD"},
    {"kubectl exec -i", NULL, 0, NULL, "kubectl|exec|-i|h|--|/bin/sh|-c|CMD"},
    {"kubectl", NULL, 0, NULL, "kubectl|exec|-i|h|--|/bin/sh|-c|CMD"},
    {"/opt/kube/kubectl -n ml exec --stdin -c main", NULL, 9, "/k",
     "/opt/kube/kubectl|-n|ml|exec|--stdin|-c|main|h|--|/bin/sh|-c|CMD"},
    {"oc exec -qi pod-{host} --", NULL, 0, NULL, "oc|exec|-qi|pod-h|--|/bin/sh|-c|CMD"},
    {"kubectl exec -i {host} -- nice bash -t -c", NULL, 0, NULL, "kubectl|exec|-i|h|--|nice|bash|-t|-c|CMD"},
    {"/etc/mpi/kubexec.sh", NULL, 0, NULL, "/etc/mpi/kubexec.sh|h|CMD"},
    {"run -x{user} {port} {host}", NULL, 0, NULL, "run|h|CMD"}, /* -x has gone already: run stays */
};

START_TEST(templates)
{
    struct transport_target target = {.host = "h",
                                      .user = good[_i].user,
                                      .port = good[_i].port,
                                      .identity_file = good[_i].identity,
                                      .rsh = good[_i].rsh,
                                      .command = "CMD"};
    struct rsh_argv argv;
    struct err e = ERR_INIT;
    char words[1024] = "";
    ck_assert_msg(rsh_template_expand(&target, &argv, &e) == 0, "%s", e.text);
    for (size_t i = 0; argv.word[i]; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? "|" : "", argv.word[i]);
    ck_assert_str_eq(words, good[_i].words);
    rsh_argv_free(&argv);
}
END_TEST

static const struct {
    const char *rsh, *host, *user, *says;
} bad[] = {
    {"", "h", NULL, "--rsh is empty"},
    {"   ", "h", NULL, "--rsh is empty"},
    {"ssh 'open", "h", NULL, "quote"},
    {"ssh \"open", "h", NULL, "quote"},
    {"ssh {hots}", "h", NULL, "unknown placeholder {hots}"},
    {"{user}", "h", NULL, "names no program"},
    {"kubectl exec -it", "h", NULL, "terminal"},
    {"kubectl exec -ti", "h", NULL, "terminal"},
    {"kubectl exec -i --tty", "h", NULL, "terminal"},
    {"kubectl exec {host} -- sh -c", "h", NULL, "exec, -i and {host}"},
    {"kubectl exec -i -- sh -c", "h", NULL, "exec, -i and {host}"},
    {"kubectl", "h", "me", "me@h: --rsh kubectl takes no user"},
    {"srun", "h", "me", "takes no user"},
    {"ssh", "-oProxyCommand=x", NULL, "bad host name"},
    {"ssh", "h", "-l", "bad user name"},
    {"ssh", "", NULL, "bad host name"},
};

START_TEST(refusals)
{
    struct transport_target target = {
        .host = bad[_i].host, .user = bad[_i].user, .rsh = bad[_i].rsh, .command = "CMD"};
    struct rsh_argv argv;
    struct err e = ERR_INIT;
    ck_assert_int_eq(rsh_template_expand(&target, &argv, &e), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad[_i].says), "%s", e.text);
    rsh_argv_free(&argv);
}
END_TEST

/* srun: one task on that node, clean bytes, and none of sbatch's wishes for the user's tasks. */
START_TEST(srun_by_name)
{
    static const char *const wanted[] = {"srun",         "--nodelist=h", "--ntasks=1", "--overlap",
                                         "--unbuffered", "--mpi=none",   "/bin/sh",    "SLURM_LABELIO"};
    struct transport_target target = {.host = "h", .rsh = "srun", .command = "CMD"};
    struct rsh_argv argv;
    struct err e = ERR_INIT;
    ck_assert_msg(rsh_template_expand(&target, &argv, &e) == 0, "%s", e.text);
    ck_assert_str_eq(argv.word[0], "env");
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        size_t i = 0;
        while (argv.word[i] && strcmp(argv.word[i], wanted[w]) != 0)
            i++;
        ck_assert_msg(argv.word[i], "no %s", wanted[w]);
    }
    ck_assert_str_eq(argv.word[argv.count - 2], "-c");
    ck_assert_str_eq(argv.word[argv.count - 1], "CMD");
    rsh_argv_free(&argv);
}
END_TEST

START_TEST(carriers_that_tell_a_status)
{
    ck_assert(rsh_tells_status("srun: error: node2: task 0: Exited with exit code 127"));
    ck_assert(rsh_tells_status("command terminated with exit code 127"));
    ck_assert(!rsh_tells_status("srun: error: Unable to create step for job 4: Invalid job id specified"));
    ck_assert(!rsh_tells_status("no hvdagent: looked for /x/hvdagent and on PATH"));
}
END_TEST

START_TEST(too_many_words)
{
    static char rsh[4 * RSH_WORDS_MAX + 8];
    struct err e = ERR_INIT;
    for (int i = 0; i <= RSH_WORDS_MAX; i++)
        snprintf(rsh + strlen(rsh), sizeof rsh - strlen(rsh), "w ");
    ck_assert_int_eq(rsh_template_check(rsh, &e), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rsh template");
    TCase *tc = tcase_create("template");
    tcase_add_loop_test(tc, templates, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(tc, refusals, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tc, srun_by_name);
    tcase_add_test(tc, carriers_that_tell_a_status);
    tcase_add_test(tc, too_many_words);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
