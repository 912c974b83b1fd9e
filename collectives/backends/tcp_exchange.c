/* The services of the backend for an algorithm: frames to the links, and memory. */
#include <stdlib.h>

#include "collectives/backends/tcp_operation.h"
#include "common/base/cursor.h"
#include "common/net/links.h"

static void on_sent(struct link_send *send, int status)
{
    struct node *n = (struct node *)send;
    struct op *op = n->op;
    struct tcp *tcp = op->tcp;
    uint32_t peer = n->peer;
    n->next = tcp->nodes;
    tcp->nodes = n;
    op->under_way--;
    if (op->dead) {
        if (op->under_way == 0)
            operation_free(op);
        return;
    }
    if (status < 0)
        return; /* the host is lost: the owner is about to call fail */
    op->algorithm->sent(op->state, peer);
    operation_settle(op);
}

static void x_send(struct exchange *x, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                   const void *data, uint32_t length)
{
    struct op *op = (struct op *)x;
    struct tcp *tcp = op->tcp;
    struct node *n = tcp->nodes; /* there is one: exchange_reserve */
    tcp->nodes = n->next;
    *n = (struct node){.op = op, .peer = peer};
    n->send = (struct link_send){
        .head = {.sequence = op->id, .offset = offset, .length = length, .channel = channel},
        .data = data,
        .done = on_sent};
    op->under_way++;
    if (tcp->config.wire->send_bulk(tcp->config.links, op->host[peer], &n->send, NULL) == 0)
        return;
    op->under_way--;
    n->next = tcp->nodes;
    tcp->nodes = n;
}

static void x_grant(struct exchange *x, uint32_t peer, uint64_t limit)
{
    struct op *op = (struct op *)x;
    uint8_t message[GRANT_SIZE] = {BACKEND_CONTROL_TYPE};
    struct writer w = writer_of(message + 8, 16);
    write_u64(&w, op->id);
    write_u64(&w, limit);
    op->tcp->config.wire->send_control(op->tcp->config.links, op->host[peer], message, sizeof message, NULL);
}

static void *x_borrow(struct exchange *x, size_t size)
{
    return scratch_borrow(&((struct op *)x)->tcp->scratch, size);
}

static void x_give_back(struct exchange *x, void *memory, size_t size)
{
    scratch_give_back(&((struct op *)x)->tcp->scratch, memory, size);
}

static uint64_t x_packed(struct exchange *x)
{
    struct backend_request *r = &((struct op *)x)->request;
    return r->packed(r->ctx);
}

static void x_final(struct exchange *x, uint64_t offset, uint64_t size)
{
    struct backend_request *r = &((struct op *)x)->request;
    if (r->range)
        r->range(r->ctx, offset, size);
}

int exchange_reserve(struct tcp *tcp, struct err *e)
{
    uint64_t wanted = (uint64_t)(tcp->in_flight + 1) * tcp->config.hosts * EXCHANGE_SENDS_MAX;
    for (; tcp->nodes_total < wanted; tcp->nodes_total++) {
        struct node *n = malloc(sizeof *n);
        if (!n)
            return err_set(e, ERR_MEMORY, "no memory for an operation");
        n->next = tcp->nodes;
        tcp->nodes = n;
    }
    return 0;
}

const struct exchange tcp_exchange = {.send = x_send,
                                      .grant = x_grant,
                                      .packed = x_packed,
                                      .borrow = x_borrow,
                                      .give_back = x_give_back,
                                      .final = x_final};

const struct wire_ops links_wire = {.send_control = links_send_control, .send_bulk = links_send_bulk};
