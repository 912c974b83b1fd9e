/* Resource limits by name: as users and control.proto write them, and as setrlimit(2) numbers them. */
#pragma once

#include <stddef.h>

struct rlimit_name {
    const char *name; /* "NOFILE" */
    int resource;
};

#define RLIMITS_COUNT 10
extern const struct rlimit_name rlimit_names[RLIMITS_COUNT];

/* By a name of `len` bytes in any case, with RLIMIT_ before it or without; NULL: there is none. */
const struct rlimit_name *rlimit_find(const char *name, size_t len);
