/* The tree of hosts by index: host h's parent is (h - 1) / HOST_TREE_RADIX, host 0 is the root (pure). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HOST_TREE_RADIX 64

/* As host `self` sees it. */
struct host_tree {
    uint32_t self, hosts;
    uint32_t parent; /* of the root: itself */
    uint32_t first_child, children;
    uint32_t *below; /* [children] hosts in the child's subtree, itself among them */
};

/* -1: no memory. */
int host_tree_init(struct host_tree *tree, uint32_t self, uint32_t hosts);
void host_tree_free(struct host_tree *tree);
bool host_tree_is_child(const struct host_tree *tree, uint32_t host);
/* Is `host` in the subtree of `top`? */
bool host_tree_is_below(uint32_t host, uint32_t top);
