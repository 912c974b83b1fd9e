/* What is computed with the model: forward, backward, Adam. compute_host.c does it with the processor,
 * compute_cuda.cu on a GPU; a program is linked with one of them, and train's main does not know which.
 *
 * It knows nothing of ranks: it works on one batch and leaves sums (not means) over that batch, so that the
 * sums of several ranks add up to those of one.
 *
 * Pointers named in "compute memory" are of compute_alloc. On a GPU all work goes into one stream and nothing
 * here waits for it, but for compute_get and a batch that is filled again before it was read. A failure is
 * remembered: compute_failed says it, and what follows it means nothing. One thread calls all of this. */
#ifndef TRAIN_COMPUTE_H
#define TRAIN_COMPUTE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "corpus.h"
#include "model.h"

/* "the processor", or the GPU's name. `local_rank` decides which GPU. Returns 0, or -1 with *f filled. Called
 * after hvd_init, and compute_close before hvd_shutdown. */
int compute_open(int local_rank, struct fault *f);
void compute_close(void);
const char *compute_name(void);
/* The stream that hvd orders its operations by: what hvd_options.stream wants. NULL for the processor. */
void *compute_stream(void);
/* NULL: nothing has failed. */
const char *compute_failed(void);

/* Zeroed; NULL: there is none. Freed by compute_free. */
void *compute_alloc(size_t bytes);
void compute_free(void *memory);
/* From and to ordinary memory; both have ended when they return. */
void compute_put(void *to, const void *from, size_t bytes);
void compute_get(void *to, const void *from, size_t bytes);

/* One batch on its way through the model: room for `capacity` rows. NULL: there is no memory. */
struct batch *batch_new(const struct model *m, size_t capacity);
void batch_free(struct batch *b);
/* Takes the samples [first, last) of `step`. */
void batch_fill(struct batch *b, const struct model *m, const struct corpus *c, uint64_t seed, uint64_t step,
                size_t first, size_t last);

/* *loss, in compute memory, becomes the sum of the losses (cross entropy in nats) of the batch's rows. */
void model_forward(const struct model *m, const float *param, struct batch *b, double *loss);
/* Makes the gradient of the tensors of one layer: sums over the batch's rows. `param` and `gradient` are in
 * compute memory. */
void model_backward(const struct model *m, const float *param, struct batch *b, enum layer layer,
                    float *gradient);

/* Adam's step number `step` (from 1) for one tensor; the gradient is multiplied by `scale` first. All arrays
 * are in compute memory. */
struct adam {
    double lr, scale;
    int64_t step;
};
void adam_step(const struct adam *a, size_t count, const float *gradient, float *param, float *mean,
               float *square);

#define ADAM_KEEP_MEAN   0.9f
#define ADAM_KEEP_SQUARE 0.999f
#define ADAM_TINY        1e-8f
/* What a step multiplies means, squares and gradients by. */
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

#endif
