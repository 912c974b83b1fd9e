/* Options from a file: horovodrun's keys and ours arrive with the right value, the command line wins over a
 * variable, that over the file, that over the default, for every type; what is wrong is named with its line.
 *
 * needs: modules */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/options/options_table.h"
#include "launcher/cli/config.h"
#include "tests/unit/scratch.h"

static char path[SCRATCH_MAX];

static void write_file(const char *text, size_t len)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

static void begin(void)
{
    int fd = scratch_file(path, "config");
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void end(void)
{
    unlink(path);
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
}

/* hvdrun --config-file FILE WORD... cmd */
static int parse(struct config *c, const char *file, char *const words[], char *const envp[], struct err *e)
{
    char *argv[16] = {"hvdrun", "--config-file", path};
    int argc = 3;
    write_file(file, strlen(file));
    for (; words && *words; words++)
        argv[argc++] = *words;
    argv[argc++] = "cmd";
    argv[argc] = NULL;
    return config_parse(c, argc, argv, envp, e);
}

/* ---- precedence ---------------------------------------------------------------------------------------- */

static const struct {
    const char *field; /* of struct config */
    char *word[2];     /* on the command line */
    char *variable;
    const char *file;
    const char *is[4]; /* its value from the command line, the variable, the file, by default */
} ranks[] = {
    {"num_proc", {"-np", "2"}, "HVDRUN_NUM_PROC=3", "num_proc: 4", {"2", "3", "4", "0"}},
    {"stdin_rank", {"--stdin=2"}, "HVDRUN_STDIN=all", "stdin: none", {"2", "-2", "-1", "0"}},
    {"grace_ms", {"--grace", "2"}, "HVDRUN_GRACE=0.5", "grace: 4.25", {"2000", "500", "4250", "5000"}},
    {"tag", {"--tag", "host"}, "HVDRUN_TAG=none", "tag: rank", {"2", "0", "1", "0"}},
    {"wdir", {"--wdir=/a"}, "HVDRUN_WDIR=/b", "wdir: /c", {"/a", "/b", "/c", "(none)"}},
    {"dry_run", {"--dry-run"}, "HVDRUN_DRY_RUN=no", "dry_run: json", {"1", "0", "2", "0"}},
    {"verbose", {"--verbose"}, "HVDRUN_VERBOSE=no", "verbose: yes", {"1", "0", "1", "0"}},
    {"autotune", {"--autotune"}, "HVDRUN_AUTOTUNE=0", "autotune: true", {"1", "0", "1", "0"}},
    {"set_env",
     {"-x", "A=1"},
     "HVDRUN_ENV=A=2,B=2",
     "env: {A: 3, C: 3}",
     {"A=3 C=3 A=2 B=2 A=1", "A=3 C=3 A=2 B=2", "A=3 C=3", ""}},
    {"unset_env", {"--unset=A"}, "HVDRUN_UNSET=B*", "unset: [C, D]", {"C D B* A", "C D B*", "C D", ""}},
};

static const struct option_spec *row_of(const struct config *c, const char *field)
{
#define OFFSET(ctype, name, ...)                                                                             \
    if (strcmp(#name, field) == 0)                                                                           \
        for (size_t i = 0; i < config_program.count; i++)                                                    \
            if (config_program.spec[i].offset == (size_t)((const char *)&c->name - (const char *)c))         \
                return &config_program.spec[i];
    CONFIG_OPTIONS(OFFSET)
#undef OFFSET
    return NULL;
}

/* A field as text, whatever its type. */
static void show(const struct config *c, const char *field, char *text, size_t size)
{
    const struct option_spec *spec = row_of(c, field);
    ck_assert_ptr_nonnull(spec);
    const void *at = (const char *)c + spec->offset;
    const struct option_list *list = at;
    *text = '\0';
    switch (spec->type) {
    case OPTION_FLAG:
    case OPTION_ACTION:
        snprintf(text, size, "%d", *(const bool *)at);
        break;
    case OPTION_CHOICE:
    case OPTION_MODE:
        snprintf(text, size, "%d", *(const int *)at);
        break;
    case OPTION_TEXT:
        snprintf(text, size, "%s", *(const char *const *)at ? *(const char *const *)at : "(none)");
        break;
    case OPTION_LIST:
        for (size_t i = 0; i < list->count; i++)
            snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? " " : "", list->item[i]);
        break;
    default:
        snprintf(text, size, "%lld", (long long)*(const int64_t *)at);
    }
}

/* Each source in turn is the strongest that is there. */
START_TEST(the_strongest_source_wins)
{
    char *none[] = {NULL};
    for (int strongest = 0; strongest < 4; strongest++) {
        char *words[] = {ranks[_i].word[0], ranks[_i].word[1], NULL}, *envp[] = {ranks[_i].variable, NULL};
        struct config c;
        struct err e = ERR_INIT;
        char text[128];
        ck_assert_msg(parse(&c, strongest <= 2 ? ranks[_i].file : "", strongest == 0 ? words : NULL,
                            strongest <= 1 ? envp : none, &e) == 0,
                      "%s: %s", ranks[_i].field, e.text);
        show(&c, ranks[_i].field, text, sizeof text);
        ck_assert_msg(strcmp(text, ranks[_i].is[strongest]) == 0, "%s from source %d is %s, not %s",
                      ranks[_i].field, strongest, text, ranks[_i].is[strongest]);
        config_free(&c);
    }
}
END_TEST

START_TEST(options_that_exclude_one_another_yield_to_the_stronger_source)
{
    char *words[] = {"--no-autotune", NULL}, *hosts[] = {"-H", "a", NULL};
    char *envp[] = {"HOROVOD_AUTOTUNE=1", "HVDRUN_HOSTFILE=f", NULL};
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_msg(!parse(&c, "autotune: {enabled: yes}\nhosts: b", words, envp, &e), "%s", e.text);
    ck_assert(c.no_autotune && !c.autotune);
    ck_assert_str_eq(c.hostfile, "f");
    ck_assert_ptr_null(c.hosts);
    config_free(&c);
    ck_assert_msg(!parse(&c, "hostfile: b", hosts, NULL, &e), "%s", e.text);
    ck_assert_ptr_null(c.hostfile);
    config_free(&c);
}
END_TEST

START_TEST(the_file_is_named_by_a_variable_as_well)
{
    char named[96], from[96], want[96];
    char *argv[] = {"hvdrun", "cmd", NULL}, *envp[] = {named, NULL};
    struct config c;
    struct err e = ERR_INIT;
    write_file("\nhosts: a:2\n", 12);
    snprintf(named, sizeof named, "HVDRUN_CONFIG_FILE=%s", path);
    ck_assert_msg(!config_parse(&c, 2, argv, envp, &e), "%s", e.text);
    ck_assert_str_eq(c.hosts, "a:2");
    config_hosts_from(&c, envp, from, sizeof from);
    snprintf(want, sizeof want, "%s:2: hosts", path);
    ck_assert_str_eq(from, want);
    config_free(&c);
}
END_TEST

START_TEST(a_variable_of_ours_wins_over_horovods)
{
    char *envp[] = {"HOROVOD_TIMELINE=h", "HVDRUN_TIMELINE_FILENAME=v", "HOROVOD_AUTOTUNE_LOG=l",
                    "HVDRUN_STALL_CHECK=no", NULL};
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_msg(!parse(&c, "", NULL, envp, &e), "%s", e.text);
    ck_assert_str_eq(c.timeline_filename, "v");
    ck_assert_str_eq(c.autotune_log_file, "l");
    ck_assert(c.no_stall_check);
    config_free(&c);
}
END_TEST

/* ---- keys ---------------------------------------------------------------------------------------------- */

START_TEST(the_keys_of_horovodrun_arrive)
{
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_msg(!parse(&c,
                         "---\ncontroller: gloo\n"
                         "autotune:\n  enabled: True\n  log_file: 'a.csv'\n  warmup_samples: 4\n"
                         "  steps_per_sample: 11\n  bayes_opt_max_samples: 21\n"
                         "  gaussian_process_noise: 0.75\n"
                         "timeline: {filename: \"t.json\", mark_cycles: on}\n"
                         "stall_check:\n  enabled: false\n  warning_time_seconds: 90\n"
                         "  shutdown_time_seconds: 120.5\n"
                         "library_options:\n  mpi_threads_disable: true\n"
                         "logging:\n  level: debug\n...\n",
                         NULL, NULL, &e),
                  "%s", e.text);
    ck_assert(c.autotune && c.timeline_mark_cycles && c.no_stall_check);
    ck_assert_str_eq(c.autotune_log_file, "a.csv");
    ck_assert_int_eq(c.autotune_warmup_samples, 4);
    ck_assert_int_eq(c.autotune_steps_per_sample, 11);
    ck_assert_int_eq(c.autotune_samples, 21);
    ck_assert_str_eq(c.autotune_noise, "0.75");
    ck_assert_str_eq(c.timeline_filename, "t.json");
    ck_assert_int_eq(c.stall_warning_ms, 90000);
    ck_assert_int_eq(c.stall_shutdown_ms, 120500);
    ck_assert_int_eq(c.log_level, LOG_DEBUG);
    config_free(&c);
    ck_assert_msg(!parse(&c, "stall_check: {enabled: true}", NULL, NULL, &e), "%s", e.text);
    ck_assert(!c.no_stall_check);
    config_free(&c);
}
END_TEST

START_TEST(lists_are_lists_maps_or_one_value)
{
    char *envp[] = {"HOME=/h", NULL};
    struct config c;
    struct err e = ERR_INIT;
    char text[128];
    ck_assert_msg(!parse(&c, "env:\n- HOME\n- A=b, c\n- D=\nunset: X", NULL, envp, &e), "%s", e.text);
    show(&c, "set_env", text, sizeof text);
    ck_assert_str_eq(text, "HOME A=b, c D=");
    show(&c, "unset_env", text, sizeof text);
    ck_assert_str_eq(text, "X");
    config_free(&c);
    ck_assert_msg(!parse(&c, "env:\n  HOME:\n  A.B: \"x\\ny\"\n  E: ''\nunset: []", NULL, envp, &e), "%s",
                  e.text);
    show(&c, "set_env", text, sizeof text);
    ck_assert_str_eq(text, "HOME A.B=x\ny E=");
    ck_assert_uint_eq(c.unset_env.count, 0);
    config_free(&c);
}
END_TEST

static bool is_no(const struct option_spec *spec)
{
    return strncmp(spec->flags, "--no-", 5) == 0;
}

/* Of --X and --no-X, which exclude one another, one has the variable and the key. */
static bool has_opposite(const struct option_spec *spec)
{
    for (size_t i = 0; i < config_program.count; i++) {
        const struct option_spec *other = &config_program.spec[i];
        if (other != spec && spec->exclusive && other->exclusive && is_no(other) != is_no(spec) &&
            strcmp(other->exclusive, spec->exclusive) == 0)
            return other->variable && other->yaml;
    }
    return false;
}

START_TEST(every_option_has_a_variable_of_ours_and_a_key)
{
    for (size_t i = 0; i < config_program.count; i++) {
        const struct option_spec *spec = &config_program.spec[i];
        struct option_name name = {0};
        if (spec->type == OPTION_ACTION || (!spec->variable && has_opposite(spec)))
            continue;
        ck_assert_msg(option_next_name(spec->variable, &name) && strncmp(name.text, "HVDRUN_", 7) == 0,
                      "%s has no variable HVDRUN_... in front", spec->flags);
        ck_assert_msg(spec->yaml || strcmp(spec->flags, "--config-file") == 0, "%s has no key", spec->flags);
    }
}
END_TEST

/* A value that the row takes. */
static const char *good_value(const struct option_spec *spec, char *text, size_t size)
{
    static const char *const special[][2] = {{"rsh", "ssh"},
                                             {"network_interfaces", "eth0"},
                                             {"rendezvous", "none"},
                                             {"map_by", "node"},
                                             {"propagate_limits", "NOFILE"},
                                             {"forward_signals", "ALRM"},
                                             {"blacklist_cooldown_range", "1 2"},
                                             {"elastic.blacklist_cooldown_range", "1 2"},
                                             {NULL, NULL}};
    struct option_name key = {0};
    option_next_name(spec->yaml, &key);
    snprintf(text, size, "%lld", (long long)(spec->min > 1 ? spec->min : 1));
    for (size_t i = 0; special[i][0]; i++)
        if (key.len == strlen(special[i][0]) && memcmp(key.text, special[i][0], key.len) == 0)
            return special[i][1];
    if (spec->type == OPTION_FLAG)
        return "yes";
    if (spec->type == OPTION_CHOICE || spec->type == OPTION_MODE)
        snprintf(text, size, "%.*s", (int)strcspn(spec->words, "|"), spec->words);
    if (spec->type == OPTION_LIST)
        return "[A=1]";
    return text;
}

/* Each key of each row alone in a file, at its place in the map. --unset takes no value with =. */
START_TEST(every_key_is_read)
{
    for (size_t i = 0; i < config_program.count; i++) {
        const struct option_spec *spec = &config_program.spec[i];
        struct option_name key = {0};
        while (option_next_name(spec->yaml, &key)) {
            char file[256], value[64];
            struct config c;
            struct err e = ERR_INIT;
            size_t dot = strcspn(key.text, ".,");
            const char *good =
                strncmp(key.text, "unset", 5) == 0 ? "A" : good_value(spec, value, sizeof value);
            if (dot < key.len)
                snprintf(file, sizeof file, "%.*s: {%.*s: %s}", (int)dot, key.text, (int)(key.len - dot - 1),
                         key.text + dot + 1, good);
            else
                snprintf(file, sizeof file, "%.*s: %s", (int)key.len, key.text, good);
            ck_assert_msg(!parse(&c, file, NULL, NULL, &e), "%s: %s", file, e.text);
            config_free(&c);
        }
    }
}
END_TEST

/* ---- files with mistakes ------------------------------------------------------------------------------- */

static const struct {
    const char *file;
    const char *said; /* after the name of the file; then, behind |, the hint */
} bad[] = {
    {"num_prc: 2", ":1: unknown key num_prc|did you mean num_proc?"},
    {"controller: foo", ":1: controller: 'foo' is not gloo or mpi"},
    {"controller: [gloo]", ":1: controller: 'gloo' is not gloo or mpi"},
    {"tag: rank\nautotune:\n  enable: no", ":3: unknown key autotune.enable|did you mean autotune.enabled?"},
    {"num-proc: 2", ":1: unknown key num-proc|did you mean num_proc?"},
    {"\n\nnum_proc: x", ":3: num_proc: 'x' is not a number from 1 to 1000000"},
    {"num_proc: 0", ":1: num_proc: '0' is not"},
    {"num_proc: 1.0", ":1: num_proc: '1.0' is not"},
    {"num_proc:", ":1: num_proc: it has no value; it must be a number"},
    {"num_proc: ~", ":1: num_proc: it has no value"},
    {"num_proc: [2]", ":1: num_proc: a list or a map; it must be a number"},
    {"num_proc: {}", ":1: num_proc: a list or a map"},
    {"wdir: {quite: 1}", ":1: wdir.quite: a map; it must be DIRECTORY"},
    {"wdir: ''", ":1: wdir: the value is empty"},
    {"verbose: maybe", ":1: verbose: 'maybe' is not 1 or 0"},
    {"stall_check: {enabled: 2}", ":1: stall_check.enabled: '2' is not 1 or 0"},
    {"tag: ran", ":1: tag: 'ran' is not none, rank or host"},
    {"grace: -1", ":1: grace: '-1' is not"},
    {"env: {A: [1]}", ":1: env.A: a list or a map"},
    {"env: {A: {}}", ":1: a map in a map in a map"},
    {"env: [A=1, '']", ":1: env: it has no value"},
    {"env:", ":1: env: it has no value"},
    {"num_proc: 1\nnum_proc: 2", ":2: num_proc stands in line 1 already"},
    {"unset: [A]\nunset: [B]", ":2: unset stands in line 1 already"},
    {"env: {A: 1, B: 2, A: 3}", ":1: env.A stands in line 1 already"},
    {"autotune: 1\nautotune: {enabled: 1}", ":2: autotune stands in line 1 already"},
    {"autotune: {enabled: 1}\nautotune: 1", ":2: autotune stands in line 1 already"},
    {"timeline_filename: a\ntimeline:\n  filename: b",
     ":3: timeline.filename: sets the same as timeline_filename in line 1"},
    {"hosts: a\nhostfile: b", "both name the hosts"},
    {"hosts: a\nhostfile: b", ":2: hostfile both name"},
    {"a: &x 1\nb: *x", ":2: aliases (*) are not taken"},
    {"<<: *x", ":1: aliases (*) are not taken"},
    {"tag: !!str rank", ":1: tags (!) are not taken"},
    {"env: !!python/object {}", ":1: tags (!) are not taken"},
    {"[1, 2]", ":1: the file must be a map"},
    {"word", ":1: the file must be a map"},
    {"env: {b: {c: 1}}", ":1: a map in a map in a map"},
    {"env: [[1]]", ":1: a list may hold only values"},
    {"{[1]: 2}", ":1: a key must be a word"},
    {"'': 2", ":1: a key that is empty"},
    {"\"a\\nb\": 2", ":1: a key with a control character"},
    {"wdir: \"a\\0b\"", ":1: a value with a zero byte"},
    {"num_proc: 1\n---\nnum_proc: 2", ":2: a second document"},
    {"a: b: c", ":1: no YAML:"},
    {"tag: rank\n\tnum_proc: 1", ":2: no YAML:"},
    {"tag: \"rank\nx", "no YAML:"},
    {"tag: \xff", ":1: no YAML:"},
};

START_TEST(what_is_wrong_is_named_with_its_line)
{
    char want[256], *hint;
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, bad[_i].file, NULL, NULL, &e) == -1, "accepted: %s", bad[_i].file);
    ck_assert_int_eq(err_exit_status(&e), 2);
    snprintf(want, sizeof want, "%s%s", bad[_i].said[0] == ':' ? path : "", bad[_i].said);
    hint = strchr(want, '|');
    if (hint)
        *hint++ = '\0';
    ck_assert_msg(strstr(e.text, want), "'%s' does not say '%s'", e.text, want);
    ck_assert_msg(!hint || strstr(e.hint, hint), "'%s' does not hint '%s'", e.hint, hint);
}
END_TEST

