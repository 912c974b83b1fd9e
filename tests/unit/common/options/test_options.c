/* The option table: every kind of bad value is named with its option, precedence holds, and --help and the
 * manual page say what the table says. HVD_UPDATE=1 writes the lists of options and keys into the pages
 * instead of comparing them. */
/* needs: tests/unit/mdoc.c */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ctl/config.h"
#include "agent/daemon/config.h"
#include "common/base/log.h"
#include "common/options/options_table.h"
#include "launcher/cli/config.h"
#include "tests/unit/mdoc.h"

#define WORDS 32

/* argv from a line; words are separated by one blank, '_' alone is an empty word. */
struct line {
    char text[256];
    char *word[WORDS + 1];
    int count;
};

static void split(struct line *l, const char *text)
{
    char *at = l->text;
    snprintf(l->text, sizeof l->text, "%s", text);
    l->count = 0;
    l->word[l->count++] = "hvdrun";
    for (char *word; (word = strsep(&at, " "));)
        if (*word && l->count < WORDS)
            l->word[l->count++] = strcmp(word, "_") ? word : "";
    l->word[l->count] = NULL;
}

static int parse(struct config *c, struct line *l, const char *text, char *const envp[], struct err *e)
{
    split(l, text);
    return config_parse(c, l->count, l->word, envp, e);
}

