/* Two hash tables with chains: scopes by name (some, so their number of buckets is fixed), entries by scope
 * and key. The entries of a scope are in a list of their own as well, to be cleared together. */
#include "agent/rendezvous/gloo/gloo_store.h"

#include <string.h>

#include "common/base/cursor.h"

#define SCOPE_BUCKETS 256
#define FIRST_BUCKETS 1024
#define ENTRY_OVERHEAD                                                                                       \
    128 /* counted for each key and for each scope, so that empty ones are not for nothing */

enum { MEMBER = 1, FINISHED = 2, OWED = 4 /* the end of an earlier round is still to come */ };

struct entry {
    struct entry *next;            /* in its bucket */
    struct entry *before, *behind; /* in its scope */
    struct scope *scope;
    struct gloo_value *value;
    uint64_t hash;
    size_t key_len;
    char key[];
};

struct scope {
    struct scope *next;
    struct entry *first;
    bool mesh;
    uint8_t *flags; /* [ranks] in a mesh scope */
    uint32_t members, finished, owed;
    uint64_t hash;
    size_t cost, len;
    char name[];
};

struct gloo_store {
    struct gloo_limits limits;
    struct gloo_count count;
    struct scope *scope[SCOPE_BUCKETS];
    struct entry **bucket;
    size_t buckets;
};

