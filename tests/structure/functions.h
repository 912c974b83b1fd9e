/* The functions that the product defines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "tests/structure/structure.h"
#include "tests/structure/tokens.h"

struct function {
    const struct source *file;
    char *name;
    int line;  /* of its name */
    int lines; /* from that line to the closing brace */
    bool is_static;
    size_t from, to; /* tokens of its body */
};

/* In the order of files and lines. */
struct functions {
    struct function *item;
    size_t count;
};

void functions_read(struct functions *f, const struct source *s, const struct tokens *t);
void functions_free(struct functions *f);
