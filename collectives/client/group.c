/* Several tensors packed into one operation: they complete together and fail together because they are one.
 */
#include "collectives/client/group.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/client/core.h"
#include "collectives/kernels/copy.h"

struct group *group_new(size_t pieces_in, size_t pieces_out)
{
    struct group *g = NULL;
    if (pieces_in + pieces_out < (SIZE_MAX - sizeof *g) / sizeof *g->piece)
        g = calloc(1, sizeof *g + (pieces_in + pieces_out) * sizeof *g->piece);
    if (!g) {
        fail(HVD_ERR_MEMORY, "no memory for a group of tensors");
        return NULL;
    }
    g->in = g->piece;
    g->out = g->piece + pieces_in;
    return g;
}

void group_add_in(struct group *g, const void *from, size_t bytes)
{
    g->in[g->ins++] = (struct piece){(void *)(uintptr_t)from, bytes};
}

void group_add_out(struct group *g, void *to, size_t bytes)
{
    g->out[g->outs++] = (struct piece){to, bytes};
}

void group_pack(const struct group *g, void *to)
{
    char *at = to;
    for (size_t i = 0; i < g->ins; at += g->in[i++].bytes)
        if (g->in[i].bytes > 0)
            copy_bytes(at, g->in[i].at, g->in[i].bytes);
}

void group_unpack(const struct group *g, const void *from)
{
    const char *at = from;
    for (size_t i = 0; i < g->outs; at += g->out[i++].bytes)
        if (g->out[i].bytes > 0)
            copy_bytes(g->out[i].at, at, g->out[i].bytes);
}

int group_set_rows(struct group *g, const size_t *row)
{
    g->row = malloc((g->outs ? g->outs : 1) * sizeof *row);
    if (!g->row)
        return fail(HVD_ERR_MEMORY, "no memory for a group of tensors");
    memcpy(g->row, row, g->outs * sizeof *row);
    return HVD_SUCCESS;
}

void group_free(struct group *g)
{
    if (g)
        free(g->row);
    free(g);
}
