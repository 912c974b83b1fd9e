/* Gathers: parts come together on the way up, and go down whole.
 *
 * A host waits for the parts of all participants in its own subtree, passes them to its parent in one
 * message, and forgets the gather unless it takes part itself; the root puts the parts together in the order
 * of their hosts. The way down follows the list of participants, which every message carries.
 *
 * A gather that is cancelled on one host ends on all: the news goes along every edge that leads to a
 * participant, away from where it came from, until it meets a host that has ended it already, which has told
 * the others or was told together with them. */
#include <stdlib.h>
#include <string.h>

#include "agent/tree/tree_internal.h"

static bool same_id(uint32_t service, const uint8_t *id, size_t id_len, uint32_t service2, const uint8_t *id2,
                    size_t id_len2)
{
    return service == service2 && id_len == id_len2 && (id_len == 0 || memcmp(id, id2, id_len) == 0);
}

static void drop_parts(struct gather *g)
{
    for (size_t i = 0; i < g->parts; i++)
        free(g->part[i].data);
    g->parts = 0;
}

static void free_gather(struct gather *g)
{
    drop_parts(g);
    free(g->why);
    free(g->part);
    free(g->host);
    free(g->id);
    free(g);
}

static void forget_gather(struct tree *x, struct gather *g)
{
    struct gather **at = &x->gather;
    while (*at && *at != g)
        at = &(*at)->next;
    if (*at)
        *at = g->next;
}

/* `done` last, when nothing here knows the gather any more. */
static void end_gather(struct tree *x, struct gather *g, const struct err *why, const uint8_t *data,
                       size_t len)
{
    forget_gather(x, g);
    if (g->handle)
        g->done(g->ctx, why, data, len);
    free_gather(g);
}

static struct gather *find_gather(struct tree *x, uint32_t service, const uint8_t *id, size_t id_len,
                                  uint32_t round)
{
    struct gather *g = x->gather;
    while (g && !(g->round == round && same_id(service, id, id_len, g->service, g->id, g->id_len)))
        g = g->next;
    return g;
}

/* Parts of gathers that were cancelled elsewhere, and that no message will mention again. */
static void drop_older(struct tree *x, const struct gather *than)
{
    for (struct gather **at = &x->gather, *g; (g = *at);) {
        bool old = !g->handle && !g->why && g->round < than->round &&
                   same_id(g->service, g->id, g->id_len, than->service, than->id, than->id_len);
        if (!old) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        free_gather(g);
    }
}

static struct gather_round *round_of(struct tree *x, uint32_t service, const uint8_t *id, size_t id_len)
{
    struct gather_round *r = x->round;
    while (r && !same_id(service, id, id_len, r->service, r->id, r->id_len))
        r = r->next;
    return r;
}

/* How many gathers of this id the host has joined before; counts this one. -1: no memory. */
static int64_t next_round(struct tree *x, uint32_t service, const uint8_t *id, size_t id_len)
{
    struct gather_round *r = round_of(x, service, id, id_len);
    if (!r) {
        r = calloc(1, sizeof *r);
        uint8_t *copy = malloc(id_len ? id_len : 1);
        if (!r || !copy) {
            free(r);
            free(copy);
            return -1;
        }
        if (id_len > 0)
            memcpy(copy, id, id_len);
        *r = (struct gather_round){x->round, service, copy, id_len, 0};
        x->round = r;
    }
    return r->joined++;
}

static struct gather *add_part(struct tree *x, uint32_t service, const uint8_t *id, size_t id_len,
                               uint32_t round, const uint32_t *host, size_t hosts)
{
    struct gather *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->service = service;
    g->round = round;
    g->id_len = id_len;
    g->hosts = hosts;
    for (size_t i = 0; i < hosts; i++)
        g->below += tree_is_below(x->self, host[i]);
    g->id = malloc(id_len ? id_len : 1);
    g->host = malloc(hosts * sizeof *host);
    g->part = calloc(g->below ? g->below : 1, sizeof *g->part);
    if (!g->id || !g->host || !g->part) {
        free_gather(g);
        return NULL;
    }
    if (id_len > 0)
        memcpy(g->id, id, id_len);
    memcpy(g->host, host, hosts * sizeof *host);
    g->next = x->gather;
    x->gather = g;
    return g;
}

