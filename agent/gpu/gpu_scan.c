#include "agent/gpu/gpu_scan.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "agent/gpu/nvml.h"
#include "common/base/log.h"
#include "common/process/spawn.h"
#include "common/status/gpu_slow.h"
#include "common/base/file.h"

#define CUDA_LIBRARY  "libcuda.so.1"
#define NCCL_LIBRARY  "libnccl.so.2"
#define INSTANCES_MAX 64
#define PROBLEM_MAX   400

const struct gpu_places gpu_places = {"/proc/driver/nvidia", "/dev", "/sys/bus/pci/devices"};

/* ---- the kernel's files -------------------------------------------------------------------------------- */

static uint32_t count_entries(const char *dir, bool (*wanted)(const char *dir, const char *name))
{
    DIR *d = opendir(dir);
    uint32_t n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += wanted(dir, entry->d_name);
    if (d)
        closedir(d);
    return n;
}

static bool is_visible(const char *dir, const char *name)
{
    (void)dir;
    return name[0] != '.';
}

static bool is_device(const char *dir, const char *name)
{
    (void)dir;
    if (strncmp(name, "nvidia", 6) != 0 || !name[6])
        return false;
    for (const char *p = name + 6; *p; p++)
        if (!isdigit((unsigned char)*p))
            return false;
    return true;
}

uint32_t gpu_scan_files(const struct gpu_places *places)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/gpus", places->proc);
    uint32_t gpus = count_entries(dir, is_visible);
    return gpus ? gpus : count_entries(places->dev, is_device);
}

