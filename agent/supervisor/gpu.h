/* This host's GPUs: how many there are, and which a worker is told of (CUDA_VISIBLE_DEVICES).
 *
 * They are counted by NVML, the driver's own library, which knows what a container may use; where that is not
 * installed, by the driver's files. The list that workers get is the host's own CUDA_VISIBLE_DEVICES, as a
 * batch system sets it, or all in the order of the PCI bus, so that set_device(local_rank) means the same GPU
 * in every program. */
#ifndef HVD_SUPERVISOR_GPU_H
#define HVD_SUPERVISOR_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/control.pb-c.h"

#define GPU_VISIBLE "CUDA_VISIBLE_DEVICES"
#define GPU_ORDER   "CUDA_DEVICE_ORDER"

/* 0 where there is no driver. Asked once; it stays so. */
uint32_t gpu_count(void);
/* By the files alone. */
uint32_t gpu_count_files(const char *proc_dir, const char *dev_dir);
/* Entries of CUDA_VISIBLE_DEVICES up to the first one that names none of so many devices, which is CUDA's
 * rule. */
uint32_t gpu_count_visible(const char *list, uint32_t gpus);
#define GPU_SET_MAX  64 /* GPUs of a host that a managed agent gives to jobs: the bits of a set */
#define GPU_SET_TEXT 256
/* "0,3"; empty for none. */
const char *gpu_set_text(uint64_t set, char text[GPU_SET_TEXT]);
/* False when it is not such a list. */
bool gpu_set_read(const char *text, uint64_t *set);
/* The value of CUDA_VISIBLE_DEVICES for a worker, of `list` (NULL: all `gpus`); empty: none is to be set. */
const char *gpu_visible(Hvd__Binding__Gpu how, const char *list, uint32_t gpus, uint32_t local_rank,
                        char *text, size_t size);

#endif
