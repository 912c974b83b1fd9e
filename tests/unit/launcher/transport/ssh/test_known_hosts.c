/* known_hosts lines: patterns, hashes, marks, damage. Keys are made up but well formed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/transport/ssh/ssh_known_hosts.h"
#include "tests/unit/scratch.h"

/* "ssh-ed25519" + 32 bytes of 'A', 'B'; "ssh-rsa" + 4 bytes */
#define KEY_A "AAAAC3NzaC1lZDI1NTE5AAAAIEFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
#define KEY_B "AAAAC3NzaC1lZDI1NTE5AAAAIEJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
#define RSA   "AAAAB3NzaC1yc2EAAAAEQUFBQQ=="

static struct known_hosts known;

static size_t lines_for(const char *text, const char *name)
{
    struct err e = ERR_INIT;
    known_hosts_free(&known);
    ck_assert_int_eq(known_hosts_parse(&known, "file", text, strlen(text), name, &e), 0);
    return known.count;
}

static enum known_verdict verdict(const char *key)
{
    size_t len;
    uint8_t *blob = known_base64(key, strlen(key), &len);
    ck_assert_ptr_nonnull(blob);
    enum known_verdict v = known_hosts_check(&known, blob, len, NULL);
    free(blob);
    return v;
}

static void teardown(void)
{
    known_hosts_free(&known);
}

static const struct {
    const char *patterns, *name;
    int matches;
} patterns[] = {
    {"node1", "node1", 1},
    {"node1", "node2", 0},
    {"NODE1", "node1", 1},
    {"node1", "node11", 0},
    {"a,node1,b", "node1", 1},
    {"node*", "node17", 1},
    {"node*", "xnode17", 0},
    {"*", "anything", 1},
    {"node?", "node1", 1},
    {"node?", "node", 0},
    {"node?", "node12", 0},
    {"*.example.com,!bad.example.com", "good.example.com", 1},
    {"*.example.com,!bad.example.com", "bad.example.com", 0},
    {"!bad.example.com,*.example.com", "bad.example.com", 0},
    {"!bad", "good", 0},
    {"[node1]:2222", "[node1]:2222", 1},
    {"[node1]:2222", "node1", 0},
    {"node1", "[node1]:2222", 0},
    {"[*]:2222", "[node1]:2222", 1},
    {"::1", "::1", 1},
    {"a**b*c", "aXbYbc", 1},
    {"a*b", "aXbX", 0},
    {",,", "", 0},
};

START_TEST(patterns_match_as_in_ssh)
{
    char line[256];
    snprintf(line, sizeof line, "%s ssh-ed25519 %s a comment\n", patterns[_i].patterns, KEY_A);
    ck_assert_msg((int)lines_for(line, patterns[_i].name) == patterns[_i].matches, "%s for %s",
                  patterns[_i].patterns, patterns[_i].name);
}
END_TEST

START_TEST(verdicts)
{
    ck_assert_uint_eq(lines_for("# comment\n\n  h ssh-ed25519 " KEY_A "\nh ssh-rsa " RSA "\r\n", "h"), 2);
    ck_assert_uint_eq(known.entry[0].line, 3);
    ck_assert_str_eq(known.entry[1].type, "ssh-rsa");
    ck_assert_int_eq(verdict(KEY_A), KNOWN_MATCH);
    ck_assert_int_eq(verdict(KEY_B), KNOWN_CHANGED);
    ck_assert(known_hosts_has_type(&known, "ssh-rsa") &&
              !known_hosts_has_type(&known, "ecdsa-sha2-nistp256"));
    ck_assert_uint_eq(lines_for("h ssh-rsa " RSA, "h"), 1); /* no newline at the end */
    ck_assert_int_eq(verdict(KEY_A), KNOWN_UNKNOWN);
    ck_assert_uint_eq(lines_for("h ssh-ed25519 " KEY_B "\nh ssh-ed25519 " KEY_A "\n", "h"), 2);
    ck_assert_int_eq(verdict(KEY_A), KNOWN_MATCH);
}
END_TEST