static const struct {
    const char *line;
    const char *said; /* in this order, separated by | */
    const char *hint;
} bad[] = {
    {"--flavour x", "unknown option --flavour", "hvdrun --help"},
    {"--hots a x", "unknown option --hots", "--hosts?"},
    {"--num-procs 2 x", "--num-procs", "--num-proc?"},
    {"--prefix-output x", "--prefix-output", "--prefix-output-with-timestamp?"},
    {"-prefix-timestmp x", "-prefix-timestmp", "-prefix-timestamp?"},
    {"-hostfil f x", "-hostfil", "-hostfile?"},
    {"-np4 x", "-np4", "-np?"},
    {"-np 0 x", "-np: '0' is not|from 1 to 1000000", NULL},
    {"-np -3 x", "-np: '-3' is not|from 1 to 1000000", NULL},
    {"-np +3 x", "-np: '+3'", NULL},
    {"-np x x", "-np: 'x'|from 1 to 1000000", NULL},
    {"-np 4x x", "-np: '4x'", NULL},
    {"-np 4. x", "-np: '4.'", NULL},
    {"-np 0x4 x", "-np: '0x4'", NULL},
    {"-np 1000000000 x", "-np: '1000000000'|from 1 to 1000000", NULL},
    {"-np 1000001 x", "-np: '1000001'", NULL},
    {"-np 99999999999999999999999999 x", "-np: '9999|from 1 to 1000000", NULL},
    {"-np 18446744073709551617 x", "-np: '18446744073709551617'", NULL},
    {"-np _ x", "-np: the value is empty|from 1 to 1000000", NULL},
    {"-np= x", "-np: the value is empty", NULL},
    {"--num-proc=0 x", "--num-proc: '0'", NULL},
    {"-np", "-np needs a value: a number from 1 to 1000000", NULL},
    {"-np --verbose x", "-np needs a value", NULL},
    {"-H --dry-run x", "-H needs a value", NULL},
    {"-H -- x", "-H needs a value", NULL},
    {"-H _ x", "-H: the value is empty", NULL},
    {"-H a --hostfile b x", "-H|--hostfile|both name the hosts", NULL},
    {"-hostfile b --hosts a x", "-hostfile|--hosts|both name the hosts", NULL},
    {"-p 0 x", "-p: '0'|from 1 to 65535", NULL},
    {"-p 65536 x", "-p: '65536'|from 1 to 65535", NULL},
    {"-p22x x", "-p: '22x'", NULL},
    {"--start-timeout 0 x", "--start-timeout: '0'|seconds from 1 to 86400", NULL},
    {"--start-timeout 86400.001 x", "--start-timeout: '86400.001'", NULL},
    {"--timeout -1 x", "--timeout: '-1'|seconds from 0 to 31536000", NULL},
    {"--timeout 1.2345 x", "--timeout: '1.2345'", NULL},
    {"--timeout 1.2.3 x", "--timeout: '1.2.3'", NULL},
    {"--timeout .5 x", "--timeout: '.5'", NULL},
    {"--timeout 9223372036854775 x", "--timeout: '9223372036854775'", NULL},
    {"--timeout 9223372036854775807 x", "--timeout: '9223372036854775807'", NULL},
    {"--grace 1s x", "--grace: '1s'", NULL},
    {"--heartbeat-timeout 0.5 x", "--heartbeat-timeout: '0.5'|from 1 to 86400", NULL},
    {"--tag ran x", "--tag: 'ran' is not none, rank or host", NULL},
    {"--tag _ x", "--tag: the value is empty", NULL},
    {"--on-failure stop x", "--on-failure: 'stop' is not kill, continue or notify", NULL},
    {"--report _ x", "--report: the value is empty", NULL},
    {"--stdin some x", "--stdin: 'some'|from 0 to 999999, or none or all", NULL},
    {"--stdin 1000000 x", "--stdin: '1000000'", NULL},
    {"--log-level loud x", "--log-level: 'loud'|trace, debug, info, warning, error or fatal", NULL},
    {"--verbose=1 x", "--verbose takes no value", NULL},
    {"-x _ x", "-x: the value is empty", NULL},
    {"-x 1A=2 x", "-x: '1A=2'", NULL},
    {"-x MISSING x", "-x: variable MISSING is not set", "-x MISSING=VALUE"},
    {"--unset A=1 x", "--unset: 'A=1'", NULL},
    {"-np 4 --stdin 4 x", "--stdin: there is no rank 4|ranks 0 to 3", NULL},
    {"--rsh ' x", "--rsh", NULL},
    {"--rsh {nobody} x", "{nobody}", NULL},
    {"--network-interfaces eth0,10.0.0.0/99 x", "10.0.0.0/99", NULL},
    {"--wdir= x", "--wdir: the value is empty", NULL},
    {"--fusion-threshold-mb 2049 x", "--fusion-threshold-mb: '2049'|from 0 to 2048, or auto", NULL},
    {"--fusion-threshold 1k x", "--fusion-threshold: '1k'", NULL},
    {"--fusion-threshold 1 --fusion-threshold-mb 1 x", "both name the fusion threshold", NULL},
    {"--cycle-time-ms 10001 x", "--cycle-time-ms: '10001'|a number of milliseconds from 0 to 10000", NULL},
    {"--cycle-time-ms 1.2345 x", "--cycle-time-ms: '1.2345'", NULL},
    {"--cache-capacity -1 x", "--cache-capacity: '-1'", NULL},
    {"--num-nccl-streams 0 x", "--num-nccl-streams: '0'", NULL},
    {"--mpi --gloo x", "both name the controller", NULL},
    {"--torus-allreduce --no-torus-allreduce x", "both name torus allreduce", NULL},
    {"--slots-per-host 0 x", "--slots-per-host: '0'", NULL},
    {"-np 2 --min-np 3 x", "--min-np 3 is more than -np 2", NULL},
    {"-np 4 --max-num-proc=3 x", "--max-np 3 is less than -np 4", NULL},
    {"--min-np 2 --ppr 2 x", "an elastic job fills host by host: |--ppr", NULL},
    {"--min-np 2 --map-by node x", "an elastic job fills host by host", NULL},
    {"--min-np 2 --gpu-placement engine x", "--gpu-placement engine is not for an elastic job", NULL},
    {"--min-np 2 --preload f x", "--preload is not for an elastic job", NULL},
    {"--min-np 2 -np 2 x : -np 1 y", "an elastic job has one program", NULL},
    {"--host-discovery-script ./d -H a x", "both name the hosts", NULL},
    {"--elastic-timeout 0 x", "--elastic-timeout: '0'", NULL},
    {"--blacklist-cooldown-range 1 x",
     "--blacklist-cooldown-range: 'x'|two numbers of seconds from 1 to 3600", NULL},
    {"--blacklist-cooldown-range 5,2 x", "--blacklist-cooldown-range: '5,2'", NULL},
    {"--blacklist-cooldown-range 0 2 x", "--blacklist-cooldown-range: '0'", NULL},
    {"--blacklist-cooldown-range 5 3601 x", "--blacklist-cooldown-range: '3601'", NULL},
    {"--blacklist-cooldown-range=5", "--blacklist-cooldown-range: '5'", NULL},
    {"-np 2", "no command", "usage:"},
    {"", "no command", "usage:"},
    {"-np 2 --", "no command", NULL},
    {"-np 2 a : :", "no command behind ':' number 1", "hvdrun -np 1 -- echo :"},
    {"-np 2 a : -np 1", "no command behind ':' number 1", NULL},
    {": -np 2 a", "no command before the first ':'", NULL},
    {"a : -np 2 b", "-np is missing before a: ", NULL},
    {"-np 2 a : -np 1 b : --wdir /d c", "-np is missing before c: ", NULL},
    {"-np 2 a : -np 0 b", "-np: '0' is not|from 1 to 1000000", NULL},
    {"-np 2 a : -np 1 -hostfile h b", "-hostfile is of the whole job: it stands before the first program",
     NULL},
    {"-np 2 a : -np 1 --tag=rank b", "--tag is of the whole job", NULL},
    {"-np 2 a : -np 1 -p22 b", "-p is of the whole job", NULL},
    {"-np 2 a : --help", "--help is of the whole job", NULL},
    {"-np 2 a : -np 1 --wdri /d b", "unknown option --wdri", "--wdir?"},
    {"-np 2 a : -np 1 -x MISSING b", "-x: variable MISSING is not set", NULL},
    {"-np 2 a : -np 1 _", "the command is an empty word", NULL},
    {"-np 999999 a : -np 2 b", "-np: all programs together have more than 1000000 ranks", NULL},
    {"--stdin 3 -np 2 a : -np 1 b", "--stdin: there is no rank 3", NULL},
    {"-np 2 _", "the command is an empty word", NULL},
};

