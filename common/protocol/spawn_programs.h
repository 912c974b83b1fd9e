/* The programs of a job as the Spawn message has them: the first in Spawn itself, the others, if there are
 * any, in Spawn.program. Each has ranks that follow one another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

struct spawn_program {
    char **argv;
    size_t n_argv;
    char **env;
    size_t n_env;
    const char *wdir;
    uint32_t first, ranks;
    uint32_t preloaded; /* Spawn.preloaded */
    bool or_home;       /* Spawn.or_home */
};

static inline size_t spawn_programs(const Hvd__Spawn *s)
{
    return 1 + s->n_program;
}

struct spawn_program spawn_program_get(const Hvd__Spawn *s, size_t i);
/* The program of a rank below s->size. */
size_t spawn_program_of(const Hvd__Spawn *s, uint32_t rank);
/* A worker of this host runs it. */
bool spawn_program_is_here(const Hvd__Spawn *s, size_t i);
/* Every program has a command and a rank, and variables have values. -1 with *e (ERR_PROTOCOL). */
int spawn_programs_check(const Hvd__Spawn *s, struct err *e);
