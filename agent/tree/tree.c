/* Routes, requests and broadcasts; gathers are in tree_gather.c. */
#include "agent/tree/tree.h"

#include <stdlib.h>
#include <string.h>

#include "agent/tree/tree_internal.h"
#include "common/protocol/message.h"

/* ---- the tree ------------------------------------------------------------------------------------------ */

uint32_t tree_parent(uint32_t host)
{
    return host < 2 ? 0 : (host - 2) / TREE_RADIX;
}

uint32_t tree_children(const struct tree *x, uint32_t *end)
{
    uint32_t first = x->self ? x->self * TREE_RADIX + 2 : 1;
    uint32_t last = x->self ? first + TREE_RADIX : first + TREE_RADIX + 1;
    *end = last < x->hosts ? last : x->hosts;
    return first;
}

bool tree_is_below(uint32_t top, uint32_t host)
{
    while (host > top)
        host = tree_parent(host);
    return host == top;
}

bool tree_is_neighbour(uint32_t self, uint32_t host)
{
    return (self > 0 && tree_parent(self) == host) || (host > 0 && tree_parent(host) == self);
}

/* The neighbour on the way to `host`. */
static uint32_t tree_next_hop(const struct tree *x, uint32_t host)
{
    if (!tree_is_below(x->self, host))
        return tree_parent(x->self);
    while (tree_parent(host) != x->self)
        host = tree_parent(host);
    return host;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

void tree_send(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m)
{
    size_t len = hvd__exchange__get_packed_size(m);
    uint8_t *bytes = len <= TREE_MESSAGE_MAX ? malloc(len) : NULL;
    if (!bytes) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "a rendezvous message of %zu bytes is too long", len);
        tree_break(x, &e);
        return;
    }
    hvd__exchange__pack(m, bytes);
    x->sent.messages++;
    x->sent.bytes += len;
    x->events.send(x->ctx, neighbour, bytes, len);
}

/* To every neighbour but the one it came from. */
static void flood_message(struct tree *x, uint32_t from, const Hvd__Exchange *m)
{
    uint32_t end;
    if (x->self > 0 && tree_parent(x->self) != from)
        tree_send(x, tree_parent(x->self), m);
    for (uint32_t h = tree_children(x, &end); h < end; h++)
        if (h != from)
            tree_send(x, h, m);
}

