/* Tensors that were reported to this host and are not complete in its subtree yet, by name (pure). */
#pragma once

#include "collectives/engine/agree/execution_list.h"
#include "collectives/engine/agree/host_tree.h"

#define REPORTED_SELF   HOST_TREE_RADIX     /* the bit of this host itself, after its children's */
#define REPORTED_PARENT (REPORTED_SELF + 1) /* of the parent's direct report */
#define REPORTED_WORDS  2

struct reported {
    struct reported *next_in_bucket;
    uint32_t hash;
    uint32_t witness; /* the host that said `desc` first */
    uint32_t reports; /* of children and this host, and the parent's */
    uint32_t direct;  /* of those */
    uint64_t seen[REPORTED_WORDS];
    char *error;    /* NULL: they agree so far */
    uint8_t *parts; /* contributions, see contributions.h; NULL: none has come */
    struct tensor_desc desc;
};

struct reported_table {
    struct reported **bucket;
    uint32_t buckets, tensors;
};

/* -1: no memory. */
int reported_init(struct reported_table *table);
void reported_free(struct reported_table *table);
/* The tensor's place; *place NULL: it is not there. Until the next call of any function here. */
struct reported **reported_find(const struct reported_table *table, const char *name, uint32_t hash);
/* A new one; NULL: no memory. */
struct reported *reported_add(struct reported_table *table, const struct tensor_desc *desc, uint32_t hash,
                              uint32_t witness);
void reported_remove(struct reported_table *table, struct reported **place);
