/* The command line of train. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAIN_TEXT_MAX 512

/* One sentence about a fault of the input; empty when there is none. */
struct fault {
    char text[TRAIN_TEXT_MAX];
};

/* Fills *f unless it is filled already. Always returns -1. */
int fault_set(struct fault *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct options {
    const char *data;
    const char *checkpoint; /* NULL: none */
    int64_t steps;
    int64_t checkpoint_every;
    int64_t global_batch;
    int64_t seed;
    int64_t hidden;
    int64_t context;
    double lr;
    bool elastic;
    bool help;
};

/* Fills *o from the command line; strings point into argv. Returns 0, or -1 with *f filled. */
int train_options_parse(int argc, char **argv, struct options *o, struct fault *f);
void train_options_help(void);