static uint64_t hash_key(uint64_t h, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

static struct scope **scope_place(const struct gloo_store *s, const struct gloo_path *p, uint64_t h)
{
    struct scope **at = (struct scope **)&s->scope[h % SCOPE_BUCKETS];
    while (*at && ((*at)->hash != h || (*at)->len != p->scope_len ||
                   memcmp((*at)->name, p->scope, p->scope_len) != 0))
        at = &(*at)->next;
    return at;
}

static struct scope *find_scope(const struct gloo_store *s, const struct gloo_path *p)
{
    return *scope_place(s, p, hash_key(0, p->scope, p->scope_len));
}

/* The bytes of a scope with its name, and for a mesh scope its flags. A mesh scope without keys is kept as
 * long as the end of a rank is awaited. */
static size_t cost_of_scope(const struct gloo_store *s, const struct gloo_path *p)
{
    return ENTRY_OVERHEAD + p->scope_len + (gloo_path_is_mesh(p) ? s->limits.ranks + 1 : 0);
}

static struct scope *make_scope(struct gloo_store *s, const struct gloo_path *p)
{
    uint64_t h = hash_key(0, p->scope, p->scope_len);
    struct scope **at = scope_place(s, p, h);
    struct scope *scope = *at;
    if (scope)
        return scope;
    scope = calloc(1, sizeof *scope + p->scope_len);
    if (!scope)
        return NULL;
    scope->mesh = gloo_path_is_mesh(p);
    scope->flags = scope->mesh ? calloc(s->limits.ranks + 1, 1) : NULL;
    if (scope->mesh && !scope->flags) {
        free(scope);
        return NULL;
    }
    scope->hash = h;
    scope->len = p->scope_len;
    memcpy(scope->name, p->scope, p->scope_len);
    scope->cost = cost_of_scope(s, p);
    s->count.bytes += scope->cost;
    s->count.scopes++;
    *at = scope;
    return scope;
}

/* Forgets a scope of which nothing is left to know. */
static void drop_scope(struct gloo_store *s, struct scope *scope)
{
    struct scope **at = &s->scope[scope->hash % SCOPE_BUCKETS];
    if (scope->first || scope->members || scope->owed)
        return;
    while (*at != scope)
        at = &(*at)->next;
    *at = scope->next;
    s->count.scopes--;
    s->count.bytes -= scope->cost;
    free(scope->flags);
    free(scope);
}

static struct entry **entry_place(const struct gloo_store *s, const struct scope *scope,
                                  const struct gloo_path *p, uint64_t h)
{
    struct entry **at = &s->bucket[h & (s->buckets - 1)];
    while (*at && ((*at)->hash != h || (*at)->scope != scope || (*at)->key_len != p->key_len ||
                   memcmp((*at)->key, p->key, p->key_len) != 0))
        at = &(*at)->next;
    return at;
}

static struct entry **find_entry(const struct gloo_store *s, const struct gloo_path *p)
{
    const struct scope *scope = s->buckets ? find_scope(s, p) : NULL;
    struct entry **at = scope ? entry_place(s, scope, p, hash_key(scope->hash, p->key, p->key_len)) : NULL;
    return at && *at ? at : NULL;
}

/* As many buckets as keys. A table that cannot grow serves as it is. */
static void grow_buckets(struct gloo_store *s)
{
    size_t wanted = s->buckets ? s->buckets * 2 : FIRST_BUCKETS;
    struct entry **bucket = s->count.keys < s->buckets ? NULL : calloc(wanted, sizeof(struct entry *));
    if (!bucket)
        return;
    for (size_t i = 0; i < s->buckets; i++)
        for (struct entry *e = s->bucket[i], *next; e; e = next) {
            struct entry **at = &bucket[e->hash & (wanted - 1)];
            next = e->next;
            e->next = *at;
            *at = e;
        }
    free(s->bucket);
    s->bucket = bucket;
    s->buckets = wanted;
}

static size_t cost_of(size_t key_len, size_t value_len)
{
    return ENTRY_OVERHEAD + key_len + value_len;
}

static void remove_entry(struct gloo_store *s, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    if (e->before)
        e->before->behind = e->behind;
    else
        e->scope->first = e->behind;
    if (e->behind)
        e->behind->before = e->before;
    s->count.keys--;
    s->count.bytes -= cost_of(e->key_len, e->value->len);
    gloo_value_release(e->value);
    free(e);
}

static void clear_scope(struct gloo_store *s, struct scope *scope)
{
    while (scope->first) {
        struct entry **at = &s->bucket[scope->first->hash & (s->buckets - 1)];
        while (*at != scope->first)
            at = &(*at)->next;
        remove_entry(s, at);
    }
}

/* ---- rounds -------------------------------------------------------------------------------------------- */

/* The round is over; who has not said so yet owes it, if `owing`. */
static void end_round(struct gloo_store *s, struct scope *scope, bool owing)
{
    clear_scope(s, scope);
    for (uint32_t r = 0; r < s->limits.ranks; r++) {
        uint8_t *f = &scope->flags[r];
        if (owing && (*f & MEMBER) && !(*f & (FINISHED | OWED))) {
            *f |= OWED;
            scope->owed++;
        }
        *f &= OWED;
    }
    scope->members = scope->finished = 0;
}

static void join_round(struct gloo_store *s, struct scope *scope, uint32_t rank)
{
    if (scope->flags[rank] & FINISHED)
        end_round(s, scope, true);
    if (!(scope->flags[rank] & MEMBER))
        scope->members++;
    scope->flags[rank] |= MEMBER;
}

static bool finish_rank(struct gloo_store *s, struct scope *scope, const struct gloo_path *p, uint32_t rank)
{
    uint8_t *f = &scope->flags[rank];
    if (*f & OWED) {
        *f &= (uint8_t)~OWED;
        scope->owed--;
        drop_scope(s, scope);
        return true;
    }
    if (!(*f & MEMBER))
        return false;
    if (!(*f & FINISHED))
        scope->finished++;
    *f |= FINISHED;
    uint32_t known = s->limits.members ? s->limits.members(s->limits.ctx, p) : 0;
    if (scope->finished == scope->members && scope->finished >= known) {
        end_round(s, scope, false);
        drop_scope(s, scope);
    }
    return true;
}

/* ---- the store ----------------------------------------------------------------------------------------- */

struct gloo_store *gloo_store_new(const struct gloo_limits *limits)
{
    struct gloo_store *s = calloc(1, sizeof *s);
    if (s)
        s->limits = *limits;
    return s;
}

void gloo_store_free(struct gloo_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SCOPE_BUCKETS; i++)
        while (s->scope[i]) {
            struct scope *scope = s->scope[i];
            clear_scope(s, scope);
            s->scope[i] = scope->next;
            free(scope->flags);
            free(scope);
        }
    free(s->bucket);
    free(s);
}

static int check_limits(const struct gloo_store *s, const struct gloo_path *p, size_t len,
                        const struct entry *old, struct err *e)
{
    size_t bytes = s->count.bytes - (old ? cost_of(old->key_len, old->value->len) : 0);
    size_t cost = cost_of(p->key_len, len) + (find_scope(s, p) ? 0 : cost_of_scope(s, p));
    if (len > s->limits.value)
        return err_set(e, ERR_MEMORY, "a value of %zu bytes is longer than %zu", len, s->limits.value);
    if (!old && s->count.keys >= s->limits.keys)
        return err_set(e, ERR_MEMORY, "there are %zu keys already", s->count.keys);
    if (s->count.scopes >= s->limits.keys && !find_scope(s, p))
        return err_set(e, ERR_MEMORY, "there are %zu scopes already", s->count.scopes);
    if (cost > s->limits.bytes || bytes > s->limits.bytes - cost)
        return err_set(e, ERR_MEMORY, "%zu bytes of values are all that may be kept", s->limits.bytes);
    return 0;
}