/* Every part of `said`, separated by |, occurs in `text` in that order. */
static void expect_said(const char *text, const char *said)
{
    char parts[256], *at = parts;
    const char *from = text;
    snprintf(parts, sizeof parts, "%s", said);
    for (char *part; (part = strsep(&at, "|"));) {
        from = strstr(from, part);
        ck_assert_msg(from, "'%s' does not say '%s'", text, part);
        from += strlen(part);
    }
}

START_TEST(a_bad_word_is_named)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, &l, bad[_i].line, NULL, &e) == -1, "accepted: %s", bad[_i].line);
    ck_assert_int_eq(err_exit_status(&e), 2);
    expect_said(e.text, bad[_i].said);
    if (bad[_i].hint)
        expect_said(e.hint, bad[_i].hint);
    ck_assert_ptr_null(strchr(e.text, '\n'));
}
END_TEST

START_TEST(a_range_has_two_numbers)
{
    static const char *const line[] = {"--blacklist-cooldown-range 1.5 20 x y",
                                       "--blacklist-cooldown-range 1.5,20 x y",
                                       "--blacklist-cooldown-range=1.5,20 x y"};
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, &l, line[_i], NULL, &e) == 0, "%s", e.text);
    ck_assert_int_eq(c.cooldown.low, 1500);
    ck_assert_int_eq(c.cooldown.high, 20000);
    ck_assert_str_eq(c.programs.item[0].command[0], "x");
    ck_assert(!c.elastic);
    config_free(&c);
}
END_TEST

