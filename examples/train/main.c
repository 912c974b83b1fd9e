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
 * with a fault prints it; exit status 2. A call of hvd: each rank prints hvd_last_error; exit status 1. With
 * --elastic the death of a rank is no failure: elastic.c goes on with the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer.h"

void trainer_end(const struct trainer *t, const char *why, int status)
{
    fprintf(stderr, "train: rank %d: %s\n", t->rank, why);
    exit(status);
}

void trainer_check(const struct trainer *t, int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "train: rank %d: %s: %s\n", t->rank, what, hvd_last_error());
    exit(1);
}

/* Agrees about faults: every rank calls it with its own fault, or with an empty one. Ends the program on all
 * ranks when one has a fault. Returns a status of hvd. */
static int agree_about_fault(const struct trainer *t, const struct fault *f)
{
    int32_t lowest = f->text[0] != '\0' ? t->rank : t->size;
    int status = hvd_allreduce("train.agree", &lowest, &lowest, 1, HVD_INT32, HVD_MIN, NULL);

    if (status < 0 || lowest == t->size)
        return status;
    if (lowest == t->rank)
        fprintf(stderr, "train: %s\n", f->text);
    trainer_check(t, hvd_shutdown(), "hvd_shutdown");
    exit(2);
}

static void agree_or_end(const struct trainer *t, const struct fault *f)
{
    trainer_check(t, agree_about_fault(t, f), "hvd_allreduce");
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

    trainer_check(t, hvd_allreduce("train.text.low", &low, &low, 1, HVD_INT64, HVD_MIN, NULL),
                  "hvd_allreduce");
    trainer_check(t, hvd_allreduce("train.text.high", &high, &high, 1, HVD_INT64, HVD_MAX, NULL),
                  "hvd_allreduce");
    if (low != high)
        fault_set(f, "%.200s is not the same text on all hosts", t->options.data);
}

static int no_memory(const char *of_what, struct fault *f)
{
    if (compute_failed() != NULL)
        return fault_set(f, "%s: %s", compute_name(), compute_failed());
    return fault_set(f, "no memory for %s on %s", of_what, compute_name());
}

int trainer_divide(struct trainer *t, struct fault *f)
{
    int64_t all = t->options.global_batch;

    t->rank = hvd_rank();
    t->size = hvd_size();
    t->first = (size_t)(all * t->rank / t->size);
    t->last = (size_t)(all * (t->rank + 1) / t->size);
    batch_free(t->batch);
    t->batch = batch_new(&t->model, t->last - t->first);
    return t->batch == NULL ? no_memory("a batch", f) : 0;
}