static bool takes_part(const uint32_t *host, size_t hosts, uint32_t who)
{
    for (size_t i = 0; i < hosts; i++)
        if (host[i] == who)
            return true;
    return false;
}

static int put_part(struct gather *g, uint32_t host, const uint8_t *data, size_t len, struct err *e)
{
    for (size_t i = 0; i < g->parts; i++)
        if (g->part[i].host == host)
            return err_set(e, ERR_PROTOCOL, "host %u brought two blobs to one gather", host);
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for a blob of %zu bytes", len);
    if (len > 0)
        memcpy(copy, data, len);
    g->part[g->parts++] = (struct gather_part){host, copy, len};
    return 0;
}

/* ---- onwards ------------------------------------------------------------------------------------------- */

static void fill_parts(Hvd__Exchange *m, Hvd__Exchange__Kind kind, const struct gather *g)
{
    hvd__exchange__init(m);
    m->kind = kind;
    m->service = g->service;
    m->id = (ProtobufCBinaryData){g->id_len, g->id};
    m->round = g->round;
    m->host = g->host;
    m->n_host = g->hosts;
}

static int send_up(struct tree *x, const struct gather *g)
{
    Hvd__Exchange m;
    Hvd__ExchangePart *part = calloc(g->parts, sizeof *part);
    Hvd__ExchangePart **list = calloc(g->parts, sizeof *list);
    if (part && list) {
        for (size_t i = 0; i < g->parts; i++) {
            hvd__exchange_part__init(&part[i]);
            part[i].host = g->part[i].host;
            part[i].data = (ProtobufCBinaryData){g->part[i].len, g->part[i].data};
            list[i] = &part[i];
        }
        fill_parts(&m, HVD__EXCHANGE__KIND__UP, g);
        m.part = list;
        m.n_part = g->parts;
        tree_send(x, tree_parent(x->self), &m);
    }
    int rc = part && list ? 0 : -1;
    free(part);
    free(list);
    return rc;
}

/* To the children with participants below them, but not to `from`. */
static void send_to_children(struct tree *x, uint32_t from, const struct gather *g, const Hvd__Exchange *m)
{
    uint32_t after;
    for (uint32_t child = tree_children(x, &after); child < after; child++) {
        bool awaited = false;
        for (size_t i = 0; i < g->hosts && !awaited; i++)
            awaited = tree_is_below(child, g->host[i]);
        if (awaited && child != from)
            tree_send(x, child, m);
    }
}

static void send_down(struct tree *x, const struct gather *g, const uint8_t *data, size_t len)
{
    Hvd__Exchange m;
    fill_parts(&m, HVD__EXCHANGE__KIND__DOWN, g);
    m.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
    send_to_children(x, x->self, g, &m);
}

/* To all who take part or lead to them; `from`: who knows it already. */
static void tell_cancelled(struct tree *x, uint32_t from, const struct gather *g, const struct err *why)
{
    Hvd__Exchange m;
    bool above = false;
    fill_parts(&m, HVD__EXCHANGE__KIND__CANCEL, g);
    m.code = why->code;
    m.text = (char *)(uintptr_t)why->text;
    for (size_t i = 0; i < g->hosts && !above; i++)
        above = !tree_is_below(x->self, g->host[i]);
    if (above && tree_parent(x->self) != from)
        tree_send(x, tree_parent(x->self), &m);
    send_to_children(x, from, g, &m);
}

static int by_host(const void *a, const void *b)
{
    const struct gather_part *p = a, *q = b;
    return p->host < q->host ? -1 : p->host > q->host;
}

static void finish_at_root(struct tree *x, struct gather *g)
{
    size_t len = 0, at = 0;
    for (size_t i = 0; i < g->parts; i++)
        len += g->part[i].len;
    uint8_t *all = malloc(len ? len : 1);
    if (!all) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "no memory for a gather of %zu bytes", len);
        tree_break(x, &e);
        return;
    }
    qsort(g->part, g->parts, sizeof *g->part, by_host);
    for (size_t i = 0; i < g->parts; i++) {
        memcpy(all + at, g->part[i].data, g->part[i].len);
        at += g->part[i].len;
    }
    forget_gather(x, g); /* a send may break the tree, which ends what is in the list */
    send_down(x, g, all, len);
    if (x->broken.code)
        end_gather(x, g, &x->broken, NULL, 0);
    else
        end_gather(x, g, NULL, all, len);
    free(all);
}

