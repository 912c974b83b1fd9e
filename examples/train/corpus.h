/* The text that is learnt, as indices into its own alphabet. */
#pragma once

#include <stdint.h>

#include "options.h"

struct corpus {
    uint8_t *symbol; /* one per byte of the file: its index in the alphabet */
    size_t len;
    int alphabet;    /* how many different bytes the file has */
    uint64_t digest; /* of the file's bytes: two hosts with the same digest train on the same text */
};

/* Reads a regular file of more than `context` bytes. Returns 0, or -1 with *f filled. Freed by corpus_free.
 */
int corpus_read(struct corpus *c, const char *path, size_t context, struct fault *f);
void corpus_free(struct corpus *c);

/* Returns the position of the character to be guessed in sample `index` of `step`; the `context` characters
 * before it are the question. The result depends on the arguments only, not on the rank. So a step is the
 * same for any number of ranks. */
size_t corpus_sample(const struct corpus *c, size_t context, uint64_t seed, uint64_t step, uint64_t index);

/* Fills in the samples [first, last) of `step`: the `context` symbols of each sample's question, one after
 * another, and the sample's answer. */
void corpus_batch(const struct corpus *c, size_t context, uint64_t seed, uint64_t step, size_t first,
                  size_t last, uint8_t *question, uint8_t *answer);

/* Returns a well-mixed 64-bit number of three others. */
uint64_t mix(uint64_t a, uint64_t b, uint64_t c);
/* FNV-1a over `len` bytes, going on from `digest`. */
#define DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t digest_add(uint64_t digest, const void *bytes, size_t len);
