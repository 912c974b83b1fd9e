/* structure - checks what no compiler checks, and fails the build:
 *
 *   - who may include whom (DESIGN: common <- everything; launcher, agent and client never include one
 *     another; engine -> backends -> algorithms), and which folder may use which library;
 *   - calls that are banned, and exit() outside main files;
 *   - functions that have grown too long to be read;
 *   - the measures of the house (measures.c): each has a limit, to be lowered as the tree improves;
 *   - what the programs are linked to (hvdrun and hvdagent start in a millisecond only because that is so
 *     little), and that libhvd shows the names of hvd.h and no others.
 *
 *   structure [--build DIR] TREE     the rules and the measures; the rules about programs only with --build
 *   structure --list MEASURE [TREE [OLDER_TREE]]
 *                                    what makes the figure of a measure; with OLDER_TREE what was not there
 *   structure --self-test SAMPLES    every rule finds what is wrong in SAMPLES/<rule>, and nothing in
 *                                    SAMPLES/good; every measure finds what the file `expected` in
 *                                    SAMPLES/measures/<measure> has */
#include "tests/structure/structure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/structure/measures.h"

static const char *const rule_name[RULE_COUNT] = {
    [RULE_INCLUDE_DIRECTION] = "include-direction",
    [RULE_LIBRARY_HEADER] = "library-header",
    [RULE_BANNED_CALL] = "banned-call",
    [RULE_LENGTH] = "length",
    [RULE_NEEDED] = "needed",
    [RULE_EXPORTS] = "exports",
};

static const struct {
    const char *file;
    const char *allowed;
} needed[] = {
    {"hvdrun", "libc libuv libprotobuf-c ld-linux-x86-64 ld-linux-aarch64"},
    {"hvdagent", "libc libuv libprotobuf-c ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/hvd-engine", "libc libm libprotobuf-c ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/hvd-pmix", "libc libuv libprotobuf-c libpmix libhwloc ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/ssh.so", "libc libssh2 libcrypto ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/auth.so", "libc libcrypto ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/tls.so", "libc libssl libcrypto ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/yaml.so", "libc libyaml-0 libyaml ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/systemd.so", "libc libsystemd ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/topology.so", "libc libhwloc ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/gloo.so", "libc libmicrohttpd ld-linux-x86-64 ld-linux-aarch64"},
    {"modules/metrics.so", "libc libmicrohttpd ld-linux-x86-64 ld-linux-aarch64"},
    {"libhvd.so", "libc libm ld-linux-x86-64 ld-linux-aarch64"},
};

void report_add(struct report *r, enum rule rule, const char *fmt, ...)
{
    va_list args;
    r->count[rule]++;
    if (r->quiet)
        return;
    printf("    # ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

int print_result(bool ok, const char *name)
{
    printf("%s - structure: %s\n", ok ? "ok" : "not ok", name);
    return ok ? 0 : 1;
}

static int check_tree(const char *root, const char *build)
{
    struct report r = {.quiet = false};
    struct tree t;
    char file[4096], header[4096];
    int failed = 0;
    tree_read(&t, root);
    check_sources(&t, &r);
    bool measures_hold = measures_check(&t);
    tree_free(&t);
    if (build) {
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
            snprintf(file, sizeof file, "%s/%s", build, needed[i].file);
            check_needed(file, needed[i].allowed, &r);
        }
        snprintf(header, sizeof header, "%s/collectives/hvd.h", root);
        snprintf(file, sizeof file, "%s/libhvd.so", build);
        check_exports(file, header, &r);
        snprintf(file, sizeof file, "%s/libhvd.a", build);
        check_exports(file, header, &r);
    }
    for (int i = 0; i < (build ? RULE_COUNT : RULE_NEEDED); i++)
        failed += print_result(r.count[i] == 0, rule_name[i]);
    failed += print_result(measures_hold, "measures");
    return failed ? 1 : 0;
}

/* The tree SAMPLES/<name> breaks the rule of that name and no other; "good" breaks none. */
static int check_sample(const char *samples, const char *name)
{
    struct report r = {.quiet = true};
    struct tree t;
    char root[4096], line[256];
    bool ok = true;
    snprintf(root, sizeof root, "%s/%s", samples, name);
    tree_read(&t, root);
    check_sources(&t, &r);
    tree_free(&t);
    for (int i = 0; i < RULE_NEEDED; i++)
        ok = ok && (r.count[i] > 0) == (strcmp(rule_name[i], name) == 0);
    snprintf(line, sizeof line, "self-test: %s", name);
    return print_result(ok, line);
}

static int self_test(const char *samples)
{
    struct report r = {.quiet = true};
    int failed = check_sample(samples, "good");
    for (int i = 0; i < RULE_NEEDED; i++)
        failed += check_sample(samples, rule_name[i]);
    /* This program needs libc and exports nothing: with libc allowed all is well, without it is not. */
    check_needed("/proc/self/exe", "libc ld-linux-x86-64 ld-linux-aarch64", &r);
    bool fine = r.count[RULE_NEEDED] == 0;
    check_needed("/proc/self/exe", "libm", &r);
    failed += print_result(fine && r.count[RULE_NEEDED] == 1, "self-test: needed");
    /* Neither is a library that is not there, nor one with other names, nor one that lacks what the header
     * has. */
    check_exports("/no/such/file", NULL, &r);
    fine = r.count[RULE_EXPORTS] == 1;
    check_exports("/proc/self/exe", NULL, &r);
    failed += print_result(fine && r.count[RULE_EXPORTS] > 1, "self-test: exports");
    failed += measures_test(samples);
    return failed ? 1 : 0;
}

static int list_measure(const char *word, const char *root, const char *old_root)
{
    struct tree t, old;
    tree_read(&t, root);
    if (old_root)
        tree_read(&old, old_root);
    bool ok = measures_list(&t, old_root ? &old : NULL, word);
    tree_free(&t);
    if (old_root)
        tree_free(&old);
    return ok ? 0 : 2;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && argc <= 5 && strcmp(argv[1], "--list") == 0)
        return list_measure(argv[2], argc > 3 ? argv[3] : ".", argc > 4 ? argv[4] : NULL);
    if (argc == 3 && strcmp(argv[1], "--self-test") == 0)
        return self_test(argv[2]);
    if (argc == 4 && strcmp(argv[1], "--build") == 0)
        return check_tree(argv[3], argv[2]);
    if (argc == 2 && argv[1][0] != '-')
        return check_tree(argv[1], NULL);
    fprintf(stderr, "usage: structure [--build DIR] TREE | structure --list MEASURE [TREE [OLDER_TREE]] | "
                    "structure --self-test SAMPLES\n");
    return 2;
}
