#include "collectives/engine/agree/host_tree.h"

#include <stdlib.h>

bool host_tree_is_child(const struct host_tree *t, uint32_t host)
{
    return host >= t->first_child && host - t->first_child < t->children;
}

bool host_tree_is_below(uint32_t host, uint32_t top)
{
    while (host > top)
        host = (host - 1) / HOST_TREE_RADIX;
    return host == top;
}

static void count_below(struct host_tree *t)
{
    for (uint32_t h = t->first_child; t->children > 0 && h < t->hosts; h++) {
        uint32_t top = h;
        while (top >= t->first_child + t->children)
            top = (top - 1) / HOST_TREE_RADIX;
        if (host_tree_is_child(t, top))
            t->below[top - t->first_child]++;
    }
}

int host_tree_init(struct host_tree *t, uint32_t self, uint32_t hosts)
{
    uint64_t first = (uint64_t)self * HOST_TREE_RADIX + 1;
    *t = (struct host_tree){.self = self, .hosts = hosts, .parent = self ? (self - 1) / HOST_TREE_RADIX : 0};
    if (first < hosts) {
        t->first_child = (uint32_t)first;
        t->children = hosts - t->first_child;
        if (t->children > HOST_TREE_RADIX)
            t->children = HOST_TREE_RADIX;
    }
    t->below = calloc(t->children + 1, sizeof *t->below);
    if (!t->below)
        return -1;
    count_below(t);
    return 0;
}

void host_tree_free(struct host_tree *t)
{
    free(t->below);
    t->below = NULL;
}
