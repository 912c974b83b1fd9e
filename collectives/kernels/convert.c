#include "collectives/kernels/convert.h"

#include "collectives/kernels/half.h"

hvd_dtype compressed_dtype(hvd_compression compression)
{
    return compression == HVD_COMPRESSION_FLOAT16 ? HVD_FLOAT16 : HVD_BFLOAT16;
}

void expand(float *to, const uint16_t *from, size_t count, hvd_compression compression)
{
    if (compression == HVD_COMPRESSION_FLOAT16)
        for (size_t i = 0; i < count; i++)
            to[i] = float16_widen(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = bfloat16_widen(from[i]);
}
