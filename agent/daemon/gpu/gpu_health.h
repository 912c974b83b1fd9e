/* The health of a node's GPUs. Pure: the words of NVML and of the kernel's log go in, faults come out.
 *
 * The numbers in leases mean the slots as they were counted first: a GPU that is gone leaves a gap and does
 * not move the others. A GPU that is too hot, does not answer or is gone is well again when that is over; an
 * Xid or uncorrected memory errors stay a fault until root accepts the GPU (gpu_health_accept). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/daemon/gpu/kernel_log.h"
#include "agent/gpu/gpu.h"
#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

#define GPU_FAULT_TEXT 200
#define GPU_COOLER     5 /* degrees below the limit, when it was over it */

enum gpu_check {
    GPU_CHECK_DRIVER = 1,
    GPU_CHECK_TEMPERATURE = 2,
    GPU_CHECK_ECC = 4,
    GPU_CHECK_XID = 8,
    GPU_CHECK_ALL = 15
};

struct gpu_rules {
    unsigned checks;          /* a set of enum gpu_check */
    uint32_t max_temperature; /* 0: the GPU's own */
    int64_t max_ecc;
    const char *xids; /* "48,79": those that are faults */
};

struct gpu_slot {
    char uuid[GPU_UUID_MAX + 1]; /* empty: the driver has not named it yet */
    char bus[32];
    uint32_t device;
    int64_t ecc; /* uncorrected errors that root has accepted */
    uint64_t xids;
    uint32_t last_xid;
    struct xid fault; /* number 0: none */
    bool hot;
    char why[GPU_FAULT_TEXT]; /* it is not well; empty: it is */
};

struct gpu_health {
    struct gpu_slot slot[GPU_SET_MAX];
    uint32_t slots;
    uint64_t accepted_us; /* root has accepted the kernel's log up to then */
    uint64_t seen_us;     /* the last that it said */
};

/* Is it such a list? */
bool gpu_xids_check(const char *list);
/* Counts the slots anew; what was accepted of a GPU that stays, stays so. Without names: `count` of them. */
void gpu_health_number(struct gpu_health *h, const Hvd__Gpus *g, uint32_t count);
/* True when it is a fault of one of them. */
bool gpu_health_xid(struct gpu_health *h, const struct gpu_rules *rules, const struct xid *x);
/* `g`: what was said last, or NULL and `failure`, why nothing was. */
void gpu_health_judge(struct gpu_health *h, const struct gpu_rules *rules, const Hvd__Gpus *g,
                      const char *failure);
/* Root's word: lasting faults (Xid, memory) are forgiven. */
void gpu_health_accept(struct gpu_health *h, const Hvd__Gpus *g);
const Hvd__Gpu *gpu_health_find(const struct gpu_slot *slot, const Hvd__Gpus *g);
/* "GPU 2 (GPU-...): Xid 79 (...)", and how many more; empty: all are well. Returns `text`. */
const char *gpu_health_text(const struct gpu_health *h, char *text, size_t size);

/* The state that must outlast the daemon and the kernel's log, which forgets: the file `gpus` in the daemon's
 * directory. Without a file, nothing is changed. */
void gpu_health_load(struct gpu_health *h, const char *directory);
int gpu_health_save(const struct gpu_health *h, const char *directory, struct err *e);
