/* The key-value space of a job as one host knows it: pairs in the order of their first put, found by a hash.
 * The size of all pairs together is bounded. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct pmi1_pair {
    char *value; /* may be empty */
    char key[];
};

struct pmi1_store {
    struct pmi1_pair **pair;
    size_t pairs;
    uint32_t *slot; /* [slots]: index of a pair + 1, 0: free */
    size_t slots;   /* a power of two, or 0 */
    size_t bytes, max;
};

void pmi1_store_init(struct pmi1_store *s, size_t max);
void pmi1_store_free(struct pmi1_store *s);
/* Copies both; an earlier value of the key is replaced. -1 with *e: no room, nothing was changed. */
int pmi1_store_put(struct pmi1_store *s, const char *key, const char *value, struct err *e);
/* NULL when there is none; valid until the key's next put. */
const char *pmi1_store_get(const struct pmi1_store *s, const char *key);
