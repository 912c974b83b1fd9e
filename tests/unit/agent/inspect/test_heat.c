/* Processors that were too hot, as sysfs tells of them, and their frequencies. */
#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/inspect/usage.h"
#include "tests/unit/run_test.h"
#include "tests/unit/scratch.h"

static char root[SCRATCH_MAX];

static void make_root(void)
{
    ck_assert_ptr_nonnull(scratch_dir(root, "heat"));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_root(void)
{
    ck_assert_int_eq(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* With the directories above it. */
static void put_text(unsigned cpu, const char *file, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/cpu%u/%s", root, cpu, file);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void expect_heat(uint64_t events, uint64_t ms)
{
    struct heat h = heat_look(root);
    ck_assert_uint_eq(h.events, events);
    ck_assert_uint_eq(h.ms, ms);
}

START_TEST(counts_of_processors)
{
    expect_heat(0, 0);
    put_text(0, "thermal_throttle/core_throttle_count", "0\n");
    put_text(0, "thermal_throttle/core_throttle_total_time_ms", "77\n"); /* nobody reads it */
    put_text(1, "thermal_throttle/core_throttle_count", "0\n");
    expect_heat(0, 0);
    put_text(1, "thermal_throttle/core_throttle_count", "3\n");
    expect_heat(3, 0); /* an older kernel */
    put_text(1, "thermal_throttle/core_throttle_total_time_ms", "400\n");
    put_text(0, "thermal_throttle/package_throttle_count", "2\n");
    put_text(0, "thermal_throttle/package_throttle_total_time_ms", "900\n");
    expect_heat(5, 900);
    put_text(1, "thermal_throttle/core_throttle_count", "-3\n");
    put_text(0, "thermal_throttle/package_throttle_total_time_ms", "");
    expect_heat(2, 0);
    put_text(3, "thermal_throttle/core_throttle_count", "9\n"); /* of no processor: there is no third */
    expect_heat(2, 0);
}
END_TEST

START_TEST(frequencies)
{
    ck_assert_uint_eq(heat_frequency(root, 1), 0);
    put_text(1, "cpufreq/scaling_cur_freq", "800000\n");
    ck_assert_uint_eq(heat_frequency(root, 1), 0);
    put_text(1, "cpufreq/cpuinfo_max_freq", "3600000\n");
    ck_assert_uint_eq(heat_frequency(root, 1), 22);
    ck_assert_uint_eq(heat_frequency(root, 0), 0);
    put_text(1, "cpufreq/scaling_cur_freq", "1\n");
    ck_assert_uint_eq(heat_frequency(root, 1), 1);
    put_text(1, "cpufreq/scaling_cur_freq", "3700000\n");
    ck_assert_uint_eq(heat_frequency(root, 1), 100);
    put_text(1, "cpufreq/cpuinfo_max_freq", "0\n");
    ck_assert_uint_eq(heat_frequency(root, 1), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("heat");
    TCase *c = tcase_create("heat");
    tcase_add_checked_fixture(c, make_root, remove_root);
    tcase_add_test(c, counts_of_processors);
    tcase_add_test(c, frequencies);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
