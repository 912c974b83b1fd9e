/* The comments of a source, one after another. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct comment {
    const char *text; /* from its slash, in the source as it was written */
    size_t len;       /* to its end, with the closing sign */
    int line;
};

/* Finds the next comment at or after *p and moves *p behind it; *line goes with it. False: there is none. */
bool comment_next(const char **p, int *line, struct comment *c);
