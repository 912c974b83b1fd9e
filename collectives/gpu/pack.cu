// The kernels of pack.h. Each piece has blocks of its own (pack_batch.h), whose threads take its elements in turn.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "collectives/gpu/pack_batch.h"
#include "collectives/hvd.h"

// The batch is read where the driver put it: without this a thread may make a copy of all of it. CUDA 11.7 brought the word.
#ifndef __grid_constant__
#define __grid_constant__
#endif

// Where a thread begins in its piece, and its step.
struct place {
    unsigned piece;
    size_t first, step;
};

static __device__ place find_place(const struct pack_batch &batch)
{
    unsigned low = 0, behind = batch.n;
    while (behind - low > 1) {
        const unsigned middle = (low + behind) / 2;
        if (batch.first[middle] <= blockIdx.x)
            low = middle;
        else
            behind = middle;
    }
    const unsigned end = low + 1 < batch.n ? batch.first[low + 1] : gridDim.x;
    return {low, (size_t)(blockIdx.x - batch.first[low]) * blockDim.x + threadIdx.x,
            (size_t)(end - batch.first[low]) * blockDim.x};
}

// Four elements are under way at a time.
template <typename T> static __device__ void copy(void *to, const void *from, size_t bytes, const place &at)
{
    const size_t n = bytes / sizeof(T), step = at.step, done = n * sizeof(T);
    const T *in = static_cast<const T *>(from);
    T *out = static_cast<T *>(to);
    size_t i = at.first;
    for (; i + 3 * step < n; i += 4 * step) {
        const T a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step];
        out[i] = a;
        out[i + step] = b;
        out[i + 2 * step] = c;
        out[i + 3 * step] = d;
    }
    for (; i < n; i += step)
        out[i] = in[i];
    if (at.first < bytes - done)
        static_cast<char *>(to)[done + at.first] = static_cast<const char *>(from)[done + at.first];
}

extern "C" __global__ void hvd_pack_copy(const __grid_constant__ struct pack_batch batch)
{
    const place at = find_place(batch);
    void *to = reinterpret_cast<void *>(batch.piece[at.piece].to);
    const void *from = reinterpret_cast<const void *>(batch.piece[at.piece].from);
    const size_t bytes = batch.piece[at.piece].count;
    const unsigned low = static_cast<unsigned>(batch.piece[at.piece].to | batch.piece[at.piece].from);
    if (low % sizeof(uint4) == 0)
        copy<uint4>(to, from, bytes, at);
    else if (low % sizeof(uint32_t) == 0)
        copy<uint32_t>(to, from, bytes, at);
    else if (low % sizeof(uint16_t) == 0)
        copy<uint16_t>(to, from, bytes, at);
    else
        copy<char>(to, from, bytes, at);
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

// Elements that are read and written at once, where the memory lies so.
template <typename T> struct alignas(16) wide {
    T x[16 / sizeof(T)];
};

template <typename T> static __device__ void scale(const struct pack_batch &batch, double factor)
{
    const place at = find_place(batch);
    T *to = reinterpret_cast<T *>(batch.piece[at.piece].to);
    const T *from = reinterpret_cast<const T *>(batch.piece[at.piece].from);
    const size_t n = batch.piece[at.piece].count;
    const unsigned low = static_cast<unsigned>(batch.piece[at.piece].to | batch.piece[at.piece].from);
    const size_t each = 16 / sizeof(T), wides = low % 16 == 0 ? n / each : 0;
    for (size_t i = at.first; i < wides; i += at.step) {
        wide<T> some = reinterpret_cast<const wide<T> *>(from)[i];
        for (size_t k = 0; k < each; k++)
            some.x[k] = scaled(some.x[k], factor);
        reinterpret_cast<wide<T> *>(to)[i] = some;
    }
    for (size_t i = wides * each + at.first; i < n; i += at.step)
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
