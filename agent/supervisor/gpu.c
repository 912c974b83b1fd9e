#include "agent/supervisor/gpu.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVML "libnvidia-ml.so.1"

/* -1: NVML is not here, or does not work. */
static int ask_nvml(void)
{
    void *lib = dlopen(NVML, RTLD_NOW | RTLD_LOCAL);
    unsigned count = 0;
    if (!lib)
        return -1;
    int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
    int (*shutdown)(void) = (int (*)(void))dlsym(lib, "nvmlShutdown");
    int (*get_count)(unsigned *) = (int (*)(unsigned *))dlsym(lib, "nvmlDeviceGetCount_v2");
    bool works = init && shutdown && get_count && init() == 0;
    if (works) {
        works = get_count(&count) == 0;
        shutdown();
    }
    dlclose(lib);
    return works && count <= INT32_MAX ? (int)count : -1;
}

uint32_t gpu_count(void)
{
    static int known = -1;
    if (known < 0)
        known = ask_nvml();
    if (known < 0)
        known = (int)gpu_count_files("/proc/driver/nvidia/gpus", "/dev");
    return (uint32_t)known;
}

/* ---- the driver's files -------------------------------------------------------------------------------- */

static uint32_t count_entries(const char *dir, bool (*wanted)(const char *name))
{
    DIR *d = opendir(dir);
    uint32_t n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += wanted(entry->d_name);
    if (d)
        closedir(d);
    return n;
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static bool is_device(const char *name)
{
    if (strncmp(name, "nvidia", 6) != 0 || !name[6])
        return false;
    for (const char *p = name + 6; *p; p++)
        if (!isdigit((unsigned char)*p))
            return false;
    return true;
}

uint32_t gpu_count_files(const char *proc_dir, const char *dev_dir)
{
    uint32_t gpus = count_entries(proc_dir, is_visible);
    return gpus ? gpus : count_entries(dev_dir, is_device);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

/* The length of the entry, if it names a device. */
static size_t entry_length(const char *list, uint32_t gpus)
{
    char *end;
    long index = strtol(list, &end, 10);
    bool number = end != list && (*end == ',' || *end == '\0');
    bool uuid = strncmp(list, "GPU-", 4) == 0 || strncmp(list, "MIG-", 4) == 0;
    return uuid || (number && index >= 0 && (unsigned long)index < gpus) ? strcspn(list, ",") : 0;
}

uint32_t gpu_count_visible(const char *list, uint32_t gpus)
{
    uint32_t n = 0;
    for (size_t len; n < gpus && (len = entry_length(list, gpus)) > 0;) {
        n++;
        list += len;
        if (*list++ != ',')
            break;
    }
    return n;
}

/* The n-th of them. */
static const char *pick(const char *list, uint32_t gpus, uint32_t n, char *text, size_t size)
{
    for (; n > 0; n--)
        list += entry_length(list, gpus) + 1;
    snprintf(text, size, "%.*s", (int)entry_length(list, gpus), list);
    return text;
}

const char *gpu_visible(Hvd__Binding__Gpu how, const char *list, uint32_t gpus, uint32_t local_rank,
                        char *text, size_t size)
{
    uint32_t count = list ? gpu_count_visible(list, gpus) : gpus;
    size_t used = 0;
    text[0] = '\0';
    if (how == HVD__BINDING__GPU__GPU_NONE || count == 0)
        return text;
    if (how == HVD__BINDING__GPU__GPU_SINGLE && list)
        return pick(list, gpus, local_rank % count, text, size);
    if (how == HVD__BINDING__GPU__GPU_SINGLE)
        snprintf(text, size, "%u", local_rank % count);
    else if (list)
        snprintf(text, size, "%s", list);
    else
        for (uint32_t i = 0; i < count && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%u", i ? "," : "", i);
    return text;
}

/* ---- sets ---------------------------------------------------------------------------------------------- */

const char *gpu_set_text(uint64_t set, char text[GPU_SET_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < GPU_SET_MAX; i++)
        if (set >> i & 1)
            used += (size_t)snprintf(text + used, GPU_SET_TEXT - used, "%s%u", used ? "," : "", i);
    return text;
}

bool gpu_set_read(const char *text, uint64_t *set)
{
    char *end;
    *set = 0;
    do {
        unsigned long index = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : GPU_SET_MAX;
        if (index >= GPU_SET_MAX || *set >> index & 1)
            return false;
        *set |= UINT64_C(1) << index;
        text = end + 1;
    } while (*end == ',');
    return *end == '\0';
}
