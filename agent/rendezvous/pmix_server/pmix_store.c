/* Published values that this host keeps: the answers to publish, lookup and unpublish.
 *
 *   publish    rank, range, persistence, key, value    -> status
 *   lookup     rank, whether to wait, time-out, key    -> status, publisher's rank, value
 *   unpublish  rank, key or nothing for all            -> status
 *
 * A lookup of a key that is not here yet may wait, until its time-out. STORE_MAX bounds the values; past it,
 * publishing fails. */
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/buf.h"
#include "common/base/cursor.h"

#define STORE_MAX (1u << 30)

struct published {
    struct published *next;
    uint32_t rank, range, persistence;
    uint8_t *value;
    size_t len;
    char key[PMIX_MAX_KEYLEN + 1];
};

struct lookup { /* of a key that is not there yet */
    struct lookup *next;
    struct pmix_asked asked;
    uint32_t rank;
    struct pmix_clock *clock;
    char key[PMIX_MAX_KEYLEN + 1];
};

static size_t stored;

static bool may_see(const struct published *p, uint32_t rank)
{
    switch (p->range) {
    case PMIX_RANGE_LOCAL:
        return rendezvous_host_of(pmix_server.r, rank) == rendezvous_host_of(pmix_server.r, p->rank);
    case PMIX_RANGE_PROC_LOCAL:
        return rank == p->rank;
    default:
        return true;
    }
}

static struct published **find_published(const char *key, uint32_t rank)
{
    struct published **at = &pmix_server.published;
    while (*at && !(strcmp((*at)->key, key) == 0 && may_see(*at, rank)))
        at = &(*at)->next;
    return at;
}

static void drop_published(struct published **at)
{
    struct published *p = *at;
    *at = p->next;
    stored -= sizeof *p + p->len;
    free(p->value);
    free(p);
}

static void answer_status(const struct pmix_asked *asked, pmix_status_t status)
{
    uint8_t m[4];
    put_u32(m, (uint32_t)status);
    pmix_answer(asked, NULL, m, sizeof m);
}

static void answer_value(const struct pmix_asked *asked, struct published **at)
{
    struct published *p = *at;
    uint8_t *m = malloc(8 + p->len);
    if (!m) {
        answer_status(asked, PMIX_ERR_NOMEM);
        return;
    }
    put_u32(m, PMIX_SUCCESS);
    put_u32(m + 4, p->rank);
    memcpy(m + 8, p->value, p->len);
    size_t len = 8 + p->len;
    if (p->persistence == PMIX_PERSIST_FIRST_READ)
        drop_published(at);
    pmix_answer(asked, NULL, m, len);
    free(m);
}

static struct lookup *take_waiting(const char *key, struct published *p)
{
    struct lookup **at = &pmix_server.lookup;
    while (*at && !(strcmp((*at)->key, key) == 0 && may_see(p, (*at)->rank)))
        at = &(*at)->next;
    struct lookup *l = *at;
    if (l)
        *at = l->next;
    return l;
}

static void end_waiting(struct lookup *l)
{
    pmix_clock_stop(l->clock);
    free(l);
}

static void on_late(void *ctx)
{
    struct lookup *l = ctx, **at = &pmix_server.lookup;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    answer_status(&l->asked, PMIX_ERR_TIMEOUT);
    end_waiting(l);
}

static bool read_key(struct reader *r, char key[PMIX_MAX_KEYLEN + 1])
{
    size_t len = read_u32(r);
    const uint8_t *p = len <= PMIX_MAX_KEYLEN ? read_bytes(r, len) : NULL;
    if (!p)
        return false;
    memcpy(key, p, len);
    key[len] = '\0';
    return true;
}

