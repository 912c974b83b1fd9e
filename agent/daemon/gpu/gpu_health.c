#include "agent/daemon/gpu/gpu_health.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULT_WORD "fault "
#define FAULT_LINE FAULT_WORD "%" SCNu32 " - %" SCNu32 " %" SCNu64 " "

/* ---- Xids ---------------------------------------------------------------------------------------------- */

bool gpu_xids_check(const char *list)
{
    for (;; list++) {
        size_t digits = strspn(list, "0123456789");
        if (digits < 1 || digits > 4)
            return false;
        list += digits;
        if (*list != ',')
            return *list == '\0';
    }
}

static bool is_in(const char *list, uint32_t number)
{
    for (char *end; *list; list = *end ? end + 1 : end)
        if (strtoul(list, &end, 10) == number)
            return true;
    return false;
}

bool gpu_health_xid(struct gpu_health *h, const struct gpu_rules *rules, const struct xid *x)
{
    bool fault = x->us > h->accepted_us && is_in(rules->xids, x->number), ours = false;
    h->seen_us = x->us > h->seen_us ? x->us : h->seen_us;
    for (uint32_t i = 0; i < h->slots; i++) {
        struct gpu_slot *slot = &h->slot[i];
        if (strcmp(slot->bus, x->bus) != 0)
            continue;
        slot->xids++;
        slot->last_xid = x->number;
        ours = true;
        if (fault)
            slot->fault = *x;
    }
    return fault && ours;
}

/* ---- slots --------------------------------------------------------------------------------------------- */

static const struct gpu_slot *find_slot(const struct gpu_health *h, const char *uuid)
{
    for (uint32_t i = 0; *uuid && i < h->slots; i++)
        if (strcmp(h->slot[i].uuid, uuid) == 0)
            return &h->slot[i];
    return NULL;
}

void gpu_health_number(struct gpu_health *h, const Hvd__Gpus *g, uint32_t count)
{
    static struct gpu_health before; /* too large for a stack */
    before = *h;
    memset(h->slot, 0, sizeof h->slot);
    h->slots = count < GPU_SET_MAX ? count : GPU_SET_MAX;
    for (uint32_t i = 0; g && i < g->n_gpu && i < h->slots; i++) {
        struct gpu_slot *slot = &h->slot[i];
        const struct gpu_slot *known = find_slot(&before, g->gpu[i]->uuid);
        if (known)
            *slot = *known;
        snprintf(slot->uuid, sizeof slot->uuid, "%s", g->gpu[i]->uuid);
        snprintf(slot->bus, sizeof slot->bus, "%s", g->gpu[i]->bus);
        slot->device = g->gpu[i]->device;
    }
}

/* One that does not answer has no name either. */
const Hvd__Gpu *gpu_health_find(const struct gpu_slot *slot, const Hvd__Gpus *g)
{
    const Hvd__Gpu *silent = NULL;
    for (size_t i = 0; g && i < g->n_gpu; i++) {
        if (slot->uuid[0] && strcmp(g->gpu[i]->uuid, slot->uuid) == 0)
            return g->gpu[i];
        if (!g->gpu[i]->uuid[0] && g->gpu[i]->device == slot->device)
            silent = g->gpu[i];
    }
    return silent;
}

void gpu_health_accept(struct gpu_health *h, const Hvd__Gpus *g)
{
    h->accepted_us = h->seen_us > h->accepted_us ? h->seen_us : h->accepted_us;
    for (uint32_t i = 0; i < h->slots; i++) {
        const Hvd__Gpu *gpu = gpu_health_find(&h->slot[i], g);
        h->slot[i].fault.number = 0;
        if (gpu)
            h->slot[i].ecc = gpu->ecc_uncorrected > 0 ? gpu->ecc_uncorrected : 0;
    }
}

/* ---- judgement ----------------------------------------------------------------------------------------- */

static void judge_driver(struct gpu_slot *slot, const Hvd__Gpu *gpu, const char *failure)
{
    if (failure)
        snprintf(slot->why, sizeof slot->why, "%s", failure);
    else if (!gpu)
        snprintf(slot->why, sizeof slot->why, "it is gone: the driver does not know it any more");
    else if (gpu->fault[0])
        snprintf(slot->why, sizeof slot->why, "it does not answer: %s", gpu->fault);
}

static void judge_ecc(struct gpu_slot *slot, const Hvd__Gpu *gpu, int64_t most)
{
    if (gpu->ecc_uncorrected >= 0 && gpu->ecc_uncorrected < slot->ecc)
        slot->ecc = 0; /* the driver was loaded anew and counts from there */
    if (gpu->ecc_uncorrected - slot->ecc > most)
        snprintf(slot->why, sizeof slot->why,
                 "%" PRId64 " uncorrected memory errors (ECC), %" PRId64 " allowed",
                 gpu->ecc_uncorrected - slot->ecc, most);
}

