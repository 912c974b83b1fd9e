/* With the processor: plain loops, in an order of sums that depends on nothing but the shapes. */
#include <hvd.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute.h"

/* One row per sample. */
struct batch {
    size_t rows;
    uint8_t *question; /* context symbols a row */
    uint8_t *answer;
    float *input, *hidden, *output; /* output: probabilities, then their gradient */
    float *hidden_gradient, *input_gradient,
        *turned; /* turned: a weight matrix with rows and columns exchanged */
};

/* ---- the processor ------------------------------------------------------------------------------------- */

int compute_open(int local_rank, struct fault *f)
{
    (void)local_rank;
    (void)f;
    return 0;
}

void compute_close(void)
{
}

const char *compute_name(void)
{
    return "the processor";
}

void *compute_stream(void)
{
    return NULL;
}

const char *compute_failed(void)
{
    return NULL;
}

/* Shared memory: gradients are reduced where they are. */
void *compute_alloc(size_t bytes)
{
    return hvd_alloc(bytes);
}

void compute_free(void *memory)
{
    hvd_free(memory);
}

void compute_put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void compute_get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

/* ---- matrices ------------------------------------------------------------------------------------------ */

/* c[rows x cols] += a[rows x inner] b[inner x cols]. `a` is read with strides, so that it may lie transposed.
 * The inner loop runs along rows of b and c only and has no reduction: the compiler makes vector code of it
 * without changing any sum's order. */
static void multiply_add(float *restrict c, const float *restrict a, size_t row_stride, size_t inner_stride,
                         const float *restrict b, size_t rows, size_t inner, size_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        const float *ar = a + r * row_stride;
        float *cr = c + r * cols;
        size_t k = 0;

        for (; k + 4 <= inner; k += 4) {
            const float a0 = ar[k * inner_stride], a1 = ar[(k + 1) * inner_stride];
            const float a2 = ar[(k + 2) * inner_stride], a3 = ar[(k + 3) * inner_stride];
            const float *b0 = b + k * cols, *b1 = b0 + cols, *b2 = b1 + cols, *b3 = b2 + cols;

            for (size_t j = 0; j < cols; j++)
                cr[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
        }
        for (; k < inner; k++) {
            const float ak = ar[k * inner_stride];
            const float *bk = b + k * cols;

            for (size_t j = 0; j < cols; j++)
                cr[j] += ak * bk[j];
        }
    }
}

static void transpose(float *restrict to, const float *restrict from, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

static void sum_rows(float *restrict to, const float *restrict from, size_t rows, size_t cols)
{
    memset(to, 0, cols * sizeof *to);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            to[c] += from[r * cols + c];
}

static void repeat_row(float *to, const float *row, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * cols, row, cols * sizeof *to);
}

/* ---- a batch ------------------------------------------------------------------------------------------- */

struct batch *batch_new(const struct model *m, size_t capacity)
{
    const size_t room = capacity > 0 ? capacity : 1;
    const size_t turned = m->input > m->alphabet ? m->input : m->alphabet;
    struct batch *b = calloc(1, sizeof *b);

    if (b == NULL)
        return NULL;
    b->question = calloc(room, m->context);
    b->answer = calloc(room, 1);
    b->input = calloc(room * m->input, sizeof(float));
    b->hidden = calloc(room * m->hidden, sizeof(float));
    b->output = calloc(room * m->alphabet, sizeof(float));
    b->hidden_gradient = calloc(room * m->hidden, sizeof(float));
    b->input_gradient = calloc(room * m->input, sizeof(float));
    b->turned = calloc(turned * m->hidden, sizeof(float));
    if (b->question != NULL && b->answer != NULL && b->input != NULL && b->hidden != NULL &&
        b->output != NULL && b->hidden_gradient != NULL && b->input_gradient != NULL && b->turned != NULL)
        return b;
    batch_free(b);
    return NULL;
}

void batch_free(struct batch *b)
{
    if (b == NULL)
        return;
    free(b->question);
    free(b->answer);
    free(b->input);
    free(b->hidden);
    free(b->output);
    free(b->hidden_gradient);
    free(b->input_gradient);
    free(b->turned);
    free(b);
}

void batch_fill(struct batch *b, const struct model *m, const struct corpus *c, uint64_t seed, uint64_t step,
                size_t first, size_t last)
{
    b->rows = last - first;
    corpus_batch(c, m->context, seed, step, first, last, b->question, b->answer);
}

/* ---- forward, backward --------------------------------------------------------------------------------- */

/* Turns one row of scores into probabilities; returns the loss of the right answer. */
static double softmax(float *row, size_t count, size_t answer)
{
    float top = row[0];
    double sum = 0;
    double score = row[answer];

    for (size_t i = 1; i < count; i++)
        top = row[i] > top ? row[i] : top;
    for (size_t i = 0; i < count; i++) {
        row[i] = expf(row[i] - top);
        sum += row[i]; /* the top one is 1, so the sum is never 0 */
    }
    for (size_t i = 0; i < count; i++)
        row[i] = (float)(row[i] / sum);
    /* cppcheck-suppress invalidFunctionArg ; it takes an alphabet for empty */
    return log(sum) - (score - top);
}