static pmix_status_t store_value(struct published *new, const uint8_t *value, size_t len)
{
    struct published *old = *find_published(new->key, new->rank);
    bool elsewhere =
        old && (old->range == PMIX_RANGE_LOCAL || new->range == PMIX_RANGE_LOCAL) &&
        rendezvous_host_of(pmix_server.r, old->rank) != rendezvous_host_of(pmix_server.r, new->rank);
    if (old && !elsewhere)
        return PMIX_ERR_DUPLICATE_KEY;
    struct published *p = stored + sizeof *p + len <= STORE_MAX ? malloc(sizeof *p) : NULL;
    uint8_t *copy = p ? malloc(len ? len : 1) : NULL;
    if (!copy) {
        free(p);
        return PMIX_ERR_OUT_OF_RESOURCE;
    }
    memcpy(copy, value, len);
    *p = *new;
    p->value = copy;
    p->len = len;
    p->next = pmix_server.published;
    pmix_server.published = p;
    stored += sizeof *p + len;
    return PMIX_SUCCESS;
}

static void serve_publish(struct pmix_asked asked, struct reader *r)
{
    struct published new = {.rank = read_u32(r)};
    struct lookup *l;
    new.range = read_u32(r);
    new.persistence = read_u32(r);
    if (!read_key(r, new.key) || new.rank >= pmix_server.r->spawn->size) {
        answer_status(&asked, PMIX_ERR_BAD_PARAM);
        return;
    }
    pmix_status_t rc = store_value(&new, r->at, r->left);
    answer_status(&asked, rc);
    while (rc == PMIX_SUCCESS && (l = take_waiting(new.key, &new))) {
        struct published **at = find_published(l->key, l->rank);
        if (!*at) {
            l->next = pmix_server.lookup; /* somebody has read it, first and last */
            pmix_server.lookup = l;
            return;
        }
        answer_value(&l->asked, at);
        end_waiting(l);
    }
}

static void serve_lookup(struct pmix_asked asked, struct reader *r)
{
    uint32_t rank = read_u32(r), wait = read_u32(r), ms = read_u32(r);
    char key[PMIX_MAX_KEYLEN + 1];
    if (!read_key(r, key) || rank >= pmix_server.r->spawn->size) {
        answer_status(&asked, PMIX_ERR_BAD_PARAM);
        return;
    }
    struct published **at = find_published(key, rank);
    struct lookup *l = !*at && wait ? calloc(1, sizeof *l) : NULL;
    if (*at) {
        answer_value(&asked, at);
    } else if (!l) {
        answer_status(&asked, wait ? PMIX_ERR_NOMEM : PMIX_ERR_NOT_FOUND);
    } else {
        *l = (struct lookup){.next = pmix_server.lookup, .asked = asked, .rank = rank};
        memcpy(l->key, key, sizeof key);
        pmix_server.lookup = l;
        l->clock = pmix_clock_start(ms, on_late, l);
    }
}

static void serve_unpublish(struct pmix_asked asked, struct reader *r)
{
    uint32_t rank = read_u32(r);
    char key[PMIX_MAX_KEYLEN + 1];
    bool all = r->left == 0, found = all;
    if (!all && !read_key(r, key)) {
        answer_status(&asked, PMIX_ERR_BAD_PARAM);
        return;
    }
    for (struct published **at = &pmix_server.published; *at;) {
        if ((*at)->rank == rank && (all || strcmp((*at)->key, key) == 0)) {
            found = true;
            drop_published(at);
        } else {
            at = &(*at)->next;
        }
    }
    answer_status(&asked, found ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND);
}

void pmix_store_asked(struct pmix_asked asked, uint8_t what, const uint8_t *data, size_t len)
{
    struct reader r = reader_of(data, len);
    if (what == PMIX_MESSAGE_PUBLISH)
        serve_publish(asked, &r);
    else if (what == PMIX_MESSAGE_LOOKUP)
        serve_lookup(asked, &r);
    else
        serve_unpublish(asked, &r);
}

void pmix_store_rank_ended(uint32_t rank)
{
    for (struct published **at = &pmix_server.published; *at;) {
        if ((*at)->rank == rank && (*at)->persistence == PMIX_PERSIST_PROC)
            drop_published(at);
        else
            at = &(*at)->next;
    }
}
