/* The model: the last `context` characters, each as a row of the embedding, through one hidden tanh layer to
 * a softmax over the alphabet. It knows nothing of ranks: it works on one batch and leaves sums (not means)
 * over that batch, so that the sums of several ranks add up to those of one. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdint.h>

#include "corpus.h"

#define EMBEDDING_WIDTH 16

enum tensor { EMBEDDING, HIDDEN_WEIGHT, HIDDEN_BIAS, OUTPUT_WEIGHT, OUTPUT_BIAS, TENSORS };

/* The three parts of the backward pass, in the order in which they must run. */
enum layer { OUTPUT_LAYER, HIDDEN_LAYER, EMBEDDING_LAYER, LAYERS };

struct model {
    size_t context, input, hidden, alphabet; /* input: context * EMBEDDING_WIDTH */
    size_t offset[TENSORS]; /* of each tensor in the parameters, in the gradient and in Adam's moments */
    size_t count[TENSORS];
    size_t total;
};

/* One batch on its way through the model; a row per sample. */
struct batch {
    size_t rows, capacity;
    uint8_t *question; /* context symbols a row */
    uint8_t *answer;
    float *input, *hidden, *output; /* output: probabilities, then their gradient */
    float *hidden_gradient, *input_gradient,
        *turned; /* turned: a weight matrix with rows and columns exchanged */
};

void model_shape(struct model *m, size_t context, size_t hidden, size_t alphabet);
const char *model_tensor_name(enum tensor t);
enum layer model_layer_of(enum tensor t);
/* Fills the start values of all parameters, which depend on the seed only. */
void model_init(const struct model *m, float *param, uint64_t seed);

/* Room for `capacity` rows. Returns 0, or -1 when there is no memory. Freed by batch_free. */
int batch_alloc(struct batch *b, const struct model *m, size_t capacity);
void batch_free(struct batch *b);
/* Takes the samples [first, last) of `step`. */
void batch_fill(struct batch *b, const struct model *m, const struct corpus *c, uint64_t seed, uint64_t step,
                size_t first, size_t last);

/* Returns the sum of the losses (cross entropy in nats) of the batch's rows. */
double model_forward(const struct model *m, const float *param, struct batch *b);
/* Makes the gradient of the tensors of one layer: sums over the batch's rows. */
void model_backward(const struct model *m, const float *param, struct batch *b, enum layer layer,
                    float *gradient);

/* Adam's step number `step` (from 1) for one tensor; the gradient is multiplied by `scale` first. */
struct adam {
    double lr, scale;
    int64_t step;
};
void adam_step(const struct adam *a, size_t count, const float *gradient, float *param, float *mean,
               float *square);

#endif
