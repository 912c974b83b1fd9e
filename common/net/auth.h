/* Authentication of a data link: random keys (libc only) and HMAC-SHA256 (module `auth`, OpenSSL).
 *
 * The module is opened by the first process that has a link to make: a job on one host never pays for
 * OpenSSL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define AUTH_KEY_SIZE    32 /* a job's key, a worker's token, a nonce */
#define AUTH_MAC_SIZE    32
#define AUTH_DIGEST_SIZE 32

struct auth_part {
    const void *data;
    size_t size;
};

struct auth_ops {
    /* HMAC-SHA256 over the parts, one after the other. -1 when the library fails. Any thread. */
    int (*hmac)(const uint8_t key[AUTH_KEY_SIZE], const struct auth_part *part, size_t parts,
                uint8_t mac[AUTH_MAC_SIZE]);
    /* SHA-256 of some bytes. -1 when the library fails. Any thread. */
    int (*digest)(const void *data, size_t size, uint8_t out[AUTH_DIGEST_SIZE]);
    /* The same of bytes that come in pieces. begin: NULL when the library fails. add: -1 likewise. end: frees
     * it in any case; `out` may be NULL. */
    void *(*digest_begin)(void);
    int (*digest_add)(void *digest, const void *data, size_t size);
    int (*digest_end)(void *digest, uint8_t out[AUTH_DIGEST_SIZE]);
    /* In a time that does not depend on where they differ. */
    bool (*equal)(const void *a, const void *b, size_t size);
};

/* Fills a key, a token or a nonce from getrandom(2). */
int auth_random(void *out, size_t size, struct err *e);
/* The operations of module `auth`; opened by the first call, static afterwards. NULL with *e. */
const struct auth_ops *auth_open(struct err *e);
