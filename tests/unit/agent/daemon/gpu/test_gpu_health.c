/* Faults of GPUs, also those in the kernel's log, that keep new jobs away. */
/* needs: agent */
#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/core.h"
#include "agent/daemon/gpu/gpu_health.h"
#include "agent/guard/job_dir.h"
#include "agent/gpu/nvml.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "common/process/module.h"
#include "tests/unit/scratch.h"

static struct gpu_health h;
static struct gpu_rules rules;
static Hvd__Gpu gpu[3], *list[3] = {&gpu[0], &gpu[1], &gpu[2]};
static Hvd__Gpus g;
static char text[400];

static void set_up(void)
{
    static char name[3][16] = {"GPU-a", "GPU-b", "GPU-c"};
    static char bus[3][16] = {"0000:0a:00.0", "0000:0b:00.0", "0000:0c:00.0"};
    memset(&h, 0, sizeof h);
    rules = (struct gpu_rules){.checks = GPU_CHECK_ALL, .xids = "48,79"};
    hvd__gpus__init(&g);
    g.gpu = list;
    g.n_gpu = 3;
    for (uint32_t i = 0; i < 3; i++) {
        hvd__gpu__init(&gpu[i]);
        gpu[i].uuid = name[i];
        gpu[i].bus = bus[i];
        gpu[i].device = i;
        gpu[i].temperature = 50;
        gpu[i].slowdown = 87;
        gpu[i].ecc_uncorrected = 0;
    }
    gpu_health_number(&h, &g, 3);
}

static const char *judged(void)
{
    gpu_health_judge(&h, &rules, &g, NULL);
    return gpu_health_text(&h, text, sizeof text);
}

static void xid(const char *bus, uint32_t number, uint64_t us)
{
    struct xid x = {.number = number, .us = us, .text = "GPU has fallen off the bus."};
    snprintf(x.bus, sizeof x.bus, "%s", bus);
    gpu_health_xid(&h, &rules, &x);
}

START_TEST(temperature)
{
    ck_assert_str_eq(judged(), "");
    gpu[1].temperature = 87;
    ck_assert_str_eq(judged(), "GPU 1 (GPU-b): 87 degrees Celsius, the limit is 87");
    gpu[1].temperature = 83;
    ck_assert_str_ne(judged(), ""); /* not yet */
    gpu[1].temperature = 81;
    ck_assert_str_eq(judged(), "");
    rules.max_temperature = 50;
    ck_assert_str_eq(judged(), "GPU 0 (GPU-a): 50 degrees Celsius, the limit is 50; and 2 more");
    rules.checks &= ~GPU_CHECK_TEMPERATURE;
    ck_assert_str_eq(judged(), "");
    rules = (struct gpu_rules){.checks = GPU_CHECK_ALL, .xids = ""};
    gpu[1].slowdown = 0; /* it says no limit, so there is none */
    gpu[1].temperature = 120;
    ck_assert_str_eq(judged(), "");
}
END_TEST

START_TEST(memory_errors)
{
    gpu[2].ecc_uncorrected = 2;
    ck_assert_str_eq(judged(), "GPU 2 (GPU-c): 2 uncorrected memory errors (ECC), 0 allowed");
    rules.max_ecc = 2;
    ck_assert_str_eq(judged(), "");
    rules.max_ecc = 0;
    gpu_health_accept(&h, &g);
    ck_assert_str_eq(judged(), "");
    gpu[2].ecc_uncorrected = 3;
    ck_assert_str_eq(judged(), "GPU 2 (GPU-c): 1 uncorrected memory errors (ECC), 0 allowed");
    gpu[2].ecc_uncorrected = 0; /* the driver counts anew */
    ck_assert_str_eq(judged(), "");
    gpu[2].ecc_uncorrected = 1;
    ck_assert_str_ne(judged(), "");
    gpu[2].ecc_uncorrected = -1;
    ck_assert_str_eq(judged(), "");
}
END_TEST

START_TEST(xids)
{
    xid("0000:0b:00.0", 13, 100); /* a program's */
    ck_assert_str_eq(judged(), "");
    xid("0000:77:00.0", 79, 200); /* none of ours */
    ck_assert_str_eq(judged(), "");
    xid("0000:0b:00.0", 79, 300);
    ck_assert_str_eq(judged(), "GPU 1 (GPU-b): Xid 79 (GPU has fallen off the bus.)");
    ck_assert_uint_eq(h.slot[1].xids, 2);
    ck_assert_uint_eq(h.slot[1].last_xid, 79);
    ck_assert_str_ne(judged(), ""); /* it does not go away by itself */
    gpu_health_accept(&h, &g);
    ck_assert_str_eq(judged(), "");
    xid("0000:0b:00.0", 79, 300); /* read again, by the next daemon */
    ck_assert_str_eq(judged(), "");
    xid("0000:0b:00.0", 48, 301);
    ck_assert_str_ne(judged(), "");
    rules.checks &= ~GPU_CHECK_XID;
    ck_assert_str_eq(judged(), "");
}
END_TEST

