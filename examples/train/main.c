/* train - a character language model, trained by all ranks of a job together.
 *
 * Every rank holds the whole model. A step's samples depend on seed, step and index only; each rank takes its
 * share of the samples and computes forward and backward. The sums of the gradients over all ranks make the
 * same step everywhere. So the losses do not depend on the number of ranks.
 *
 *   options, text, checkpoint -> hvd_init -> start state from rank 0 -> step ...
 *                             -> checkpoint -> hvd_shutdown
 *
 * A tensor's allreduce is started as soon as backward has made its gradient, the last layer first. So it
 * runs beside the next part of backward. Adam then takes the tensors in the same order, each when it has
 * arrived.
 *
 * Two things can fail. Input (options, files): every rank checks its own, then all agree, and the lowest rank
 * with a fault prints it; exit status 2. A call of hvd: each rank prints hvd_last_error; exit status 1. */
#include <hvd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"
#include "compute.h"
#include "corpus.h"
#include "model.h"
#include "options.h"

struct trainer {
    struct options options;
    struct corpus corpus;
    struct model model;
    struct batch *batch;
    struct run_identity identity;
    struct run_state state; /* as it is in checkpoints; only rank 0 needs it */
    float *part[3];         /* the same in compute memory, as are these: */
    float *gradient;
    double *loss;
    hvd_options on;     /* every operation is */
    size_t first, last; /* this rank's share of a global batch */
};

static int rank, size;

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "train: rank %d: %s: %s\n", rank, what, hvd_last_error());
    exit(1);
}

/* Agrees about faults: every rank calls it with its own fault, or with an empty one. Ends the program on all
 * ranks when one has a fault. */
