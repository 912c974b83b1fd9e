/* NVML, the library of NVIDIA's driver that tells about its GPUs: our own declarations of the part that we
 * use, opened at run time. No header of NVIDIA is needed to build; where one is found, test_gpu_scan compares
 * it with this one.
 *
 * It may hang for as long as the driver does: only a process that others can do without opens it
 * (gpu_scan.h). */
#pragma once

#include <stdbool.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

enum nvml_result {
    NVML_OK = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_DRIVER = 9,
    NVML_GPU_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_VERSION_MISMATCH = 18,
};

#define NVML_TEXT               96 /* no version, name or UUID is longer */
#define NVML_SENSOR_GPU         0
#define NVML_THRESHOLD_SLOWDOWN 1
#define NVML_CORRECTED          0
#define NVML_UNCORRECTED        1
#define NVML_VOLATILE           0 /* since the driver was loaded */

typedef struct nvml_device *nvml_device;

struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilisation {
    unsigned gpu, memory;
};

/* X(our name, its name, required, arguments) */
#define NVML_FUNCTIONS(X)                                                                                    \
    X(init, "nvmlInit_v2", true, (void))                                                                     \
    X(shutdown, "nvmlShutdown", true, (void))                                                                \
    X(driver_version, "nvmlSystemGetDriverVersion", true, (char *text, unsigned size))                       \
    X(nvml_version, "nvmlSystemGetNVMLVersion", true, (char *text, unsigned size))                           \
    X(cuda_version, "nvmlSystemGetCudaDriverVersion_v2", false, (int *version))                              \
    X(count, "nvmlDeviceGetCount_v2", true, (unsigned *count))                                               \
    X(device, "nvmlDeviceGetHandleByIndex_v2", true, (unsigned index, nvml_device *device))                  \
    X(name, "nvmlDeviceGetName", true, (nvml_device device, char *text, unsigned size))                      \
    X(uuid, "nvmlDeviceGetUUID", true, (nvml_device device, char *text, unsigned size))                      \
    X(pci, "nvmlDeviceGetPciInfo_v3", false, (nvml_device device, struct nvml_pci * pci))                    \
    X(memory, "nvmlDeviceGetMemoryInfo", true, (nvml_device device, struct nvml_memory * memory))            \
    X(temperature, "nvmlDeviceGetTemperature", true, (nvml_device device, unsigned sensor, unsigned *value)) \
    X(threshold, "nvmlDeviceGetTemperatureThreshold", false,                                                 \
      (nvml_device device, unsigned kind, unsigned *value))                                                  \
    X(utilisation, "nvmlDeviceGetUtilizationRates", true,                                                    \
      (nvml_device device, struct nvml_utilisation * rates))                                                 \
    X(ecc, "nvmlDeviceGetTotalEccErrors", false,                                                             \
      (nvml_device device, unsigned kind, unsigned since, unsigned long long *count))                        \
    X(slow_reasons, "nvmlDeviceGetCurrentClocksEventReasons", false,                                         \
      (nvml_device device, unsigned long long *reasons))                                                     \
    X(old_slow_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", false,                                  \
      (nvml_device device, unsigned long long *reasons))                                                     \
    X(mig_mode, "nvmlDeviceGetMigMode", false, (nvml_device device, unsigned *now, unsigned *pending))       \
    X(mig_most, "nvmlDeviceGetMaxMigDeviceCount", false, (nvml_device device, unsigned *count))              \
    X(mig_device, "nvmlDeviceGetMigDeviceHandleByIndex", false,                                              \
      (nvml_device device, unsigned index, nvml_device *instance))

/* Those that are not required are NULL in a library that is too old for them. */
struct nvml {
    void *library;
    const char *(*error_text)(int result);
#define NVML_MEMBER(name, symbol, required, arguments) int(*name) arguments;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
};

/* Is it there at all? It is not initialised. */
bool nvml_is_there(void);
/* NULL, or the name of a function without which we cannot do; then, as when it is not there (library is
 * NULL), nothing must be closed. */
const char *nvml_open(struct nvml *n);
void nvml_close(struct nvml *n);
