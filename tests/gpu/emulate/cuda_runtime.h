/* CUDA C++ for a machine without nvcc and without GPUs: what examples/train/compute_cuda.cu needs of it, over
 * the double of the driver. A .cu file goes through launches.sed and is then compiled as C++ with this first,
 * as nvcc does it with the real one.
 *
 * The kernels run for real, thread by thread, in the double's streams: as late as those let them, and with
 * memory that the host itself cannot touch. Half of the launches take their blocks and threads from the last
 * to the first, so that what depends on their order shows.
 *
 * HVD_DOUBLE_FAIL and HVD_DOUBLE_TRACE know the functions here by their names, launches as cudaLaunchKernel.
 */
#pragma once

#ifdef DOUBLE_REAL_HEADERS /* to compare what runtime.c defines */
#include <cuda_runtime_api.h>
#else

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorNotReady = 600,
    cudaErrorUnknown = 999,
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};
#define cudaStreamNonBlocking  0x01
#define cudaEventDisableTiming 0x02

struct cudaDeviceProp {
    char name[256];
};

typedef struct uint3 {
    unsigned x, y, z;
} uint3;
typedef struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
#endif
} dim3;

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
#endif

/* ---- kernels: launch.c ---- */

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;
void __syncthreads(void);

/* A launch on its way; `call` is of malloc. */
struct emulated_launch {
    const char *name;
    dim3 grid, block;
    void (*reach)(void *call);  /* once, in the stream: finds what its pointers point to */
    void (*thread)(void *call); /* one thread of the kernel */
    void *call;
};
void emulate_launch(const struct emulated_launch *launch, size_t shared, cudaStream_t stream);
/* While `reach` runs: where the double has that memory of the device. */
void *emulate_address(const void *pointer);

#ifdef __cplusplus
}

#include <new>
#include <stdlib.h>
#include <tuple>

#define __global__
#define __device__
/* One thread of the host runs all threads of a block. */
#define __shared__           static __thread
#define EMULATE(kernel, ...) emulate(#kernel, kernel, __VA_ARGS__)

template <typename T> void emulate_reach(T &)
{
}
template <typename T> void emulate_reach(T *&pointer)
{
    pointer = static_cast<T *>(emulate_address(pointer));
}

template <typename... P> struct emulated_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void reach(void *call)
    {
        std::apply([](auto &...argument) { (emulate_reach(argument), ...); },
                   static_cast<emulated_call *>(call)->arguments);
    }
    static void thread(void *call)
    {
        std::apply(static_cast<emulated_call *>(call)->kernel, static_cast<emulated_call *>(call)->arguments);
    }
};

/* A kernel with its launch configuration: the part of kernel<<<...>>>(arguments) before the arguments. */
template <typename... P> struct emulated_kernel {
    const char *name;
    void (*kernel)(P...);
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;

    void operator()(P... argument) const
    {
        using call = emulated_call<P...>;
        void *at = malloc(sizeof(call));

        if (at == NULL)
            abort();
        struct emulated_launch launch = {name,        grid,         block,
                                         call::reach, call::thread, new (at) call{kernel, {argument...}}};
        emulate_launch(&launch, shared, stream);
    }
};

template <typename... P>
emulated_kernel<P...> emulate(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared = 0, cudaStream_t stream = NULL)
{
    return {name, kernel, grid, block, shared, stream};
}
#endif
