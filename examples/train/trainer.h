/* One rank's part of the training, for main.c and elastic.c. */
#pragma once

#include <hvd.h>

#include "checkpoint.h"
#include "compute.h"
#include "corpus.h"
#include "model.h"
#include "options.h"

struct trainer {
    int rank, size;
    struct options options;
    struct corpus corpus;
    struct model model;
    struct batch *batch;
    struct run_identity identity;
    struct run_state state; /* as it is in checkpoints; rank 0 needs it, and all ranks of an elastic job */
    float *part[3];         /* the same in compute memory, as are these: */
    float *gradient;
    double *loss;
    hvd_options on;     /* every operation is */
    size_t first, last; /* this rank's share of a global batch */
    int64_t printed;    /* the step that rank 0 told last, and when */
    double since;
    /* Of an elastic job: */
    int64_t kept; /* the step of state.part; -1: there is none yet */
    int stepped;  /* the last membership in which hvdrun was told of a step */
    bool left;    /* this worker has no rank any more */
};

/* Ends the program with hvd's sentence when a call has failed. */
void trainer_check(const struct trainer *t, int status, const char *what);
/* Ends the program on this rank alone, with a sentence. */
void trainer_end(const struct trainer *t, const char *why, int status);
/* Takes this rank's share of the samples, and memory for them. Returns 0, or -1 with *f filled. */
int trainer_divide(struct trainer *t, struct fault *f);
/* Copies the state from ordinary memory into compute memory, and back. */
void trainer_put_state(struct trainer *t);
void trainer_get_state(struct trainer *t);
/* Copies step and state in compute memory of rank `root` to all ranks. Returns a status of hvd. */
int trainer_broadcast(struct trainer *t, int root);

/* Keeps the state of this step. */
void elastic_keep(struct trainer *t);
/* Returns 1 when the ranks are to change, 0, or a status of hvd. All ranks call it after each step. */
int elastic_is_due(struct trainer *t);
/* Goes on with the next ranks, from the last state that was kept. Sets t->left when this rank is not among
 * them. */
void elastic_rejoin(struct trainer *t);
/* Makes the states of all ranks equal, after the ranks have changed. Returns a status of hvd. */
int elastic_enter(struct trainer *t);