static void judge_temperature(struct gpu_slot *slot, const Hvd__Gpu *gpu, uint32_t limit)
{
    limit = limit ? limit : gpu->slowdown;
    slot->hot = limit && gpu->temperature >= limit - (slot->hot && limit > GPU_COOLER ? GPU_COOLER : 0);
    if (slot->hot)
        snprintf(slot->why, sizeof slot->why, "%u degrees Celsius, the limit is %u", gpu->temperature, limit);
}

static void judge_slot(struct gpu_slot *slot, const struct gpu_rules *rules, const Hvd__Gpu *gpu,
                       const char *failure)
{
    slot->why[0] = '\0';
    if (rules->checks & GPU_CHECK_DRIVER)
        judge_driver(slot, gpu, failure);
    if (!slot->why[0] && rules->checks & GPU_CHECK_XID && slot->fault.number)
        snprintf(slot->why, sizeof slot->why, "Xid %u (%s)", slot->fault.number, slot->fault.text);
    if (!slot->why[0] && rules->checks & GPU_CHECK_ECC && gpu)
        judge_ecc(slot, gpu, rules->max_ecc);
    if (!slot->why[0] && rules->checks & GPU_CHECK_TEMPERATURE && gpu)
        judge_temperature(slot, gpu, rules->max_temperature);
}

void gpu_health_judge(struct gpu_health *h, const struct gpu_rules *rules, const Hvd__Gpus *g,
                      const char *failure)
{
    for (uint32_t i = 0; i < h->slots; i++)
        judge_slot(&h->slot[i], rules, gpu_health_find(&h->slot[i], g), failure);
}

const char *gpu_health_text(const struct gpu_health *h, char *text, size_t size)
{
    uint32_t ill = 0, first = 0;
    text[0] = '\0';
    for (uint32_t i = h->slots; i > 0; i--) {
        if (!h->slot[i - 1].why[0])
            continue;
        first = i - 1;
        ill++;
    }
    const struct gpu_slot *slot = &h->slot[first];
    const char *name = slot->uuid[0] ? slot->uuid : "its name is not known";
    if (ill == 1)
        snprintf(text, size, "GPU %u (%s): %s", first, name, slot->why);
    else if (ill)
        snprintf(text, size, "GPU %u (%s): %s; and %u more", first, name, slot->why, ill - 1);
    return text;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static void load_fault(struct gpu_health *h, const char *line)
{
    uint32_t index;
    struct xid x = {.us = 0};
    int end = 0;
    if (sscanf(line, FAULT_LINE "%n", &index, &x.number, &x.us, &end) != 3 || !end || index >= h->slots)
        return;
    snprintf(x.bus, sizeof x.bus, "%s", h->slot[index].bus);
    snprintf(x.text, sizeof x.text, "%.*s", (int)strcspn(line + end, "\n"), line + end);
    h->slot[index].fault = x;
    h->seen_us = x.us > h->seen_us ? x.us : h->seen_us;
}

static void load_slot(struct gpu_health *h, const char *line)
{
    struct gpu_slot slot = {.device = 0};
    if (h->slots == GPU_SET_MAX ||
        sscanf(line, "%64s %31s %u %" SCNd64, slot.uuid, slot.bus, &slot.device, &slot.ecc) != 4)
        return;
    if (strcmp(slot.uuid, "-") == 0)
        slot.uuid[0] = '\0';
    h->slot[h->slots++] = slot;
}

void gpu_health_load(struct gpu_health *h, const char *directory)
{
    char path[PATH_MAX], line[512];
    snprintf(path, sizeof path, "%s/gpus", directory);
    FILE *f = fopen(path, "re");
    h->slots = 0;
    h->accepted_us = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, FAULT_WORD, strlen(FAULT_WORD)) == 0)
            load_fault(h, line);
        else if (sscanf(line, "accepted: %" SCNu64, &h->accepted_us) != 1)
            load_slot(h, line);
    if (f)
        fclose(f);
}

int gpu_health_save(const struct gpu_health *h, const char *directory, struct err *e)
{
    char path[PATH_MAX], whole[PATH_MAX];
    snprintf(path, sizeof path, "%s/gpus.new", directory);
    snprintf(whole, sizeof whole, "%s/gpus", directory);
    FILE *f = fopen(path, "we");
    if (f)
        fprintf(f, "accepted: %" PRIu64 "\n", h->accepted_us);
    for (uint32_t i = 0; f && i < h->slots; i++)
        fprintf(f, "%s %s %u %" PRId64 "\n", h->slot[i].uuid[0] ? h->slot[i].uuid : "-",
                h->slot[i].bus[0] ? h->slot[i].bus : "-", h->slot[i].device, h->slot[i].ecc);
    for (uint32_t i = 0; f && i < h->slots; i++)
        if (h->slot[i].fault.number)
            fprintf(f, FAULT_WORD "%" PRIu32 " - %" PRIu32 " %" PRIu64 " %s\n", i, h->slot[i].fault.number,
                    h->slot[i].fault.us, h->slot[i].fault.text);
    bool failed = !f || ferror(f) != 0;
    if (f && fclose(f) != 0)
        failed = true;
    if (!failed && rename(path, whole) == 0)
        return 0;
    int saved = errno;
    (void)unlink(path);
    return err_sys(e, saved, "cannot write %s", whole);
}
