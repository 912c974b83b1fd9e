/* The CUDA driver, libcuda.so.1, opened while the program runs: one binary serves machines with and without
 * GPUs, and no header of CUDA is needed to build it.
 *
 * The declarations here are facts of the driver's interface: types, numbers, layouts.
 * tests/unit/collectives/gpu/test_gpu_headers.c compares them with cuda.h where there is one. Functions keep
 * their own names, without the version at the end: `d->cuMemAlloc` is cuMemAlloc_v2. Each belongs to a
 * feature; a driver that lacks any of the base is refused with a sentence that names the first one, one that
 * lacks others has NULL in their place, and driver_need says so in the same way. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* The name of libcuda. Only the loader (LD_LIBRARY_PATH) chooses another file. */
#define DRIVER_LIBRARY "libcuda.so.1"

typedef unsigned cu_result; /* 0 is success */
typedef int cu_device;
typedef unsigned long long cu_pointer; /* an address, of the device or of the host */
typedef unsigned long long cu_allocation;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream; /* a cudaStream_t is the same */
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef void cu_host_function(void *data);

struct cu_uuid {
    char bytes[16];
};

/* Names of memory and of events for other processes of the host. */
struct cu_ipc_memory {
    char bytes[64];
};
struct cu_ipc_event {
    char bytes[64];
};

struct cu_location {
    unsigned type; /* CU_LOCATION_* */
    int id;
};

struct cu_allocation_properties {
    unsigned type;         /* CU_ALLOCATION_PINNED */
    unsigned handle_types; /* CU_HANDLE_* or 0 */
    struct cu_location location;
    void *unused; /* Windows only; NULL */
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct cu_access {
    struct cu_location location;
    unsigned flags; /* CU_ACCESS_READ_WRITE */
};

/* Results that mean something to us. */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY = 209,
    CU_UNSUPPORTED_PTX = 222,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_NOT_PERMITTED = 800,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_NOT_READY = 802,
    CU_DRIVER_MISMATCH = 803,
    CU_CAPTURE_IMPLICIT = 906
};

/* The attributes of a pointer, with the driver's numbers. */
enum {
    CU_POINTER_CONTEXT = 1,
    CU_POINTER_MEMORY_TYPE = 2,
    CU_POINTER_BUFFER_ID = 7,
    CU_POINTER_IS_MANAGED = 8,
    CU_POINTER_DEVICE = 9,
    CU_POINTER_LEGACY_IPC = 10,
    CU_POINTER_RANGE_START = 11,
    CU_POINTER_RANGE_SIZE = 12,
    CU_POINTER_HANDLE_TYPES = 14,
    CU_POINTER_MEMORY_BLOCK_ID = 20, /* later than the others */
    CU_MEMORY_HOST = 1,
    CU_MEMORY_DEVICE = 2
};

/* Of a device. */
enum {
    CU_DEVICE_MULTIPROCESSORS = 16,
    CU_DEVICE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_CAPABILITY_MINOR = 76,
    CU_DEVICE_VMM = 102,
    CU_DEVICE_EXPORTS_FD = 103,
    CU_DEVICE_IPC_EVENTS = 125
};

/* Flags. */
enum {
    CU_STREAM_OF_THREAD = 2,         /* a handle: the calling thread's default stream */
    CU_STREAM_NON_BLOCKING_FLAG = 1, /* does not synchronize with the legacy default stream */
    CU_EVENT_BLOCKING = 1,
    CU_EVENT_NO_TIMING = 2,
    CU_EVENT_IPC = 4, /* with CU_EVENT_NO_TIMING */
    CU_HOST_PORTABLE = 1,
    CU_IPC_LAZY_PEER_ACCESS = 1,
    CU_HANDLE_FD = 1,
    CU_ALLOCATION_PINNED = 1,
    CU_LOCATION_DEVICE = 1,
    CU_ACCESS_READ_WRITE = 3,
    CU_CAPTURE_NONE = 0,
    CU_CAPTURE_MODE_GLOBAL = 0,
    CU_CAPTURE_MODE_RELAXED = 2
};

enum driver_feature {
    DRIVER_BASE,     /* contexts, memory, streams, events: there when there is a struct driver at all */
    DRIVER_IPC,      /* memory and events of other processes by handle */
    DRIVER_VMM,      /* memory by file descriptor */
    DRIVER_KERNELS,  /* modules and launches */
    DRIVER_PRIORITY, /* streams with a priority */
    DRIVER_CAPTURE,  /* asking whether a stream is being captured into a graph */
    DRIVER_TEXT,     /* names of errors */
    DRIVER_FEATURES
};