START_TEST(the_driver)
{
    g.n_gpu = 2;
    ck_assert_str_eq(judged(), "GPU 2 (GPU-c): it is gone: the driver does not know it any more");
    g.n_gpu = 3;
    gpu[1].uuid = gpu[1].bus = (char *)"";
    gpu[1].fault = (char *)"GPU is lost";
    ck_assert_str_eq(judged(), "GPU 1 (GPU-b): it does not answer: GPU is lost");
    gpu_health_judge(&h, &rules, NULL, "it hangs");
    ck_assert_str_eq(gpu_health_text(&h, text, sizeof text), "GPU 0 (GPU-a): it hangs; and 2 more");
    rules.checks = 0;
    ck_assert_str_eq(judged(), "");
}
END_TEST

/* The numbers are those of leases. */
START_TEST(numbers_stay)
{
    list[0] = &gpu[1];
    list[1] = &gpu[2];
    list[2] = &gpu[0];
    ck_assert_ptr_eq(gpu_health_find(&h.slot[0], &g), &gpu[0]);
    gpu[1].ecc_uncorrected = 7;
    gpu_health_accept(&h, &g);
    gpu_health_number(&h, &g, 2);
    ck_assert_uint_eq(h.slots, 2);
    ck_assert_str_eq(h.slot[0].uuid, "GPU-b");
    ck_assert_int_eq(h.slot[0].ecc, 7);
    for (int i = 0; i < 3; i++)
        list[i] = &gpu[i];
}
END_TEST

START_TEST(what_outlasts_the_daemon)
{
    char directory[SCRATCH_MAX];
    struct err e = ERR_INIT;
    ck_assert_ptr_nonnull(scratch_dir(directory, "health"));
    gpu[0].ecc_uncorrected = 5;
    xid("0000:0b:00.0", 79, 300);
    gpu_health_accept(&h, &g);
    ck_assert_int_eq(gpu_health_save(&h, directory, &e), 0);
    memset(&h, 0, sizeof h);
    gpu_health_load(&h, directory);
    ck_assert_uint_eq(h.slots, 3);
    ck_assert_str_eq(h.slot[2].uuid, "GPU-c");
    ck_assert_str_eq(h.slot[2].bus, "0000:0c:00.0");
    ck_assert_int_eq(h.slot[0].ecc, 5);
    xid("0000:0b:00.0", 79, 300);
    ck_assert_str_eq(judged(), "");
    /* The kernel's log has gone round, or is read later: a fault is one until root accepts it. */
    xid("0000:0b:00.0", 79, 400);
    char before[2 * GPU_FAULT_TEXT];
    snprintf(before, sizeof before, "%s", judged());
    ck_assert_ptr_nonnull(strstr(before, "GPU 1 (GPU-b): Xid 79 ("));
    ck_assert_int_eq(gpu_health_save(&h, directory, &e), 0);
    memset(&h, 0, sizeof h);
    gpu_health_load(&h, directory);
    ck_assert_str_eq(judged(), before);
    ck_assert_uint_eq(h.slots, 3);
    ck_assert_int_eq(h.slot[0].ecc, 5);
    gpu_health_accept(&h, &g);
    xid("0000:0b:00.0", 79, 400);
    ck_assert_str_eq(judged(), "");
    (void)remove_tree(AT_FDCWD, directory, 2);
    gpu_health_load(&h, directory);
    ck_assert_uint_eq(h.slots, 0);
    ck_assert_int_lt(gpu_health_save(&h, directory, &e), 0);
}
END_TEST

