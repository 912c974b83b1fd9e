/* 16 bytes, of which the last 8 are the length of what follows: the name of a security module, its credential
 * (length, bytes), 0 for a client, name space, rank; then the names of the client's version and modules.
 * Lengths and the rank are in network order, the first one is not. */
#include "agent/rendezvous/pmix_client/pmix_handshake.h"

#include <string.h>

#include "common/base/cursor.h"

#define HEAD 16

static uint32_t get_network(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Version, data format, one byte, store: each name with its zero. */
static bool has_known_store(const uint8_t *bytes, size_t len)
{
    static const char *const stores[] = {"hash", "ds12", "ds21", "shmem", "shmem2", "shmem3"};
    struct reader r = reader_of(bytes, len);
    for (int i = 0; i < 2; i++)
        (void)read_bytes(&r, strnlen((const char *)r.at, r.left) + 1);
    (void)read_u8(&r);
    size_t name = strnlen((const char *)r.at, r.left);
    for (size_t i = 0; !r.bad && name < r.left && i < sizeof stores / sizeof *stores; i++)
        if (strcmp((const char *)r.at, stores[i]) == 0)
            return true;
    return false;
}

static bool is_good(const uint8_t *bytes, size_t len, const char *space, struct pmix_handshake *g)
{
    size_t space_len = strlen(space) + 1, name = strnlen((const char *)bytes, len);
    struct reader r = reader_of(bytes, len);
    (void)read_bytes(&r, name + 1);
    const uint8_t *n = read_bytes(&r, 4);
    (void)read_bytes(&r, n ? get_network(n) : 0);
    uint8_t kind = read_u8(&r);
    const uint8_t *whose = read_bytes(&r, space_len), *rank = read_bytes(&r, 4);
    g->tool = n && kind != 0;
    if (r.bad || kind != 0 || memcmp(whose, space, space_len) != 0)
        return false;
    g->rank = get_network(rank);
    g->rank_at = HEAD + (size_t)(rank - bytes);
    return r.left > 0 && r.at[r.left - 1] == '\0' && has_known_store(r.at, r.left);
}

enum proxy_handshake pmix_handshake_read(const uint8_t *bytes, size_t len, const char *space,
                                         struct pmix_handshake *g)
{
    uint64_t wanted;
    *g = (struct pmix_handshake){0};
    if (len < HEAD)
        return PROXY_MORE;
    memcpy(&wanted, bytes + 8, sizeof wanted);
    if (wanted > PROXY_HANDSHAKE_MAX - HEAD)
        return PROXY_BAD;
    if (len - HEAD < wanted)
        return PROXY_MORE;
    g->len = HEAD + (size_t)wanted;
    return is_good(bytes + HEAD, (size_t)wanted, space, g) ? PROXY_GOOD : PROXY_BAD;
}
