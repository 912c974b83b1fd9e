/* Tensors that travel as one: packed pieces, one behind the other. */
#pragma once

#include <stddef.h>

struct piece {
    void *at;
    size_t bytes;
};

struct group {
    size_t ins, outs;
    struct piece *in, *out; /* in the order in which they are packed */
    size_t *row;            /* [outs] of a reducescatter: elements of a row; NULL */
    struct piece piece[];
};

/* NULL after fail(). Freed by group_free. */
struct group *group_new(size_t pieces_in, size_t pieces_out);
void group_add_in(struct group *g, const void *from, size_t bytes);
void group_add_out(struct group *g, void *to, size_t bytes);
/* Keeps the numbers for who takes the tensors apart again. */
int group_set_rows(struct group *g, const size_t *row);
void group_pack(const struct group *g, void *to);
void group_unpack(const struct group *g, const void *from);
void group_free(struct group *g);