static void agree(const struct fault *f)
{
    int32_t lowest = f->text[0] != '\0' ? rank : size;

    check(hvd_allreduce("train.agree", &lowest, &lowest, 1, HVD_INT32, HVD_MIN, NULL), "hvd_allreduce");
    if (lowest == size)
        return;
    if (lowest == rank)
        fprintf(stderr, "train: %s\n", f->text);
    check(hvd_shutdown(), "hvd_shutdown");
    exit(2);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Hosts without a common file system may hold different files of one name. */
static void compare_texts(const struct trainer *t, struct fault *f)
{
    int64_t low = (int64_t)t->corpus.digest, high = low;

    check(hvd_allreduce("train.text.low", &low, &low, 1, HVD_INT64, HVD_MIN, NULL), "hvd_allreduce");
    check(hvd_allreduce("train.text.high", &high, &high, 1, HVD_INT64, HVD_MAX, NULL), "hvd_allreduce");
    if (low != high)
        fault_set(f, "%.200s is not the same text on all hosts", t->options.data);
}

static int no_memory(const char *of_what, struct fault *f)
{
    if (compute_failed() != NULL)
        return fault_set(f, "%s: %s", compute_name(), compute_failed());
    return fault_set(f, "no memory for %s on %s", of_what, compute_name());
}

static int allocate(struct trainer *t, struct fault *f)
{
    const struct options *o = &t->options;

    model_shape(&t->model, (size_t)o->context, (size_t)o->hidden, (size_t)t->corpus.alphabet);
    t->first = (size_t)(o->global_batch * rank / size);
    t->last = (size_t)(o->global_batch * (rank + 1) / size);
    t->state.count = t->model.total;
    for (int i = 0; i < 3; i++) {
        t->state.part[i] = calloc(t->model.total, sizeof(float));
        if (t->state.part[i] == NULL)
            return fault_set(f, "no memory for the model");
    }
    t->batch = batch_new(&t->model, t->last - t->first);
    if (t->batch == NULL)
        return no_memory("a batch", f);
    for (int i = 0; i < 3; i++)
        t->part[i] = compute_alloc(t->model.total * sizeof(float));
    t->gradient = compute_alloc(t->model.total * sizeof(float));
    t->loss = compute_alloc(sizeof *t->loss);
    if (t->part[0] == NULL || t->part[1] == NULL || t->part[2] == NULL || t->gradient == NULL ||
        t->loss == NULL)
        return no_memory("the model", f);
    t->identity = (struct run_identity){.context = o->context,
                                        .hidden = o->hidden,
                                        .alphabet = t->corpus.alphabet,
                                        .global_batch = o->global_batch,
                                        .seed = o->seed,
                                        .data = t->corpus.digest,
                                        .lr = o->lr};
    return 0;
}

static void share_start_state(struct trainer *t)
{
    static const char *const name[3] = {"state.parameters", "state.means", "state.squares"};

    check(hvd_broadcast("state.step", &t->state.step, 1, HVD_INT64, 0, NULL), "hvd_broadcast");
    for (int i = 0; i < 3; i++) {
        if (rank == 0)
            compute_put(t->part[i], t->state.part[i], t->state.count * sizeof(float));
        check(hvd_broadcast(name[i], t->part[i], t->state.count, HVD_FLOAT32, 0, &t->on), "hvd_broadcast");
    }
}

/* Everything before the first step. */
static void prepare(struct trainer *t, struct fault *f)
{
    const struct options *o = &t->options;

    agree(f); /* about the options: what follows uses them */
    corpus_read(&t->corpus, o->data, (size_t)o->context, f);
    agree(f);
    compare_texts(t, f);
    if (f->text[0] == '\0' && compute_open(hvd_local_rank(), f) == 0)
        allocate(t, f);
    agree(f);
    t->on.stream = compute_stream();
    if (rank == 0) {
        model_init(&t->model, t->state.part[0], (uint64_t)o->seed);
        /* Written at once when there is none: a path that cannot be written is better found now than after
         * hours. */
        if (o->checkpoint != NULL && checkpoint_read(o->checkpoint, &t->identity, &t->state, f) == 0)
            checkpoint_write(o->checkpoint, &t->identity, &t->state, f);
    }
    agree(f);
    share_start_state(t);
}

/* One step of all ranks. *t->loss becomes the summed loss of the global batch before it. */
static void train_step(struct trainer *t)
{
    const struct model *m = &t->model;
    float *param = t->part[0];
    const struct adam adam = {
        .lr = t->options.lr, .scale = 1.0 / (double)t->options.global_batch, .step = t->state.step + 1};
    hvd_handle pending[TENSORS], loss;

    batch_fill(t->batch, m, &t->corpus, (uint64_t)t->options.seed, (uint64_t)adam.step, t->first, t->last);
    model_forward(m, param, t->batch, t->loss);
    check(hvd_allreduce_async("loss", t->loss, t->loss, 1, HVD_FLOAT64, HVD_SUM, &t->on, &loss),
          "hvd_allreduce_async");
    for (int layer = 0; layer < LAYERS; layer++) {
        model_backward(m, param, t->batch, (enum layer)layer, t->gradient);
        for (int i = 0; i < TENSORS; i++) {
            float *gradient = t->gradient + m->offset[i];

            if ((int)model_layer_of((enum tensor)i) == layer)
                check(hvd_allreduce_async(model_tensor_name((enum tensor)i), gradient, gradient, m->count[i],
                                          HVD_FLOAT32, HVD_SUM, &t->on, &pending[i]),
                      "hvd_allreduce_async");
        }
    }
    for (int i = TENSORS - 1; i >= 0; i--) {
        size_t at = m->offset[i];

        check(hvd_wait(pending[i]), "hvd_wait");
        adam_step(&adam, m->count[i], t->gradient + at, param + at, t->part[1] + at, t->part[2] + at);
    }
    check(hvd_wait(loss), "hvd_wait");
    t->state.step++;
}

/* hvd_wait does not wait for a GPU. If a rank has died since, the results that are read here are worthless;
 * the next call of hvd says so. */
static void all_are_there(void)
{
    if (compute_stream() != NULL)
        check(hvd_barrier(NULL), "hvd_barrier");
}

/* The mean loss of the last step; waits for it. */
static double mean_loss(const struct trainer *t)
{
    double loss;

    compute_get(&loss, t->loss, sizeof loss);
    if (compute_failed() != NULL) {
        fprintf(stderr, "train: rank %d: %s: %s\n", rank, compute_name(), compute_failed());
        exit(1);
    }
    all_are_there();
    return loss / (double)t->options.global_batch;
}

static void save(const struct trainer *t)
{
    struct fault f = {""};

    for (int i = 0; i < 3 && rank == 0; i++)
        compute_get(t->state.part[i], t->part[i], t->state.count * sizeof(float));
    if (compute_failed() != NULL)
        fault_set(&f, "%s: %s", compute_name(), compute_failed());
    all_are_there();
    if (rank == 0 && f.text[0] == '\0')
        checkpoint_write(t->options.checkpoint, &t->identity, &t->state, &f);
    agree(&f);
}

/* Rank 0 prints the steps since the last time. */
static void report(const struct trainer *t, double loss, int64_t *printed, double *since)
{
    double time = now();

    printf("step %lld loss=%.6f chars/s=%.0f\n", (long long)t->state.step, loss,
           (double)((t->state.step - *printed) * t->options.global_batch) / (time - *since));
    fflush(stdout);
    *printed = t->state.step;
    *since = time;
}

static void train(struct trainer *t)
{
    const struct options *o = &t->options;
    int64_t printed = t->state.step;
    double since = now();

    while (t->state.step < o->steps) {
        train_step(t);
        int64_t step = t->state.step;

        if (step <= 100 || step % 50 == 0 || step == o->steps) {
            double loss = mean_loss(t);

            if (rank == 0)
                report(t, loss, &printed, &since);
        }
        if (o->checkpoint != NULL && (step % o->checkpoint_every == 0 || step == o->steps))
            save(t);
    }
}

static void introduce(const struct trainer *t)
{
    size_t parameters = 0;

    for (int i = 0; i < TENSORS; i++)
        parameters += t->model.count[i];
    printf("train: %d rank%s on %d host%s, %zu parameters, %zu characters of %s\n", size,
           size == 1 ? "" : "s", hvd_cross_size(), hvd_cross_size() == 1 ? "" : "s", parameters,
           t->corpus.len, t->options.data);
    if (t->state.step > 0)
        printf("train: going on after step %lld of %s%s\n", (long long)t->state.step, t->options.checkpoint,
               t->state.step >= t->options.steps ? ": nothing is left to do" : "");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct trainer t;
    struct fault fault = {""};

    if (train_options_parse(argc, argv, &t.options, &fault) == 0 && t.options.help) {
        train_options_help();
        return 0;
    }
    check(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    prepare(&t, &fault);
    if (rank == 0)
        introduce(&t);
    train(&t);
    batch_free(t.batch);
    for (int i = 0; i < 3; i++)
        compute_free(t.part[i]);
    compute_free(t.gradient);
    compute_free(t.loss);
    compute_close();
    check(hvd_shutdown(), "hvd_shutdown");
    for (int i = 0; i < 3; i++)
        free(t.state.part[i]);
    corpus_free(&t.corpus);
    return 0;
}
