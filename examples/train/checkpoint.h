/* A checkpoint holds the state from which a run continues exactly: the parameters, Adam's two moments, and
 * the step. */
#pragma once

#include <stdint.h>

#include "options.h"

/* The parameters of a run. A checkpoint of another run is refused; the message names the first difference.
 * All fields are 64 bits wide. */
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

/* Returns 1 and fills *state when the file was read, 0 when there is no file, -1 with *f filled when the file
 * cannot be used; *state is unchanged then. */
int checkpoint_read(const char *path, const struct run_identity *run, struct run_state *state,
                    struct fault *f);
/* Writes the checkpoint beside `path` and renames it. After an interruption at any time a reader finds the
 * old file or the new file, whole. */
int checkpoint_write(const char *path, const struct run_identity *run, const struct run_state *state,
                     struct fault *f);