/* Numbers of an elastic job that are left out. */
START_TEST(numbers_of_an_elastic_job)
{
    static const struct {
        const char *line;
        int64_t np, min, max;
    } want[] = {{"--min-np 2 x", 2, 2, 0},
                {"-np 4 --min-np 2 --max-np 6 x", 4, 2, 6},
                {"-np 4 --max-np 6 x", 4, 4, 6},
                {"--max-np 6 x", 1, 1, 6},
                {"-np 3 --host-discovery-script ./d x", 3, 3, 0}};
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert_msg(parse(&c, &l, want[i].line, NULL, &e) == 0, "%s", e.text);
        ck_assert(c.elastic);
        ck_assert_int_eq(c.num_proc, want[i].np);
        ck_assert_int_eq(c.min_np, want[i].min);
        ck_assert_int_eq(c.max_np, want[i].max);
        ck_assert_int_eq(c.reset_limit, -1);
        config_free(&c);
    }
    ck_assert_int_eq(parse(&c, &l, "--reset-limit 3 x", NULL, &e), 0);
    ck_assert_int_eq(c.max_restarts, 3); /* not elastic: the whole job starts again */
    config_free(&c);
}
END_TEST

START_TEST(all_spellings_and_values_arrive)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert_msg(!parse(&c, &l,
                         "-np 4 -Ha:2 -p22 -i=key -xA=5 --start-timeout 1.5 -x B=1=2 --grace=0 "
                         "-prefix-timestamp --tag RANK "
                         "--stdin all --on-failure=continue cmd",
                         NULL, &e),
                  "%s", e.text);
    ck_assert_int_eq(c.num_proc, 4);
    ck_assert_str_eq(c.hosts, "a:2");
    ck_assert_int_eq(c.ssh_port, 22);
    ck_assert_str_eq(c.ssh_identity_file, "key");
    ck_assert_int_eq(c.start_timeout_ms, 1500);
    ck_assert_int_eq(c.grace_ms, 0);
    ck_assert(c.prefix_timestamp);
    ck_assert_int_eq(c.tag, CONFIG_TAG_RANK);
    ck_assert_int_eq(c.stdin_rank, CONFIG_STDIN_ALL);
    ck_assert_int_eq(c.on_failure, CONFIG_ON_FAILURE_CONTINUE);
    ck_assert_uint_eq(c.set_env.count, 2);
    ck_assert_str_eq(c.set_env.item[0], "A=5");
    ck_assert_str_eq(c.set_env.item[1], "B=1=2");
    config_free(&c);
}
END_TEST

START_TEST(defaults)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert(!parse(&c, &l, "cmd -np 3 -h", NULL, &e));
    ck_assert_int_eq(c.num_proc, 0);
    ck_assert_ptr_null(c.hosts);
    ck_assert_int_eq(c.start_timeout_ms, 30000);
    ck_assert_int_eq(c.heartbeat_timeout_ms, 15000);
    ck_assert_int_eq(c.grace_ms, 5000);
    ck_assert_int_eq(c.timeout_ms, 0);
    ck_assert_int_eq(c.tag, CONFIG_TAG_NONE);
    ck_assert_int_eq(c.stdin_rank, 0);
    ck_assert_int_eq(c.on_failure, CONFIG_ON_FAILURE_KILL);
    ck_assert_ptr_null(c.report);
    ck_assert_int_eq(c.log_level, LOG_WARNING);
    ck_assert(!c.help);
    ck_assert_uint_eq(c.programs.count, 1);
    ck_assert_str_eq(c.programs.item[0].command[3], "-h");
    ck_assert_ptr_null(c.programs.item[0].command[4]);
    config_free(&c);
}
END_TEST

START_TEST(words_of_numbers_and_verbose)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert(!parse(&c, &l, "--stdin none --verbose -np 2 -- -cmd", NULL, &e));
    ck_assert_int_eq(c.stdin_rank, CONFIG_STDIN_NONE);
    ck_assert_int_eq(c.log_level, LOG_INFO);
    ck_assert_str_eq(c.programs.item[0].command[0], "-cmd");
    config_free(&c);
    ck_assert(!parse(&c, &l, "--verbose --log-level DEBUG cmd", NULL, &e));
    ck_assert_int_eq(c.log_level, LOG_DEBUG);
    config_free(&c);
}
END_TEST

