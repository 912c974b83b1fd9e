/* The GPUs of this host: `hvdagent gpus`, a process that asks NVML once, writes a Gpus message to its stdout
 * and ends.
 *
 * No other process asks the driver, because the driver may hang, without end and in the kernel. A caller
 * starts this process with common/process/gpu_probe.h and waits with a limit. The process drops what it does
 * not need (privileges, the right to get new ones, core files) before it opens the library. Root's process
 * keeps the rights to make the driver's devices while there are none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"

#define GPU_SCAN_MAX     64  /* slots; more are left out */
#define GPU_DRIVER_FLOOR 450 /* the first that knows MIG, and the oldest that CUDA 11 runs on */

/* The kernel's files about GPUs. */
struct gpu_places {
    const char *proc; /* of the driver */
    const char *dev;
    const char *pci; /* of sysfs */
};

extern const struct gpu_places gpu_places;

/* GPUs by the driver's files; those of a driver whose library may be missing. */
uint32_t gpu_scan_files(const struct gpu_places *places);
/* GPUs for computing (the class of 3D controllers) that no driver has taken. */
uint32_t gpu_scan_orphans(const char *pci);
/* The version of the driver that is loaded; empty: none is. Returns `text`. */
const char *gpu_scan_driver(const char *proc, char *text, size_t size);
/* "0000:3b:00.0" of NVML's "00000000:3B:00.0"; what is no such name becomes empty. Returns `text`. */
const char *gpu_scan_bus(const char *nvml, char *text, size_t size);
int gpu_scan_numa(const char *pci, const char *bus);
/* Has nobody made the driver's devices since the machine was started? */
bool gpu_scan_is_first(const struct gpu_places *places);

/* Looks for the driver and all GPUs; freed with gpu_scan_free. NULL: no memory. */
Hvd__Gpus *gpu_scan(const struct gpu_places *places, bool libraries);
void gpu_scan_free(Hvd__Gpus *g);
/* `libraries`: the versions of NCCL and CUDA's library, too. Returns the exit status. */
int gpu_scan_main(bool libraries);
