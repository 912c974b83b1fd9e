/* Stands in for the driver's libnvidia-ml.so.1 where there is no GPU. Its answers are those that NVML
 * documents; like NVML it must be initialised first. Two variables say which GPUs there are, and their
 * faults:
 *
 *   HVD_TEST_GPUS     the number of GPUs; without it no driver is loaded
 *   HVD_TEST_NVML     a file, which wins over the above: lines that are read at each initialisation
 *       gpus N                 driver TEXT            init CODE         it fails so
 *       mig GPU INSTANCES      temperature GPU C      ecc GPU COUNT     uncorrected errors
 *       slowed GPU REASONS     bits of its clocks' reasons, in hexadecimal
 *       fresh                  no devices yet: root's process makes them if it may; for others a setuid
 *                              program has to, if it is let
 *       error GPU CODE         what is asked about it ends so
 *       hang FUNCTION          it never returns
 *
 * GPU k is on the bus 0000:0k:00.0, or where HVD_TEST_NVML says `bus GPU NAME`. */
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/gpu/nvml.h"

#define MOST      16
#define INSTANCES 7

enum { INVALID = 2, NOT_FOUND = 6, UNINITIALISED = 1 };

struct nvml_device {
    unsigned number, instance; /* from 1; 0: the whole GPU */
};

static struct {
    bool there, fresh;
    unsigned gpus;
    int initialised, init;
    char driver[NVML_TEXT], hang[64];
    struct {
        unsigned instances, temperature;
        unsigned long long ecc;
        bool divided;
        unsigned slowed;
        int error;
        char bus[32];
    } gpu[MOST];
} state;

static struct nvml_device handle[MOST][1 + INSTANCES];

static void take_line(const char *line)
{
    unsigned gpu, value;
    char word[64];
    if (strcmp(line, "fresh\n") == 0)
        state.fresh = true;
    else if (sscanf(line, "gpus %u", &value) == 1)
        state.gpus = value;
    else if (sscanf(line, "driver %63s", word) == 1)
        snprintf(state.driver, sizeof state.driver, "%s", word);
    else if (sscanf(line, "init %u", &value) == 1)
        state.init = (int)value;
    else if (sscanf(line, "hang %63s", word) == 1)
        snprintf(state.hang, sizeof state.hang, "%s", word);
    else if (sscanf(line, "%63s %u", word, &gpu) != 2 || gpu >= MOST)
        return;
    else if (sscanf(line, "mig %u %u", &gpu, &state.gpu[gpu].instances) == 2)
        state.gpu[gpu].divided = true;
    else if (sscanf(line, "slowed %u %x", &gpu, &state.gpu[gpu].slowed) == 2)
        return;
    else if (sscanf(line, "bus %u %31s", &gpu, state.gpu[gpu].bus) == 2)
        return;
    else if (sscanf(line, "temperature %u %u", &gpu, &state.gpu[gpu].temperature) == 2 ||
             sscanf(line, "ecc %u %llu", &gpu, &state.gpu[gpu].ecc) == 2)
        return;
    else
        (void)sscanf(line, "error %u %d", &gpu, &state.gpu[gpu].error);
}

static void read_state(void)
{
    const char *gpus = getenv("HVD_TEST_GPUS"), *file = getenv("HVD_TEST_NVML");
    char line[128];
    int before = state.initialised;
    memset(&state, 0, sizeof state);
    state.initialised = before;
    snprintf(state.driver, sizeof state.driver, "550.54.14");
    for (unsigned i = 0; i < MOST; i++) {
        state.gpu[i].temperature = 40 + i;
        snprintf(state.gpu[i].bus, sizeof state.gpu[i].bus, "00000000:%02X:00.0", i);
    }
    FILE *f = file ? fopen(file, "r") : NULL;
    state.there = gpus || f;
    state.gpus = gpus ? (unsigned)strtoul(gpus, NULL, 10) : 0;
    while (f && fgets(line, sizeof line, f))
        take_line(line);
    if (f)
        fclose(f);
    if (state.gpus > MOST)
        state.gpus = MOST;
}

/* At the beginning of each function. */
static int enter(const char *function, nvml_device device)
{
    while (strcmp(state.hang, function) == 0)
        pause();
    if (state.initialised <= 0)
        return UNINITIALISED;
    if (device && (device < &handle[0][0] || device->number >= state.gpus))
        return INVALID;
    return device ? state.gpu[device->number].error : NVML_OK;
}

