/* All jobs of this host at one moment, and all hosts of those that were started here. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "agent/ctl/jobs.h"
#include "agent/ctl/show.h"
#include "common/base/err.h"

struct ctl_look {
    struct ctl_seen *seen;
    size_t count;
    uint64_t at;
};

/* Asks all of a kind. Jobs that end meanwhile are left out; one that does not answer is named. -1 with *e. */
int ctl_look(struct ctl_look *l, enum ctl_kind kind, struct err *e);
/* The use of processors since `before`; NULL: since the start of each job. */
void ctl_look_compare(struct ctl_look *l, const struct ctl_look *before);
void ctl_look_free(struct ctl_look *l);