void model_forward(const struct model *m, const float *param, struct batch *b, double *loss)
{
    const float *embedding = param + m->offset[EMBEDDING];

    for (size_t i = 0; i < b->rows * m->context; i++)
        memcpy(b->input + i * EMBEDDING_WIDTH, embedding + (size_t)b->question[i] * EMBEDDING_WIDTH,
               EMBEDDING_WIDTH * sizeof(float));
    repeat_row(b->hidden, param + m->offset[HIDDEN_BIAS], b->rows, m->hidden);
    multiply_add(b->hidden, b->input, m->input, 1, param + m->offset[HIDDEN_WEIGHT], b->rows, m->input,
                 m->hidden);
    for (size_t i = 0; i < b->rows * m->hidden; i++)
        b->hidden[i] = tanhf(b->hidden[i]);
    repeat_row(b->output, param + m->offset[OUTPUT_BIAS], b->rows, m->alphabet);
    multiply_add(b->output, b->hidden, m->hidden, 1, param + m->offset[OUTPUT_WEIGHT], b->rows, m->hidden,
                 m->alphabet);
    *loss = 0;
    for (size_t r = 0; r < b->rows; r++)
        *loss += softmax(b->output + r * m->alphabet, m->alphabet, b->answer[r]);
}

/* Computes the gradient of a weight [inputs x outputs] and its bias, from the input and the gradient of the
 * output. */
static void layer_gradient(float *weight, float *bias, const float *in, size_t inputs, const float *out,
                           size_t outputs, size_t rows)
{
    memset(weight, 0, inputs * outputs * sizeof *weight);
    multiply_add(weight, in, 1, inputs, out, inputs, rows, outputs);
    sum_rows(bias, out, rows, outputs);
}

static void backward_output(const struct model *m, struct batch *b, float *gradient)
{
    for (size_t r = 0; r < b->rows; r++)
        b->output[r * m->alphabet + b->answer[r]] -= 1;
    layer_gradient(gradient + m->offset[OUTPUT_WEIGHT], gradient + m->offset[OUTPUT_BIAS], b->hidden,
                   m->hidden, b->output, m->alphabet, b->rows);
}

static void backward_hidden(const struct model *m, const float *param, struct batch *b, float *gradient)
{
    transpose(b->turned, param + m->offset[OUTPUT_WEIGHT], m->hidden, m->alphabet);
    memset(b->hidden_gradient, 0, b->rows * m->hidden * sizeof(float));
    multiply_add(b->hidden_gradient, b->output, m->alphabet, 1, b->turned, b->rows, m->alphabet, m->hidden);
    for (size_t i = 0; i < b->rows * m->hidden; i++)
        b->hidden_gradient[i] *= 1 - b->hidden[i] * b->hidden[i];
    layer_gradient(gradient + m->offset[HIDDEN_WEIGHT], gradient + m->offset[HIDDEN_BIAS], b->input, m->input,
                   b->hidden_gradient, m->hidden, b->rows);
}

static void backward_embedding(const struct model *m, const float *param, struct batch *b, float *gradient)
{
    float *embedding = gradient + m->offset[EMBEDDING];

    transpose(b->turned, param + m->offset[HIDDEN_WEIGHT], m->input, m->hidden);
    memset(b->input_gradient, 0, b->rows * m->input * sizeof(float));
    multiply_add(b->input_gradient, b->hidden_gradient, m->hidden, 1, b->turned, b->rows, m->hidden,
                 m->input);
    memset(embedding, 0, m->count[EMBEDDING] * sizeof *embedding);
    for (size_t i = 0; i < b->rows * m->context; i++)
        for (size_t j = 0; j < EMBEDDING_WIDTH; j++)
            embedding[(size_t)b->question[i] * EMBEDDING_WIDTH + j] +=
                b->input_gradient[i * EMBEDDING_WIDTH + j];
}

void model_backward(const struct model *m, const float *param, struct batch *b, enum layer layer,
                    float *gradient)
{
    switch (layer) {
    case OUTPUT_LAYER:
        backward_output(m, b, gradient);
        break;
    case HIDDEN_LAYER:
        backward_hidden(m, param, b, gradient);
        break;
    default:
        backward_embedding(m, param, b, gradient);
        break;
    }
}

void adam_step(const struct adam *a, size_t count, const float *gradient, float *param, float *mean,
               float *square)
{
    const struct adam_factors f = adam_factors(a);

    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * f.scale;

        mean[i] = ADAM_KEEP_MEAN * mean[i] + (1 - ADAM_KEEP_MEAN) * g;
        square[i] = ADAM_KEEP_SQUARE * square[i] + (1 - ADAM_KEEP_SQUARE) * g * g;
        param[i] -= f.mean * mean[i] / (sqrtf(f.square * square[i]) + ADAM_TINY);
    }
}