START_TEST(records)
{
    static const char good[] =
        "4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen";
    static const char *const bad[] = {
        "12,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, forged", /* facility 1: a program wrote it */
        "4,1234,5678901,-;a NVRM: Xid (PCI:0000:3b:00): 79, GPU",
        "4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): many",
        "4,1234,5678901,-;NVRM: Xid (PCI:",
        "4,1234,5678901,-",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU",
        ""};
    struct xid x;
    ck_assert(kernel_log_parse(good, &x));
    ck_assert_str_eq(x.bus, "0000:3b:00.0");
    ck_assert_uint_eq(x.number, 79);
    ck_assert_uint_eq(x.us, 5678901);
    ck_assert_str_eq(x.text, "pid='<unknown>', name=<unknown>, GPU has fallen");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!kernel_log_parse(bad[i], &x), "%s", bad[i]);
    ck_assert(gpu_xids_check("48,79") && gpu_xids_check("1"));
    ck_assert(!gpu_xids_check("") && !gpu_xids_check("48,") && !gpu_xids_check("x") &&
              !gpu_xids_check("12345"));
}
END_TEST

static void count(void *ctx, const struct xid *x)
{
    *(uint32_t *)ctx += x->number;
}

/* In pieces, with a record that is too long in between. */
START_TEST(reading)
{
    char path[SCRATCH_MAX];
    static char filler[2 * KERNEL_LOG_RECORD];
    static struct kernel_log l;
    struct err e = ERR_INIT;
    uint32_t sum = 0;
    int fd = scratch_file(path, "kmsg");
    memset(filler, 'x', sizeof filler - 1);
    ck_assert_int_gt(
        dprintf(fd, "6,1,1,-;hello\n CONT=1\n4,2,2,-;NVRM: Xid (PCI:0000:01:00): 1, a\n4,3,3,-;NVRM:"), 0);
    ck_assert_int_eq(kernel_log_open(&l, path, &e), 0);
    kernel_log_read(&l, count, &sum);
    ck_assert_uint_eq(sum, 1);
    ck_assert_int_gt(
        dprintf(fd, " Xid (PCI:0000:01:00): 10, b\n4,4,4,-;%s\n4,5,5,-;NVRM: Xid (PCI:0:1:0): 100\n", filler),
        0);
    kernel_log_read(&l, count, &sum);
    ck_assert_uint_eq(sum, 111);
    kernel_log_close(&l);
    ck_assert_int_lt(kernel_log_open(&l, "/no/such", &e), 0);
    close(fd);
    unlink(path);
}
END_TEST

static unsigned lines_said;
static char line_said[600];

static void take_line(const char *bytes, size_t n)
{
    lines_said += memmem(bytes, n, "Xid faults", 10) != NULL;
    if (memmem(bytes, n, "Xid faults", 10))
        snprintf(line_said, sizeof line_said, "%.*s", (int)n, bytes);
}

/* The driver's library is the double from now on: it has its name. */
static void have_library(void)
{
    char dir[192], path[256];
    struct err e = ERR_INIT;
    ck_assert_int_eq(module_program_dir(dir, sizeof dir, &e), 0);
    snprintf(path, sizeof path, "%s/nvml/" NVML_LIBRARY, dir);
    ck_assert_msg(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL, "%s", dlerror());
}

/* A configuration that asks for the check brings a warning; without such a wish there is none. */
START_TEST(a_log_that_cannot_be_read)
{
    static const struct {
        size_t named;
        unsigned set, warnings;
    } asked[] = {{0, GPU_CHECK_ALL, 0}, {1, GPU_CHECK_XID, 1}, {1, GPU_CHECK_TEMPERATURE, 0}};
    static struct daemon d;
    char directory[SCRATCH_MAX];
    struct err e = ERR_INIT;
    have_library();
    ck_assert_ptr_nonnull(scratch_dir(directory, "watch"));
    ck_assert_int_eq(loop_init(&d.loop, &e), 0);
    uv_timer_init(&d.loop, &d.queue_timer);
    d.config.directory = directory;
    d.config.kernel_log = "/no/such";
    d.config.gpu_checks.count = asked[_i].named;
    d.config.gpu_check_set = asked[_i].set;
    d.config.gpu_xids = "48";
    d.config.gpu_interval_ms = 60000;
    log_to(take_line);
    gpu_watch_open(&d.gpus, &d);
    log_to(NULL);
    ck_assert_uint_eq(lines_said, asked[_i].warnings);
    ck_assert(!lines_said || strstr(line_said, "warning: cannot read the kernel's log, /no/such: "));
    gpu_watch_close(&d.gpus);
    (void)remove_tree(AT_FDCWD, directory, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_health");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, temperature);
    tcase_add_test(all, memory_errors);
    tcase_add_test(all, xids);
    tcase_add_test(all, the_driver);
    tcase_add_test(all, numbers_stay);
    tcase_add_test(all, what_outlasts_the_daemon);
    tcase_add_test(all, records);
    tcase_add_test(all, reading);
    tcase_add_loop_test(all, a_log_that_cannot_be_read, 0, 3);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
