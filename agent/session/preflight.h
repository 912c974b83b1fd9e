/* Problems that would keep the workers from starting here, found when the launcher says Hello and told in
 * Welcome: so the launcher knows the problems of all hosts before a worker was started anywhere. An
 * unforeseen problem still fails at Spawn, which checks again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

#define PREFLIGHT_MAX 16

struct preflight {
    struct preflight_problem {
        size_t program; /* of which it is true */
        const char *what;
        struct err why; /* its hint: what to do about it */
    } item[PREFLIGHT_MAX];
    size_t count;
};

/* The directory in which the workers start: `wdir`, seen from the launcher's directory. If that does not
 * exist here, and `or_home` allows it: from the home directory. -1 with *e: there is no such directory. */
int preflight_directory(const char *wdir, const char *launcher_dir, bool or_home, char *out, size_t size,
                        struct err *e);
void preflight_find(struct preflight *p, const Hvd__Preflight *asked);
