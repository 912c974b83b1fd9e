/* The model: the last `context` characters, each as a row of the embedding, through one hidden tanh layer to
 * a softmax over the alphabet. This header has the parts of the model, compute.h the computations. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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

void model_shape(struct model *m, size_t context, size_t hidden, size_t alphabet);
const char *model_tensor_name(enum tensor t);
enum layer model_layer_of(enum tensor t);
/* Fills the start values of all parameters, which depend on the seed only. */
void model_init(const struct model *m, float *param, uint64_t seed);
