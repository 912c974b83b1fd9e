/* The part of cuBLAS that compute_cuda.cu needs; see cuda_runtime.h. */
#pragma once

#ifdef DOUBLE_REAL_HEADERS
#include_next <cublas_v2.h>
#else
#include "tests/gpu/emulate/cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef struct cublasContext *cublasHandle_t;

const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m,
                           int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                           const float *beta, float *c, int ldc);

#ifdef __cplusplus
}
#endif
#endif
