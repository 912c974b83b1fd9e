/* tree.h for the server's process, where the session is the one that has the links: each operation is a
 * message to it, and its end comes back as one. No operation that needs others ends before the function that
 * began it has returned. */
#include <stdlib.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"

struct operation {
    struct operation *next;
    uint64_t ticket;
    exchange_done *done;
    void *ctx;
};

struct exchange {
    struct pmix_relay *session;
    struct operation *first;
    uint64_t tickets;
};

static struct exchange exchange;

struct exchange *pmix_session_exchange(struct pmix_relay *session)
{
    exchange.session = session;
    return &exchange;
}

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
}

static uint64_t begin(struct exchange *x, Hvd__Pmix *m, exchange_done *done, void *ctx)
{
    struct err e = ERR_INIT;
    struct operation *o = malloc(sizeof *o);
    if (!o) {
        err_set(&e, ERR_MEMORY, "no memory for an operation");
        done(ctx, &e, NULL, 0);
        return 0;
    }
    *o = (struct operation){x->first, ++x->tickets, done, ctx};
    x->first = o;
    m->ticket = o->ticket;
    pmix_relay_send(x->session, m);
    return m->ticket;
}

static void end(struct exchange *x, uint64_t ticket, const struct err *why, const uint8_t *data, size_t len)
{
    struct operation **at = &x->first;
    while (*at && (*at)->ticket != ticket)
        at = &(*at)->next;
    struct operation *o = *at;
    if (!o) /* it was cancelled */
        return;
    *at = o->next;
    o->done(o->ctx, why, data, len);
    free(o);
}

void pmix_session_result(const Hvd__Pmix *m)
{
    struct err why = ERR_INIT;
    if (m->code)
        err_set(&why, (enum err_code)m->code, "%s", m->text);
    end(&exchange, m->ticket, m->code ? &why : NULL, m->data.data, m->data.len);
}

uint64_t exchange_gather(struct exchange *x, enum exchange_service service, const void *id, size_t id_len,
                         const uint32_t *host, size_t hosts, const void *blob, size_t len,
                         exchange_done *done, void *ctx)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)service;
    if (hosts == 1) { /* this one: there is nothing to gather */
        done(ctx, NULL, blob, len);
        return 0;
    }
    m.kind = HVD__PMIX__KIND__GATHER;
    m.id = bytes_of(id, id_len);
    m.hosts = (uint32_t *)(uintptr_t)host;
    m.n_hosts = hosts;
    m.data = bytes_of(blob, len);
    return begin(x, &m, done, ctx);
}

uint64_t exchange_request(struct exchange *x, enum exchange_service service, uint32_t host, const void *data,
                          size_t len, exchange_done *done, void *ctx)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)service;
    m.kind = HVD__PMIX__KIND__ASK;
    m.host = host;
    m.data = bytes_of(data, len);
    return begin(x, &m, done, ctx);
}

void exchange_cancel(struct exchange *x, uint64_t handle, const struct err *why)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__CANCEL;
    m.ticket = handle;
    m.code = why->code;
    m.text = (char *)(uintptr_t)why->text;
    pmix_relay_send(x->session, &m);
    end(x, handle, why, NULL, 0);
}

void exchange_forget(struct exchange *x, enum exchange_service service, const void *id, size_t id_len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)service;
    m.kind = HVD__PMIX__KIND__FORGET;
    m.id = bytes_of(id, id_len);
    pmix_relay_send(x->session, &m);
}

void exchange_answer(struct exchange *x, enum exchange_service service, uint32_t host, uint64_t ticket,
                     const struct err *why, const void *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)service;
    m.kind = HVD__PMIX__KIND__ANSWER;
    m.host = host;
    m.ticket = ticket;
    if (why) {
        m.code = why->code ? why->code : ERR_CLOSED;
        m.text = (char *)(uintptr_t)why->text;
    } else {
        m.data = bytes_of(data, len);
    }
    pmix_relay_send(x->session, &m);
}

void exchange_broadcast(struct exchange *x, enum exchange_service service, const void *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    (void)service;
    m.kind = HVD__PMIX__KIND__TELL;
    m.data = bytes_of(data, len);
    pmix_relay_send(x->session, &m);
}
