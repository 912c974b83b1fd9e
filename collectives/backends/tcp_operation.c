/* The operations in flight, by their sets: found, made, ended. */
#include "collectives/backends/tcp_operation.h"

#include <stdlib.h>

/* ---- sets ---------------------------------------------------------------------------------------------- */

struct tcp_set *operation_set_find(const struct tcp *tcp, uint32_t set)
{
    struct tcp_set *s = tcp->set[set % TCP_SET_BUCKETS];
    while (s && s->set != set)
        s = s->next;
    return s;
}

uint64_t operation_started(const struct tcp *tcp, uint32_t set)
{
    const struct tcp_set *s = operation_set_find(tcp, set);
    return s ? s->started : 0;
}

struct tcp_set *operation_set_make(struct tcp *tcp, uint32_t set, struct err *e)
{
    struct tcp_set *s = operation_set_find(tcp, set);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory for an operation");
        return NULL;
    }
    s->set = set;
    s->next = tcp->set[set % TCP_SET_BUCKETS];
    tcp->set[set % TCP_SET_BUCKETS] = s;
    return s;
}

void operation_set_forget(struct tcp *tcp, uint32_t set)
{
    struct tcp_set **at = &tcp->set[set % TCP_SET_BUCKETS], *s;
    while ((s = *at) && s->set != set)
        at = &s->next;
    if (!s || s->in_flight > 0)
        return;
    *at = s->next;
    free(s);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

struct op *operation_find(struct tcp *tcp, uint64_t id)
{
    for (struct op *op = tcp->ops; op; op = op->next)
        if (op->id == id)
            return op;
    return NULL;
}

struct op *operation_new(struct tcp *tcp, uint64_t id)
{
    struct op *op = calloc(1, sizeof *op + tcp->config.hosts * sizeof *op->early);
    if (!op)
        return NULL;
    op->x = tcp_exchange;
    op->tcp = tcp;
    op->id = id;
    op->next = tcp->ops;
    tcp->ops = op;
    return op;
}

/* A link writes into its place until its frame ends. Only a peer at fault lets an operation end before. */
static bool is_written_to(const struct op *op)
{
    for (uint32_t i = 0; i < op->tcp->config.hosts; i++)
        if (op->early[i].filling && op->early[i].data)
            return true;
    return false;
}

void operation_free(struct op *op)
{
    struct tcp *tcp = op->tcp;
    if (!tcp->failed && is_written_to(op)) {
        op->next = tcp->parked;
        tcp->parked = op;
        return;
    }
    for (uint32_t i = 0; i < tcp->config.hosts; i++)
        free(op->early[i].data);
    free(op->host);
    free(op);
}

static void unlink_op(struct op *op)
{
    struct op **at = &op->tcp->ops;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    if (!op->started)
        return;
    op->tcp->in_flight--;
    operation_set_find(op->tcp, operation_set(op->id))->in_flight--;
}

void operation_settle(struct op *op)
{
    struct backend_request request = op->request;
    if (!op->algorithm->complete(op->state))
        return;
    unlink_op(op);
    op->algorithm->end(op->state);
    operation_free(op);
    request.done(request.ctx, NULL);
}

void operation_abandon(struct op *op)
{
    unlink_op(op);
    if (op->state)
        op->algorithm->end(op->state);
    op->state = NULL;
    op->dead = true;
    if (op->under_way == 0)
        operation_free(op);
}
