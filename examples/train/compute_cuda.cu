/* On a GPU: cuBLAS for products of matrices, a kernel for each of the rest, all in one stream. The order of
 * every sum depends on the shapes only (no atomic additions), so a run repeats itself.
 *
 * Matrices lie by rows as in compute_host.c. cuBLAS expects columns and sees each matrix as its transpose, so
 * c = a b is requested as c' = b' a'. */
extern "C" {
#include "compute.h"
}

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 256
#define LOSSES  256 /* threads that add up a batch's losses */

/* One row per sample. The host's question and answer are pinned; they may be filled again after the event
 * `copied`. */
struct batch {
    size_t rows, context;
    uint8_t *samples_host, *samples; /* questions, then answers */
    size_t answers;                  /* where they begin */
    float *input, *hidden, *output;  /* output: probabilities, then their gradient */
    float *hidden_gradient, *input_gradient;
    double *losses; /* of each row */
    cudaEvent_t copied;
};

static struct {
    cudaStream_t stream;
    cublasHandle_t blas;
    char name[256], failure[256];
} gpu;

/* ---- the GPU ------------------------------------------------------------------------------------------- */

static bool good(cudaError_t error, const char *what)
{
    if (error != cudaSuccess && gpu.failure[0] == '\0')
        snprintf(gpu.failure, sizeof gpu.failure, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

static void good_blas(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS && gpu.failure[0] == '\0')
        snprintf(gpu.failure, sizeof gpu.failure, "cuBLAS: %s", cublasGetStatusString(status));
}

int compute_open(int local_rank, struct fault *f)
{
    struct cudaDeviceProp properties;
    int devices = 0;

    if (!good(cudaGetDeviceCount(&devices), "looking for a GPU and its driver"))
        return fault_set(f, "%s", gpu.failure);
    int device = local_rank % devices;
    if (!good(cudaSetDevice(device), "cudaSetDevice") ||
        !good(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties") ||
        !good(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate"))
        return fault_set(f, "GPU %d: %s", device, gpu.failure);
    good_blas(cublasCreate(&gpu.blas));
    if (gpu.failure[0] == '\0')
        good_blas(cublasSetStream(gpu.blas, gpu.stream));
    if (gpu.failure[0] != '\0')
        return fault_set(f, "GPU %d: %s", device, gpu.failure);
    snprintf(gpu.name, sizeof gpu.name, "GPU %d (%.200s)", device, properties.name);
    return 0;
}

void compute_close(void)
{
    cublasDestroy(gpu.blas);
    cudaStreamDestroy(gpu.stream);
}

const char *compute_name(void)
{
    return gpu.name;
}

void *compute_stream(void)
{
    return gpu.stream;
}

const char *compute_failed(void)
{
    good(cudaPeekAtLastError(), "a kernel");
    return gpu.failure[0] != '\0' ? gpu.failure : NULL;
}

/* Memory for operations of hvd: NCCL knows it, and need not copy it on the way. */
void *compute_alloc(size_t bytes)
{
    void *memory = hvd_alloc_device(bytes);

    if (memory == NULL && gpu.failure[0] == '\0')
        snprintf(gpu.failure, sizeof gpu.failure, "%s", hvd_last_error());
    return memory;
}

void compute_free(void *memory)
{
    good(cudaStreamSynchronize(gpu.stream), "what is in the stream");
    hvd_free(memory);
}

/* Memory for this rank alone. */
static void *room_for(size_t bytes)
{
    void *memory = NULL;

    if (!good(cudaMalloc(&memory, bytes), "cudaMalloc"))
        return NULL;
    good(cudaMemsetAsync(memory, 0, bytes, gpu.stream), "cudaMemset");
    return memory;
}

void compute_put(void *to, const void *from, size_t bytes)
{
    good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu.stream), "a copy to the GPU");
    good(cudaStreamSynchronize(gpu.stream), "a copy to the GPU");
}

void compute_get(void *to, const void *from, size_t bytes)
{
    good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, gpu.stream), "a copy from the GPU");
    good(cudaStreamSynchronize(gpu.stream), "a copy from the GPU");
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

static unsigned blocks(size_t count)
{
    return (unsigned)((count + THREADS - 1) / THREADS);
}

#define EACH(i, count)                                                                                       \
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;                                                \
    if (i >= (count))                                                                                        \
    return

__global__ static void look_up(float *input, const float *embedding, const uint8_t *question, size_t symbols)
{
    EACH(i, symbols * EMBEDDING_WIDTH);
    input[i] = embedding[question[i / EMBEDDING_WIDTH] * EMBEDDING_WIDTH + i % EMBEDDING_WIDTH];
}

__global__ static void repeat_row(float *to, const float *row, size_t rows, size_t cols)
{
    EACH(i, rows * cols);
    to[i] = row[i % cols];
}

__global__ static void squash(float *hidden, size_t count)
{
    EACH(i, count);
    hidden[i] = tanhf(hidden[i]);
}

/* A thread for each row: turns the scores into probabilities, and leaves the loss. */
__global__ static void softmax(float *output, double *losses, const uint8_t *answer, size_t rows,
                               size_t count)
{
    EACH(r, rows);
    float *row = output + r * count, top = row[0];
    double sum = 0, score = row[answer[r]];

    for (size_t k = 1; k < count; k++)
        top = row[k] > top ? row[k] : top;
    for (size_t k = 0; k < count; k++) {
        row[k] = expf(row[k] - top);
        sum += row[k];
    }
    for (size_t k = 0; k < count; k++)
        row[k] = (float)(row[k] / sum);
    losses[r] = log(sum) - (score - top);
}

/* One block. */
__global__ static void add_losses(double *loss, const double *losses, size_t rows)
{
    __shared__ double part[LOSSES];
    double sum = 0;

    for (size_t r = threadIdx.x; r < rows; r += LOSSES)
        sum += losses[r];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = LOSSES / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *loss = part[0];
}

/* The gradient of the loss by the scores: the probabilities, less one at the answer. */
__global__ static void take_answers(float *output, const uint8_t *answer, size_t rows, size_t count)
{
    EACH(r, rows);
    output[r * count + answer[r]] -= 1;
}

/* A thread for each column. */
__global__ static void sum_rows(float *to, const float *from, size_t rows, size_t cols)
{
    EACH(c, cols);
    float sum = 0;

    for (size_t r = 0; r < rows; r++)
        sum += from[r * cols + c];
    to[c] = sum;
}

__global__ static void unsquash(float *gradient, const float *hidden, size_t count)
{
    EACH(i, count);
    gradient[i] *= 1 - hidden[i] * hidden[i];
}

/* A block for each symbol, a thread for each of its numbers: adds up the gradients of its places. */
__global__ static void collect(float *embedding, const float *input_gradient, const uint8_t *question,
                               size_t symbols)
{
    float sum = 0;

    for (size_t i = 0; i < symbols; i++)
        if (question[i] == blockIdx.x)
            sum += input_gradient[i * EMBEDDING_WIDTH + threadIdx.x];
    embedding[blockIdx.x * EMBEDDING_WIDTH + threadIdx.x] = sum;
}

__global__ static void adam(struct adam_factors f, size_t count, const float *gradient, float *param,
                            float *mean, float *square)
{
    EACH(i, count);
    float g = gradient[i] * f.scale;

    mean[i] = ADAM_KEEP_MEAN * mean[i] + (1 - ADAM_KEEP_MEAN) * g;
    square[i] = ADAM_KEEP_SQUARE * square[i] + (1 - ADAM_KEEP_SQUARE) * g * g;
    param[i] -= f.mean * mean[i] / (sqrtf(f.square * square[i]) + ADAM_TINY);
}

/* ---- products of matrices ------------------------------------------------------------------------------ */

/* c[rows x cols] = keep * c + a[rows x inner] b[inner x cols]; a_turned: `a` lies as [inner x rows],
 * b_turned: `b` as [cols x inner]. */
static void multiply(float keep, float *c, const float *a, bool a_turned, const float *b, bool b_turned,
                     size_t rows, size_t inner, size_t cols)
{
    const float one = 1;

    good_blas(cublasSgemm(gpu.blas, b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                          a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, (int)cols, (int)rows, (int)inner, &one, b,
                          (int)(b_turned ? inner : cols), a, (int)(a_turned ? rows : inner), &keep, c,
                          (int)cols));
}

/* ---- a batch ------------------------------------------------------------------------------------------- */

struct batch *batch_new(const struct model *m, size_t capacity)
{
    const size_t room = capacity > 0 ? capacity : 1;
    struct batch *b = (struct batch *)calloc(1, sizeof *b);

    if (b == NULL)
        return NULL;
    b->context = m->context;
    b->answers = room * m->context;
    b->samples = (uint8_t *)room_for(b->answers + room);
    b->input = (float *)room_for(room * m->input * sizeof(float));
    b->hidden = (float *)room_for(room * m->hidden * sizeof(float));
    b->output = (float *)room_for(room * m->alphabet * sizeof(float));
    b->hidden_gradient = (float *)room_for(room * m->hidden * sizeof(float));
    b->input_gradient = (float *)room_for(room * m->input * sizeof(float));
    b->losses = (double *)room_for(room * sizeof(double));
    if (good(cudaMallocHost((void **)&b->samples_host, b->answers + room), "cudaMallocHost") &&
        good(cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming), "cudaEventCreate") &&
        gpu.failure[0] == '\0')
        return b;
    batch_free(b);
    return NULL;
}

