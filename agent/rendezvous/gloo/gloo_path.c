#include "agent/rendezvous/gloo/gloo_path.h"

#include <string.h>

static size_t word_length(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] > ' ' && text[n] < 0x7f && text[n] != '/')
        n++;
    return n;
}

bool gloo_path_parse(const char *text, size_t len, struct gloo_path *out)
{
    if (len > GLOO_PATH_MAX || len < 4 || text[0] != '/')
        return false;
    out->scope = text + 1;
    out->scope_len = word_length(out->scope, len - 1);
    if (out->scope_len == 0 || out->scope_len + 2 >= len || out->scope[out->scope_len] != '/')
        return false;
    out->key = out->scope + out->scope_len + 1;
    out->key_len = len - out->scope_len - 2;
    return word_length(out->key, out->key_len) == out->key_len;
}

static bool begins_with(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    return len >= n && memcmp(text, word, n) == 0;
}

bool gloo_path_is_mesh(const struct gloo_path *p)
{
    return (p->scope_len == 6 && begins_with(p->scope, 6, "global")) ||
           begins_with(p->scope, p->scope_len, "global_process_set_hash_") ||
           (p->scope_len > 6 &&
            (begins_with(p->scope, p->scope_len, "local_") || begins_with(p->scope, p->scope_len, "cross_")));
}

bool gloo_path_rank(const struct gloo_path *p, uint32_t ranks, uint32_t *rank)
{
    size_t at = begins_with(p->key, p->key_len, "rank_") ? 5 : 0, digits = p->key_len - at;
    uint64_t n = 0;
    if (!gloo_path_is_mesh(p) || digits == 0 || digits > 9 || (p->key[at] == '0' && digits > 1))
        return false;
    for (; at < p->key_len; at++) {
        if (p->key[at] < '0' || p->key[at] > '9')
            return false;
        n = n * 10 + (uint64_t)(p->key[at] - '0');
    }
    *rank = (uint32_t)n;
    return n < ranks;
}