/* NULL ends a command's words. */
static void runs(const struct config *c, size_t i, uint32_t first, uint32_t ranks, const char *const *words)
{
    const struct program *p = &c->programs.item[i];
    size_t n = 0;
    ck_assert_uint_lt(i, c->programs.count);
    ck_assert_uint_eq(p->first, first);
    ck_assert_uint_eq(p->ranks, ranks);
    for (; words[n]; n++)
        ck_assert_str_eq(p->command[n], words[n]);
    ck_assert_ptr_null(p->command[n]);
}
#define WORDS_OF(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(several_programs)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    char *envp[] = {"HVDRUN_ENV=ALL=1", "HVDRUN_WDIR=/all", NULL};
    ck_assert_msg(
        !parse(&c, &l,
               "--tag rank -np 2 -x A=1 ./a -np : -np=3 -x B=2 -x C=3 --unset D --wdir /d b : -np 1 c", envp,
               &e),
        "%s", e.text);
    ck_assert_int_eq(c.num_proc, 6);
    ck_assert_int_eq(c.tag, CONFIG_TAG_RANK);
    ck_assert_uint_eq(c.programs.count, 3);
    runs(&c, 0, 0, 2, WORDS_OF("./a", "-np"));
    runs(&c, 1, 2, 3, WORDS_OF("b"));
    runs(&c, 2, 5, 1, WORDS_OF("c"));
    const struct program *p = c.programs.item;
    ck_assert_uint_eq(p[0].set_env.count, 2);
    ck_assert_str_eq(p[0].set_env.item[0], "ALL=1");
    ck_assert_str_eq(p[0].set_env.item[1], "A=1");
    ck_assert_uint_eq(p[1].set_env.count, 3);
    ck_assert_str_eq(p[1].set_env.item[2], "C=3");
    ck_assert_uint_eq(p[1].unset_env.count, 1);
    ck_assert_uint_eq(p[2].set_env.count, 1);
    ck_assert_str_eq(p[0].wdir, "/all");
    ck_assert_str_eq(p[1].wdir, "/d");
    ck_assert_str_eq(p[2].wdir, "/all");
    for (uint32_t r = 0; r < 6; r++)
        ck_assert_uint_eq(programs_of(&c.programs, r), r < 2 ? 0 : r < 5 ? 1 : 2);
    config_free(&c);
}
END_TEST

START_TEST(a_colon_that_is_the_commands_own)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    ck_assert(!parse(&c, &l, "-np 1 -- echo : -np 1 b", NULL, &e));
    ck_assert_uint_eq(c.programs.count, 1);
    runs(&c, 0, 0, 1, WORDS_OF("echo", ":", "-np", "1", "b"));
    config_free(&c);
    ck_assert(!parse(&c, &l, "-np 1 a -- x : -np 2 -- b : c", NULL, &e));
    ck_assert_uint_eq(c.programs.count, 2);
    runs(&c, 0, 0, 1, WORDS_OF("a", "--", "x"));
    runs(&c, 1, 1, 2, WORDS_OF("b", ":", "c"));
    config_free(&c);
    ck_assert(!parse(&c, &l, "-np 1 a x: :y", NULL, &e));
    ck_assert_uint_eq(c.programs.count, 1);
    config_free(&c);
}
END_TEST

START_TEST(the_command_line_wins_over_a_variable_and_that_over_the_default)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    char *envp[] = {"HVDRUN_NUM_PROC=7", "HVDRUN_GRACE=9",   "HVDRUN_VERBOSE=yes",
                    "HVDRUN_TAG=",       "HVDRUN_HOSTS=a:9", NULL};
    ck_assert(!parse(&c, &l, "-np 3 --hostfile f cmd", envp, &e));
    ck_assert_int_eq(c.num_proc, 3);
    ck_assert_int_eq(c.grace_ms, 9000);
    ck_assert(c.verbose);
    ck_assert_int_eq(c.tag, CONFIG_TAG_NONE);
    ck_assert_ptr_null(c.hosts); /* --hostfile excludes it, and stands higher */
    config_free(&c);
}
END_TEST