/* All parts of our subtree are here? Then on with them. */
static void check_complete(struct tree *x, struct gather *g)
{
    if (g->parts < g->below)
        return;
    if (x->self == 0) {
        finish_at_root(x, g);
        return;
    }
    struct err e = ERR_INIT;
    bool joined = g->handle != 0;
    drop_older(x, g);
    if (!joined)
        forget_gather(x, g);
    if (send_up(x, g) < 0) {
        err_set(&e, ERR_MEMORY, "no memory for a gather's message");
        tree_break(x, &e);
    }
    if (!joined)
        free_gather(g);
}

/* ---- joining ------------------------------------------------------------------------------------------- */

static struct gather *join_gather(struct tree *x, enum tree_service service, const void *id, size_t id_len,
                                  const uint32_t *host, size_t hosts, struct err *e)
{
    int64_t round;
    *e = x->broken;
    if (e->code) {
        tree_missed(x);
        return NULL;
    }
    if (id_len > TREE_ID_MAX || !takes_part(host, hosts, x->self)) {
        err_set(e, ERR_PROTOCOL, "host %u cannot join a gather of %zu hosts", x->self, hosts);
        return NULL;
    }
    round = next_round(x, service, id, id_len);
    struct gather *g = round < 0 ? NULL : find_gather(x, service, id, id_len, (uint32_t)round);
    if (g && (g->hosts != hosts || memcmp(g->host, host, hosts * sizeof *host) != 0)) {
        err_set(e, ERR_PROTOCOL, "the hosts do not agree on who takes part in a gather");
        return NULL;
    }
    if (g && g->why) {
        *e = *g->why;
        forget_gather(x, g);
        free_gather(g);
        return NULL;
    }
    if (!g && round >= 0)
        g = add_part(x, service, id, id_len, (uint32_t)round, host, hosts);
    if (!g)
        err_set(e, ERR_MEMORY, "no memory for a gather");
    return g;
}

uint64_t tree_gather(struct tree *x, enum tree_service service, const void *id, size_t id_len,
                     const uint32_t *host, size_t hosts, const void *blob, size_t len, tree_done *done,
                     void *ctx)
{
    struct err e = ERR_INIT;
    struct gather *g = join_gather(x, service, id, id_len, host, hosts, &e);
    if (!g || put_part(g, x->self, blob, len, &e) < 0) {
        done(ctx, &e, NULL, 0);
        return 0;
    }
    uint64_t handle = ++x->next_handle;
    g->handle = handle;
    g->done = done;
    g->ctx = ctx;
    check_complete(x, g);
    for (g = x->gather; g && g->handle != handle;)
        g = g->next;
    if (g)
        tree_expect(x);
    return g ? handle : 0;
}

bool gather_cancel(struct tree *x, uint64_t handle, const struct err *why)
{
    struct gather *g = x->gather;
    while (g && g->handle != handle)
        g = g->next;
    if (!g)
        return false;
    forget_gather(x, g); /* a send may break the tree, which ends what is in the list */
    tell_cancelled(x, x->self, g, why);
    end_gather(x, g, why, NULL, 0);
    return true;
}

void tree_forget(struct tree *x, enum tree_service service, const void *id, size_t id_len)
{
    struct gather_round **at = &x->round, *r;
    while ((r = *at) != NULL && !same_id(service, id, id_len, r->service, r->id, r->id_len))
        at = &r->next;
    if (!r)
        return;
    *at = r->next;
    free(r->id);
    free(r);
}

/* ---- messages of neighbours ---------------------------------------------------------------------------- */

static int check_list(const struct tree *x, const Hvd__Exchange *m, struct err *e)
{
    bool good = m->n_host > 0 && m->n_host <= x->hosts && m->id.len <= TREE_ID_MAX;
    for (size_t i = 0; good && i < m->n_host; i++)
        good = m->host[i] < x->hosts && (i == 0 || m->host[i] > m->host[i - 1]);
    return good ? 0 : err_set(e, ERR_PROTOCOL, "a gather with a bad list of %zu hosts", m->n_host);
}

static int check_parts(const Hvd__Exchange *m, uint32_t child, struct err *e)
{
    for (size_t i = 0; i < m->n_part; i++)
        if (!tree_is_below(child, m->part[i]->host) || !takes_part(m->host, m->n_host, m->part[i]->host))
            return err_set(e, ERR_PROTOCOL, "host %u brought a blob of host %u to a gather", child,
                           m->part[i]->host);
    return 0;
}

