/* The parts of hvd_bench share this: the options, one measurement, its report. */
#pragma once

#include <hvd.h>

#include <stdbool.h>
#include <stddef.h>

#include "tests/bench/bench_call.h"

#define SIZES_MAX 64

struct bench_op;

struct choice {
    const char *name;
    int value;
    size_t size; /* of a dtype's element */
};

struct options {
    const struct bench_op *op;
    const struct choice *buffer, *dtype;
    size_t bytes[SIZES_MAX], names[SIZES_MAX]; /* of one tensor; how many at once (--growth) */
    int sizes, growths;
    int iterations, warmup; /* -1: chosen by the size */
    int limit_ms, idle_s;
    bool model, list, json, help;
    char fault[256];
};

/* The work that is timed: every rank calls `once` again and again. */
struct measurement {
    const char *label;
    void (*once)(void *context);
    void *context;
    size_t bytes; /* for the report */
    size_t names; /* tensors of one iteration; 0: not shown. Times are per name then. */
    int iterations;
};

extern int bench_size;

/* bench_run.c. All of these end the program when they fail: rank, what and why are said. */
void *bench_alloc(const struct options *o, size_t bytes); /* zeroed */
void bench_free(const struct options *o, void *memory);
/* Warms up, repeats, and rank 0 prints a line. */
void bench_measure(const struct options *o, const struct measurement *m);
void bench_heading(const struct options *o);

/* bench_data.c */
extern const struct choice bench_dtypes[]; /* ends with a name of NULL */
#define BENCH_SUM (-1)                     /* in place of a rank: the sum over all ranks */
/* Fills `data` with the elements that rank `who` gives, from its element `first` on. BENCH_SUM: with their
 * sum. */
void bench_fill(const struct choice *dtype, void *data, size_t count, int who, size_t first);
/* The index of the first element that bench_fill would not have written; `count`: all are right. */
size_t bench_wrong(const struct choice *dtype, const void *data, size_t count, int who, size_t first);

/* bench_ops.c */
const struct bench_op *bench_op_named(const char *name); /* NULL: none */
const char *bench_op_name(const struct bench_op *op);
const char *bench_op_names(void);
void bench_op_help(void); /* a line each */
bool bench_op_takes(const struct bench_op *op, const struct choice *dtype);
void bench_ops_run(const struct options *o);

/* bench_model.c */
void bench_model_list(void);
void bench_model_run(const struct options *o);
void bench_growth_run(const struct options *o);
