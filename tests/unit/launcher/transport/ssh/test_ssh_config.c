/* The output of `ssh -G` laid over the defaults, and what a key file tells of itself. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/transport/ssh/ssh_config.h"
#include "launcher/transport/ssh/ssh_key_file.h"
#include "tests/unit/scratch.h"

static const struct ssh_user me = {.home = "/home/ann", .name = "ann", .agent = "/run/agent"};
static struct ssh_config config;

static void setup(void)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(ssh_config_defaults(&config, &me, "node1", NULL, 0, &e), 0);
}

static void teardown(void)
{
    ssh_config_free(&config);
}

static void parse(const char *text)
{
    struct err e = ERR_INIT;
    ck_assert_msg(ssh_config_parse(&config, &me, text, strlen(text), &e) == 0, "%s", e.text);
}

START_TEST(defaults)
{
    ck_assert_str_eq(config.hostname, "node1");
    ck_assert_str_eq(config.user, "ann");
    ck_assert_uint_eq(config.port, 22);
    ck_assert_str_eq(config.identity.path[0], "/home/ann/.ssh/id_ed25519");
    ck_assert_uint_eq(config.identity.count, 3);
    ck_assert_str_eq(config.user_known.path[1], "/home/ann/.ssh/known_hosts2");
    ck_assert_str_eq(config.global_known.path[0], "/etc/ssh/ssh_known_hosts");
    ck_assert_str_eq(config.agent, "/run/agent");
    ck_assert_int_eq(config.strict, SSH_STRICT_YES);
}
END_TEST

START_TEST(settings_are_read)
{
    parse("user bob\nhostname 10.0.0.7\nport 2222\nhostkeyalias cluster\naddressfamily inet\nidentitiesonly "
          "yes\n"
          "identityfile ~/.ssh/%r_%h\nidentityfile /keys/a b\nuserknownhostsfile ~/k1 "
          "/k2\nglobalknownhostsfile /g\n"
          "stricthostkeychecking accept-new\nidentityagent none\nunknownword x\nproxycommand none");
    ck_assert_str_eq(config.hostname, "10.0.0.7");
    ck_assert_str_eq(config.user, "bob");
    ck_assert_uint_eq(config.port, 2222);
    ck_assert_str_eq(config.host_key_alias, "cluster");
    ck_assert_int_eq(config.family, AF_INET);
    ck_assert(config.identities_only);
    ck_assert_uint_eq(config.identity.count, 2);
    ck_assert_str_eq(config.identity.path[0], "/home/ann/.ssh/bob_10.0.0.7");
    ck_assert_str_eq(config.identity.path[1], "/keys/a b");
    ck_assert_uint_eq(config.user_known.count, 2);
    ck_assert_str_eq(config.user_known.path[0], "/home/ann/k1");
    ck_assert_uint_eq(config.global_known.count, 1);
    ck_assert_int_eq(config.strict, SSH_STRICT_ACCEPT_NEW);
    ck_assert_str_eq(config.agent, "");
    ck_assert_str_eq(config.unsupported, "");
}
END_TEST

START_TEST(strictness)
{
    static const struct {
        const char *word;
        enum ssh_strict strict;
    } words[] = {{"ask", SSH_STRICT_YES},
                 {"true", SSH_STRICT_YES},
                 {"yes", SSH_STRICT_YES},
                 {"false", SSH_STRICT_NO},
                 {"no", SSH_STRICT_NO},
                 {"off", SSH_STRICT_NO},
                 {"accept-new", SSH_STRICT_ACCEPT_NEW},
                 {"", SSH_STRICT_YES}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char line[64];
        snprintf(line, sizeof line, "stricthostkeychecking %s\n", words[i].word);
        parse(line);
        ck_assert_int_eq(config.strict, words[i].strict);
    }
}
END_TEST

START_TEST(what_libssh2_cannot)
{
    static const char *const lines[] = {
        "proxycommand nc %h %p", "proxyjump gateway", "certificatefile ~/c",   "revokedhostkeys /r",
        "knownhostscommand /x",  "pkcs11provider /p", "identityfile ~/.ssh/%C"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        config.unsupported[0] = '\0';
        parse(lines[i]);
        ck_assert_msg(config.unsupported[0], "%s", lines[i]);
    }
}
END_TEST

START_TEST(bad_values_are_errors)
{
    static const char *const lines[] = {"port 0", "port 65536", "port x",
                                        "port ",  "port -1",    "port 99999999999999999999"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct err e = ERR_INIT;
        ck_assert_int_eq(ssh_config_parse(&config, &me, lines[i], strlen(lines[i]), &e), -1);
        ck_assert_int_eq(e.code, ERR_HOST);
        ck_assert_ptr_nonnull(strstr(e.text, "port"));
    }
    char line[SSH_NAME_MAX + 32] = "hostname ";
    struct err e = ERR_INIT;
    memset(line + 9, 'a', SSH_NAME_MAX);
    ck_assert_int_eq(ssh_config_parse(&config, &me, line, strlen(line), &e), -1);
}
END_TEST

START_TEST(too_many_files_are_cut)
{
    static char text[64 * 32];
    for (int i = 0; i < 64; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "identityfile /key%d\n", i);
    parse(text);
    ck_assert_uint_eq(config.identity.count, SSH_PATHS_MAX);
}
END_TEST

/* Keys by ssh-keygen in a directory of their own. */
static enum ssh_key_kind kind_of(const char *options, const char *after)
{
    char dir[SCRATCH_MAX], command[512], path[64];
    int status;
    ck_assert_ptr_nonnull(scratch_dir(dir, "keys"));
    snprintf(command, sizeof command, "cd %s && ssh-keygen -q -f k %s && %s", dir, options, after);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "%s", command);
    struct ssh_key_info info;
    snprintf(path, sizeof path, "%s/k", dir);
    ssh_key_read(path, &info);
    free(info.blob);
    pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", dir, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    return info.kind;
}