static int put_text(char *text, unsigned size, const char *what)
{
    int n = snprintf(text, size, "%s", what);
    return n >= 0 && (unsigned)n < size ? NVML_OK : 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlSystemGetNVMLVersion(char *text, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
int nvmlDeviceGetName(nvml_device device, char *text, unsigned size);
int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size);
int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci);
int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory);
int nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *value);
int nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned kind, unsigned *value);
int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilisation *rates);
int nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned kind, unsigned since, unsigned long long *count);
int nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons);
int nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *instance);

static bool may_make_devices(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};
    if (geteuid() != 0)
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
    return syscall(SYS_capget, &header, has) == 0 &&
           has[CAP_TO_INDEX(CAP_MKNOD)].effective & CAP_TO_MASK(CAP_MKNOD);
}

int nvmlInit_v2(void)
{
    read_state();
    if (!state.there || (state.fresh && !may_make_devices()))
        return NVML_NO_DRIVER;
    while (strcmp(state.hang, "init") == 0)
        pause();
    if (state.init)
        return state.init;
    state.initialised++;
    return NVML_OK;
}

int nvmlShutdown(void)
{
    return state.initialised-- > 0 ? NVML_OK : UNINITIALISED;
}

const char *nvmlErrorString(int result)
{
    return result == NVML_NO_DRIVER          ? "Driver Not Loaded"
           : result == NVML_GPU_LOST         ? "GPU is lost"
           : result == NVML_VERSION_MISMATCH ? "Driver/library version mismatch"
                                             : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    int rc = enter("driver", NULL);
    return rc ? rc : put_text(text, size, state.driver);
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    return put_text(text, size, "12.550.54.14");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 12040;
    return NVML_OK;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    int rc = enter("count", NULL);
    *count = state.gpus;
    return rc;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    int rc = enter("device", NULL);
    if (rc || index >= state.gpus)
        return rc ? rc : INVALID;
    handle[index][0] = (struct nvml_device){index, 0};
    *device = &handle[index][0];
    return NVML_OK;
}

int nvmlDeviceGetName(nvml_device device, char *text, unsigned size)
{
    int rc = enter("name", device);
    return rc ? rc : put_text(text, size, device->instance ? "Double MIG 1g.10gb" : "Double H100 80GB");
}

int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size)
{
    char uuid[64];
    int rc = enter("uuid", device);
    if (rc)
        return rc;
    snprintf(uuid, sizeof uuid, "%s-0000%04x-0000-4000-8000-%012x", device->instance ? "MIG" : "GPU",
             device->number, device->instance);
    return put_text(text, size, uuid);
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci)
{
    int rc = enter("pci", device);
    if (rc)
        return rc;
    memset(pci, 0, sizeof *pci);
    return put_text(pci->text, sizeof pci->text, state.gpu[device->number].bus);
}

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory)
{
    int rc = enter("memory", device);
    unsigned long long gib = device->instance ? 10 : 80;
    *memory = (struct nvml_memory){gib << 30, (gib - 2) << 30, 2ull << 30};
    return rc;
}

int nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *value)
{
    int rc = enter("temperature", device);
    *value = state.gpu[device->number].temperature;
    return rc ? rc : sensor == NVML_SENSOR_GPU ? NVML_OK : INVALID;
}

int nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned kind, unsigned *value)
{
    int rc = enter("threshold", device);
    *value = 87;
    return rc ? rc : kind == NVML_THRESHOLD_SLOWDOWN ? NVML_OK : INVALID;
}

int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilisation *rates)
{
    int rc = enter("utilisation", device);
    *rates = (struct nvml_utilisation){25, 10};
    return rc ? rc : device->instance ? NVML_NOT_SUPPORTED : NVML_OK;
}

int nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned kind, unsigned since, unsigned long long *count)
{
    int rc = enter("ecc", device);
    *count = kind == NVML_UNCORRECTED ? state.gpu[device->number].ecc : 3;
    return rc ? rc : since == NVML_VOLATILE ? NVML_OK : INVALID;
}

int nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons)
{
    int rc = enter("slowed", device);
    *reasons = 1 | state.gpu[device->number].slowed; /* it is idle */
    return rc;
}

int nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *pending)
{
    int rc = enter("mig", device);
    *now = *pending = state.gpu[device->number].divided;
    return rc;
}

int nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count)
{
    *count = INSTANCES;
    return enter("mig", device);
}

/* Instances have numbers with gaps, as after some were removed. */
int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *instance)
{
    int rc = enter("mig", device);
    if (rc || index == 0 || index > state.gpu[device->number].instances || index >= INSTANCES)
        return rc ? rc : NOT_FOUND;
    handle[device->number][index] = (struct nvml_device){device->number, index};
    *instance = &handle[device->number][index];
    return NVML_OK;
}
