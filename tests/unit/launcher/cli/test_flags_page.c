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

/* The next row of the tables as its three columns, and under which heading it stands; false: there is none.
 */
static bool next_row(FILE *page, char line[LINE], char *column[3], char heading[LINE])
{
    while (fgets(line, LINE, page)) {
        ck_assert_msg(strlen(line) < LINE - 1, "a line is too long: %s", line);
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, ".Sh ", 4) == 0)
            snprintf(heading, LINE, "%s", line + 4);
        if (strncmp(line, ".It Fl ", 7) != 0)
            continue;
        column[0] = line + 4;
        for (int i = 1; i < 3; i++) {
            char *end = strstr(column[i - 1], " Ta");
            ck_assert_msg(end, "fewer than three columns: %s", column[i - 1]);
            *end = '\0';
            column[i] = end + 3 + (end[3] == ' ');
        }
        return true;
    }
    return false;
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

START_TEST(what_it_calls_ours_is)
{
    FILE *page = fopen("man/hvdrun-flags.7", "r");
    char line[LINE], heading[LINE] = "", flag[LINE], *column[3];
    int rows = 0;

    ck_assert_ptr_nonnull(page);
    for (; next_row(page, line, column, heading); rows++) {
        bool none = strcmp(column[1], "\\(en") == 0;
        int flags = 0;
        for (; next_flag(&column[1], flag); flags++)
            ck_assert_msg(is_ours(flag), "hvdrun has no %s (beside %s)", flag, column[0]);
        ck_assert_msg(none == (flags == 0), "%s: neither a flag of hvdrun nor a dash", column[0]);
        if (strcmp(heading, "HOROVODRUN") == 0 && !none)
            while (next_flag(&column[0], flag))
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
    char line[LINE], heading[LINE] = "", flag[LINE], *column[3];

    ck_assert_ptr_nonnull(page);
    while (next_row(page, line, column, heading))
        while (strcmp(heading, "HOROVODRUN") == 0 && next_flag(&column[0], flag))
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
