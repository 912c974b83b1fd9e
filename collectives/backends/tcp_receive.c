/* Frames of other hosts: their check, and the operation that takes them. */
#include <stdlib.h>
#include <string.h>

#include "collectives/backends/tcp_operation.h"
#include "common/base/cursor.h"

#define AHEAD_MAX 1024u /* operations of all sets with which a host may be ahead */

static unsigned long long read_number(const struct op *op)
{
    return operation_sequence(op->id);
}

/* Eager bytes of `host` that were kept go where the algorithm wants them. */
static int feed_early(struct op *op, uint32_t host, struct err *e)
{
    struct early *early = &op->early[host];
    void *place = op->algorithm->place(op->state, early->peer, CHANNEL_EAGER, 0, early->length);
    early->whole = early->filling = false;
    if (!op->algorithm->eager || !place)
        return err_set(e, ERR_PROTOCOL, "host %u sent %u bytes for operation %llu of another size", host,
                       early->length, read_number(op));
    if (early->length > 0)
        memcpy(place, early->data, early->length);
    op->algorithm->arrived(op->state, early->peer, CHANNEL_EAGER, 0, early->length);
    return 0;
}

int receive_early(struct op *op, struct err *e)
{
    for (uint32_t i = 0; i < op->tcp->config.hosts; i++) {
        const struct early *early = &op->early[i];
        if (early->counts && early->peer == NO_PEER)
            return err_set(e, ERR_PROTOCOL,
                           "host %u takes no part in operation %llu and sent something for it", i,
                           read_number(op));
        if (early->granted)
            op->algorithm->granted(op->state, early->peer, early->limit);
        if (early->whole && feed_early(op, i, e) < 0)
            return -1;
    }
    return 0;
}

/* May `host` be ahead with one more operation of this set? */
static bool may_be_ahead(const struct tcp *tcp, uint32_t host, uint32_t set)
{
    uint32_t all = 0, of_set = 0;
    for (const struct op *op = tcp->ops; op; op = op->next) {
        if (op->started || !op->early[host].counts)
            continue;
        all++;
        of_set += operation_set(op->id) == set;
    }
    return all < AHEAD_MAX && of_set < BACKEND_IN_FLIGHT_MAX;
}

/* The operation that `host` means: one in flight, or one that begins here later. */
static struct op *op_for(struct tcp *tcp, uint32_t host, uint64_t id, struct err *e)
{
    unsigned long long sequence = operation_sequence(id);
    struct op *op = operation_find(tcp, id);
    if (op && op->started && op->early[host].peer == NO_PEER) {
        err_set(e, ERR_PROTOCOL, "host %u takes no part in operation %llu and sent something for it", host,
                sequence);
        return NULL;
    }
    if (op && (op->started || op->early[host].counts))
        return op;
    if (!op && sequence <= operation_started(tcp, operation_set(id))) {
        err_set(e, ERR_PROTOCOL, "host %u sent something for operation %llu, which has ended", host,
                sequence);
        return NULL;
    }
    if (!may_be_ahead(tcp, host, operation_set(id))) {
        err_set(e, ERR_PROTOCOL, "host %u is too far ahead with operation %llu", host, sequence);
        return NULL;
    }
    if (!op)
        op = operation_new(tcp, id);
    if (op)
        op->early[host].counts = true;
    else
        err_set(e, ERR_MEMORY, "no memory for an operation");
    return op;
}

int backend_tcp_control(struct backend *backend, uint32_t host, const void *data, size_t size, struct err *e)
{
    struct tcp *tcp = (struct tcp *)backend;
    struct reader r = reader_of(data, size);
    uint8_t type = read_u8(&r);
    read_bytes(&r, 7);
    uint64_t id = read_u64(&r), limit = read_u64(&r);
    if (tcp->failed)
        return 0;
    if (r.bad || r.left > 0 || type != BACKEND_CONTROL_TYPE || host >= tcp->config.hosts ||
        host == tcp->config.self)
        return err_set(e, ERR_PROTOCOL, "host %u sent a malformed grant", host);
    struct op *op = op_for(tcp, host, id, e);
    if (!op)
        return -1;
    if (!op->started) {
        op->early[host].granted = true;
        op->early[host].limit = limit;
        return 0;
    }
    op->algorithm->granted(op->state, op->early[host].peer, limit);
    operation_settle(op);
    return 0;
}

/* Memory for eager bytes of an operation that this host has not started. NULL: they are not legal now, or
 * there is no memory. */
static void *keep_early(struct tcp *tcp, struct op *op, uint32_t host, const struct link_bulk *head)
{
    struct early *early = &op->early[host];
    if (head->channel != CHANNEL_EAGER || head->offset != 0 || head->length > BACKEND_EAGER_MAX ||
        early->filling || early->whole)
        return NULL;
    early->data = malloc(head->length);
    early->length = head->length;
    early->filling = early->data != NULL;
    return early->data;
}

void *backend_tcp_bulk_place(struct backend *backend, uint32_t host, const struct link_bulk *head)
{
    struct tcp *tcp = (struct tcp *)backend;
    struct op *op = tcp->failed || host >= tcp->config.hosts ? NULL : op_for(tcp, host, head->sequence, NULL);
    if (!op)
        return NULL;
    if (!op->started)
        return keep_early(tcp, op, host, head);
    const struct early *early = &op->early[host];
    return early->filling
               ? NULL
               : op->algorithm->place(op->state, early->peer, head->channel, head->offset, head->length);
}

/* A frame without bytes was not asked a place for; it gets its check here. */
static int arrived_empty(struct op *op, uint32_t host, const struct link_bulk *head, struct err *e)
{
    struct early *early = &op->early[host];
    if (head->channel != CHANNEL_EAGER || early->filling || early->whole ||
        (op->started && !op->algorithm->eager))
        return err_set(e, ERR_PROTOCOL, "host %u sent an empty frame for operation %llu", host,
                       read_number(op));
    early->length = 0;
    early->filling = true;
    return 0;
}

int backend_tcp_bulk_arrived(struct backend *backend, uint32_t host, const struct link_bulk *head,
                             struct err *e)
{
    struct tcp *tcp = (struct tcp *)backend;
    if (tcp->failed)
        return 0;
    struct op *op = op_for(tcp, host, head->sequence, e);
    if (!op || (head->length == 0 && arrived_empty(op, host, head, e) < 0))
        return -1;
    struct early *early = &op->early[host];
    if (early->filling && !op->started) {
        early->filling = false;
        early->whole = true;
        return 0;
    }
    if (early->filling) {
        if (feed_early(op, host, e) < 0)
            return -1;
    } else {
        op->algorithm->arrived(op->state, early->peer, head->channel, head->offset, head->length);
    }
    operation_settle(op);
    return 0;
}
