/* Autotune: which values of the engine's parameters move most bytes in a microsecond (pure: operations that
 * were settled and times go in, parameters come out).
 *
 *   measurement   `steps` steps: until a tensor comes for the (steps + 1)th time; its score is bytes / us
 *   sample        AUTOTUNE_MEASUREMENTS measurements with the same parameters; its score is their median, its
 *                 noise their median distance from it. One line in the log.
 *
 * The first `warmup` measurements are thrown away. Then a coordinate search on the scale of powers of two,
 * with steps that are halved when none of them helps (the pattern search of R. Hooke and T. A. Jeeves,
 * "Direct search" solution of numerical and statistical problems, Journal of the ACM 8, 1961, without its
 * pattern moves; why it ends: T. G. Kolda, R. M. Lewis and V. Torczon, SIAM Review 45, 2003). Before it
 * leaves a parameter it asks the parabola through three of its values where the least time is: with four
 * parameters that saves the samples which smaller steps would take. It begins with the defaults. In the end
 * the best is measured once more, beside the defaults: the best of many samples is best by luck too. A best
 * value that is not better by more than the noise is given up for the defaults. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#define AUTOTUNE_MEASUREMENTS 5

enum autotune_parameter {
    AUTOTUNE_EAGER_BYTES,  /* up to this, data goes between hosts without asking, to everybody */
    AUTOTUNE_PIECE_BYTES,  /* the largest piece of a segment */
    AUTOTUNE_IN_FLIGHT,    /* operations between hosts at a time; more wait before the list, to be fused */
    AUTOTUNE_FUSION_BYTES, /* of tensors that travel as one */
    AUTOTUNE_PARAMETERS,
    AUTOTUNE_SHARED =
        AUTOTUNE_FUSION_BYTES /* those that every host must know; host 0 alone obeys the others */
};

struct autotune_values {
    uint32_t of[AUTOTUNE_PARAMETERS];
};

/* A parameter's values are powers of two, from least to most. */
struct autotune_range {
    const char *name;
    uint32_t least, most;
    int first; /* the direction in which it is tried first */
};

extern const struct autotune_range autotune_range[AUTOTUNE_PARAMETERS];
extern const struct autotune_values autotune_standard;

/* Are the shared ones values that the search can come to? */
bool autotune_valid(const struct autotune_values *values);

struct autotune_config {
    uint32_t warmup;  /* measurements thrown away */
    uint32_t steps;   /* in a measurement */
    uint32_t samples; /* at most */
    uint32_t tensors; /* their numbers are below this */
    /* The first values: the standard, except for the user's values, which are fixed. */
    struct autotune_values first;
    bool fixed[AUTOTUNE_PARAMETERS];
};

struct autotune_sample {
    uint32_t number; /* from 1 */
    struct autotune_values values;
    double score, noise;
};

struct autotune;

struct autotune *autotune_new(const struct autotune_config *config, struct err *e);
void autotune_free(struct autotune *a);
/* An operation on `tensor` was settled at `now` (ns). To be called only for operations that ran with the
 * values that are wanted. true: *sample is complete, and others may be wanted now. */
bool autotune_saw(struct autotune *a, uint32_t tensor, uint64_t bytes, uint64_t now,
                  struct autotune_sample *sample);
/* The values that are wanted; after the end those that were chosen. */
const struct autotune_values *autotune_wanted(const struct autotune *a);
/* The best so far; at the end the chosen. Number 0: there was no sample. */
const struct autotune_sample *autotune_best(const struct autotune *a);
bool autotune_ended(const struct autotune *a);
