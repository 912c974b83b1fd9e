/* Kernels: functions of the host that run in the stream's thread, by the names that the real ones have. To
 * add one: write it and put a line with the sizes of its parameters into the table. Kernels address memory
 * through double_reach_or_break. */
#include "tests/gpu/double/double.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/gpu/pack_batch.h"
#include "tests/gpu/double/kernels_pack.h"

/* (address, count, value): count 32 bit words become value. */
static void fill(const struct double_launch *l)
{
    uint64_t address, count;
    uint32_t value;
    char *at;

    memcpy(&address, l->values[0], 8);
    memcpy(&count, l->values[1], 8);
    memcpy(&value, l->values[2], 4);
    at = double_reach_or_break(l->context, address, count * 4, "hvd_double_fill");
    for (uint64_t i = 0; at && i < count; i++)
        memcpy(at + i * 4, &value, 4);
}

/* (nanoseconds): keeps the stream busy. */
static void spin(const struct double_launch *l)
{
    uint64_t ns;
    struct timespec t;

    memcpy(&ns, l->values[0], 8);
    t.tv_sec = (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    nanosleep(&t, NULL);
}

/* (address, turns): the bench's computation, here a nanosecond for each turn. */
static void work(const struct double_launch *l)
{
    uint64_t turns;
    struct timespec t;

    memcpy(&turns, l->values[1], 8);
    t.tv_sec = (time_t)(turns / 1000000000u);
    t.tv_nsec = (long)(turns % 1000000000u);
    nanosleep(&t, NULL);
}

static const struct double_kernel kernels[] = {
    {"hvd_bench_work", {8, 8}, work},
    {"hvd_double_fill", {8, 8, 4}, fill},
    {"hvd_double_spin", {8}, spin},
    {PACK_COPY, {sizeof(struct pack_batch)}, double_pack_copy},
    {PACK_SCALE, {sizeof(struct pack_batch), sizeof(int), sizeof(double)}, double_pack_scale},
};

const struct double_kernel *double_kernel_named(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    return NULL;
}

struct module {
    char *text; /* of PTX; NULL for machine code, whose names are not looked at */
};

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba}, wrapper[4] = {0xb1, 0x43, 0x62, 0x46};
    struct context *c;
    struct module *m;
    bool code;

    ENTER_CONTEXT("cuModuleLoadData", c);
    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    code = memcmp(image, fatbin, 4) == 0 || memcmp(image, wrapper, 4) == 0 ||
           memcmp(image,
                  "\x7f"
                  "ELF",
                  4) == 0;
    if (!code && !strstr(image, ".version"))
        return CUDA_ERROR_INVALID_IMAGE;
    m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->text = code ? NULL : strdup(image);
    *module = double_handle_new(HANDLE_MODULE, m);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct context *c;

    ENTER_CONTEXT("cuModuleUnload", c);
    if (!double_handle_get(HANDLE_MODULE, module))
        return CUDA_ERROR_INVALID_HANDLE;
    double_streams_drain(c);
    double_handle_drop(HANDLE_MODULE, module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct context *c;
    struct module *m;
    const struct double_kernel *kernel;

    ENTER_CONTEXT("cuModuleGetFunction", c);
    m = double_handle_get(HANDLE_MODULE, module);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    if (m->text && !strstr(m->text, name))
        return CUDA_ERROR_NOT_FOUND;
    kernel = double_kernel_named(name);
    if (!kernel) {
        double_misuse("cuModuleGetFunction: the double has nothing for the kernel %s (see kernels.c)", name);
        return CUDA_ERROR_NOT_FOUND;
    }
    *function = double_handle_new(HANDLE_KERNEL, (void *)(uintptr_t)kernel);
    return CUDA_SUCCESS;
}

struct launch {
    struct double_launch l;
    const struct double_kernel *kernel;
};

static void run_launch(struct context *context, void *argument)
{
    struct launch *launch = argument;

    launch->l.context = context;
    launch->kernel->run(&launch->l);
    free(launch);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra)
{
    const struct double_kernel *kernel;
    struct context *c;
    struct stream *s;
    struct launch *launch;
    size_t used = 0;

    ENTER_CONTEXT("cuLaunchKernel", c);
    kernel = double_handle_get(HANDLE_KERNEL, function);
    s = kernel ? double_stream_get(stream, c) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
        (uint64_t)block_x * block_y * block_z > 1024 || grid_y > 65535 || grid_z > 65535 || extra)
        return CUDA_ERROR_INVALID_VALUE;
    launch = calloc(1, sizeof *launch);
    if (!launch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    launch->kernel = kernel;
    launch->l =
        (struct double_launch){.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}};
    for (int i = 0; i < KERNEL_PARAMS && kernel->sizes[i]; i++) {
        launch->l.values[i] = launch->l.store + used;
        memcpy(launch->l.values[i], params[i], kernel->sizes[i]);
        used += (kernel->sizes[i] + 15u) / 16 * 16;
    }
    double_stream_push(s, run_launch, launch);
    return CUDA_SUCCESS;
}
