/* Compiled by tests/unit/collectives/gpu/test_gpu_headers.c where CUDA's and NCCL's own headers are: what
 * collectives/gpu declares is what they declare. Types of functions are compared but for those with
 * structures of their own, whose sizes and members are. */
#include <cuda.h>
#include <nccl.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"

#define SECOND(a, b, ...) b
#define TAKE_SECOND(...)  SECOND(__VA_ARGS__)
#define IS_OWN(name)      TAKE_SECOND(OWN_##name, 0, ~)

/* Functions with structures, by the names that cuda.h's macros give them. */
#define OWN_cuDeviceGetUuid        ~, 1
#define OWN_cuDeviceGetUuid_v2     ~, 1
#define OWN_cuIpcGetMemHandle      ~, 1
#define OWN_cuIpcOpenMemHandle     ~, 1
#define OWN_cuIpcOpenMemHandle_v2  ~, 1
#define OWN_cuIpcGetEventHandle    ~, 1
#define OWN_cuIpcOpenEventHandle   ~, 1
#define OWN_cuMemCreate            ~, 1
#define OWN_cuMemSetAccess         ~, 1
#define OWN_ncclGetUniqueId        ~, 1
#define OWN_ncclCommInitRankConfig ~, 1

/* cuda.h renames functions by macros, so the members of struct driver have the new names in this file. */
#define AS_TEXT(x) #x
#define NAMED(x)   AS_TEXT(x)
#define SAME_DRIVER(feature, name, newest, oldest, parameters)                                               \
    _Static_assert(IS_OWN(name) || __builtin_types_compatible_p(__typeof__(((struct driver *)0)->name),      \
                                                                __typeof__(&name)),                          \
                   "the type of " #name);                                                                    \
    _Static_assert(sizeof NAMED(name) == sizeof newest || sizeof NAMED(name) == sizeof oldest,               \
                   "the version of " #name);
DRIVER_FUNCTIONS(SAME_DRIVER)

#define SAME_NCCL(need, result, name, parameters)                                                            \
    _Static_assert(IS_OWN(name) || __builtin_types_compatible_p(__typeof__(((struct nccl *)0)->name),        \
                                                                __typeof__(&name)),                          \
                   "the type of " #name);
NCCL_FUNCTIONS(SAME_NCCL)

#define EQUAL(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is " #theirs)
#define SIZES(ours, theirs)                                                                                  \
    EQUAL(sizeof(ours), sizeof(theirs));                                                                     \
    EQUAL(_Alignof(ours), _Alignof(theirs))
#define PLACE(ours, member, theirs, other) EQUAL(offsetof(ours, member), offsetof(theirs, other))

SIZES(cu_result, CUresult);
SIZES(cu_device, CUdevice);
SIZES(cu_pointer, CUdeviceptr);
SIZES(cu_allocation, CUmemGenericAllocationHandle);
SIZES(struct cu_uuid, CUuuid);
SIZES(struct cu_ipc_memory, CUipcMemHandle);
SIZES(struct cu_ipc_event, CUipcEventHandle);
SIZES(struct cu_location, CUmemLocation);
SIZES(struct cu_allocation_properties, CUmemAllocationProp);
SIZES(struct cu_access, CUmemAccessDesc);
PLACE(struct cu_location, id, CUmemLocation, id);
PLACE(struct cu_allocation_properties, handle_types, CUmemAllocationProp, requestedHandleTypes);
PLACE(struct cu_allocation_properties, location, CUmemAllocationProp, location);
PLACE(struct cu_allocation_properties, unused, CUmemAllocationProp, win32HandleMetaData);
PLACE(struct cu_allocation_properties, compression, CUmemAllocationProp, allocFlags.compressionType);
PLACE(struct cu_allocation_properties, rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
PLACE(struct cu_allocation_properties, usage, CUmemAllocationProp, allocFlags.usage);
PLACE(struct cu_access, flags, CUmemAccessDesc, flags);

EQUAL(CU_OK, CUDA_SUCCESS);
EQUAL(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
EQUAL(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
EQUAL(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
EQUAL(CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
EQUAL(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(CU_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
EQUAL(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
EQUAL(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
EQUAL(CU_NOT_READY, CUDA_ERROR_NOT_READY);
EQUAL(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
EQUAL(CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
EQUAL(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
EQUAL(CU_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
EQUAL(CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
EQUAL(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
EQUAL(CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
EQUAL(CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(CU_POINTER_LEGACY_IPC, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
EQUAL(CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
EQUAL(CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
EQUAL(CU_POINTER_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
EQUAL(CU_POINTER_MEMORY_BLOCK_ID, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
EQUAL(CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
EQUAL(CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
EQUAL(CU_DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(CU_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(CU_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(CU_DEVICE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
EQUAL(CU_DEVICE_EXPORTS_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
EQUAL(CU_DEVICE_IPC_EVENTS, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
EQUAL(CU_STREAM_NON_BLOCKING_FLAG, CU_STREAM_NON_BLOCKING);
EQUAL(CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
EQUAL(CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
EQUAL(CU_EVENT_IPC, CU_EVENT_INTERPROCESS);
EQUAL(CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
EQUAL(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
EQUAL(CU_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
EQUAL(CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
EQUAL(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
EQUAL(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
EQUAL(CU_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
EQUAL(CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
EQUAL(CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

SIZES(struct nccl_id, ncclUniqueId);
SIZES(nccl_result, ncclResult_t);
SIZES(nccl_dtype, ncclDataType_t);
SIZES(nccl_op, ncclRedOp_t);
/* The library reads no more than our size of its own, later structure, which begins in the same way. */
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "a configuration has not become smaller");
PLACE(struct nccl_config, magic, ncclConfig_t, magic);
PLACE(struct nccl_config, version, ncclConfig_t, version);
PLACE(struct nccl_config, blocking, ncclConfig_t, blocking);
PLACE(struct nccl_config, cga_cluster_size, ncclConfig_t, cgaClusterSize);
PLACE(struct nccl_config, min_ctas, ncclConfig_t, minCTAs);
PLACE(struct nccl_config, max_ctas, ncclConfig_t, maxCTAs);
PLACE(struct nccl_config, net_name, ncclConfig_t, netName);
PLACE(struct nccl_config, split_share, ncclConfig_t, splitShare);
PLACE(struct nccl_config, traffic_class, ncclConfig_t, trafficClass);
EQUAL(NCCL_OLDEST, NCCL_VERSION(2, 18, 0));
EQUAL(NCCL_FLOAT8_SINCE, NCCL_VERSION(2, 24, 0));
EQUAL(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
EQUAL(NCCL_OK, ncclSuccess);
EQUAL(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
EQUAL(NCCL_SYSTEM_ERROR, ncclSystemError);
EQUAL(NCCL_INTERNAL_ERROR, ncclInternalError);
EQUAL(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
EQUAL(NCCL_INVALID_USAGE, ncclInvalidUsage);
EQUAL(NCCL_REMOTE_ERROR, ncclRemoteError);
EQUAL(NCCL_IN_PROGRESS, ncclInProgress);
EQUAL(NCCL_INT8, ncclInt8);
EQUAL(NCCL_UINT8, ncclUint8);
EQUAL(NCCL_INT32, ncclInt32);
EQUAL(NCCL_UINT32, ncclUint32);
EQUAL(NCCL_INT64, ncclInt64);
EQUAL(NCCL_UINT64, ncclUint64);
EQUAL(NCCL_FLOAT16, ncclFloat16);
EQUAL(NCCL_FLOAT32, ncclFloat32);
EQUAL(NCCL_FLOAT64, ncclFloat64);
EQUAL(NCCL_BFLOAT16, ncclBfloat16);
EQUAL(NCCL_FLOAT8_E4M3, ncclFloat8e4m3);
EQUAL(NCCL_FLOAT8_E5M2, ncclFloat8e5m2);
EQUAL(NCCL_SUM, ncclSum);
EQUAL(NCCL_PRODUCT, ncclProd);
EQUAL(NCCL_MAX, ncclMax);
EQUAL(NCCL_MIN, ncclMin);
EQUAL(NCCL_AVERAGE, ncclAvg);
EQUAL(NCCL_SCALAR_HOST, ncclScalarHostImmediate);
