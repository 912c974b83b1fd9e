/* The values of the Gloo rendezvous on one host: /scope/key -> bytes.
 *
 * A mesh scope (global, local_<host>, cross_<local rank>, and the same for a process set) is one round in
 * which ranks meet: each puts `rank_<r>` and `<r>`, gets those of the others and says that it has finished.
 * When all have, the scope is empty again for the next round. A rank that finishes has seen every other
 * rank's values, so the round's members are those that have put something; `members` may name a number that
 * must be reached as well. When a rank that has finished begins the next round although this host has not
 * heard of everybody's end yet, the old round is over: those ends are still to come and are then nothing new.
 *
 * In any other scope keys are kept until they are deleted. Pure: no I/O, no time. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/rendezvous/gloo/gloo_path.h"
#include "common/base/err.h"

/* Bytes that several owners share. */
struct gloo_value {
    unsigned references;
    size_t len;
    uint8_t bytes[];
};

static inline struct gloo_value *gloo_value_new(size_t len)
{
    struct gloo_value *v = malloc(sizeof *v + len);
    if (v)
        *v = (struct gloo_value){.references = 1, .len = len};
    return v;
}

static inline struct gloo_value *gloo_value_share(struct gloo_value *v)
{
    v->references++;
    return v;
}

static inline void gloo_value_release(struct gloo_value *v)
{
    if (v && --v->references == 0)
        free(v);
}

struct gloo_limits {
    size_t keys;    /* of all scopes; no more scopes than that either */
    size_t bytes;   /* of all values, with their names and what keeps them */
    size_t value;   /* of one value */
    uint32_t ranks; /* of the job */
    /* How many ranks meet in that mesh scope; 0: not known. May be NULL. */
    uint32_t (*members)(void *ctx, const struct gloo_path *path);
    void *ctx;
};

struct gloo_store;

/* NULL when there is no memory. */
struct gloo_store *gloo_store_new(const struct gloo_limits *limits);
void gloo_store_free(struct gloo_store *s);
/* Keeps `value` (the caller's reference is taken over, also on failure). -1 with *e: a limit is reached. */
int gloo_store_put(struct gloo_store *s, const struct gloo_path *path, struct gloo_value *value,
                   struct err *e);
/* NULL when there is none. The reference is the store's. */
struct gloo_value *gloo_store_get(const struct gloo_store *s, const struct gloo_path *path);
/* A rank of a mesh scope has finished, or a key is to go. False: there is no such rank or key. */
bool gloo_store_delete(struct gloo_store *s, const struct gloo_path *path);

struct gloo_count {
    size_t keys, bytes, scopes;
};
struct gloo_count gloo_store_count(const struct gloo_store *s);

/* ---- messages between stores --------------------------------------------------------------------------- */

/* Messages between the stores of one job's hosts (broadcasts of TREE_GLOO):
 *
 *   | word (1) | length of the path (2) | /scope/key ... | value ... |       little endian
 */

enum gloo_word { GLOO_WORD_PUT = 1, GLOO_WORD_DELETE = 2 };

/* malloc'd; NULL when there is no memory. `value` of a PUT. */
uint8_t *gloo_message_write(enum gloo_word word, const struct gloo_path *path, const struct gloo_value *value,
                            size_t *len);
/* *path points into `data`; *value is new, NULL unless it is a PUT. -1 with *e, and nothing to release. */
int gloo_message_read(const uint8_t *data, size_t len, enum gloo_word *word, struct gloo_path *path,
                      struct gloo_value **value, struct err *e);