/* As horovodrun does; its own sample ends in such a key. */
START_TEST(keys_of_no_meaning_are_ignored_and_named)
{
    char file[4096] =
        "controller: Gloo\nlogging:\n  level: INFO\n  hide_timestamp: true\nelse: {b: [1, 2]}\n";
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, file, NULL, NULL, &e) == 0, "%s", e.text);
    ck_assert_int_eq(c.log_level, LOG_INFO);
    ck_assert_str_eq(c.file.ignored, "logging.hide_timestamp, else.b");
    config_free(&c);
    file[0] = '\0';
    for (int i = 0; i < 100; i++)
        snprintf(file + strlen(file), sizeof file - strlen(file), "quite.strange.%d: 1\n", i);
    ck_assert_msg(parse(&c, file, NULL, NULL, &e) == 0, "%s", e.text);
    ck_assert_uint_lt(strlen(c.file.ignored), sizeof c.file.ignored);
    ck_assert_str_eq(c.file.ignored + strlen(c.file.ignored) - 11, " and others");
    config_free(&c);
}
END_TEST

/* Also where a stronger source has another value. */
START_TEST(a_bad_value_is_named_even_where_it_would_not_count)
{
    char *words[] = {"-np", "2", "-H", "a", NULL};
    struct config c;
    struct err e = ERR_INIT;
    ck_assert_int_eq(parse(&c, "num_proc: x", words, NULL, &e), -1);
    ck_assert_msg(strstr(e.text, ":1: num_proc: 'x'"), "%s", e.text);
    err_clear(&e);
    ck_assert_int_eq(parse(&c, "num_proc: 3", words, NULL, &e), 0);
    ck_assert_int_eq(c.num_proc, 2);
    config_free(&c);
}
END_TEST

