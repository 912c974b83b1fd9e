/* A checkpoint holds all that a run needs to go on exactly where it was: the parameters, Adam's two moments,
 * and the step. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdint.h>

#include "options.h"

/* What a run is made of; a checkpoint of another run is refused, naming the first difference. All fields are
 * 64 bits wide. */
struct run_identity {
    int64_t context, hidden, alphabet, global_batch, seed;
    uint64_t data; /* the corpus's digest */
    double lr;
};

struct run_state {
    int64_t step;
    size_t count;   /* floats in each part */
    float *part[3]; /* parameters, means, squares */
};

/* Returns 1 and fills *state when the file was read, 0 when there is none, -1 with *f filled when it cannot
 * be used; *state is unchanged then. */
int checkpoint_read(const char *path, const struct run_identity *run, struct run_state *state,
                    struct fault *f);
/* Writes it beside `path` and renames: a reader finds the old or the new one, whole, whenever this is
 * interrupted. */
int checkpoint_write(const char *path, const struct run_identity *run, const struct run_state *state,
                     struct fault *f);

#endif
