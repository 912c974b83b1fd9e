/* The GPUs of this host, by the driver's library (a double of it) and the kernel's files. Our own
 * declarations of that library are compared with its header, if the header is installed. */
#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/guard/job_dir.h"
#include "agent/gpu/gpu.h"
#include "agent/gpu/gpu_scan.h"
#include "agent/gpu/nvml.h"
#include "common/protocol/message.h"
#include "common/process/module.h"
#include "common/status/gpu_slow.h"
#include "tests/unit/scratch.h"

#if __has_include(<nvml.h>)
#include <nvml.h>
#define HAVE_NVML_H
#elif __has_include("/usr/local/cuda/include/nvml.h")
#include "/usr/local/cuda/include/nvml.h"
#define HAVE_NVML_H
#endif

#ifdef HAVE_NVML_H
#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #ours " is not " #theirs)
SAME(NVML_OK, NVML_SUCCESS);
SAME(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(NVML_NO_DRIVER, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(NVML_GPU_LOST, NVML_ERROR_GPU_IS_LOST);
SAME(NVML_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME(NVML_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
SAME(NVML_SENSOR_GPU, NVML_TEMPERATURE_GPU);
SAME(NVML_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
SAME(NVML_CORRECTED, NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME(NVML_UNCORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME(NVML_VOLATILE, NVML_VOLATILE_ECC);
SAME(sizeof(struct nvml_pci), sizeof(nvmlPciInfo_t));
SAME(offsetof(struct nvml_pci, text), offsetof(nvmlPciInfo_t, busId));
SAME(sizeof(struct nvml_memory), sizeof(nvmlMemory_t));
SAME(offsetof(struct nvml_memory, used), offsetof(nvmlMemory_t, used));
SAME(sizeof(struct nvml_utilisation), sizeof(nvmlUtilization_t));
SAME(offsetof(struct nvml_utilisation, gpu), offsetof(nvmlUtilization_t, gpu));
SAME(sizeof(nvml_device), sizeof(nvmlDevice_t));
SAME(GPU_SLOW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
SAME(GPU_SLOW_HARDWARE, nvmlClocksThrottleReasonHwSlowdown);
SAME(GPU_SLOW_SOFT_HEAT, nvmlClocksThrottleReasonSwThermalSlowdown);
SAME(GPU_SLOW_HEAT, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME(GPU_SLOW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
_Static_assert(NVML_TEXT >= NVML_DEVICE_UUID_V2_BUFFER_SIZE, "");
_Static_assert(NVML_TEXT >= NVML_DEVICE_NAME_V2_BUFFER_SIZE, "");
_Static_assert(NVML_TEXT >= NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, "");
_Static_assert(NVML_TEXT >= NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE, "");
#endif

static char directory[SCRATCH_MAX];
static char told[64]; /* instructions for the double */
static struct gpu_places places;
static char proc[64], dev[64], pci[64];
static Hvd__Gpus *g;

static void set_up(void)
{
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(directory, "gpus"));
    snprintf(proc, sizeof proc, "%s/proc", directory);
    snprintf(dev, sizeof dev, "%s/dev", directory);
    snprintf(pci, sizeof pci, "%s/pci", directory);
    snprintf(told, sizeof told, "%s/nvml", directory);
    places = (struct gpu_places){proc, dev, pci};
    ck_assert(mkdir(proc, 0700) == 0 && mkdir(dev, 0700) == 0 && mkdir(pci, 0700) == 0);
    unsetenv("HVD_TEST_GPUS");
    setenv("HVD_TEST_NVML", told, 1);
    g = NULL;
}

static void tear_down(void)
{
    if (g)
        gpu_scan_free(g);
    (void)remove_tree(AT_FDCWD, directory, 6);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void put_pci(const char *bus, const char *vendor, const char *class, const char *numa)
{
    char dir[128];
    snprintf(dir, sizeof dir, "%s/%s", pci, bus);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    put(dir, "vendor", vendor);
    put(dir, "class", class);
    put(dir, "numa_node", numa);
}

/* The library is the double from now on: it has its name. */
static void scan(const char *what)
{
    char dir[192], path[256];
    struct err e = ERR_INIT;
    static void *library;
    put(directory, "nvml", what);
    ck_assert_int_eq(module_program_dir(dir, sizeof dir, &e), 0);
    snprintf(path, sizeof path, "%s/nvml/" NVML_LIBRARY, dir);
    if (!library)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    g = gpu_scan(&places, false);
    ck_assert_ptr_nonnull(g);
}

START_TEST(buses)
{
    static const struct {
        const char *nvml, *sysfs;
    } at[] = {{"00000000:3B:00.0", "0000:3b:00.0"},
              {"0000:3B:00.0", "0000:3b:00.0"},
              {"00010000:0A:1F.7", "10000:0a:1f.7"},
              {"0000:3B:00", ""},
              {"0000:3B:00.0/../x", ""},
              {"", ""}};
    char text[32];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        ck_assert_str_eq(gpu_scan_bus(at[i].nvml, text, sizeof text), at[i].sysfs);
}
END_TEST

START_TEST(kernel_files)
{
    char text[32];
    put_pci("0000:3b:00.0", "0x10de\n", "0x030200\n", "1\n");
    put_pci("0000:3c:00.0", "0x10de\n", "0x030200\n", "-1\n");
    put_pci("0000:3d:00.0", "0x10de\n", "0x030000\n", "0\n"); /* it shows pictures */
    put_pci("0000:3e:00.0", "0x8086\n", "0x030200\n", "0\n");
    ck_assert_int_eq(gpu_scan_numa(pci, "0000:3b:00.0"), 1);
    ck_assert_int_eq(gpu_scan_numa(pci, "0000:3c:00.0"), -1);
    ck_assert_int_eq(gpu_scan_numa(pci, "0000:77:00.0"), -1);
    ck_assert_int_eq(gpu_scan_numa(pci, ""), -1);
    ck_assert_uint_eq(gpu_scan_orphans(pci), 2);
    put(pci, "0000:3b:00.0/driver", "");
    ck_assert_uint_eq(gpu_scan_orphans(pci), 1);
    ck_assert_str_eq(gpu_scan_driver(proc, text, sizeof text), "");
    put(proc, "version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n");
    ck_assert_str_eq(gpu_scan_driver(proc, text, sizeof text), "535.104.05");
    put(proc, "version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release\n");
    ck_assert_str_eq(gpu_scan_driver(proc, text, sizeof text), "550.54.14");
    ck_assert(gpu_scan_is_first(&places));
    put(dev, "nvidiactl", "");
    ck_assert(!gpu_scan_is_first(&places));
}
END_TEST

/* Before the double is loaded. */
START_TEST(without_the_library)
{
    if (nvml_is_there())
        return; /* this machine has one */
    g = gpu_scan(&places, false);
    ck_assert_str_eq(g->problem, "");
    gpu_scan_free(g);
    put_pci("0000:3b:00.0", "0x10de\n", "0x030200\n", "1\n");
    g = gpu_scan(&places, false);
    ck_assert_str_eq(g->problem,
                     "found 1 NVIDIA GPUs that no driver has taken: NVIDIA's driver 450 or newer is needed");
    gpu_scan_free(g);
    put(dev, "nvidia0", "");
    put(dev, "nvidia1", "");
    put(proc, "version", "NVRM version: x 550.54.14 y\n");
    g = gpu_scan(&places, false);
    ck_assert_uint_eq(gpu_slots(g), 2);
    ck_assert_str_eq(g->problem, "found 2 NVIDIA GPUs, and not the driver's library (libnvidia-ml.so.1): "
                                 "that of driver 550.54.14 is needed");
}
END_TEST

START_TEST(all_is_found)
{
    put_pci("0000:01:00.0", "0x10de\n", "0x030200\n", "1\n");
    scan("gpus 2\ntemperature 1 55\necc 1 4\nslowed 1 6c\n");
    ck_assert_uint_eq(g->n_gpu, 2);
    ck_assert_uint_eq(gpu_slots(g), 2);
    const Hvd__Gpu *gpu = g->gpu[1];
    ck_assert_str_eq(gpu->name, "Double H100 80GB");
    ck_assert_str_eq(gpu->uuid, "GPU-00000001-0000-4000-8000-000000000000");
    ck_assert_str_eq(gpu->bus, "0000:01:00.0");
    ck_assert_int_eq(gpu->numa, 1);
    ck_assert_uint_eq(gpu->memory, 80ull << 30);
    ck_assert_uint_eq(gpu->memory_used, 2ull << 30);
    ck_assert_uint_eq(gpu->temperature, 55);
    ck_assert_uint_eq(gpu->slowdown, 87);
    ck_assert_int_eq(gpu->utilisation, 25);
    ck_assert_int_eq(gpu->ecc_uncorrected, 4);
    ck_assert_int_eq(gpu->ecc_corrected, 3);
    ck_assert_int_eq(gpu->slowed, GPU_SLOW_BY_HEAT | GPU_SLOW_POWER_CAP | GPU_SLOW_HARDWARE);
    ck_assert_int_eq(g->gpu[0]->slowed, 0);
    ck_assert_int_eq(g->gpu[0]->numa, -1);
    ck_assert_str_eq(g->driver, "550.54.14");
    ck_assert_str_eq(g->cuda, "12.4");
    ck_assert_str_eq(g->nvml, "12.550.54.14");
    ck_assert_str_eq(g->problem, "");
    ck_assert_ptr_null(gpu_identities(g, UINT64_MAX));
}
END_TEST

START_TEST(instances_are_slots)
{
    scan("gpus 3\nmig 1 2\nmig 2 0\n");
    ck_assert_uint_eq(gpu_slots(g), 3);
    ck_assert(!g->gpu[0]->instance && g->gpu[1]->instance && g->gpu[2]->instance);
    ck_assert_uint_eq(g->gpu[2]->device, 1);
    ck_assert_uint_eq(g->gpu[2]->memory, 10ull << 30);
    ck_assert_uint_eq(g->gpu[2]->temperature, 41);
    ck_assert_uint_eq(g->undivided, 1);
    ck_assert_ptr_nonnull(strstr(g->problem, "found 1 GPUs in MIG mode without an instance"));
    char *list = gpu_identities(g, 0x5);
    ck_assert_str_eq(list,
                     "GPU-00000000-0000-4000-8000-000000000000,MIG-00000001-0000-4000-8000-000000000002");
    free(list);
    gpu_scan_free(g);
    scan("gpus 1\nmig 0 0\n");
    put(dev, "nvidia0", "");
    ck_assert_uint_eq(gpu_slots(g), 0); /* the files know nothing of that */
}
END_TEST

START_TEST(what_is_wrong)
{
    static const struct {
        const char *what, *problem;
        uint32_t slots;
    } at[] = {
        {"gpus 1\ndriver 418.87.00\n",
         "found NVIDIA's driver 418.87.00, which is too old: 450 or newer is needed", 1},
        {"init 18\n",
         "found driver 535.1.2 and a library (libnvidia-ml.so.1) of another version: the same is needed "
         "(load the driver anew, or reboot)",
         1},
        {"init 9\n",
         "found NVIDIA's driver library (libnvidia-ml.so.1), which says: Driver Not Loaded; a working driver "
         "is needed",
         1},
        {"gpus 2\nerror 1 15\n", "found GPU 1, which does not answer (GPU is lost): one that does is needed",
         2},
    };
    put(dev, "nvidia0", "");
    put(proc, "version", "NVRM version: x 535.1.2 y\n");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        scan(at[i].what);
        ck_assert_str_eq(g->problem, at[i].problem);
        ck_assert_uint_eq(gpu_slots(g), at[i].slots);
        gpu_scan_free(g);
    }
    (void)remove_tree(AT_FDCWD, dev, 2);
    scan("init 9\n"); /* a library on a host without GPUs */
    ck_assert_str_eq(g->problem, "");
    ck_assert_uint_eq(gpu_slots(g), 0);
}
END_TEST

START_TEST(lists)
{
    char text[256];
    const char *mixed = "GPU-0a,MIG-1b,MIG-1c";
    ck_assert_str_eq(gpu_visible(HVD__BINDING__GPU__GPU_LIST, mixed, 3, 4, text, sizeof text), "MIG-1b");
    ck_assert_ptr_null(gpu_visible(HVD__BINDING__GPU__GPU_NONE, mixed, 3, 4, text, sizeof text));
    ck_assert_ptr_null(gpu_visible(HVD__BINDING__GPU__GPU_LIST, NULL, 0, 4, text, sizeof text));
    ck_assert_str_eq(gpu_visible(HVD__BINDING__GPU__GPU_SINGLE, "-1", 3, 4, text, sizeof text), "-1");
    ck_assert_str_eq(gpu_visible(HVD__BINDING__GPU__GPU_LIST, "", 3, 4, text, sizeof text), "");
    ck_assert_str_eq(gpu_visible(HVD__BINDING__GPU__GPU_LIST, "GPU-0a,GPU-1b", 3, 4, text, sizeof text),
                     "GPU-0a,GPU-1b");
    static const char *const by_uuid[][3] = {{NULL, "GPU-0a,GPU-1b", "GPU-0a,GPU-1b"},
                                             {"1,0", "GPU-0a,GPU-1b", "GPU-1b,GPU-0a"},
                                             {"1,2,0", "GPU-0a,GPU-1b", "GPU-1b"},
                                             {"GPU-7,1", "GPU-0a,GPU-1b", "GPU-7,GPU-1b"},
                                             {"-1", "GPU-0a,GPU-1b", ""}};
    for (size_t i = 0; i < sizeof by_uuid / sizeof *by_uuid; i++) {
        char *named = gpu_by_uuid(by_uuid[i][0], by_uuid[i][1]);
        ck_assert_str_eq(named, by_uuid[i][2]);
        free(named);
    }
    static const char *const meant[] = {"", "-1", "1,-1,0", "1,", "none", "NoDevFiles", "1,0", "GPU-9,0,0,1"};
    static const char *const wrong[][2] = {{"2", "2"}, {"0,7,1", "7"}, {"1,x", "x"}, {"0 1", "0 1"}};
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        ck_assert_msg(!gpu_unknown(meant[i], 2, text, sizeof text), "%s", meant[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(gpu_unknown(wrong[i][0], 2, text, sizeof text), "%s", wrong[i][0]);
        ck_assert_str_eq(text, wrong[i][1]);
    }
    ck_assert(gpu_lease_check("0,3") && gpu_lease_check("MIG-1b,GPU-0a") &&
              gpu_lease_check("MIG-GPU-0a/1/2"));
    ck_assert(!gpu_lease_check("") && !gpu_lease_check("0,0") && !gpu_lease_check("MIG-1b,") &&
              !gpu_lease_check("MIG-1b;x") && !gpu_lease_check("1b,GPU-0a") && !gpu_lease_check("GPU-0a,,"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_scan");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, buses);
    tcase_add_test(all, kernel_files);
    tcase_add_test(all, without_the_library);
    tcase_add_test(all, all_is_found);
    tcase_add_test(all, instances_are_slots);
    tcase_add_test(all, what_is_wrong);
    tcase_add_test(all, lists);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