/* The first line of a small file; empty: there is none. */
static const char *read_line(const char *dir, const char *name, const char *file, char *text, int size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%s%s", dir, name, *name ? "/" : "", file);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(text, size, f))
        text[0] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool is_orphan(const char *pci, const char *name)
{
    char text[64], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/driver", pci, name);
    return name[0] != '.' && strncmp(read_line(pci, name, "vendor", text, sizeof text), "0x10de", 6) == 0 &&
           strncmp(read_line(pci, name, "class", text, sizeof text), "0x0302", 6) == 0 &&
           access(path, F_OK) < 0;
}

uint32_t gpu_scan_orphans(const char *pci)
{
    return count_entries(pci, is_orphan);
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 ...": the first word that is one. */
const char *gpu_scan_driver(const char *proc, char *text, size_t size)
{
    char line[256];
    const char *p = read_line(proc, "", "version", line, sizeof line);
    text[0] = '\0';
    for (size_t len; *p; p += len + strspn(p + len, " \t\n")) {
        len = strcspn(p, " \t\n");
        if (isdigit((unsigned char)*p) && strspn(p, "0123456789.") == len && memchr(p, '.', len)) {
            snprintf(text, size, "%.*s", (int)len, p);
            break;
        }
    }
    return text;
}

const char *gpu_scan_bus(const char *nvml, char *text, size_t size)
{
    unsigned domain, bus, device, function;
    int end = 0;
    text[0] = '\0';
    if (sscanf(nvml, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4 && !nvml[end])
        snprintf(text, size, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return text;
}

int gpu_scan_numa(const char *pci, const char *bus)
{
    char text[32], *end;
    if (!*bus)
        return -1;
    long node = strtol(read_line(pci, bus, "numa_node", text, sizeof text), &end, 10);
    return end != text && node >= 0 && node < INT_MAX ? (int)node : -1;
}

/* ---- one GPU ------------------------------------------------------------------------------------------- */

static char *text_of(const char *words)
{
    char *copy = strdup(words);
    if (copy)
        log_printable(copy);
    return copy;
}

static Hvd__Gpu *add_gpu(Hvd__Gpus *g)
{
    Hvd__Gpu *gpu = g->n_gpu < GPU_SCAN_MAX ? malloc(sizeof *gpu) : NULL;
    if (!gpu)
        return NULL;
    hvd__gpu__init(gpu);
    gpu->numa = gpu->utilisation = -1;
    gpu->ecc_corrected = gpu->ecc_uncorrected = gpu->slowed = -1;
    return g->gpu[g->n_gpu++] = gpu;
}

static void set_text(char **to, int result, const char *text)
{
    char *copy = result == NVML_OK && *text ? text_of(text) : NULL;
    if (copy)
        *to = copy;
}

static void look_at_names(const struct nvml *n, nvml_device device, Hvd__Gpu *gpu)
{
    char text[NVML_TEXT] = "";
    struct nvml_memory memory;
    set_text(&gpu->name, n->name(device, text, sizeof text), text);
    set_text(&gpu->uuid, n->uuid(device, text, sizeof text), text);
    if (n->memory(device, &memory) == NVML_OK) {
        gpu->memory = memory.total;
        gpu->memory_used = memory.used;
    }
}

static int64_t ecc_errors(const struct nvml *n, nvml_device device, unsigned kind)
{
    unsigned long long count;
    return n->ecc && n->ecc(device, kind, NVML_VOLATILE, &count) == NVML_OK && count <= INT64_MAX
               ? (int64_t)count
               : -1;
}

/* -1: an older driver, or an older GPU, does not tell. */
static int64_t slow_reasons(const struct nvml *n, nvml_device device)
{
    unsigned long long reasons = 0;
    int (*ask)(nvml_device, unsigned long long *) = n->slow_reasons ? n->slow_reasons : n->old_slow_reasons;
    return ask && ask(device, &reasons) == NVML_OK ? (int64_t)(reasons & GPU_SLOW_ALL) : -1;
}

/* The values that an instance shares with its GPU. */
static void look_at_device(const struct nvml *n, nvml_device device, const char *pci, Hvd__Gpu *gpu)
{
    struct nvml_pci place = {.text = ""};
    struct nvml_utilisation rates;
    unsigned value;
    char bus[32];
    int answer = n->temperature(device, NVML_SENSOR_GPU, &value);
    gpu->temperature = answer == NVML_OK ? value : 0;
    if (answer != NVML_OK && answer != NVML_NOT_SUPPORTED)
        set_text(&gpu->fault, NVML_OK, n->error_text(answer));
    if (n->threshold && n->threshold(device, NVML_THRESHOLD_SLOWDOWN, &value) == NVML_OK)
        gpu->slowdown = value;
    if (n->pci && n->pci(device, &place) == NVML_OK) {
        place.text[sizeof place.text - 1] = '\0';
        set_text(&gpu->bus, NVML_OK, gpu_scan_bus(place.text, bus, sizeof bus));
        gpu->numa = gpu_scan_numa(pci, bus);
    }
    if (n->utilisation(device, &rates) == NVML_OK)
        gpu->utilisation = (int)(rates.gpu < 100 ? rates.gpu : 100);
    gpu->slowed = slow_reasons(n, device);
    gpu->ecc_corrected = ecc_errors(n, device, NVML_CORRECTED);
    gpu->ecc_uncorrected = ecc_errors(n, device, NVML_UNCORRECTED);
}

static bool is_divided(const struct nvml *n, nvml_device device)
{
    unsigned now = 0, pending;
    return n->mig_mode && n->mig_most && n->mig_device && n->mig_mode(device, &now, &pending) == NVML_OK &&
           now == 1;
}

static void look_at_instances(const struct nvml *n, nvml_device device, uint32_t number, const char *pci,
                              Hvd__Gpus *g)
{
    unsigned most = 0, found = 0;
    nvml_device instance;
    (void)n->mig_most(device, &most);
    for (unsigned i = 0; i < most && i < INSTANCES_MAX; i++) {
        Hvd__Gpu *gpu = n->mig_device(device, i, &instance) == NVML_OK ? add_gpu(g) : NULL;
        if (!gpu)
            continue;
        found++;
        gpu->device = number;
        gpu->instance = true;
        look_at_names(n, instance, gpu);
        look_at_device(n, device, pci, gpu);
        gpu->utilisation = -1;
    }
    g->undivided += found == 0;
}

static void look_at(const struct nvml *n, uint32_t number, const char *pci, Hvd__Gpus *g)
{
    nvml_device device;
    int answer = n->device(number, &device);
    if (answer == NVML_OK && is_divided(n, device)) {
        look_at_instances(n, device, number, pci, g);
        return;
    }
    Hvd__Gpu *gpu = add_gpu(g);
    if (!gpu)
        return;
    gpu->device = number;
    if (answer != NVML_OK) {
        set_text(&gpu->fault, NVML_OK, n->error_text(answer));
        return;
    }
    look_at_names(n, device, gpu);
    look_at_device(n, device, pci, gpu);
}

/* ---- the library --------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void describe_problem(Hvd__Gpus *g, const char *fmt, ...)
{
    char text[PROBLEM_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!*g->problem)
        set_text(&g->problem, NVML_OK, text);
}

static void without_library(Hvd__Gpus *g, const struct gpu_places *places, const char *loaded)
{
    uint32_t orphans = g->devices ? 0 : gpu_scan_orphans(places->pci);
    if (g->devices && *loaded)
        describe_problem(
            g, "found %u NVIDIA GPUs, and not the driver's library (%s): that of driver %s is needed",
            g->devices, NVML_LIBRARY, loaded);
    else if (g->devices)
        describe_problem(g, "found %u NVIDIA GPUs, and no driver (%s): NVIDIA's driver %d or newer is needed",
                         g->devices, NVML_LIBRARY, GPU_DRIVER_FLOOR);
    else if (orphans)
        describe_problem(
            g, "found %u NVIDIA GPUs that no driver has taken: NVIDIA's driver %d or newer is needed",
            orphans, GPU_DRIVER_FLOOR);
}

static void not_initialised(Hvd__Gpus *g, const struct nvml *n, int answer, const char *loaded)
{
    if (answer == NVML_VERSION_MISMATCH)
        describe_problem(
            g,
            "found driver %s and a library (%s) of another version: the same is needed (load the driver "
            "anew, or reboot)",
            *loaded ? loaded : "of an unknown version", NVML_LIBRARY);
    else if (answer != NVML_NO_DRIVER || g->devices)
        describe_problem(g, "found NVIDIA's driver library (%s), which says: %s; a working driver is needed",
                         NVML_LIBRARY, n->error_text(answer));
}

static void read_versions(const struct nvml *n, Hvd__Gpus *g)
{
    char text[NVML_TEXT] = "";
    int cuda = 0;
    set_text(&g->driver, n->driver_version(text, sizeof text), text);
    set_text(&g->nvml, n->nvml_version(text, sizeof text), text);
    if (n->cuda_version && n->cuda_version(&cuda) == NVML_OK && cuda > 0) {
        snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
        set_text(&g->cuda, NVML_OK, text);
    }
    if (isdigit((unsigned char)g->driver[0]) && strtol(g->driver, NULL, 10) < GPU_DRIVER_FLOOR)
        describe_problem(g, "found NVIDIA's driver %s, which is too old: %d or newer is needed", g->driver,
                         GPU_DRIVER_FLOOR);
}

static void ask_nvml(const struct nvml *n, const struct gpu_places *places, const char *loaded, Hvd__Gpus *g)
{
    unsigned count = 0;
    int answer = n->init();
    if (answer != NVML_OK) {
        not_initialised(g, n, answer, loaded);
        return;
    }
    read_versions(n, g);
    answer = n->count(&count);
    if (answer != NVML_OK)
        describe_problem(g,
                         "found NVIDIA's driver %s, which cannot count its GPUs: %s; a working one is needed",
                         g->driver, n->error_text(answer));
    for (uint32_t i = 0; i < count && i < GPU_SCAN_MAX; i++)
        look_at(n, i, places->pci, g);
    if (g->undivided)
        describe_problem(g, "found %u GPUs in MIG mode without an instance: each needs one to be used",
                         g->undivided);
    for (size_t i = 0; i < g->n_gpu; i++)
        if (g->gpu[i]->fault[0])
            describe_problem(g, "found GPU %u, which does not answer (%s): one that does is needed",
                             g->gpu[i]->device, g->gpu[i]->fault);
    (void)n->shutdown();
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static void scan_nccl(Hvd__Gpus *g)
{
    char text[32];
    int version = 0;
    void *library = dlopen(NCCL_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    int (*get)(int *) = NULL;
    if (library)
        *(void **)(void *)&get = dlsym(library, "ncclGetVersion");
    if (!get || get(&version) != 0)
        return;
    int major = version >= 10000 ? version / 10000 : version / 1000;
    snprintf(text, sizeof text, "%d.%d.%d", major,
             version >= 10000 ? version / 100 % 100 : version / 100 % 10, version % 100);
    set_text(&g->nccl, NVML_OK, text);
}

/* Without NVML, or when NVML does not know the GPU. */
static void scan_cuda(Hvd__Gpus *g)
{
    char text[32];
    int version = 0;
    void *library = g->cuda[0] ? NULL : dlopen(CUDA_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    int (*get)(int *) = NULL;
    if (library)
        *(void **)(void *)&get = dlsym(library, "cuDriverGetVersion");
    if (!get || get(&version) != 0 || version <= 0)
        return;
    snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
    set_text(&g->cuda, NVML_OK, text);
}

static void scan_mps(Hvd__Gpus *g)
{
    char path[PATH_MAX];
    struct err none = ERR_INIT;
    if (spawn_find(MPS_PROGRAM, getenv("PATH"), NULL, path, sizeof path, &none) == 0)
        set_text(&g->mps, NVML_OK, path);
}

Hvd__Gpus *gpu_scan(const struct gpu_places *places, bool libraries)
{
    char loaded[NVML_TEXT];
    struct nvml n;
    Hvd__Gpus *g = malloc(sizeof *g);
    if (!g)
        return NULL;
    hvd__gpus__init(g);
    g->gpu = calloc(GPU_SCAN_MAX, sizeof(Hvd__Gpu *));
    if (!g->gpu) {
        free(g);
        return NULL;
    }
    g->devices = gpu_scan_files(places);
    gpu_scan_driver(places->proc, loaded, sizeof loaded);
    const char *missing = nvml_open(&n);
    if (missing)
        describe_problem(g, "found NVIDIA's driver %s, which is too old (no %s): %d or newer is needed",
                         loaded, missing, GPU_DRIVER_FLOOR);
    else if (!n.library)
        without_library(g, places, loaded);
    else
        ask_nvml(&n, places, loaded, g);
    if (n.library)
        nvml_close(&n);
    scan_mps(g);
    if (libraries) {
        scan_cuda(g);
        scan_nccl(g);
    }
    return g;
}

void gpu_scan_free(Hvd__Gpus *g)
{
    hvd__gpus__free_unpacked(g, NULL);
}

bool gpu_scan_is_first(const struct gpu_places *places)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/nvidiactl", places->dev);
    return access(path, F_OK) < 0;
}

/* Root's files stay root's: the driver's devices, for example, where other users may not open them. When no
 * process has made the devices since the machine was started, the driver's library makes them or starts
 * nvidia-modprobe, so root keeps the right to both. A user's rights stay as they are: nvidia-modprobe is
 * setuid, as it is for the user's own programs. */
static void give_up_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct kept[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};
    bool root = geteuid() == 0, first = root && gpu_scan_is_first(&gpu_places);
    if (root && !first)
        (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (first)
        kept[CAP_TO_INDEX(CAP_MKNOD)].effective = kept[CAP_TO_INDEX(CAP_MKNOD)].permitted =
            CAP_TO_MASK(CAP_MKNOD);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (syscall(SYS_capset, &header, kept) < 0 && first) { /* it was not there to be kept */
        memset(kept, 0, sizeof kept);
        (void)syscall(SYS_capset, &header, kept);
    }
}

int gpu_scan_main(bool libraries)
{
    give_up_rights();
    Hvd__Gpus *g = gpu_scan(&gpu_places, libraries);
    if (g)
        g->answered = true;
    size_t size = g ? hvd__gpus__get_packed_size(g) : 0;
    uint8_t *bytes = g ? malloc(size + 1) : NULL;
    int rc = bytes ? write_all(STDOUT_FILENO, bytes, hvd__gpus__pack(g, bytes)) : -1;
    free(bytes);
    if (g)
        gpu_scan_free(g);
    return rc < 0;
}
