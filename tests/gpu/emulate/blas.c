/* cuBLAS: products of matrices in plain loops, in the handle's stream. Matrices lie by columns. */
#include "tests/gpu/emulate/emulate.h"

#include <stdlib.h>
#include <string.h>

#include "tests/gpu/emulate/cublas_v2.h"

struct cublasContext {
    cudaStream_t stream;
};

/* c[m x n] = alpha * a[m x k] b[k x n] + beta * c */
struct product {
    size_t m, n, k, lda, ldb, ldc;
    bool a_turned, b_turned;
    float alpha, beta;
    const float *a, *b;
    float *c;
};

/* Of a matrix that lies with `rows` of `stride`, in `cols` columns. */
static size_t extent(size_t rows, size_t cols, size_t stride)
{
    return ((cols - 1) * stride + rows) * sizeof(float);
}

static void *part(struct context *context, const void *pointer, size_t bytes, const char *what)
{
    return double_reach_or_break(context, (uintptr_t)pointer, bytes, what);
}

static bool reach(struct context *context, struct product *p)
{
    const size_t a = extent(p->a_turned ? p->k : p->m, p->a_turned ? p->m : p->k, p->lda);
    const size_t b = extent(p->b_turned ? p->n : p->k, p->b_turned ? p->k : p->n, p->ldb);

    p->a = part(context, p->a, a, "cublasSgemm, a");
    p->b = part(context, p->b, b, "cublasSgemm, b");
    p->c = part(context, p->c, extent(p->m, p->n, p->ldc), "cublasSgemm, c");
    return p->a != NULL && p->b != NULL && p->c != NULL;
}

/* `a` by columns without gaps, turned if it has to be. */
static void straighten(float *to, const struct product *p)
{
    for (size_t l = 0; l < p->k; l++)
        for (size_t i = 0; i < p->m; i++)
            to[l * p->m + i] = p->a_turned ? p->a[i * p->lda + l] : p->a[l * p->lda + i];
}

static void multiply(const struct product *p, const float *a)
{
    for (size_t j = 0; j < p->n; j++) {
        float *restrict c = p->c + j * p->ldc;

        for (size_t i = 0; i < p->m; i++)
            c[i] = p->beta == 0 ? 0 : p->beta * c[i]; /* beta 0: C may hold NaN, so it is not read */
        for (size_t l = 0; l < p->k; l++) {
            const float b = p->alpha * (p->b_turned ? p->b[l * p->ldb + j] : p->b[j * p->ldb + l]);
            const float *restrict column = a + l * p->m;

            for (size_t i = 0; i < p->m; i++)
                c[i] += column[i] * b;
        }
    }
}

static void run(struct context *context, void *argument)
{
    struct product *p = argument;
    float *a = malloc(p->m * p->k * sizeof *a);

    if (a == NULL)
        abort();
    if (!context->error && reach(context, p)) {
        straighten(a, p);
        multiply(p, a);
    }
    free(a);
    free(p);
}

static cublasStatus_t enter(const char *function)
{
    return emulate_enter(function) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}

/* ---- the interface ---- */
const char *cublasGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an invalid value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    default:
        return "an internal operation failed";
    }
}

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    cublasStatus_t status = enter("cublasCreate");

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    *handle = calloc(1, sizeof **handle);
    return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    if (handle == NULL)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    free(handle);
    return enter("cublasDestroy");
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    cublasStatus_t status = handle != NULL ? enter("cublasSetStream") : CUBLAS_STATUS_NOT_INITIALIZED;

    if (status == CUBLAS_STATUS_SUCCESS)
        handle->stream = stream;
    return status;
}

static size_t least(int rows)
{
    return rows > 1 ? (size_t)rows : 1;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t a_as, cublasOperation_t b_as, int m,
                           int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                           const float *beta, float *c, int ldc)
{
    cublasStatus_t status = handle != NULL ? enter("cublasSgemm") : CUBLAS_STATUS_NOT_INITIALIZED;
    struct product *p;

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (m < 0 || n < 0 || k < 0 || alpha == NULL || beta == NULL || lda < (int)least(a_as ? k : m) ||
        ldb < (int)least(b_as ? n : k) || ldc < (int)least(m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (m == 0 || n == 0 || k == 0) {
        double_misuse("cublasSgemm of %d x %d x %d: the emulation has none that are empty", m, n, k);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    p = malloc(sizeof *p);
    if (p == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct product){(size_t)m,   (size_t)n, (size_t)k, (size_t)lda, (size_t)ldb,
                          (size_t)ldc, a_as != 0, b_as != 0, *alpha,      *beta,
                          a,           b,         c};
    if (emulate_push(handle->stream, run, p) == cudaSuccess)
        return CUBLAS_STATUS_SUCCESS;
    free(p);
    return CUBLAS_STATUS_EXECUTION_FAILED;
}