void tree_missed(struct tree *x)
{
    if (!x->missed && x->events.missed)
        x->events.missed(x->ctx, &x->broken);
    x->missed = true;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static struct request **find_request(struct tree *x, uint64_t ticket)
{
    struct request **r = &x->request;
    while (*r && (*r)->ticket != ticket)
        r = &(*r)->next;
    return *r ? r : NULL;
}

/* Ends the request; it is forgotten first, so `done` may do anything. */
static void end_request(struct request **at, const struct err *why, const uint8_t *data, size_t len)
{
    struct request *r = *at;
    *at = r->next;
    r->done(r->ctx, why, data, len);
    free(r);
}

uint64_t tree_request(struct tree *x, enum tree_service service, uint32_t host, const void *data, size_t len,
                      tree_done *done, void *ctx)
{
    struct err e = x->broken;
    if (e.code)
        tree_missed(x);
    if (host >= x->hosts || host == x->self)
        err_set(&e, ERR_PROTOCOL, "host %u of %u cannot ask host %u", x->self, x->hosts, host);
    struct request *r = e.code ? NULL : calloc(1, sizeof *r);
    if (!r) {
        err_set(&e, ERR_MEMORY, "no memory for a request to another host");
        done(ctx, &e, NULL, 0);
        return 0;
    }
    uint64_t ticket = ++x->next_handle;
    *r = (struct request){x->request, ticket, service, host, done, ctx};
    x->request = r;
    Hvd__Exchange m = HVD__EXCHANGE__INIT;
    m.kind = HVD__EXCHANGE__KIND__REQUEST;
    m.service = service;
    m.origin = x->self;
    m.target = host;
    m.ticket = ticket;
    m.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
    tree_send(x, tree_next_hop(x, host), &m);
    return find_request(x, ticket) ? ticket : 0;
}

void tree_answer(struct tree *x, enum tree_service service, uint32_t host, uint64_t ticket,
                 const struct err *why, const void *data, size_t len)
{
    if (x->broken.code || host >= x->hosts || host == x->self)
        return;
    Hvd__Exchange m = HVD__EXCHANGE__INIT;
    m.kind = HVD__EXCHANGE__KIND__ANSWER;
    m.service = service;
    m.origin = host;
    m.target = x->self;
    m.ticket = ticket;
    m.code = why ? why->code : 0;
    m.text = why ? (char *)(uintptr_t)why->text : m.text;
    m.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
    tree_send(x, tree_next_hop(x, host), &m);
}

/* Towards `host`, never back: a message cannot go to and fro between two hosts. */
static int pass_on(struct tree *x, uint32_t neighbour, uint32_t host, const Hvd__Exchange *m, struct err *e)
{
    uint32_t next = tree_next_hop(x, host);
    if (next == neighbour)
        return err_set(e, ERR_PROTOCOL, "a message for host %u came from host %u", host, neighbour);
    tree_send(x, next, m);
    return 0;
}

static int on_request(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (m->origin >= x->hosts || m->target >= x->hosts || m->origin == m->target)
        return err_set(e, ERR_PROTOCOL, "a request of host %u for host %u of %u", m->origin, m->target,
                       x->hosts);
    if (m->target != x->self)
        return pass_on(x, neighbour, m->target, m, e);
    const struct tree_handler *handler = x->service[m->service].handler;
    if (handler && handler->request) {
        handler->request(x->service[m->service].ctx, m->origin, m->ticket, m->data.data, m->data.len);
        return 0;
    }
    struct err none = ERR_INIT;
    err_set(&none, ERR_NOT_FOUND, "the service does not run there");
    tree_answer(x, m->service, m->origin, m->ticket, &none, NULL, 0);
    return 0;
}

static int on_answer(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (m->origin >= x->hosts || m->target >= x->hosts)
        return err_set(e, ERR_PROTOCOL, "an answer of host %u to host %u of %u", m->target, m->origin,
                       x->hosts);
    if (m->origin != x->self)
        return pass_on(x, neighbour, m->origin, m, e);
    struct request **at = find_request(x, m->ticket);
    if (!at || (*at)->service != m->service || (*at)->host != m->target)
        return 0; /* cancelled, or never asked */
    struct err why = ERR_INIT;
    if (m->code)
        err_set(&why, (enum err_code)m->code, "%.700s", m->text);
    end_request(at, m->code ? &why : NULL, m->data.data, m->data.len);
    return 0;
}

/* ---- broadcasts ---------------------------------------------------------------------------------------- */

void tree_broadcast(struct tree *x, enum tree_service service, const void *data, size_t len)
{
    if (x->broken.code)
        return;
    Hvd__Exchange m = HVD__EXCHANGE__INIT;
    m.kind = HVD__EXCHANGE__KIND__BROADCAST;
    m.service = service;
    m.origin = x->self;
    m.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
    flood_message(x, x->self, &m);
}

static int on_broadcast(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (m->origin >= x->hosts || m->origin == x->self || tree_next_hop(x, m->origin) != neighbour)
        return err_set(e, ERR_PROTOCOL, "a broadcast of host %u came from host %u", m->origin, neighbour);
    flood_message(x, neighbour, m);
    const struct tree_handler *handler = x->service[m->service].handler;
    if (handler && handler->broadcast)
        handler->broadcast(x->service[m->service].ctx, m->origin, m->data.data, m->data.len);
    return 0;
}

/* ---- making, receiving, ending ------------------------------------------------------------------------- */

struct tree *tree_new(uint32_t self, uint32_t hosts, const struct tree_events *events, void *ctx)
{
    struct tree *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->self = self;
    x->hosts = hosts;
    x->events = *events;
    x->ctx = ctx;
    return x;
}

void tree_serve(struct tree *x, enum tree_service service, const struct tree_handler *handler, void *ctx)
{
    x->service[service].handler = handler;
    x->service[service].ctx = ctx;
}

void tree_expect(struct tree *x)
{
    if (x->hosts > 1 && x->events.wait)
        x->events.wait(x->ctx);
}

static int dispatch_message(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e)
{
    if (m->service >= TREE_SERVICES)
        return err_set(e, ERR_PROTOCOL, "there is no service %u", m->service);
    switch (m->kind) {
    case HVD__EXCHANGE__KIND__UP:
        return gather_up(x, neighbour, m, e);
    case HVD__EXCHANGE__KIND__DOWN:
        return gather_down(x, neighbour, m, e);
    case HVD__EXCHANGE__KIND__CANCEL:
        return gather_cancelled(x, neighbour, m, e);
    case HVD__EXCHANGE__KIND__REQUEST:
        return on_request(x, neighbour, m, e);
    case HVD__EXCHANGE__KIND__ANSWER:
        return on_answer(x, neighbour, m, e);
    case HVD__EXCHANGE__KIND__BROADCAST:
        return on_broadcast(x, neighbour, m, e);
    default:
        return err_set(e, ERR_PROTOCOL, "a message of kind %d", (int)m->kind);
    }
}

int tree_received(struct tree *x, uint32_t neighbour, const uint8_t *bytes, size_t len, struct err *e)
{
    if (x->broken.code)
        return 0;
    Hvd__Exchange *m = message_unpack_exchange(bytes, len, e);
    if (!m)
        return -1;
    int rc = dispatch_message(x, neighbour, m, e);
    message_free(m);
    return rc;
}

static bool any_pending(const struct tree *x)
{
    const struct gather *g = x->gather;
    while (g && !g->handle)
        g = g->next;
    return g || x->request;
}

void tree_break(struct tree *x, const struct err *why)
{
    if (x->broken.code)
        return;
    x->broken = *why;
    if (any_pending(x))
        tree_missed(x);
    gather_fail_all(x, why);
    while (x->request)
        end_request(&x->request, why, NULL, 0);
}

void tree_cancel(struct tree *x, uint64_t handle, const struct err *why)
{
    struct request **r = handle ? find_request(x, handle) : NULL;
    if (r)
        end_request(r, why, NULL, 0);
    else if (handle)
        (void)gather_cancel(x, handle, why);
}

struct tree_count tree_sent(const struct tree *x)
{
    return x->sent;
}

void tree_free(struct tree *x)
{
    if (!x)
        return;
    gather_free_all(x);
    while (x->request) {
        struct request *r = x->request;
        x->request = r->next;
        free(r);
    }
    free(x);
}
