/* The calls between the files of a program. */
#pragma once

#include <stddef.h>

#include "tests/structure/functions.h"

/* One place where a file calls a function of another. Files are indexes of tree.source; a header and the
 * .c file of the same name are one file, that of the .c. */
struct call {
    int from, to;
    const struct function *called;
    const struct source *file; /* the place */
    int line;
};

/* Sorted by from, to, the function's name, line. */
struct calls {
    struct call *item;
    size_t count;
};

void calls_read(struct calls *c, const struct tree *tree, const struct functions *f,
                const struct tokens *tokens);
void calls_free(struct calls *c);