static struct entry *new_entry(struct scope *scope, const struct gloo_path *p, uint64_t h)
{
    struct entry *entry = malloc(sizeof *entry + p->key_len);
    if (!entry)
        return NULL;
    *entry = (struct entry){.behind = scope->first, .scope = scope, .hash = h, .key_len = p->key_len};
    memcpy(entry->key, p->key, p->key_len);
    if (scope->first)
        scope->first->before = entry;
    scope->first = entry;
    return entry;
}

static int add_value(struct gloo_store *s, const struct gloo_path *p, struct gloo_value *value)
{
    uint32_t rank;
    grow_buckets(s);
    struct scope *scope = s->buckets ? make_scope(s, p) : NULL;
    if (!scope)
        return -1;
    if (scope->mesh && gloo_path_rank(p, s->limits.ranks, &rank))
        join_round(s, scope, rank);
    uint64_t h = hash_key(scope->hash, p->key, p->key_len);
    struct entry **at = entry_place(s, scope, p, h);
    if (*at) {
        s->count.bytes -= (*at)->value->len;
        gloo_value_release((*at)->value);
    } else {
        *at = new_entry(scope, p, h);
        if (!*at) {
            drop_scope(s, scope);
            return -1;
        }
        s->count.keys++;
        s->count.bytes += cost_of(p->key_len, 0);
    }
    (*at)->value = value;
    s->count.bytes += value->len;
    return 0;
}

int gloo_store_put(struct gloo_store *s, const struct gloo_path *p, struct gloo_value *value, struct err *e)
{
    struct entry **old = find_entry(s, p);
    if (check_limits(s, p, value->len, old ? *old : NULL, e) < 0 || add_value(s, p, value) < 0) {
        gloo_value_release(value);
        return err_set(e, ERR_MEMORY, "no memory for a value");
    }
    return 0;
}

struct gloo_value *gloo_store_get(const struct gloo_store *s, const struct gloo_path *p)
{
    struct entry **at = find_entry(s, p);
    return at ? (*at)->value : NULL;
}

bool gloo_store_delete(struct gloo_store *s, const struct gloo_path *p)
{
    struct scope *scope = find_scope(s, p);
    uint32_t rank;
    if (!scope)
        return false;
    if (p->key[0] != 'r' && gloo_path_rank(p, s->limits.ranks, &rank))
        return finish_rank(s, scope, p, rank);
    struct entry **at = find_entry(s, p);
    if (!at)
        return false;
    remove_entry(s, at);
    drop_scope(s, scope);
    return true;
}

struct gloo_count gloo_store_count(const struct gloo_store *s)
{
    return s->count;
}

/* ---- messages between stores --------------------------------------------------------------------------- */

uint8_t *gloo_message_write(enum gloo_word word, const struct gloo_path *p, const struct gloo_value *value,
                            size_t *len)
{
    size_t path_len = p->scope_len + p->key_len + 2;
    *len = 3 + path_len + (value ? value->len : 0);
    uint8_t *bytes = malloc(*len);
    if (!bytes)
        return NULL;
    struct writer w = writer_of(bytes, *len);
    write_u8(&w, (uint8_t)word);
    write_u16(&w, (uint16_t)path_len);
    write_u8(&w, '/');
    write_bytes(&w, p->scope, p->scope_len);
    write_u8(&w, '/');
    write_bytes(&w, p->key, p->key_len);
    if (value)
        write_bytes(&w, value->bytes, value->len);
    return bytes;
}

int gloo_message_read(const uint8_t *data, size_t len, enum gloo_word *word, struct gloo_path *path,
                      struct gloo_value **value, struct err *e)
{
    struct reader r = reader_of(data, len);
    *word = (enum gloo_word)read_u8(&r);
    size_t path_len = read_u16(&r);
    const char *text = (const char *)read_bytes(&r, path_len);
    *value = NULL;
    if (r.bad || (*word != GLOO_WORD_PUT && *word != GLOO_WORD_DELETE) ||
        !gloo_path_parse(text, path_len, path) || (*word == GLOO_WORD_DELETE && r.left > 0))
        return err_set(e, ERR_PROTOCOL, "a Gloo message of %zu bytes is wrong", len);
    if (*word == GLOO_WORD_DELETE)
        return 0;
    *value = gloo_value_new(r.left);
    if (!*value)
        return err_set(e, ERR_MEMORY, "no memory for a Gloo value of %zu bytes", r.left);
    if (r.left > 0)
        memcpy((*value)->bytes, r.at, r.left);
    return 0;
}
