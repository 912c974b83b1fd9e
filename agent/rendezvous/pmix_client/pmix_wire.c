#include "agent/rendezvous/pmix_client/pmix_wire.h"

#include <string.h>

#include "common/base/cursor.h"

/* ---- the handshake ------------------------------------------------------------------------------------- */

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

enum handshake_verdict pmix_handshake_read(const uint8_t *bytes, size_t len, const char *space,
                                           struct pmix_handshake *g)
{
    uint64_t wanted;
    *g = (struct pmix_handshake){0};
    if (len < HEAD)
        return HANDSHAKE_MORE;
    memcpy(&wanted, bytes + 8, sizeof wanted);
    if (wanted > HANDSHAKE_MAX - HEAD)
        return HANDSHAKE_BAD;
    if (len - HEAD < wanted)
        return HANDSHAKE_MORE;
    g->len = HEAD + (size_t)wanted;
    return is_good(bytes + HEAD, (size_t)wanted, space, g) ? HANDSHAKE_GOOD : HANDSHAKE_BAD;
}

/* ---- later messages ------------------------------------------------------------------------------------ */

/* The tags of a client: a few with a meaning of their own, and one for each question that it has asked. */
#define TAG_HEARTBEAT 1
#define TAG_INPUT     2
#define TAG_QUESTIONS 100

static const char *check_head(struct pmix_stream *s)
{
    uint32_t who = get_network(s->head), tag = get_network(s->head + 4), len = get_network(s->head + 8);
    if (len > PMIX_STREAM_MAX || get_network(s->head + 12) != 0)
        return "a message of impossible length";
    if (tag > INT32_MAX || (tag < TAG_QUESTIONS && tag != TAG_HEARTBEAT && tag != TAG_INPUT))
        return "a message with an impossible tag";
    if (s->known && who != s->who)
        return "a message in another client's name";
    s->who = who;
    s->known = true;
    s->left = len;
    return NULL;
}

const char *pmix_stream_follow(struct pmix_stream *s, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        size_t n = s->left < len ? s->left : len;
        s->left -= (uint32_t)n;
        bytes += n;
        len -= n;
        while (len > 0 && s->have < PMIX_STREAM_HEAD) {
            s->head[s->have++] = *bytes++;
            len--;
        }
        if (s->have < PMIX_STREAM_HEAD)
            return NULL;
        const char *wrong = check_head(s);
        if (wrong)
            return wrong;
        s->have = 0;
    }
    return NULL;
}
