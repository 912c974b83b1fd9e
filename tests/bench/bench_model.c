/* Many tensors at once: a model's gradients, and a growing number of equal ones. All are started, then all
 * are waited for, in the same order. */
#include "tests/bench/bench.h"
#include "tests/bench/resnet50.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gradient {
    char name[32];
    float *data;
    size_t count;
    hvd_handle handle;
};

struct gradients {
    struct gradient *g;
    size_t n;
};

static void step(void *context)
{
    const struct gradients *all = context;

    for (size_t i = 0; i < all->n; i++) {
        struct gradient *g = &all->g[i];

        bench_check(
            hvd_allreduce_async(g->name, g->data, g->data, g->count, HVD_FLOAT32, HVD_SUM, NULL, &g->handle),
            "hvd_allreduce_async");
    }
    for (size_t i = 0; i < all->n; i++)
        bench_check(hvd_wait(all->g[i].handle), "hvd_wait");
}

static void check_step(const struct options *o, struct gradients *all)
{
    for (size_t k = 0; k < all->n; k++)
        bench_fill(o->dtype, all->g[k].data, all->g[k].count, bench_rank, k);
    step(all);
    for (size_t k = 0; k < all->n; k++) {
        const struct gradient *g = &all->g[k];
        const size_t wrong = bench_wrong(o->dtype, g->data, g->count, BENCH_SUM, k);

        if (wrong < g->count)
            bench_fail("%s is wrong: element %zu is %g", g->name, wrong, (double)g->data[wrong]);
    }
}

static void run(const struct options *o, struct gradients *all, const struct measurement *m)
{
    check_step(o, all);
    for (size_t i = 0; i < all->n; i++)
        memset(all->g[i].data, 0, all->g[i].count * sizeof(float));
    bench_measure(o, m);
    for (size_t i = 0; i < all->n; i++)
        bench_free(o, all->g[i].data);
    free(all->g);
}

static struct gradients make(const struct options *o, const char *prefix, size_t n, const size_t *count,
                             size_t each)
{
    struct gradients all = {calloc(n, sizeof *all.g), n};

    if (all.g == NULL)
        bench_fail("no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        snprintf(all.g[i].name, sizeof all.g[i].name, "%s.%zu", prefix, i);
        all.g[i].count = count != NULL ? count[i] : each;
        all.g[i].data = bench_alloc(o, all.g[i].count * sizeof(float));
    }
    return all;
}

static void counts(size_t *count)
{
    if (resnet50(count) != 0)
        bench_fail("the layer table of ResNet-50 does not give %d tensors of %d parameters", RESNET50_TENSORS,
                   RESNET50_PARAMETERS);
}

void bench_model_list(void)
{
    size_t count[RESNET50_TENSORS];

    counts(count);
    for (int i = 0; i < RESNET50_TENSORS; i++)
        printf("%s%zu", i > 0 ? "," : "", count[i]);
    putchar('\n');
}

void bench_model_run(const struct options *o)
{
    size_t count[RESNET50_TENSORS];
    struct gradients all;

    counts(count);
    all = make(o, "resnet50", RESNET50_TENSORS, count, 0);
    bench_heading(o);
    run(o, &all,
        &(struct measurement){"resnet50", step, &all, (size_t)RESNET50_PARAMETERS * sizeof(float), 0, 0});
}

void bench_growth_run(const struct options *o)
{
    bench_heading(o);
    for (int i = 0; i < o->growths; i++) {
        struct gradients all = make(o, "growth", o->names[i], NULL, o->bytes[0] / sizeof(float));

        run(o, &all, &(struct measurement){"growth", step, &all, o->bytes[0], all.n, 100});
    }
}