/* FEATURE, name here, symbol, older symbol of the same type (or the same again), parameters. */
#define DRIVER_FUNCTIONS(F)                                                                                  \
    F(BASE, cuInit, "cuInit", "cuInit", (unsigned flags))                                                    \
    F(BASE, cuDriverGetVersion, "cuDriverGetVersion", "cuDriverGetVersion", (int *version))                  \
    F(BASE, cuDeviceGetCount, "cuDeviceGetCount", "cuDeviceGetCount", (int *count))                          \
    F(BASE, cuDeviceGet, "cuDeviceGet", "cuDeviceGet", (cu_device * device, int ordinal))                    \
    F(BASE, cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", "cuDeviceGetPCIBusId",                               \
      (char *text, int room, cu_device device))                                                              \
    F(BASE, cuDeviceGetUuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid",                                        \
      (struct cu_uuid * uuid, cu_device device))                                                             \
    F(BASE, cuDeviceGetAttribute, "cuDeviceGetAttribute", "cuDeviceGetAttribute",                            \
      (int *value, unsigned attribute, cu_device device))                                                    \
    F(BASE, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain",                \
      (cu_context * context, cu_device device))                                                              \
    F(BASE, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease",          \
      (cu_device device))                                                                                    \
    F(BASE, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState",          \
      (cu_device device, unsigned *flags, int *active))                                                      \
    F(BASE, cuCtxGetCurrent, "cuCtxGetCurrent", "cuCtxGetCurrent", (cu_context * context))                   \
    F(BASE, cuCtxSetCurrent, "cuCtxSetCurrent", "cuCtxSetCurrent", (cu_context context))                     \
    F(BASE, cuCtxGetDevice, "cuCtxGetDevice", "cuCtxGetDevice", (cu_device * device))                        \
    F(BASE, cuCtxPushCurrent, "cuCtxPushCurrent_v2", "cuCtxPushCurrent_v2", (cu_context context))            \
    F(BASE, cuCtxPopCurrent, "cuCtxPopCurrent_v2", "cuCtxPopCurrent_v2", (cu_context * context))             \
    F(BASE, cuPointerGetAttributes, "cuPointerGetAttributes", "cuPointerGetAttributes",                      \
      (unsigned n, unsigned *attribute, void **value, cu_pointer at))                                        \
    F(BASE, cuPointerGetAttribute, "cuPointerGetAttribute", "cuPointerGetAttribute",                         \
      (void *value, unsigned attribute, cu_pointer at))                                                      \
    F(BASE, cuMemAlloc, "cuMemAlloc_v2", "cuMemAlloc_v2", (cu_pointer * at, size_t bytes))                   \
    F(BASE, cuMemFree, "cuMemFree_v2", "cuMemFree_v2", (cu_pointer at))                                      \
    F(BASE, cuMemHostAlloc, "cuMemHostAlloc", "cuMemHostAlloc", (void **at, size_t bytes, unsigned flags))   \
    F(BASE, cuMemFreeHost, "cuMemFreeHost", "cuMemFreeHost", (void *at))                                     \
    F(BASE, cuMemHostRegister, "cuMemHostRegister_v2", "cuMemHostRegister_v2",                               \
      (void *at, size_t bytes, unsigned flags))                                                              \
    F(BASE, cuMemHostUnregister, "cuMemHostUnregister", "cuMemHostUnregister", (void *at))                   \
    F(BASE, cuMemGetAddressRange, "cuMemGetAddressRange_v2", "cuMemGetAddressRange_v2",                      \
      (cu_pointer * base, size_t * bytes, cu_pointer at))                                                    \
    F(BASE, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2",                               \
      (cu_pointer to, const void *from, size_t bytes, cu_stream stream))                                     \
    F(BASE, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2",                               \
      (void *to, cu_pointer from, size_t bytes, cu_stream stream))                                           \
    F(BASE, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2",                               \
      (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                                      \
    F(BASE, cuMemsetD8Async, "cuMemsetD8Async", "cuMemsetD8Async",                                           \
      (cu_pointer at, unsigned char value, size_t bytes, cu_stream stream))                                  \
    F(BASE, cuStreamCreate, "cuStreamCreate", "cuStreamCreate", (cu_stream * stream, unsigned flags))        \
    F(BASE, cuStreamDestroy, "cuStreamDestroy_v2", "cuStreamDestroy_v2", (cu_stream stream))                 \
    F(BASE, cuStreamSynchronize, "cuStreamSynchronize", "cuStreamSynchronize", (cu_stream stream))           \
    F(BASE, cuStreamQuery, "cuStreamQuery", "cuStreamQuery", (cu_stream stream))                             \
    F(BASE, cuStreamWaitEvent, "cuStreamWaitEvent", "cuStreamWaitEvent",                                     \
      (cu_stream stream, cu_event event, unsigned flags))                                                    \
    F(BASE, cuStreamGetCtx, "cuStreamGetCtx", "cuStreamGetCtx", (cu_stream stream, cu_context * context))    \
    F(BASE, cuLaunchHostFunc, "cuLaunchHostFunc", "cuLaunchHostFunc",                                        \
      (cu_stream stream, cu_host_function * function, void *data))                                           \
    F(BASE, cuEventCreate, "cuEventCreate", "cuEventCreate", (cu_event * event, unsigned flags))             \
    F(BASE, cuEventDestroy, "cuEventDestroy_v2", "cuEventDestroy_v2", (cu_event event))                      \
    F(BASE, cuEventRecord, "cuEventRecord", "cuEventRecord", (cu_event event, cu_stream stream))             \
    F(BASE, cuEventQuery, "cuEventQuery", "cuEventQuery", (cu_event event))                                  \
    F(BASE, cuEventSynchronize, "cuEventSynchronize", "cuEventSynchronize", (cu_event event))                \
    F(BASE, cuEventElapsedTime, "cuEventElapsedTime_v2", "cuEventElapsedTime",                               \
      (float *milliseconds, cu_event from, cu_event to))                                                     \
    F(IPC, cuIpcGetMemHandle, "cuIpcGetMemHandle", "cuIpcGetMemHandle",                                      \
      (struct cu_ipc_memory * handle, cu_pointer at))                                                        \
    F(IPC, cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle",                                \
      (cu_pointer * at, struct cu_ipc_memory handle, unsigned flags))                                        \
    F(IPC, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", "cuIpcCloseMemHandle", (cu_pointer at))               \
    F(IPC, cuIpcGetEventHandle, "cuIpcGetEventHandle", "cuIpcGetEventHandle",                                \
      (struct cu_ipc_event * handle, cu_event event))                                                        \
    F(IPC, cuIpcOpenEventHandle, "cuIpcOpenEventHandle", "cuIpcOpenEventHandle",                             \
      (cu_event * event, struct cu_ipc_event handle))                                                        \
    F(VMM, cuMemCreate, "cuMemCreate", "cuMemCreate",                                                        \
      (cu_allocation * made, size_t bytes, const struct cu_allocation_properties *how,                       \
       unsigned long long flags))                                                                            \
    F(VMM, cuMemRelease, "cuMemRelease", "cuMemRelease", (cu_allocation allocation))                         \
    F(VMM, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", "cuDeviceCanAccessPeer",                          \
      (int *can, cu_device device, cu_device peer))                                                          \
    F(VMM, cuMemAddressReserve, "cuMemAddressReserve", "cuMemAddressReserve",                                \
      (cu_pointer * at, size_t bytes, size_t alignment, cu_pointer wish, unsigned long long flags))          \
    F(VMM, cuMemAddressFree, "cuMemAddressFree", "cuMemAddressFree", (cu_pointer at, size_t bytes))          \
    F(VMM, cuMemMap, "cuMemMap", "cuMemMap",                                                                 \
      (cu_pointer at, size_t bytes, size_t offset, cu_allocation allocation, unsigned long long flags))      \
    F(VMM, cuMemUnmap, "cuMemUnmap", "cuMemUnmap", (cu_pointer at, size_t bytes))                            \
    F(VMM, cuMemSetAccess, "cuMemSetAccess", "cuMemSetAccess",                                               \
      (cu_pointer at, size_t bytes, const struct cu_access *access, size_t n))                               \
    F(VMM, cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", "cuMemRetainAllocationHandle",        \
      (cu_allocation * allocation, void *at))                                                                \
    F(VMM, cuMemExportToShareableHandle, "cuMemExportToShareableHandle", "cuMemExportToShareableHandle",     \
      (void *handle, cu_allocation allocation, unsigned type, unsigned long long flags))                     \
    F(VMM, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                                 \
      "cuMemImportFromShareableHandle", (cu_allocation * allocation, void *handle, unsigned type))           \
    F(KERNELS, cuModuleLoadData, "cuModuleLoadData", "cuModuleLoadData",                                     \
      (cu_module * module, const void *image))                                                               \
    F(KERNELS, cuModuleUnload, "cuModuleUnload", "cuModuleUnload", (cu_module module))                       \
    F(KERNELS, cuModuleGetFunction, "cuModuleGetFunction", "cuModuleGetFunction",                            \
      (cu_function * function, cu_module module, const char *name))                                          \
    F(KERNELS, cuLaunchKernel, "cuLaunchKernel", "cuLaunchKernel",                                           \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,            \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream, void **parameter,        \
       void **extra))                                                                                        \
    F(PRIORITY, cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", "cuCtxGetStreamPriorityRange",   \
      (int *least, int *greatest))                                                                           \
    F(PRIORITY, cuStreamCreateWithPriority, "cuStreamCreateWithPriority", "cuStreamCreateWithPriority",      \
      (cu_stream * stream, unsigned flags, int priority))                                                    \
    F(CAPTURE, cuStreamIsCapturing, "cuStreamIsCapturing", "cuStreamIsCapturing",                            \
      (cu_stream stream, unsigned *status))                                                                  \
    F(CAPTURE, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",                       \
      "cuThreadExchangeStreamCaptureMode", (unsigned *mode))                                                 \
    F(TEXT, cuGetErrorName, "cuGetErrorName", "cuGetErrorName", (cu_result result, const char **text))       \
    F(TEXT, cuGetErrorString, "cuGetErrorString", "cuGetErrorString", (cu_result result, const char **text))

#define DRIVER_MEMBER(feature, name, symbol, older, parameters) cu_result(*name) parameters;
struct driver {
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
    int version; /* of CUDA that the driver speaks: 12080 is 12.8 */
};
#undef DRIVER_MEMBER

/* Has this process opened libcuda, by whatever way? While it has not, no pointer can be one of a device, and
 * asking costs some ten nanoseconds: libraries opened since the last question are noticed by their count. Any
 * thread. Always false in a build without GPUs. */
bool driver_in_process(void);

/* The driver, opened and initialised by the first call that succeeds, the same for all callers until the
 * process ends. NULL: there is none, it is too old, it cannot be initialised (no device, versions of module
 * and library differ, a child after fork()); the error says which. A failure is remembered until the process
 * opens another library, so asking again is cheap. Any thread. */
const struct driver *driver_open(struct err *e);

/* NULL when the driver has all of the feature, else the name of the first function it lacks. */
const char *driver_lacks(const struct driver *d, enum driver_feature feature);
/* 0, or -1 with "the driver (CUDA 11.0) is too old: it lacks cuMemCreate". */
int driver_need(const struct driver *d, enum driver_feature feature, struct err *e);

/* 0 when `result` is success. Else -1, with what was attempted, the driver's name of the error and its text:
 * "copying to GPU 1: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". */
int driver_check(const struct driver *d, cu_result result, struct err *e, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* The name of an error alone, for logs; never NULL. */
const char *driver_error_name(const struct driver *d, cu_result result);

/* A GPU, as all processes of a host and NCCL know it. */
struct driver_device {
    cu_device device;
    char bus[32];     /* "00000000:17:00.0" */
    uint8_t uuid[16]; /* of a MIG instance its own */
    int capability;   /* 90 is 9.0 */
    int processors;   /* multiprocessors */
};
int driver_describe(const struct driver *d, cu_device device, struct driver_device *into, struct err *e);

/* A stream that the program captures into a graph can take offence at calls of other threads, too: they are
 * refused, and the capture is spoilt. With CU_CAPTURE_MODE_RELAXED those of this thread are not. Returns the
 * mode before; needs no context. */
unsigned driver_capture_mode(const struct driver *d, unsigned mode);

/* A stream for communication, in the current context: it does not wait for the default stream, and its
 * kernels go before those of others where the driver knows priorities. */
int driver_stream(const struct driver *d, cu_stream *stream, struct err *e);