void batch_free(struct batch *b)
{
    if (b == NULL)
        return;
    cudaFree(b->samples);
    cudaFree(b->input);
    cudaFree(b->hidden);
    cudaFree(b->output);
    cudaFree(b->hidden_gradient);
    cudaFree(b->input_gradient);
    cudaFree(b->losses);
    cudaFreeHost(b->samples_host);
    if (b->copied != NULL)
        cudaEventDestroy(b->copied);
    free(b);
}

void batch_fill(struct batch *b, const struct model *m, const struct corpus *c, uint64_t seed, uint64_t step,
                size_t first, size_t last)
{
    b->rows = last - first;
    good(cudaEventSynchronize(b->copied), "the batch before");
    corpus_batch(c, m->context, seed, step, first, last, b->samples_host, b->samples_host + b->answers);
    good(cudaMemcpyAsync(b->samples, b->samples_host, b->answers + b->rows, cudaMemcpyHostToDevice,
                         gpu.stream),
         "a batch");
    good(cudaEventRecord(b->copied, gpu.stream), "a batch");
}

/* ---- forward, backward --------------------------------------------------------------------------------- */

void model_forward(const struct model *m, const float *param, struct batch *b, double *loss)
{
    const size_t rows = b->rows;

    if (rows > 0) {
        look_up<<<blocks(rows * m->input), THREADS, 0, gpu.stream>>>(b->input, param + m->offset[EMBEDDING],
                                                                     b->samples, rows * m->context);
        repeat_row<<<blocks(rows * m->hidden), THREADS, 0, gpu.stream>>>(
            b->hidden, param + m->offset[HIDDEN_BIAS], rows, m->hidden);
        multiply(1, b->hidden, b->input, false, param + m->offset[HIDDEN_WEIGHT], false, rows, m->input,
                 m->hidden);
        squash<<<blocks(rows * m->hidden), THREADS, 0, gpu.stream>>>(b->hidden, rows * m->hidden);
        repeat_row<<<blocks(rows * m->alphabet), THREADS, 0, gpu.stream>>>(
            b->output, param + m->offset[OUTPUT_BIAS], rows, m->alphabet);
        multiply(1, b->output, b->hidden, false, param + m->offset[OUTPUT_WEIGHT], false, rows, m->hidden,
                 m->alphabet);
        softmax<<<blocks(rows), THREADS, 0, gpu.stream>>>(b->output, b->losses, b->samples + b->answers, rows,
                                                          m->alphabet);
    }
    add_losses<<<1, LOSSES, 0, gpu.stream>>>(loss, b->losses, rows);
}

