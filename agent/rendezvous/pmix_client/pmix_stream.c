#include "agent/rendezvous/pmix_client/pmix_stream.h"

/* The tags of a client: a few with a meaning of their own, and one for each question that it has asked. */
#define TAG_HEARTBEAT 1
#define TAG_INPUT     2
#define TAG_QUESTIONS 100

static uint32_t get_network(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

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
