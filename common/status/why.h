/* The reason why a job does not go on: the words of its hosts, put together and judged. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"
#include "common/status/why_judge.h"

#define WHY_OPERATIONS 64

struct why_hosts {
    Hvd__JobStatus *const *host; /* borrowed, and printable */
    size_t count;
    uint64_t at; /* clock_now() when they came */
};

/* Zeroes at the beginning, but for the first two. */
struct why_look {
    struct why_hosts before; /* may be empty: nothing is known of progress then */
    struct why_hosts now;    /* answers to questions with `why` */
    struct why_job job;
    struct why_operation operation[WHY_OPERATIONS];
    struct why why;
};

/* No text of it steers a terminal any more; stacks keep their lines. */
void why_printable(Hvd__JobStatus *status);
/* Fills in the rest. -1 with *e; why_free is still allowed then. */
int why_find(struct why_look *l, struct err *e);
void why_free(struct why_look *l);
