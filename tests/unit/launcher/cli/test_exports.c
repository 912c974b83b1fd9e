/* Each option that reaches the workers is set by its flag, its variables and its keys, to its default and to
 * another value: the workers' variables and the engine's settings are the same whichever way it came.
 *
 * needs: modules */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/options/options_table.h"
#include "launcher/cli/config.h"
#include "launcher/cli/engine_tuning.h"
#include "launcher/cli/horovod_flags.h"
#include "tests/unit/scratch.h"

#define TEXT_MAX 4096

static char path[SCRATCH_MAX];

static void make_file(void)
{
    int fd = scratch_file(path, "exports");
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_file(void)
{
    unlink(path);
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
}

/* The workers' variables and the engine's settings as one text. */
static void export_all(const struct config *c, char *text)
{
    char *none[] = {NULL};
    struct environment env;
    struct err e = ERR_INIT;
    struct option_list nothing = {0};
    Hvd__EngineTuning tuning;
    ck_assert_int_eq(environment_build(&env, none, &nothing, &nothing, true, &e), 0);
    ck_assert_msg(engine_tuning_export(c, &env, &e) == 0 && horovod_flags_export(c, &env, &e) == 0, "%s",
                  e.text);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < env.count; i++)
        used += (size_t)snprintf(text + used, TEXT_MAX - used, "%s\n", env.variable[i]);
    engine_tuning_fill(c, &env, &tuning);
    uint8_t packed[1024];
    size_t size = hvd__engine_tuning__get_packed_size(&tuning);
    ck_assert_uint_le(size, sizeof packed);
    hvd__engine_tuning__pack(&tuning, packed);
    for (size_t i = 0; i < size; i++)
        used += (size_t)snprintf(text + used, TEXT_MAX - used, "%02x", packed[i]);
    ck_assert_uint_lt(used, TEXT_MAX);
    environment_free(&env);
}

/* false: refused. */
static bool try_way(const char *word, const char *value, const char *variable, const char *line, char *text)
{
    char *argv[8] = {"hvdrun"}, *envp[] = {(char *)(uintptr_t)variable, NULL};
    int argc = 1;
    struct config c;
    struct err e = ERR_INIT;
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(line ? line : "", f), 0);
    ck_assert_int_eq(fclose(f), 0);
    if (line) {
        argv[argc++] = "--config-file";
        argv[argc++] = path;
    }
    if (word)
        argv[argc++] = (char *)(uintptr_t)word;
    if (value)
        argv[argc++] = (char *)(uintptr_t)value;
    argv[argc++] = "cmd";
    if (config_parse(&c, argc, argv, envp, &e) != 0)
        return false;
    if (c.programs.count)
        export_all(&c, text);
    config_free(&c);
    return true;
}

/* The first flag of the row; with a value, "--flag=VALUE" is not for all. */
static void first_flag(const struct option_spec *spec, char *flag, size_t size)
{
    struct option_name name = {0};
    ck_assert(option_next_name(spec->flags, &name));
    snprintf(flag, size, "%.*s", (int)name.len, name.text);
}

/* The row that means the opposite of this one. */
static const struct option_spec *opposite_of(const struct option_spec *spec)
{
    const struct option_spec *other = NULL;
    for (size_t i = 0; spec->exclusive && i < config_program.count; i++) {
        const struct option_spec *s = &config_program.spec[i];
        if (s == spec || !s->exclusive || strcmp(s->exclusive, spec->exclusive) != 0)
            continue;
        if (other || s->type != OPTION_FLAG)
            return NULL;
        other = s;
    }
    return other;
}

static unsigned compared;

/* A key, "a.b" or "a", with a value. */
static void put_line(char *line, size_t size, const struct option_name *key, const char *value)
{
    const char *dot = memchr(key->text, '.', key->len);
    int top = dot ? (int)(dot - key->text) : 0;
    if (dot)
        snprintf(line, size, "%.*s:\n  %.*s: %s\n", top, key->text, (int)key->len - top - 1, dot + 1, value);
    else
        snprintf(line, size, "%.*s: %s\n", (int)key->len, key->text, value);
}

/* All ways but the flag give what the flag gives. `plain`: the value where a name means what the flag means,
 * `other` where a name means the opposite. */
static void compare_ways(const struct option_spec *spec, const char *expected, const char *plain,
                         const char *other)
{
    char text[TEXT_MAX] = "", word[512];
    struct option_name name = {0};
    while (option_next_name(spec->variable, &name)) {
        const char *value = name.opposite ? other : plain;
        if (!value)
            continue;
        snprintf(word, sizeof word, "%.*s=%s", (int)name.len, name.text, value);
        ck_assert_msg(try_way(NULL, NULL, word, NULL, text), "%s is refused", word);
        ck_assert_msg(strcmp(text, expected) == 0, "%s gives\n%s\nnot\n%s", word, text, expected);
        compared++;
    }
    name = (struct option_name){0};
    while (option_next_name(spec->yaml, &name)) {
        const char *value = name.opposite ? other : plain;
        if (!value)
            continue;
        put_line(word, sizeof word, &name,
                 strcmp(value, "1") == 0 && spec->type == OPTION_FLAG   ? "true"
                 : strcmp(value, "0") == 0 && spec->type == OPTION_FLAG ? "false"
                                                                        : value);
        ck_assert_msg(try_way(NULL, NULL, NULL, word, text), "%s is refused", word);
        ck_assert_msg(strcmp(text, expected) == 0, "%s gives\n%s\nnot\n%s", word, text, expected);
        compared++;
    }
}