START_TEST(key_files_are_known)
{
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "rm k.pub"), SSH_KEY_USABLE);
    ck_assert_int_eq(kind_of("-t ecdsa -N ''", "true"), SSH_KEY_USABLE);
    ck_assert_int_eq(kind_of("-t ed25519 -N secret", "true"), SSH_KEY_ENCRYPTED);
    ck_assert_int_eq(kind_of("-t ed25519 -N secret -Z aes256-gcm@openssh.com", "true"), SSH_KEY_ENCRYPTED);
    ck_assert_int_eq(kind_of("-t rsa -b 1024 -N ''", "true"), SSH_KEY_RSA);
    ck_assert_int_eq(kind_of("-t rsa -b 1024 -N '' -m PEM", "rm k.pub"), SSH_KEY_RSA);
    ck_assert_int_eq(kind_of("-t rsa -b 1024 -N '' -m PKCS8", "true"), SSH_KEY_RSA); /* told by k.pub */
    ck_assert_int_eq(kind_of("-t rsa -b 1024 -N secret -m PEM", "true"), SSH_KEY_ENCRYPTED);
    ck_assert_int_eq(kind_of("-t ecdsa -N secret -m PKCS8", "true"), SSH_KEY_ENCRYPTED);
    ck_assert_int_eq(kind_of("-t ecdsa -N '' -m PEM", "true"), SSH_KEY_USABLE);
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "rm k"), SSH_KEY_PUBLIC);
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "mv k.pub k"), SSH_KEY_PUBLIC);
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "rm k k.pub"), SSH_KEY_MISSING);
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "rm k.pub; echo nonsense > k"), SSH_KEY_UNSUPPORTED);
    ck_assert_int_eq(kind_of("-t ed25519 -N ''", "rm k.pub; head -c 150 k > s && mv s k"),
                     SSH_KEY_UNSUPPORTED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ssh configuration");
    TCase *tc = tcase_create("ssh -G");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 30);
    tcase_add_test(tc, defaults);
    tcase_add_test(tc, settings_are_read);
    tcase_add_test(tc, strictness);
    tcase_add_test(tc, what_libssh2_cannot);
    tcase_add_test(tc, bad_values_are_errors);
    tcase_add_test(tc, too_many_files_are_cut);
    tcase_add_test(tc, key_files_are_known);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
