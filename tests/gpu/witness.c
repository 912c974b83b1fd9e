/* Counts which way tensors on GPUs have gone, by NCCL or by host memory: a library for LD_PRELOAD, which
 * tests/gpu/run gives to each of its steps.
 *
 * Nobody tells it: it stands where hvd calls NCCL and the driver. libhvd and its engine find each function of
 * those two with dlsym, and so they find this file's dlsym. For the functions below they are given one that
 * counts and goes on to the real one. The asker is known by the return address, so the calls of a program
 * that uses NCCL itself (hvd_gpu_bench) are neither counted nor changed.
 *
 * A unit test has hvd's parts in itself and also copies from the GPU itself: of a test, only what it asks of
 * NCCL is counted. Without a file in GPU_WITNESS nothing is counted. */
#include "tests/gpu/witness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "collectives/gpu/nccl.h"

typedef void *find_symbol(void *handle, const char *name);
typedef void any_function(void);

static struct witness *counts;
static find_symbol *real_dlsym;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* NAME, what is counted, the real one's type, parameters, arguments */
#define NCCL_TYPE(name)   __typeof__(((struct nccl){0}).name)
#define DRIVER_TYPE(name) __typeof__(((struct driver){0}).name)
#define COUNTED(F)                                                                                           \
    F(ncclAllReduce, nccl, NCCL_TYPE(ncclAllReduce),                                                         \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, nccl_comm comm,                \
       cu_stream stream),                                                                                    \
      (in, out, count, dtype, op, comm, stream))                                                             \
    F(ncclBroadcast, nccl, NCCL_TYPE(ncclBroadcast),                                                         \
      (const void *in, void *out, size_t count, nccl_dtype dtype, int root, nccl_comm comm,                  \
       cu_stream stream),                                                                                    \
      (in, out, count, dtype, root, comm, stream))                                                           \
    F(ncclReduce, nccl, NCCL_TYPE(ncclReduce),                                                               \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, int root, nccl_comm comm,      \
       cu_stream stream),                                                                                    \
      (in, out, count, dtype, op, root, comm, stream))                                                       \
    F(ncclAllGather, nccl, NCCL_TYPE(ncclAllGather),                                                         \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_comm comm, cu_stream stream),         \
      (in, out, count, dtype, comm, stream))                                                                 \
    F(ncclReduceScatter, nccl, NCCL_TYPE(ncclReduceScatter),                                                 \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, nccl_comm comm,                \
       cu_stream stream),                                                                                    \
      (in, out, count, dtype, op, comm, stream))                                                             \
    F(ncclSend, nccl, NCCL_TYPE(ncclSend),                                                                   \
      (const void *in, size_t count, nccl_dtype dtype, int to, nccl_comm comm, cu_stream stream),            \
      (in, count, dtype, to, comm, stream))                                                                  \
    F(ncclRecv, nccl, NCCL_TYPE(ncclRecv),                                                                   \
      (void *out, size_t count, nccl_dtype dtype, int from, nccl_comm comm, cu_stream stream),               \
      (out, count, dtype, from, comm, stream))                                                               \
    F(cuMemcpyDtoHAsync_v2, host, DRIVER_TYPE(cuMemcpyDtoHAsync),                                            \
      (void *to, cu_pointer from, size_t bytes, cu_stream stream), (to, from, bytes, stream))

#define DEFINE(name, what, type, parameters, arguments)                                                      \
    static type real_##name;                                                                                 \
    static unsigned count_##name parameters                                                                  \
    {                                                                                                        \
        counts->what++;                                                                                      \
        return real_##name arguments;                                                                        \
    }
COUNTED(DEFINE)

/* dlsym itself, which has had two versions. */
static void find_real(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *found = NULL;

    for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&real_dlsym, &found, sizeof found);
    counts = witness_map();
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Of a function that a part of hvd asks for. */
static bool is_counted(const char *name, const void *asker)
{
    Dl_info info;
    const char *slash, *file;

    if (!counts || dladdr(asker, &info) == 0 || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    file = slash ? slash + 1 : info.dli_fname;
    if (begins(name, "nccl"))
        return begins(file, "libhvd.so") || begins(file, "hvd-engine") || begins(file, "test_gpu_");
    return begins(file, "libhvd.so");
}

/* The counting one, which goes on to `found`. NULL: there is none. */
static void *counting(const char *name, void *found)
{
    void *instead = NULL;

#define CHOOSE(function, what, type, parameters, arguments)                                                  \
    if (strcmp(name, #function) == 0) {                                                                      \
        type own = count_##function;                                                                         \
        memcpy(&real_##function, &found, sizeof found);                                                      \
        memcpy(&instead, &own, sizeof instead);                                                              \
    }
    COUNTED(CHOOSE)
    return instead;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    void *found, *instead;

    pthread_once(&once, find_real);
    /* Others must come to the real one by a jump: what RTLD_NEXT means follows from where it was called. */
    if (!is_counted(name, __builtin_return_address(0)))
        return real_dlsym(handle, name);
    found = real_dlsym(handle, name);
    instead = found ? counting(name, found) : NULL;
    return instead ? instead : found;
}