START_TEST(a_bad_variable_is_named)
{
    static const struct {
        char *variable;
        const char *said;
    } cases[] = {{"HVDRUN_NUM_PROC=x", "HVDRUN_NUM_PROC: 'x'|from 1 to 1000000"},
                 {"HVDRUN_VERBOSE=maybe", "HVDRUN_VERBOSE: 'maybe'|yes"},
                 {"HVDRUN_LOG_LEVEL=9", "HVDRUN_LOG_LEVEL: '9'"},
                 {"HVDRUN_RSH=ssh '", "--rsh"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct line l;
        struct err e = ERR_INIT;
        char *envp[] = {"PATH=/bin", cases[i].variable, NULL};
        ck_assert(parse(&c, &l, "-x A=1 cmd", envp, &e) == -1);
        expect_said(e.text, cases[i].said);
    }
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    char *both[] = {"HVDRUN_HOSTS=a", "HVDRUN_HOSTFILE=b", NULL};
    ck_assert(parse(&c, &l, "cmd", both, &e) == -1);
    expect_said(e.text, "HVDRUN_HOSTS and HVDRUN_HOSTFILE both name the hosts");
}
END_TEST

START_TEST(where_the_hosts_came_from_is_known)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    char *envp[] = {"HVDRUN_TAG=rank", "HVDRUN_HOSTS=a:2", NULL}, from[64];
    ck_assert(!parse(&c, &l, "cmd", envp, &e));
    config_hosts_from(&c, envp, from, sizeof from);
    ck_assert_str_eq(from, "HVDRUN_HOSTS");
    config_free(&c);
    ck_assert(!parse(&c, &l, "-H a:2 cmd", envp, &e));
    config_hosts_from(&c, envp, from, sizeof from);
    ck_assert_str_eq(from, "-H/--hosts");
    config_free(&c);
}
END_TEST

START_TEST(help_and_version_act_at_once)
{
    struct config c;
    struct line l;
    struct err e = ERR_INIT;
    char *envp[] = {"HVDRUN_NUM_PROC=x", NULL};
    ck_assert(!parse(&c, &l, "-np 2 -h --nonsense", envp, &e));
    ck_assert(c.help && !c.version && !c.programs.count);
    ck_assert(!parse(&c, &l, "-v", envp, &e));
    ck_assert(c.version);
    ck_assert(!parse(&c, &l, "-cb", envp, &e));
    ck_assert(c.check_build);
    config_free(&c);
}
END_TEST

START_TEST(many_items_of_a_list)
{
    char *argv[2 * 1000 + 3];
    int argc = 0;
    struct config c;
    struct err e = ERR_INIT;
    argv[argc++] = "hvdrun";
    for (int i = 0; i < 1000; i++) {
        argv[argc++] = "--unset";
        argv[argc++] = i == 999 ? "LAST" : "A";
    }
    argv[argc++] = "cmd";
    argv[argc] = NULL;
    ck_assert(!config_parse(&c, argc, argv, NULL, &e));
    ck_assert_uint_eq(c.unset_env.count, 1000);
    ck_assert_str_eq(c.unset_env.item[999], "LAST");
    config_free(&c);
}
END_TEST

/* ---- printed texts ------------------------------------------------------------------------------------- */

static char *printed(const struct options_program *program,
                     void (*print)(const struct options_program *, FILE *))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    print(program, out);
    fclose(out);
    return text;
}

/* Every name of a column stands in the text, wherever its lines break. */
static bool has_names(const char *text, const char *column)
{
    struct option_name name = {0};
    char word[64];
    while (option_next_name(column, &name)) {
        snprintf(word, sizeof word, "%.*s", (int)name.len, name.text);
        if (!strstr(text, word))
            return false;
    }
    return true;
}

