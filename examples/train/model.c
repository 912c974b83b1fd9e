#include "model.h"

#include <math.h>
#include <string.h>

#include "corpus.h"

void model_shape(struct model *m, size_t context, size_t hidden, size_t alphabet)
{
    memset(m, 0, sizeof *m);
    m->context = context;
    m->input = context * EMBEDDING_WIDTH;
    m->hidden = hidden;
    m->alphabet = alphabet;
    m->count[EMBEDDING] = alphabet * EMBEDDING_WIDTH;
    m->count[HIDDEN_WEIGHT] = m->input * hidden;
    m->count[HIDDEN_BIAS] = hidden;
    m->count[OUTPUT_WEIGHT] = hidden * alphabet;
    m->count[OUTPUT_BIAS] = alphabet;
    for (int t = 0; t < TENSORS; t++) {
        m->offset[t] = m->total;
        m->total += (m->count[t] + 15) / 16 * 16; /* every tensor starts on a cache line */
    }
}

const char *model_tensor_name(enum tensor t)
{
    static const char *const name[TENSORS] = {"embedding", "hidden.weight", "hidden.bias", "output.weight",
                                              "output.bias"};

    return name[t];
}

enum layer model_layer_of(enum tensor t)
{
    static const enum layer layer[TENSORS] = {EMBEDDING_LAYER, HIDDEN_LAYER, HIDDEN_LAYER, OUTPUT_LAYER,
                                              OUTPUT_LAYER};

    return layer[t];
}

void model_init(const struct model *m, float *param, uint64_t seed)
{
    const double width[TENSORS] = {1.0, 1.0 / sqrt((double)m->input), 0, 1.0 / sqrt((double)m->hidden), 0};

    memset(param, 0, m->total * sizeof *param);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < m->count[t]; i++) {
            double unit = (double)(mix(~seed, (uint64_t)t, i) >> 11) / 9007199254740992.0; /* [0, 1) */

            param[m->offset[t] + i] = (float)((2 * unit - 1) * width[t]);
        }
}
