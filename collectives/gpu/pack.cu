// The kernels of pack.h. A column of blocks works on one piece, all blocks of a column in turn.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "collectives/gpu/pack_batch.h"
#include "collectives/hvd.h"

// The batch is read where the driver put it: without this a thread may make a copy of all of it. CUDA 11.7 brought the word.
#ifndef __grid_constant__
#define __grid_constant__
#endif

template <typename T> static __device__ void copy(void *to, const void *from, size_t bytes)
{
    const size_t n = bytes / sizeof(T), step = (size_t)gridDim.x * blockDim.x;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = first; i < n; i += step)
        static_cast<T *>(to)[i] = static_cast<const T *>(from)[i];
    const size_t done = n * sizeof(T);
    if (first < bytes - done)
        static_cast<char *>(to)[done + first] = static_cast<const char *>(from)[done + first];
}

extern "C" __global__ void hvd_pack_copy(const __grid_constant__ struct pack_batch batch)
{
    void *to = reinterpret_cast<void *>(batch.piece[blockIdx.y].to);
    const void *from = reinterpret_cast<const void *>(batch.piece[blockIdx.y].from);
    const size_t bytes = batch.piece[blockIdx.y].count;
    const unsigned low = static_cast<unsigned>(batch.piece[blockIdx.y].to | batch.piece[blockIdx.y].from);
    if (low % sizeof(uint4) == 0)
        copy<uint4>(to, from, bytes);
    else if (low % sizeof(uint32_t) == 0)
        copy<uint32_t>(to, from, bytes);
    else if (low % sizeof(uint16_t) == 0)
        copy<uint16_t>(to, from, bytes);
    else
        copy<char>(to, from, bytes);
}

// Integers are cut toward zero, or to the nearest end of their range; what is no number becomes 0.
template <typename T> static __device__ T scaled(T x, double factor)
{
    const T most = static_cast<T>(-1) > 0 ? static_cast<T>(~static_cast<T>(0))
                                          : static_cast<T>((static_cast<uint64_t>(1) << (8 * sizeof(T) - 1)) - 1);
    const T least = static_cast<T>(~most);
    const double r = static_cast<double>(x) * factor;
    return r >= static_cast<double>(most) ? most : r > static_cast<double>(least) ? static_cast<T>(r) : r == r ? least : 0;
}
template <> __device__ float scaled<float>(float x, double factor)
{
    return static_cast<float>(x * factor);
}
template <> __device__ double scaled<double>(double x, double factor)
{
    return x * factor;
}
template <> __device__ __half scaled<__half>(__half x, double factor)
{
    return __float2half_rn(static_cast<float>(__half2float(x) * factor));
}
template <> __device__ __nv_bfloat16 scaled<__nv_bfloat16>(__nv_bfloat16 x, double factor)
{
    return __float2bfloat16_rn(static_cast<float>(__bfloat162float(x) * factor));
}

template <typename T> static __device__ void scale(const struct pack_batch &batch, double factor)
{
    T *to = reinterpret_cast<T *>(batch.piece[blockIdx.y].to);
    const T *from = reinterpret_cast<const T *>(batch.piece[blockIdx.y].from);
    const size_t n = batch.piece[blockIdx.y].count, step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = scaled(from[i], factor);
}

extern "C" __global__ void hvd_pack_scale(const __grid_constant__ struct pack_batch batch, int dtype, double factor)
{
    switch (dtype) {
    case HVD_UINT8:
        return scale<uint8_t>(batch, factor);
    case HVD_INT8:
        return scale<int8_t>(batch, factor);
    case HVD_UINT16:
        return scale<uint16_t>(batch, factor);
    case HVD_INT16:
        return scale<int16_t>(batch, factor);
    case HVD_INT32:
        return scale<int32_t>(batch, factor);
    case HVD_INT64:
        return scale<int64_t>(batch, factor);
    case HVD_UINT32:
        return scale<uint32_t>(batch, factor);
    case HVD_UINT64:
        return scale<uint64_t>(batch, factor);
    case HVD_FLOAT16:
        return scale<__half>(batch, factor);
    case HVD_BFLOAT16:
        return scale<__nv_bfloat16>(batch, factor);
    case HVD_FLOAT32:
        return scale<float>(batch, factor);
    case HVD_FLOAT64:
        return scale<double>(batch, factor);
    }
}
