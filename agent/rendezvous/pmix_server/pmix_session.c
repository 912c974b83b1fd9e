/* Operations over the tree of hosts (tree.h). The session has the links, so each operation is a message to
 * the session, and its end comes back as a message. No operation that needs other hosts ends before the
 * function that began it has returned. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <stdlib.h>

struct operation {
    struct operation *next;
    uint64_t ticket;
    tree_done *done;
    void *ctx;
};

static struct {
    struct pmix_relay *session;
    struct operation *first;
    uint64_t tickets;
} tree;

void pmix_tree_open(struct pmix_relay *session)
{
    tree.session = session;
}

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
}

static uint64_t begin_operation(Hvd__Pmix *m, tree_done *done, void *ctx)
{
    struct err e = ERR_INIT;
    struct operation *o = malloc(sizeof *o);
    if (!o) {
        err_set(&e, ERR_MEMORY, "no memory for an operation");
        done(ctx, &e, NULL, 0);
        return 0;
    }
    *o = (struct operation){tree.first, ++tree.tickets, done, ctx};
    tree.first = o;
    m->ticket = o->ticket;
    pmix_relay_send(tree.session, m);
    return m->ticket;
}

static void end_operation(uint64_t ticket, const struct err *why, const uint8_t *data, size_t len)
{
    struct operation **at = &tree.first;
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
    end_operation(m->ticket, m->code ? &why : NULL, m->data.data, m->data.len);
}

uint64_t pmix_tree_gather(const void *id, size_t id_len, const uint32_t *host, size_t hosts, const void *blob,
                          size_t len, tree_done *done, void *ctx)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    if (hosts == 1) { /* this one: there is nothing to gather */
        done(ctx, NULL, blob, len);
        return 0;
    }
    m.kind = HVD__PMIX__KIND__GATHER;
    m.id = bytes_of(id, id_len);
    m.hosts = (uint32_t *)(uintptr_t)host;
    m.n_hosts = hosts;
    m.data = bytes_of(blob, len);
    return begin_operation(&m, done, ctx);
}

uint64_t pmix_tree_request(uint32_t host, const void *data, size_t len, tree_done *done, void *ctx)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__ASK;
    m.host = host;
    m.data = bytes_of(data, len);
    return begin_operation(&m, done, ctx);
}

void pmix_tree_cancel(uint64_t handle, const struct err *why)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__CANCEL;
    m.ticket = handle;
    m.code = why->code;
    m.text = (char *)(uintptr_t)why->text;
    pmix_relay_send(tree.session, &m);
    end_operation(handle, why, NULL, 0);
}

void pmix_tree_forget(const void *id, size_t id_len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__FORGET;
    m.id = bytes_of(id, id_len);
    pmix_relay_send(tree.session, &m);
}

void pmix_tree_answer(uint32_t host, uint64_t ticket, const struct err *why, const void *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__ANSWER;
    m.host = host;
    m.ticket = ticket;
    if (why) {
        m.code = why->code ? why->code : ERR_CLOSED;
        m.text = (char *)(uintptr_t)why->text;
    } else {
        m.data = bytes_of(data, len);
    }
    pmix_relay_send(tree.session, &m);
}

void pmix_tree_broadcast(const void *data, size_t len)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    m.kind = HVD__PMIX__KIND__TELL;
    m.data = bytes_of(data, len);
    pmix_relay_send(tree.session, &m);
}
