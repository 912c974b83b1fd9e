/* The runtime's functions, each the driver's that it stands for. A thread that has named no device has the
 * first one; a device's context, once made, stays, as the runtime's does. */
#include "tests/gpu/emulate/emulate.h"

#include <stdio.h>
#include <stdlib.h>

static _Thread_local cudaError_t last;

cudaError_t emulate_ended(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

/* The numbers of the two interfaces are the same. */
static cudaError_t ended(CUresult result)
{
    return emulate_ended((cudaError_t)result);
}

static CUresult set_device(int device)
{
    static CUcontext contexts[GPUS_MAX];
    CUresult result = cuInit(0);
    CUdevice d;

    if (result == CUDA_SUCCESS)
        result = cuDeviceGet(&d, device);
    if (result == CUDA_SUCCESS && contexts[device] == NULL)
        result = cuDevicePrimaryCtxRetain(&contexts[device], d);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(contexts[device]) : result;
}

cudaError_t emulate_enter(const char *function)
{
    int code = double_fault(function);
    CUcontext context;
    CUresult result;

    if (code != 0)
        return emulate_ended(code < 0 ? cudaErrorUnknown : (cudaError_t)code);
    result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&context);
    return ended(result == CUDA_SUCCESS && context == NULL ? set_device(0) : result);
}

#define ENTER_RUNTIME(function)                                                                              \
    do {                                                                                                     \
        cudaError_t early_ = emulate_enter(function);                                                        \
        if (early_ != cudaSuccess)                                                                           \
            return early_;                                                                                   \
    } while (0)

cudaError_t emulate_push(cudaStream_t stream, stream_work run, void *argument)
{
    struct context *current;
    struct stream *s;

    double_context_current(&current);
    s = double_stream_get(stream, current);
    if (s == NULL)
        return ended(CUDA_ERROR_INVALID_HANDLE);
    if (double_stream_context(s)->error)
        return ended((CUresult)double_stream_context(s)->error);
    double_stream_push(s, run, argument);
    return cudaSuccess;
}

/* ---- the interface ---- */
const char *cudaGetErrorString(cudaError_t error)
{
    const char *text;

    if (error == cudaErrorInvalidConfiguration)
        return "invalid configuration argument";
    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text : "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CUresult result = cuInit(0);
    int code = double_fault("cudaGetDeviceCount");

    if (code != 0)
        return emulate_ended(code < 0 ? cudaErrorUnknown : (cudaError_t)code);
    return ended(result == CUDA_SUCCESS ? cuDeviceGetCount(count) : result);
}

cudaError_t cudaSetDevice(int device)
{
    int code = double_fault("cudaSetDevice");

    if (code != 0)
        return emulate_ended(code < 0 ? cudaErrorUnknown : (cudaError_t)code);
    return ended(set_device(device));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    CUdevice d;
    CUresult result;

    ENTER_RUNTIME("cudaGetDeviceProperties");
    result = cuDeviceGet(&d, device);
    if (result == CUDA_SUCCESS)
        snprintf(properties->name, sizeof properties->name, "a double");
    return ended(result);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    ENTER_RUNTIME("cudaStreamCreateWithFlags");
    return ended(cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER_RUNTIME("cudaStreamDestroy");
    return ended(cuStreamDestroy_v2(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER_RUNTIME("cudaStreamSynchronize");
    return ended(cuStreamSynchronize(stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER_RUNTIME("cudaEventCreateWithFlags");
    return ended(cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER_RUNTIME("cudaEventDestroy");
    return ended(cuEventDestroy_v2(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER_RUNTIME("cudaEventRecord");
    return ended(cuEventRecord(event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER_RUNTIME("cudaEventSynchronize");
    return ended(cuEventSynchronize(event));
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    CUdeviceptr address = 0;
    CUresult result;

    ENTER_RUNTIME("cudaMalloc");
    result = cuMemAlloc_v2(&address, bytes);
    if (result == CUDA_SUCCESS)
        *memory = (void *)(uintptr_t)address;
    return ended(result);
}

cudaError_t cudaFree(void *memory)
{
    ENTER_RUNTIME("cudaFree");
    return ended(cuMemFree_v2((uintptr_t)memory));
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    ENTER_RUNTIME("cudaMallocHost");
    return ended(cuMemHostAlloc(memory, bytes, 0));
}

cudaError_t cudaFreeHost(void *memory)
{
    ENTER_RUNTIME("cudaFreeHost");
    return memory == NULL ? cudaSuccess : ended(cuMemFreeHost(memory));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    ENTER_RUNTIME("cudaMemsetAsync");
    return ended(cuMemsetD8Async((uintptr_t)memory, (unsigned char)value, bytes, stream));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER_RUNTIME("cudaMemcpyAsync");
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return ended(cuMemcpyHtoDAsync_v2((uintptr_t)to, from, bytes, stream));
    case cudaMemcpyDeviceToHost:
        return ended(cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, bytes, stream));
    case cudaMemcpyDeviceToDevice:
        return ended(cuMemcpyDtoDAsync_v2((uintptr_t)to, (uintptr_t)from, bytes, stream));
    default:
        return emulate_ended(cudaErrorInvalidMemcpyDirection);
    }
}