static int allocate(struct trainer *t, struct fault *f)
{
    const struct options *o = &t->options;

    model_shape(&t->model, (size_t)o->context, (size_t)o->hidden, (size_t)t->corpus.alphabet);
    t->state.count = t->model.total;
    for (int i = 0; i < 3; i++) {
        t->state.part[i] = calloc(t->model.total, sizeof(float));
        if (t->state.part[i] == NULL)
            return fault_set(f, "no memory for the model");
    }
    if (trainer_divide(t, f) < 0)
        return -1;
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

void trainer_put_state(struct trainer *t)
{
    for (int i = 0; i < 3; i++)
        compute_put(t->part[i], t->state.part[i], t->state.count * sizeof(float));
}

void trainer_get_state(struct trainer *t)
{
    for (int i = 0; i < 3; i++)
        compute_get(t->state.part[i], t->part[i], t->state.count * sizeof(float));
}

int trainer_broadcast(struct trainer *t, int root)
{
    static const char *const name[3] = {"state.parameters", "state.means", "state.squares"};
    int status = hvd_broadcast("state.step", &t->state.step, 1, HVD_INT64, root, NULL);

    for (int i = 0; i < 3 && status == HVD_SUCCESS; i++)
        status = hvd_broadcast(name[i], t->part[i], t->state.count, HVD_FLOAT32, root, &t->on);
    return status;
}

/* Everything before the first step. */
static void prepare(struct trainer *t, struct fault *f)
{
    const struct options *o = &t->options;

    if (o->elastic && hvd_membership() == 0)
        fault_set(f, "--elastic is for elastic jobs: start it with hvdrun --min-np");
    agree_or_end(t, f); /* about the options: what follows uses them */
    corpus_read(&t->corpus, o->data, (size_t)o->context, f);
    agree_or_end(t, f);
    compare_texts(t, f);
    if (f->text[0] == '\0' && compute_open(hvd_local_rank(), f) == 0)
        allocate(t, f);
    agree_or_end(t, f);
    t->on.stream = compute_stream();
    if (t->rank == 0) {
        model_init(&t->model, t->state.part[0], (uint64_t)o->seed);
        /* Written at once when there is none: a path that cannot be written is better found now than after
         * hours. */
        if (o->checkpoint != NULL && checkpoint_read(o->checkpoint, &t->identity, &t->state, f) == 0)
            checkpoint_write(o->checkpoint, &t->identity, &t->state, f);
        trainer_put_state(t);
    }
    agree_or_end(t, f);
    trainer_check(t, trainer_broadcast(t, 0), "hvd_broadcast");
    elastic_keep(t);
}

/* A worker that comes to a training which goes on: nobody waits for its faults. */
static void prepare_late(struct trainer *t, struct fault *f)
{
    const struct options *o = &t->options;
    int status;

    if (f->text[0] == '\0' && corpus_read(&t->corpus, o->data, (size_t)o->context, f) == 0 &&
        compute_open(hvd_local_rank(), f) == 0)
        allocate(t, f);
    if (f->text[0] != '\0') {
        fprintf(stderr, "train: %s\n", f->text);
        exit(2);
    }
    t->on.stream = compute_stream();
    t->kept = -1;
    status = elastic_enter(t);
    if (status == HVD_ERR_PEER)
        elastic_rejoin(t);
    else
        trainer_check(t, status, "the state");
}

static void note_failure(int *worst, int status)
{
    if (*worst == HVD_SUCCESS && status < 0)
        *worst = status;
}

/* Starts the sums of the gradients, the last layer first. Handles of what could not be started are 0. */
static int start_sums(struct trainer *t, hvd_handle pending[TENSORS])
{
    const struct model *m = &t->model;
    int worst = HVD_SUCCESS;

    for (int layer = 0; layer < LAYERS; layer++) {
        model_backward(m, t->part[0], t->batch, (enum layer)layer, t->gradient);
        for (int i = 0; i < TENSORS; i++) {
            float *gradient = t->gradient + m->offset[i];

            if ((int)model_layer_of((enum tensor)i) == layer)
                note_failure(&worst,
                             hvd_allreduce_async(model_tensor_name((enum tensor)i), gradient, gradient,
                                                 m->count[i], HVD_FLOAT32, HVD_SUM, &t->on, &pending[i]));
        }
    }
    return worst;
}

/* One step of all ranks. *t->loss becomes the summed loss of the global batch before it. Returns a status of
 * hvd; after a failure no operation is pending, and the model is of no step. */
static int train_step(struct trainer *t)
{
    const struct model *m = &t->model;
    const struct adam adam = {
        .lr = t->options.lr, .scale = 1.0 / (double)t->options.global_batch, .step = t->state.step + 1};
    hvd_handle pending[TENSORS] = {0}, loss;
    int worst = HVD_SUCCESS;

    batch_fill(t->batch, m, &t->corpus, (uint64_t)t->options.seed, (uint64_t)adam.step, t->first, t->last);
    model_forward(m, t->part[0], t->batch, t->loss);
    note_failure(&worst,
                 hvd_allreduce_async("loss", t->loss, t->loss, 1, HVD_FLOAT64, HVD_SUM, &t->on, &loss));
    note_failure(&worst, start_sums(t, pending));
    for (int i = TENSORS - 1; i >= 0; i--) {
        size_t at = m->offset[i];

        if (pending[i] != 0)
            note_failure(&worst, hvd_wait(pending[i]));
        if (worst == HVD_SUCCESS)
            adam_step(&adam, m->count[i], t->gradient + at, t->part[0] + at, t->part[1] + at,
                      t->part[2] + at);
    }
    if (loss != 0)
        note_failure(&worst, hvd_wait(loss));
    t->state.step++;
    return worst;
}

/* hvd_wait does not wait for a GPU. If a rank has died since, the results that are read here are worthless;
 * the next call of hvd says so. */
static int all_are_there(void)
{
    return compute_stream() != NULL ? hvd_barrier(NULL) : HVD_SUCCESS;
}

/* *mean: the loss of the last step; waits for it. Returns a status of hvd. */
static int mean_loss(const struct trainer *t, double *mean)
{
    double loss;

    compute_get(&loss, t->loss, sizeof loss);
    if (compute_failed() != NULL) {
        fprintf(stderr, "train: rank %d: %s: %s\n", t->rank, compute_name(), compute_failed());
        exit(1);
    }
    *mean = loss / (double)t->options.global_batch;
    return all_are_there();
}

static int save_state(struct trainer *t)
{
    struct fault f = {""};
    int status;

    if (t->rank == 0)
        trainer_get_state(t);
    if (compute_failed() != NULL)
        fault_set(&f, "%s: %s", compute_name(), compute_failed());
    status = all_are_there();
    if (status == HVD_SUCCESS && t->rank == 0 && f.text[0] == '\0')
        checkpoint_write(t->options.checkpoint, &t->identity, &t->state, &f);
    return status == HVD_SUCCESS ? agree_about_fault(t, &f) : status;
}

/* Rank 0 prints the steps since the last time. */
static int report_progress(struct trainer *t)
{
    double loss, time = now();
    int status = mean_loss(t, &loss);

    if (status == HVD_SUCCESS && t->rank == 0) {
        printf("step %lld loss=%.6f chars/s=%.0f\n", (long long)t->state.step, loss,
               (double)((t->state.step - t->printed) * t->options.global_batch) / (time - t->since));
        fflush(stdout);
    }
    t->printed = t->state.step;
    t->since = time;
    return status;
}

/* A step and what belongs to it. Returns a status of hvd, or 1: the ranks are to change. */
static int advance_step(struct trainer *t)
{
    const struct options *o = &t->options;
    int status = train_step(t);
    int64_t step = t->state.step;

    if (status == HVD_SUCCESS && o->elastic)
        elastic_keep(t);
    if (status == HVD_SUCCESS && (step <= 100 || step % 50 == 0 || step == o->steps))
        status = report_progress(t);
    if (status == HVD_SUCCESS && o->checkpoint != NULL &&
        (step % o->checkpoint_every == 0 || step == o->steps))
        status = save_state(t);
    return status == HVD_SUCCESS && o->elastic && step < o->steps ? elastic_is_due(t) : status;
}

static void train_steps(struct trainer *t)
{
    t->printed = t->state.step;
    t->since = now();
    while (!t->left && t->state.step < t->options.steps) {
        int status = advance_step(t);

        if (t->options.elastic && (status == HVD_ERR_PEER || status > 0))
            elastic_rejoin(t);
        else
            trainer_check(t, status, "a step");
    }
}

static void introduce(const struct trainer *t)
{
    size_t parameters = 0;

    for (int i = 0; i < TENSORS; i++)
        parameters += t->model.count[i];
    printf("train: %d rank%s on %d host%s, %zu parameters, %zu characters of %s\n", t->size,
           t->size == 1 ? "" : "s", hvd_cross_size(), hvd_cross_size() == 1 ? "" : "s", parameters,
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
    trainer_check(&t, hvd_init(), "hvd_init");
    t.rank = hvd_rank();
    t.size = hvd_size();
    if (hvd_membership() > 1) {
        prepare_late(&t, &fault);
    } else {
        prepare(&t, &fault);
        if (t.rank == 0)
            introduce(&t);
    }
    train_steps(&t);
    batch_free(t.batch);
    for (int i = 0; i < 3; i++)
        compute_free(t.part[i]);
    compute_free(t.gradient);
    compute_free(t.loss);
    compute_close();
    if (!t.left)
        trainer_check(&t, hvd_shutdown(), "hvd_shutdown");
    for (int i = 0; i < 3; i++)
        free(t.state.part[i]);
    corpus_free(&t.corpus);
    return 0;
}