/* Has this host already left it? Then it was cancelled here, and the rest of it is nobody's. */
static bool is_past(struct tree *x, const Hvd__Exchange *m)
{
    struct gather_round *r = round_of(x, m->service, m->id.data, m->id.len);
    return r && m->round < r->joined;
}

int gather_up(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (check_list(x, m, e) < 0)
        return -1;
    if (neighbour == 0 || tree_parent(neighbour) != x->self)
        return err_set(e, ERR_PROTOCOL, "host %u is not below host %u", neighbour, x->self);
    if (check_parts(m, neighbour, e) < 0)
        return -1;
    struct gather *g = find_gather(x, m->service, m->id.data, m->id.len, m->round);
    if (!g && is_past(x, m))
        return 0;
    if (!g)
        g = add_part(x, m->service, m->id.data, m->id.len, m->round, m->host, m->n_host);
    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for a gather");
    if (g->why)
        return 0;
    if (g->hosts != m->n_host || memcmp(g->host, m->host, m->n_host * sizeof *m->host) != 0)
        return err_set(e, ERR_PROTOCOL, "the hosts do not agree on who takes part in a gather");
    for (size_t i = 0; i < m->n_part; i++)
        if (put_part(g, m->part[i]->host, m->part[i]->data.data, m->part[i]->data.len, e) < 0)
            return -1;
    check_complete(x, g);
    return 0;
}

static struct gather as_gather(const Hvd__Exchange *m)
{
    return (struct gather){.service = m->service,
                           .round = m->round,
                           .id = m->id.data,
                           .id_len = m->id.len,
                           .host = m->host,
                           .hosts = m->n_host};
}

int gather_down(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (check_list(x, m, e) < 0)
        return -1;
    if (x->self == 0 || neighbour != tree_parent(x->self))
        return err_set(e, ERR_PROTOCOL, "host %u is not above host %u", neighbour, x->self);
    struct gather relay = as_gather(m);
    send_down(x, &relay, m->data.data, m->data.len);
    struct gather *g = find_gather(x, m->service, m->id.data, m->id.len, m->round);
    if (g && g->handle)
        end_gather(x, g, NULL, m->data.data, m->data.len);
    return 0;
}

/* Keeps it for when this host joins. */
static int keep_cancelled(struct tree *x, struct gather *g, const Hvd__Exchange *m, const struct err *why,
                          struct err *e)
{
    if (!g)
        g = add_part(x, m->service, m->id.data, m->id.len, m->round, m->host, m->n_host);
    if (g && !g->why)
        g->why = malloc(sizeof *g->why);
    if (!g || !g->why)
        return err_set(e, ERR_MEMORY, "no memory for a gather");
    *g->why = *why;
    drop_parts(g);
    return 0;
}

int gather_cancelled(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    struct err why = ERR_INIT;
    if (check_list(x, m, e) < 0)
        return -1;
    if (!m->code || !tree_is_neighbour(x->self, neighbour))
        return err_set(e, ERR_PROTOCOL, "host %u cannot cancel a gather", neighbour);
    struct gather relay = as_gather(m), *g = find_gather(x, m->service, m->id.data, m->id.len, m->round);
    bool ours = takes_part(m->host, m->n_host, x->self);
    if (g ? g->why != NULL : ours && is_past(x, m))
        return 0;
    err_set(&why, (enum err_code)m->code, "%.700s", m->text);
    if (ours && !(g && g->handle) && keep_cancelled(x, g, m, &why, e) < 0)
        return -1;
    if (g && (g->handle || !ours))
        forget_gather(x, g);
    tell_cancelled(x, neighbour, &relay, &why);
    if (g && (g->handle || !ours))
        end_gather(x, g, &why, NULL, 0);
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

void gather_fail_all(struct tree *x, const struct err *why)
{
    while (x->gather)
        end_gather(x, x->gather, why, NULL, 0);
}

void gather_free_all(struct tree *x)
{
    while (x->gather) {
        struct gather *g = x->gather;
        x->gather = g->next;
        free_gather(g);
    }
    while (x->round) {
        struct gather_round *r = x->round;
        x->round = r->next;
        free(r->id);
        free(r);
    }
}
