/* hvdrun-flags(7): what it calls a flag of hvdrun is one, and no flag of horovodrun is missing. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options/options_table.h"
#include "launcher/cli/config.h"

#define LINE 512

/* horovodrun 0.28's, and those of the releases before. */
static const char *const horovodrun[] = {"-v",
                                         "--version",
                                         "--verbose",
                                         "-np",
                                         "--num-proc",
                                         "-cb",
                                         "--check-build",
                                         "--disable-cache",
                                         "--start-timeout",
                                         "--network-interface",
                                         "--network-interfaces",
                                         "--output-filename",
                                         "--config-file",
                                         "-p",
                                         "--ssh-port",
                                         "-i",
                                         "--ssh-identity-file",
                                         "--fusion-threshold-mb",
                                         "--cycle-time-ms",
                                         "--cache-capacity",
                                         "--hierarchical-allreduce",
                                         "--no-hierarchical-allreduce",
                                         "--hierarchical-allgather",
                                         "--no-hierarchical-allgather",
                                         "--torus-allreduce",
                                         "--no-torus-allreduce",
                                         "--autotune",
                                         "--no-autotune",
                                         "--autotune-log-file",
                                         "--autotune-warmup-samples",
                                         "--autotune-steps-per-sample",
                                         "--autotune-bayes-opt-max-samples",
                                         "--autotune-gaussian-process-noise",
                                         "--min-np",
                                         "--min-num-proc",
                                         "--max-np",
                                         "--max-num-proc",
                                         "--slots-per-host",
                                         "--host-discovery-script",
                                         "--elastic-timeout",
                                         "--reset-limit",
                                         "--blacklist-cooldown-range",
                                         "--timeline-filename",
                                         "--timeline-mark-cycles",
                                         "--no-timeline-mark-cycles",
                                         "--stall-check",
                                         "--no-stall-check",
                                         "--stall-check-warning-time-seconds",
                                         "--stall-check-shutdown-time-seconds",
                                         "--mpi-args",
                                         "--binding-args",
                                         "--tcp",
                                         "--mpi-threads-disable",
                                         "--no-mpi-threads-disable",
                                         "--num-nccl-streams",
                                         "--thread-affinity",
                                         "--gloo-timeout-seconds",
                                         "--log-level",
                                         "--log-with-timestamp",
                                         "--log-without-timestamp",
                                         "--log-hide-timestamp",
                                         "-prefix-timestamp",
                                         "--prefix-output-with-timestamp",
                                         "-H",
                                         "--hosts",
                                         "-hostfile",
                                         "--hostfile",
                                         "--gloo",
                                         "--mpi",
                                         "--jsrun"};

static bool is_ours(const char *flag)
{
    for (size_t i = 0; i < config_program.count; i++) {
        struct option_name name = {0};
        while (option_next_name(config_program.spec[i].flags, &name))
            if (name.len == strlen(flag) && memcmp(name.text, flag, name.len) == 0)
                return true;
    }
    return false;
}

struct row {
    char heading[LINE]; /* of the section */
    char left[LINE];    /* the other launcher's flags, after ".It " */
    char right[LINE];   /* hvdrun's flags and the difference */
};

static bool read_line(FILE *page, char line[LINE])
{
    if (!fgets(line, LINE, page))
        return false;
    ck_assert_msg(strlen(line) < LINE - 1, "a line is too long: %s", line);
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Reads the next row of the tables; false: there is none. The heading stays from row to row. */
static bool next_row(FILE *page, struct row *row)
{
    char line[LINE];
    while (read_line(page, line)) {
        if (strncmp(line, ".Sh ", 4) == 0)
            snprintf(row->heading, LINE, "%s", line + 4);
        if (strncmp(line, ".It Fl ", 7) != 0)
            continue;
        snprintf(row->left, LINE, "%s", line + 4);
        ck_assert_msg(read_line(page, row->right), "nothing beside %s", row->left);
        return true;
    }
    return false;
}

static bool has_dash(const struct row *row)
{
    return strncmp(row->right, "\\(en", 4) == 0 || strncmp(row->right, ".No \\(en", 8) == 0;
}

/* The next flag of a column as a user writes it; NULL: there is none. */
static const char *next_flag(char **column, char flag[LINE])
{
    for (char *word; (word = strsep(column, " "));)
        if (strcmp(word, "Fl") == 0 && (word = strsep(column, " "))) {
            snprintf(flag, LINE, "-%s", word);
            return flag;
        }
    return NULL;
}

/* A row of hvdrun's own flags begins with a flag, but in the section of horovodrun. */
START_TEST(what_it_calls_ours_is)
{
    FILE *page = fopen("man/hvdrun-flags.7", "r");
    struct row row = {.heading = ""};
    char flag[LINE];
    int rows = 0;

    ck_assert_ptr_nonnull(page);
    for (; next_row(page, &row); rows++) {
        bool none = has_dash(&row), same = strcmp(row.heading, "HOROVODRUN") == 0;
        char *left = row.left, *right = row.right;
        ck_assert_msg(none || same || strncmp(right, ".Fl ", 4) == 0,
                      "%s: neither a flag of hvdrun nor a dash", left);
        for (right += *right == '.'; next_flag(&right, flag);)
            ck_assert_msg(is_ours(flag), "hvdrun has no %s (beside %s)", flag, left);
        while (same && !none && next_flag(&left, flag))
            ck_assert_msg(is_ours(flag), "%s is said to be taken as it is", flag);
    }
    ck_assert_int_gt(rows, 80);
    fclose(page);
}
END_TEST

START_TEST(no_flag_of_horovodrun_is_missing)
{
    bool found[sizeof horovodrun / sizeof *horovodrun] = {false};
    FILE *page = fopen("man/hvdrun-flags.7", "r");
    struct row row = {.heading = ""};
    char flag[LINE];

    ck_assert_ptr_nonnull(page);
    while (next_row(page, &row))
        for (char *left = row.left; strcmp(row.heading, "HOROVODRUN") == 0 && next_flag(&left, flag);)
            for (size_t i = 0; i < sizeof found; i++)
                found[i] = found[i] || strcmp(horovodrun[i], flag) == 0;
    for (size_t i = 0; i < sizeof found; i++)
        ck_assert_msg(found[i], "%s is not in the table", horovodrun[i]);
    fclose(page);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flags page");
    TCase *t = tcase_create("flags page");
    tcase_add_test(t, what_it_calls_ours_is);
    tcase_add_test(t, no_flag_of_horovodrun_is_missing);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
