#include "agent/gpu/gpu.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/gpu/gpu_scan.h"
#include "agent/gpu/nvml.h"
#include "common/process/gpu_probe.h"
#include "common/protocol/message.h"
#include "common/process/module.h"

#define PROBLEM_MAX 512

/* ---- the list of GPUs --------------------------------------------------------------------------------- */

Hvd__Gpus *gpu_ask(uint32_t limit_ms, struct err *e)
{
    char agent[PATH_MAX];
    if (gpu_agent_path(agent, sizeof agent, e) < 0)
        return NULL;
    return gpu_probe(agent, false, limit_ms, e);
}

int gpu_agent_path(char *path, size_t size, struct err *e)
{
    if (module_program_dir(path, size - sizeof "/hvdagent", e) < 0)
        return -1;
    size_t used = strlen(path);
    snprintf(path + used, size - used, "/hvdagent");
    return 0;
}

uint32_t gpu_slots(const Hvd__Gpus *g)
{
    return g->n_gpu || g->driver[0] ? (uint32_t)g->n_gpu : g->devices;
}

static char *uuids_of(const Hvd__Gpus *g, uint64_t set)
{
    size_t used = 0, size = g->n_gpu * (GPU_UUID_MAX + 1) + 1;
    char *text = calloc(1, size);
    for (size_t i = 0; text && i < g->n_gpu; i++)
        if (set >> i & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? "," : "", GPU_UUID_MAX,
                                     g->gpu[i]->uuid);
    return text;
}

char *gpu_identities(const Hvd__Gpus *g, uint64_t set)
{
    bool any = false;
    for (size_t i = 0; i < g->n_gpu; i++)
        any = any || g->gpu[i]->instance;
    return any ? uuids_of(g, set) : NULL;
}

/* ---- this host, asked once ----------------------------------------------------------------------------- */

static struct {
    bool asked;
    uint32_t count;
    char *list, *uuids;
    char problem[PROBLEM_MAX];
    uint32_t limit_ms;
} host = {.limit_ms = GPU_PROBE_MS};

void gpu_wait_at_most(uint32_t limit_ms)
{
    host.limit_ms = limit_ms < host.limit_ms ? limit_ms : host.limit_ms;
}

bool gpu_may_be_here(void)
{
    return gpu_scan_files(&gpu_places) || nvml_is_there() || gpu_scan_orphans(gpu_places.pci);
}

static void ask_host(void)
{
    struct err e = ERR_INIT;
    host.asked = true;
    host.count = gpu_scan_files(&gpu_places);
    if (!gpu_may_be_here())
        return;
    Hvd__Gpus *g = gpu_ask(host.limit_ms, &e);
    if (!g) {
        snprintf(host.problem, sizeof host.problem,
                 "%.400s; found %u GPUs by its files, and one that answers is needed", e.text, host.count);
        return;
    }
    host.count = gpu_slots(g);
    host.list = gpu_identities(g, UINT64_MAX);
    bool known = g->n_gpu > 0 && g->n_gpu == host.count;
    for (size_t i = 0; i < g->n_gpu && known; i++)
        known = g->gpu[i]->uuid[0] && strlen(g->gpu[i]->uuid) <= GPU_UUID_MAX;
    host.uuids = known ? uuids_of(g, UINT64_MAX) : NULL;
    snprintf(host.problem, sizeof host.problem, "%s", g->problem);
    message_free(g);
}

uint32_t gpu_count(void)
{
    if (!host.asked)
        ask_host();
    return host.count;
}

const char *gpu_list(void)
{
    return gpu_count() ? host.list : NULL;
}

const char *gpu_uuids(void)
{
    return gpu_count() ? host.uuids : NULL;
}

const char *gpu_problem(void)
{
    return host.problem;
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

/* Values with which people and batch systems mean no GPU. */
static bool is_meant_as_none(const char *entry, size_t len)
{
    static const char *const words[] = {"none", "void", "NoDevFiles"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == len && strncmp(entry, words[i], len) == 0)
            return true;
    return len == 0 || *entry == '-';
}

bool gpu_unknown(const char *list, uint32_t gpus, char *entry, size_t size)
{
    for (size_t len; (len = entry_length(list, gpus)) > 0; list += len + 1)
        if (!list[len])
            return false;
    size_t len = strcspn(list, ",");
    snprintf(entry, size, "%.*s", (int)len, list);
    return !is_meant_as_none(list, len);
}

/* The n-th of them. */
static const char *copy_entry(const char *list, uint32_t gpus, uint32_t n, char *text, size_t size)
{
    for (; n > 0; n--)
        list += entry_length(list, gpus) + 1;
    snprintf(text, size, "%.*s", (int)entry_length(list, gpus), list);
    return text;
}

static uint32_t entries_of(const char *list)
{
    uint32_t n = *list ? 1 : 0;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

char *gpu_by_uuid(const char *list, const char *uuids)
{
    uint32_t gpus = entries_of(uuids), count = list ? gpu_count_visible(list, gpus) : 0;
    size_t used = 0, size = (size_t)count * (GPU_UUID_MAX + 1) + (list ? strlen(list) : 0) + 1;
    char entry[GPU_UUID_MAX + 1], *text = list ? calloc(1, size) : strdup(uuids);
    for (uint32_t i = 0; text && i < count; i++) {
        copy_entry(list, gpus, i, entry, sizeof entry);
        if (isdigit((unsigned char)entry[0]))
            copy_entry(uuids, gpus, (uint32_t)strtoul(entry, NULL, 10), entry, sizeof entry);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "", entry);
    }
    return text;
}

bool gpu_alone(Hvd__Binding__Gpu how, const char *list)
{
    bool divided = list && how != HVD__BINDING__GPU__GPU_NONE && strstr(list, "MIG-");
    return how == HVD__BINDING__GPU__GPU_SINGLE || divided;
}

const char *gpu_visible(Hvd__Binding__Gpu how, const char *list, uint32_t gpus, uint32_t local_rank,
                        char *text, size_t size)
{
    uint32_t count = list ? gpu_count_visible(list, gpus) : gpus;
    size_t used = 0;
    bool alone = gpu_alone(how, list) && count > 0;
    text[0] = '\0';
    if (how == HVD__BINDING__GPU__GPU_NONE || (count == 0 && !list))
        return NULL;
    if (alone && list)
        return copy_entry(list, gpus, local_rank % count, text, size);
    if (alone)
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

bool gpu_lease_check(const char *text)
{
    uint64_t set;
    size_t entries = 0;
    if (gpu_set_read(text, &set))
        return true;
    for (;; text++) {
        size_t len = strspn(text, GPU_UUID_LETTERS);
        bool uuid = strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
        if (!uuid || len > GPU_UUID_MAX || ++entries > GPU_SET_MAX)
            return false;
        text += len;
        if (*text != ',')
            return *text == '\0';
    }
}
