/* The names of the Gloo rendezvous. Pure, and linked into module `gloo` as well as into the agent: the module
 * needs nothing of the program that opens it but common/ and libuv, so that hvdrun --check-build can open it
 * too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLOO_PATH_MAX 1024

struct gloo_path { /* points into the text that it was read from */
    const char *scope, *key;
    size_t scope_len, key_len;
};

/* "/scope/key" and nothing else: both are printable, not empty, without a slash or a space; GLOO_PATH_MAX in
 * all. */
bool gloo_path_parse(const char *text, size_t len, struct gloo_path *out);
/* True for a scope in which ranks meet. */
bool gloo_path_is_mesh(const struct gloo_path *path);
/* In a mesh scope, `<r>` or `rank_<r>` with r below `ranks`. */
bool gloo_path_rank(const struct gloo_path *path, uint32_t ranks, uint32_t *rank);
