/* A test's own directories and files, below TMPDIR: who ends a test in its middle removes them there
 * (tests/run.sh). Paths are short, as sockets lie in some of them. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_MAX 48

static inline char *scratch_name(char path[SCRATCH_MAX], const char *name)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, SCRATCH_MAX, "%.24s/%.14s.XXXXXX", base && *base && strlen(base) <= 24 ? base : "/tmp",
             name);
    return path;
}

static inline char *scratch_dir(char path[SCRATCH_MAX], const char *name)
{
    return mkdtemp(scratch_name(path, name));
}

static inline int scratch_file(char path[SCRATCH_MAX], const char *name)
{
    return mkstemp(scratch_name(path, name));
}