START_TEST(help_has_every_option_in_80_columns)
{
    char *help = printed(&config_program, options_print_help), *at = help;
    for (size_t i = 0; i < config_program.count; i++) {
        const struct option_spec *spec = &config_program.spec[i];
        ck_assert_msg(strstr(help, spec->flags), "no %s in --help", spec->flags);
        ck_assert_msg(!spec->variable || has_names(help, spec->variable), "no %s in --help", spec->variable);
        ck_assert_msg(!spec->default_text || strstr(help, spec->default_text), "%s: default missing",
                      spec->flags);
    }
    for (char *line; (line = strsep(&at, "\n"));)
        ck_assert_msg(strlen(line) <= 80, "wider than 80: %s", line);
    free(help);
}
END_TEST

#define MAN_BEGIN                                                                                            \
    ".\\\" options: from the table in launcher/cli/config.h (HVD_UPDATE=1 and the unit test test_options)\n"
#define MAN_END ".\\\" end of options\n"

static const struct {
    const char *file;
    const struct options_program *program;
    void (*print)(const struct options_program *program, FILE *out);
} pages[] = {{"man/hvdrun.1", &config_program, options_print_mdoc},
             {"man/hvdrun.conf.5", &config_program, options_print_mdoc_keys},
             {"man/hvd-environment.7", &config_program, options_print_mdoc_variables},
             {"man/hvdagent.8", &daemon_program, options_print_mdoc},
             {"man/hvdagent.conf.5", &daemon_program, options_print_mdoc_keys},
             {"man/hvdctl.1", &ctl_program, options_print_mdoc}};

static char *read_page(const char *file)
{
    static char page[1 << 17];
    FILE *f = fopen(file, "r");
    ck_assert_msg(f, "cannot open %s", file);
    size_t n = fread(page, 1, sizeof page - 1, f);
    fclose(f);
    page[n] = '\0';
    return page;
}

/* A line that must be true: the list in the page is what the table prints. */
START_TEST(the_manual_page_has_the_table)
{
    const char *file = pages[_i].file;
    char *page = read_page(file), *list = printed(pages[_i].program, pages[_i].print), new[64];
    char *begin = strstr(page, MAN_BEGIN);
    char *end = begin ? strstr(begin, MAN_END) : NULL;
    ck_assert_msg(end, "%s lacks the marks of the list", file);
    begin += strlen(MAN_BEGIN);
    if (getenv("HVD_UPDATE")) {
        snprintf(new, sizeof new, "%s.new", file);
        FILE *f = fopen(new, "w");
        ck_assert_ptr_nonnull(f);
        fprintf(f, "%.*s%s%s", (int)(begin - page), page, list, end);
        ck_assert_int_eq(fclose(f), 0);
        ck_assert_int_eq(rename(new, file), 0);
    } else {
        ck_assert_msg(strlen(list) == (size_t)(end - begin) && memcmp(list, begin, strlen(list)) == 0,
                      "%s is not what the table says: run with HVD_UPDATE=1", file);
    }
    free(list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *words = tcase_create("words"), *print = tcase_create("print");
    suite_add_tcase(suite, words);
    suite_add_tcase(suite, print);
    tcase_add_loop_test(words, a_bad_word_is_named, 0, sizeof bad / sizeof *bad);
    tcase_add_test(words, all_spellings_and_values_arrive);
    tcase_add_loop_test(words, a_range_has_two_numbers, 0, 3);
    tcase_add_test(words, numbers_of_an_elastic_job);
    tcase_add_test(words, defaults);
    tcase_add_test(words, words_of_numbers_and_verbose);
    tcase_add_test(words, several_programs);
    tcase_add_test(words, a_colon_that_is_the_commands_own);
    tcase_add_test(words, the_command_line_wins_over_a_variable_and_that_over_the_default);
    tcase_add_test(words, a_bad_variable_is_named);
    tcase_add_test(words, where_the_hosts_came_from_is_known);
    tcase_add_test(words, help_and_version_act_at_once);
    tcase_add_test(words, many_items_of_a_list);
    tcase_add_test(print, help_has_every_option_in_80_columns);
    tcase_add_loop_test(print, the_manual_page_has_the_table, 0, sizeof pages / sizeof *pages);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
