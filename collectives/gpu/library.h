/* A library that is opened while the program runs, once, by whichever thread needs it first. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/err.h"

struct library {
    const char *what;                            /* for sentences */
    const char *name;                            /* for the loader */
    int (*prepare)(void *handle, struct err *e); /* finds the functions; -1: it cannot be used */
    pthread_mutex_t lock;
    atomic_bool ready;
    atomic_ullong absent_at; /* library_loads when it was not in the process */
    bool failed;
    unsigned long long failed_at; /* library_loads after `failure` */
    struct err failure;
};
#define LIBRARY_INIT(word, soname, function)                                                                 \
    {                                                                                                        \
        .what = (word), .name = (soname), .prepare = (function), .lock = PTHREAD_MUTEX_INITIALIZER           \
    }

/* Opens it and has it prepared unless that was done. 0, or -1 with the reason, which is remembered until the
 * process opens another library. Any thread. */
int library_open(struct library *l, struct err *e);
/* Has anybody in this process opened it? Cheap: some ten nanoseconds when the answer is no. Any thread. */
bool library_in_process(struct library *l);