/* Computes the gradient of a weight [inputs x outputs] and its bias, from the input and the gradient of the
 * output. */
static void layer_gradient(float *weight, float *bias, const float *in, size_t inputs, const float *out,
                           size_t outputs, size_t rows)
{
    multiply(0, weight, in, true, out, false, inputs, rows, outputs);
    sum_rows<<<blocks(outputs), THREADS, 0, gpu.stream>>>(bias, out, rows, outputs);
}

static void backward_output(const struct model *m, struct batch *b, float *gradient)
{
    take_answers<<<blocks(b->rows), THREADS, 0, gpu.stream>>>(b->output, b->samples + b->answers, b->rows,
                                                              m->alphabet);
    layer_gradient(gradient + m->offset[OUTPUT_WEIGHT], gradient + m->offset[OUTPUT_BIAS], b->hidden,
                   m->hidden, b->output, m->alphabet, b->rows);
}

static void backward_hidden(const struct model *m, const float *param, struct batch *b, float *gradient)
{
    multiply(0, b->hidden_gradient, b->output, false, param + m->offset[OUTPUT_WEIGHT], true, b->rows,
             m->alphabet, m->hidden);
    unsquash<<<blocks(b->rows * m->hidden), THREADS, 0, gpu.stream>>>(b->hidden_gradient, b->hidden,
                                                                      b->rows * m->hidden);
    layer_gradient(gradient + m->offset[HIDDEN_WEIGHT], gradient + m->offset[HIDDEN_BIAS], b->input, m->input,
                   b->hidden_gradient, m->hidden, b->rows);
}

static void backward_embedding(const struct model *m, const float *param, struct batch *b, float *gradient)
{
    multiply(0, b->input_gradient, b->hidden_gradient, false, param + m->offset[HIDDEN_WEIGHT], true, b->rows,
             m->hidden, m->input);
    collect<<<(unsigned)m->alphabet, EMBEDDING_WIDTH, 0, gpu.stream>>>(
        gradient + m->offset[EMBEDDING], b->input_gradient, b->samples, b->rows * m->context);
}

/* A rank without samples gives zeros. */
static void no_gradient(const struct model *m, enum layer layer, float *gradient)
{
    for (int t = 0; t < TENSORS; t++)
        if (model_layer_of((enum tensor)t) == layer)
            good(cudaMemsetAsync(gradient + m->offset[t], 0, m->count[t] * sizeof *gradient, gpu.stream),
                 "a gradient");
}

void model_backward(const struct model *m, const float *param, struct batch *b, enum layer layer,
                    float *gradient)
{
    if (b->rows == 0)
        no_gradient(m, layer, gradient);
    else if (layer == OUTPUT_LAYER)
        backward_output(m, b, gradient);
    else if (layer == HIDDEN_LAYER)
        backward_hidden(m, param, b, gradient);
    else
        backward_embedding(m, param, b, gradient);
}

void adam_step(const struct adam *a, size_t count, const float *gradient, float *param, float *mean,
               float *square)
{
    adam<<<blocks(count), THREADS, 0, gpu.stream>>>(adam_factors(a), count, gradient, param, mean, square);
}