START_TEST(marks)
{
    lines_for("h ssh-ed25519 " KEY_A "\n@revoked * ssh-ed25519 " KEY_A "\n", "h");
    ck_assert_int_eq(verdict(KEY_A), KNOWN_REVOKED);
    ck_assert_int_eq(verdict(KEY_B), KNOWN_CHANGED);
    lines_for("@revoked * ssh-ed25519 " KEY_A "\n", "h");
    ck_assert_int_eq(verdict(KEY_B), KNOWN_UNKNOWN);
    ck_assert(!known_hosts_has_type(&known, "ssh-ed25519"));
    lines_for("@cert-authority *.com ssh-ed25519 " KEY_A "\n", "h.com");
    ck_assert(known_hosts_has_authority(&known));
    ck_assert_int_eq(verdict(KEY_A), KNOWN_AUTHORITY); /* the authority's key is not the host's */
    ck_assert_uint_eq(lines_for("@unknown h ssh-ed25519 " KEY_A "\n", "h"), 0);
}
END_TEST

static const char *const damaged[] = {
    "h",
    "h ssh-ed25519",
    "h ssh-ed25519 ",
    "h ssh-ed25519 AAAA",
    "h ssh-ed25519 ====",
    "h ssh-ed25519 " KEY_A "=",
    "h ssh-ed25519 !" KEY_A,
    "h ssh-rsa " KEY_A, /* the key names another type */
    "@revoked",
    "@revoked h",
    "|1|",
    "|1|x ssh-ed25519 " KEY_A,
    "|1|AAAA|AAAA ssh-ed25519 " KEY_A,
    "h ssh-ed25519 /////w==",
    "h ssh-ed25519 AAAAAA==",
};

START_TEST(damaged_lines_are_passed_over)
{
    char text[512];
    snprintf(text, sizeof text, "%s\nh ssh-ed25519 %s\n", damaged[_i], KEY_B);
    ck_assert_uint_eq(lines_for(text, "h"), 1);
    ck_assert_int_eq(verdict(KEY_B), KNOWN_MATCH);
    ck_assert_uint_eq(known.entry[0].line, 2);
}
END_TEST

START_TEST(nul_bytes_are_blanks)
{
    struct err e = ERR_INIT;
    static const char text[] = "h\0ssh-ed25519 " KEY_A "\n";
    ck_assert_int_eq(known_hosts_parse(&known, "file", text, sizeof text - 1, "h", &e), 0);
    ck_assert_uint_eq(known.count, 1);
}
END_TEST

/* Names that ssh-keygen itself has hashed. */
START_TEST(hashed_by_ssh_keygen)
{
    char path[SCRATCH_MAX], command[256], line[512];
    struct err e = ERR_INIT;
    int fd = scratch_file(path, "known");
    ck_assert_int_ge(fd, 0);
    snprintf(line, sizeof line, "node1 ssh-ed25519 %s\n[node2]:2222 ssh-ed25519 %s\n", KEY_A, KEY_B);
    ck_assert_int_eq(write(fd, line, strlen(line)), (ssize_t)strlen(line));
    close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(command, sizeof command, "ssh-keygen -q -H -f %s >/dev/null 2>&1; rm -f %s.old", path, path);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(known_hosts_read(&known, path, "node1", &e), 0);
    ck_assert_uint_eq(known.count, 1);
    ck_assert_int_eq(verdict(KEY_A), KNOWN_MATCH);
    ck_assert_str_eq(known.entry[0].file, path);
    known_hosts_free(&known);
    ck_assert_int_eq(known_hosts_read(&known, path, "[node2]:2222", &e), 0);
    ck_assert_uint_eq(known.count, 1);
    ck_assert_uint_eq(known.entry[0].line, 2);
    known_hosts_free(&known);
    ck_assert_int_eq(known_hosts_read(&known, path, "node2", &e), 0);
    ck_assert_uint_eq(known.count, 0);
    unlink(path);
}
END_TEST

START_TEST(missing_file_has_no_lines)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(known_hosts_read(&known, "/nonexistent/known_hosts", "h", &e), 0);
    ck_assert_int_eq(known_hosts_read(&known, "/tmp", "h", &e), 0);
    ck_assert_uint_eq(known.count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("known_hosts");
    TCase *tc = tcase_create("lines");
    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_loop_test(tc, patterns_match_as_in_ssh, 0, sizeof patterns / sizeof *patterns);
    tcase_add_loop_test(tc, damaged_lines_are_passed_over, 0, sizeof damaged / sizeof *damaged);
    tcase_add_test(tc, verdicts);
    tcase_add_test(tc, marks);
    tcase_add_test(tc, nul_bytes_are_blanks);
    tcase_add_test(tc, hashed_by_ssh_keygen);
    tcase_add_test(tc, missing_file_has_no_lines);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