static void refuse(const char *begin_text, const char *repeated, size_t times, const char *said)
{
    size_t len = strlen(begin_text), one = strlen(repeated);
    char *text = malloc(len + one * times + 1), *at = text + len;
    struct config c;
    struct err e = ERR_INIT;
    memcpy(text, begin_text, len);
    for (size_t i = 0; i < times; i++, at += one)
        memcpy(at, repeated, one);
    *at = '\0';
    ck_assert_int_eq(parse(&c, text, NULL, NULL, &e), -1);
    ck_assert_msg(strstr(e.text, said), "%s", e.text);
    free(text);
}

START_TEST(a_file_is_bounded)
{
    struct err e = ERR_INIT;
    struct config c;
    char *argv[] = {"hvdrun", "--config-file", "/nonexistent", "cmd", NULL};
    refuse("", "# 345678\n", 30000, "more than 262144 bytes");
    refuse("unset: [A", ", A", 5000, "more than 4096 values");
    refuse("a: ", "[", 200000, "a list may hold only values");
    refuse("a: ", "{a: ", 50000, "a map in a map in a map");
    refuse("a: &a [x]\nb: ", "*a", 1, "aliases");
    refuse("", "k", 2000, "must be a map");
    refuse("? ", "k", 1000, "a key that is empty, too long");
    ck_assert_int_eq(config_parse(&c, 4, argv, NULL, &e), -1);
    ck_assert_str_eq(e.text, "cannot read configuration file /nonexistent: No such file or directory");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config file");
    TCase *sources = tcase_create("sources"), *keys = tcase_create("keys"), *wrong = tcase_create("wrong");
    suite_add_tcase(suite, sources);
    suite_add_tcase(suite, keys);
    suite_add_tcase(suite, wrong);
    tcase_add_checked_fixture(sources, begin, end);
    tcase_add_checked_fixture(keys, begin, end);
    tcase_add_checked_fixture(wrong, begin, end);
    tcase_add_loop_test(sources, the_strongest_source_wins, 0, sizeof ranks / sizeof *ranks);
    tcase_add_test(sources, options_that_exclude_one_another_yield_to_the_stronger_source);
    tcase_add_test(sources, the_file_is_named_by_a_variable_as_well);
    tcase_add_test(sources, a_variable_of_ours_wins_over_horovods);
    tcase_add_test(keys, the_keys_of_horovodrun_arrive);
    tcase_add_test(keys, lists_are_lists_maps_or_one_value);
    tcase_add_test(keys, every_option_has_a_variable_of_ours_and_a_key);
    tcase_add_test(keys, every_key_is_read);
    tcase_add_loop_test(wrong, what_is_wrong_is_named_with_its_line, 0, sizeof bad / sizeof *bad);
    tcase_add_test(keys, keys_of_no_meaning_are_ignored_and_named);
    tcase_add_test(wrong, a_bad_value_is_named_even_where_it_would_not_count);
    tcase_add_test(wrong, a_file_is_bounded);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