static void compare_flag(const struct option_spec *spec)
{
    char flag[80], expected[TEXT_MAX] = "";
    const struct option_spec *opposite = opposite_of(spec);
    first_flag(spec, flag, sizeof flag);
    if (!try_way(flag, NULL, NULL, NULL, expected))
        return;
    compare_ways(spec, expected, "1", "0");
    if (!opposite)
        return;
    first_flag(opposite, flag, sizeof flag);
    ck_assert(try_way(flag, NULL, NULL, NULL, expected));
    compare_ways(spec, expected, "0", "1");
}

static void compare_value(const struct option_spec *spec, const char *value)
{
    char flag[80], joined[600], expected[TEXT_MAX] = "";
    first_flag(spec, flag, sizeof flag);
    bool with_equals = spec->metavar && spec->metavar[0] == '[';
    snprintf(joined, sizeof joined, "%s=%s", flag, value);
    if (with_equals ? try_way(joined, NULL, NULL, NULL, expected)
                    : try_way(flag, value, NULL, NULL, expected))
        compare_ways(spec, expected, value, NULL);
}

/* A number beside the default. */
static void compare_another_number(const struct option_spec *spec)
{
    char value[24];
    int64_t number = spec->default_text ? strtol(spec->default_text, NULL, 10) + 1 : spec->min + 1;
    if (number > spec->max)
        number = spec->max;
    snprintf(value, sizeof value, "%lld", (long long)number);
    compare_value(spec, value);
}

static void compare_row(const struct option_spec *spec)
{
    if (spec->default_text && spec->type != OPTION_FLAG && spec->type != OPTION_LIST)
        compare_value(spec, spec->default_text);
    switch (spec->type) {
    case OPTION_FLAG:
        compare_flag(spec);
        break;
    case OPTION_INTEGER:
    case OPTION_SECONDS:
    case OPTION_MILLISECONDS:
        compare_another_number(spec);
        break;
    case OPTION_CHOICE:
    case OPTION_MODE:
        for (const char *at = spec->words; *at; at += strcspn(at, "|"), at += *at == '|') {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "|"), at);
            compare_value(spec, word);
        }
        break;
    case OPTION_TEXT:
        compare_value(spec, "1");
        break;
    default:
        break;
    }
}

START_TEST(each_way_gives_the_same)
{
    for (size_t i = 0; i < config_program.count; i++)
        if (strcmp(config_program.spec[i].flags, "--config-file") != 0)
            compare_row(&config_program.spec[i]);
    ck_assert_uint_gt(compared, 200);
}
END_TEST

/* A value that nobody has given is not exported; one that was given is, though it equals the default. */
START_TEST(a_default_that_is_given_is_told)
{
    char nothing[TEXT_MAX], text[TEXT_MAX];
    ck_assert(try_way(NULL, NULL, NULL, NULL, nothing));
    ck_assert_ptr_null(strstr(nothing, "HOROVOD_"));
    static const struct {
        const char *word, *value, *variable;
    } given[] = {
        {"--stall-check-warning-time-seconds", "60", "HOROVOD_STALL_CHECK_TIME_SECONDS=60\n"},
        {"--stall-check-shutdown-time-seconds", "0", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0\n"},
        {"--cycle-time-ms", "0", "HOROVOD_CYCLE_TIME=0.000\n"},
        {"--log-level", "warning", "HOROVOD_LOG_LEVEL=warning\n"},
        {"--hierarchical-allreduce", NULL, "HOROVOD_HIERARCHICAL_ALLREDUCE=1\n"},
        {"--no-autotune", NULL, "HOROVOD_AUTOTUNE=0\n"},
        {"--no-log-hide-timestamp", NULL, "HOROVOD_LOG_HIDE_TIME=0\n"},
        {"--tcp", NULL, "NCCL_IB_DISABLE=1\n"},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        ck_assert(try_way(given[i].word, given[i].value, NULL, NULL, text));
        ck_assert_msg(strstr(text, given[i].variable) != NULL, "%s gives %s", given[i].word, text);
    }
    ck_assert(try_way("--autotune-log-file", "log", NULL, NULL, text));
    ck_assert_msg(strstr(text, "AUTOTUNE") == NULL, "%s", text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("exports");
    TCase *c = tcase_create("exports");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, make_file, remove_file);
    tcase_add_test(c, each_way_gives_the_same);
    tcase_add_test(c, a_default_that_is_given_is_told);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
