/* This host's GPUs: how many there are, and which a worker is told of (CUDA_VISIBLE_DEVICES).
 *
 * They are counted by NVML, the driver's own library, which knows what a container may use, in a process of
 * its own (gpu_scan.h); where that is not installed or does not answer, by the driver's files. An instance of
 * a GPU in MIG mode counts as one; CUDA knows them by UUID alone, and shows a process no more than one. The
 * list that workers get is the host's own CUDA_VISIBLE_DEVICES, as a batch system sets it, or all in the
 * order of the PCI bus, so that set_device(local_rank) means the same GPU in every program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

#define GPU_VISIBLE "CUDA_VISIBLE_DEVICES"
#define GPU_ORDER   "CUDA_DEVICE_ORDER"
/* Of the multi-process service. */
#define GPU_MPS_PIPES "CUDA_MPS_PIPE_DIRECTORY"
#define GPU_MPS_LOGS  "CUDA_MPS_LOG_DIRECTORY"
#define MPS_PROGRAM   "nvidia-cuda-mps-control"

#define GPU_UUID_MAX     64
#define GPU_UUID_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/"

/* 0 without a driver. The driver is asked once; the answer stays. */
uint32_t gpu_count(void);
/* The longest that gpu_count may take, if less than its own limit. */
void gpu_wait_at_most(uint32_t limit_ms);
/* All of them as CUDA_VISIBLE_DEVICES must name them; NULL: by their numbers. */
const char *gpu_list(void);
/* The UUIDs of all, by number; NULL: they are not known. */
const char *gpu_uuids(void);
/* The problem with the GPUs, in one line; empty: none, or nobody has asked yet. */
const char *gpu_problem(void);

/* Is there a library or a file of a driver, or a GPU without one? Then it is worth asking. */
bool gpu_may_be_here(void);
/* The answer of `hvdagent gpus`, freed with message_free; NULL with *e. */
Hvd__Gpus *gpu_ask(uint32_t limit_ms, struct err *e);
/* Of the hvdagent that is asked: the one beside this program. */
int gpu_agent_path(char *path, size_t size, struct err *e);
/* How many slots that makes. */
uint32_t gpu_slots(const Hvd__Gpus *g);
/* The UUIDs of a set of them, as CUDA_VISIBLE_DEVICES has them, to be freed; NULL: numbers will do. */
char *gpu_identities(const Hvd__Gpus *g, uint64_t set);
/* Entries of CUDA_VISIBLE_DEVICES up to the first one that names none of so many devices, which is CUDA's
 * rule. */
uint32_t gpu_count_visible(const char *list, uint32_t gpus);
/* The same list (NULL: all) with UUIDs for numbers, to be freed, up to the same entry; NULL: no memory. */
char *gpu_by_uuid(const char *list, const char *uuids);
#define GPU_SET_MAX  64 /* GPUs of a host that a managed agent gives to jobs: the bits of a set */
#define GPU_SET_TEXT 256
/* "0,3"; empty for none. */
const char *gpu_set_text(uint64_t set, char text[GPU_SET_TEXT]);
/* False when it is not such a list. */
bool gpu_set_read(const char *text, uint64_t *set);
/* Is it a list of GPUs that a managed agent may have given: numbers, or UUIDs? */
bool gpu_lease_check(const char *text);
/* Does each worker see one GPU only? Always so where one is an instance. */
bool gpu_alone(Hvd__Binding__Gpu how, const char *list);
/* Is there an entry that should name one of so many devices and does not? The first one. */
bool gpu_unknown(const char *list, uint32_t gpus, char *entry, size_t size);
/* The value of CUDA_VISIBLE_DEVICES for a worker, of `list` (NULL: all `gpus`); NULL: none is to be set. A
 * list that names no GPU stays as it is, since without one the worker would see them all. */
const char *gpu_visible(Hvd__Binding__Gpu how, const char *list, uint32_t gpus, uint32_t local_rank,
                        char *text, size_t size);
