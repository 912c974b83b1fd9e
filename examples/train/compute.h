/* The computations with the model: forward, backward, Adam. compute_host.c uses the processor,
 * compute_cuda.cu a GPU. A program is linked with one of these files, and train's main does not know which.
 *
 * The computations know nothing of ranks. They work on one batch and leave sums (not means) over that batch,
 * so that the sums of several ranks add up to the sums of one rank.
 *
 * Memory of compute_alloc is called "compute memory" below. On a GPU all work goes into one stream. Only
 * compute_get, and a batch that is filled again before it was read, wait for that stream. A failure is
 * remembered: compute_failed returns it, and later results mean nothing. One thread calls all functions. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "corpus.h"
#include "model.h"

/* Opens the processor, or the GPU that `local_rank` selects. Returns 0, or -1 with *f filled. Called after
 * hvd_init; compute_close is called before hvd_shutdown. */
int compute_open(int local_rank, struct fault *f);
void compute_close(void);
/* Returns "the processor", or the GPU's name. */
const char *compute_name(void);
/* Returns the stream for hvd_options.stream; NULL for the processor. */
void *compute_stream(void);
/* Returns the first failure; NULL: there is none. */
const char *compute_failed(void);

/* Returns zeroed memory; NULL: there is none. Freed by compute_free. */
void *compute_alloc(size_t bytes);
void compute_free(void *memory);
/* Copies from and to ordinary memory; both copies have ended when the function returns. */
void compute_put(void *to, const void *from, size_t bytes);
void compute_get(void *to, const void *from, size_t bytes);

/* Makes one batch with capacity for `capacity` rows. NULL: there is no memory. */
struct batch *batch_new(const struct model *m, size_t capacity);
void batch_free(struct batch *b);
/* Takes the samples [first, last) of `step`. */
void batch_fill(struct batch *b, const struct model *m, const struct corpus *c, uint64_t seed, uint64_t step,
                size_t first, size_t last);

/* Sets *loss, in compute memory, to the sum of the losses (cross entropy in nats) of the batch's rows. */
void model_forward(const struct model *m, const float *param, struct batch *b, double *loss);
/* Makes the gradient of the tensors of one layer: sums over the batch's rows. `param` and `gradient` are in
 * compute memory. */
void model_backward(const struct model *m, const float *param, struct batch *b, enum layer layer,
                    float *gradient);

/* Makes Adam's step number `step` (from 1) for one tensor. The gradient is multiplied by `scale` first. All
 * arrays are in compute memory. */
struct adam {
    double lr, scale;
    int64_t step;
};
void adam_step(const struct adam *a, size_t count, const float *gradient, float *param, float *mean,
               float *square);

#define ADAM_KEEP_MEAN   0.9f
#define ADAM_KEEP_SQUARE 0.999f
#define ADAM_TINY        1e-8f
/* The factors of a step for means, squares and gradients. */
struct adam_factors {
    float mean, square, scale;
};
static inline struct adam_factors adam_factors(const struct adam *a)
{
    struct adam_factors f;

    f.mean = (float)(a->lr / (1 - pow(ADAM_KEEP_MEAN, (double)a->step)));
    f.square = (float)(1 / (1 - pow(ADAM_KEEP_SQUARE, (double)a->step)));
    f.scale = (float)a->scale;
    return f;
}
