/* Operations over the engine's links: which are in flight, what came for them before they began here, and the
 * frames between them and the links.
 *
 * The story. start picks an algorithm by kind and size (from the request alone, so all hosts pick alike) and
 * runs it; bulk frames and grants reach it by the operation's number. A host may be ahead: what comes for an
 * operation that has not begun here is kept: a grant is a number, eager data a buffer of at most eager_bytes.
 * One host can be ahead by at most BACKEND_IN_FLIGHT_MAX operations that concern us (none of them can end
 * without us), so more is a fault, and memory is bounded. For an operation that has ended, nothing may come.
 *
 * An operation ends when its algorithm says so, which includes that the kernel has taken all its sends. On
 * failure the owner has shut the links down before (links.h): nobody sends or writes; `fail` ends them all.
 *
 * GRANT (control frame, little endian): type 1 (BACKEND_CONTROL_TYPE), pad 7, sequence 8, limit 8. */
#include "collectives/backends/tcp.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/allreduce_direct.h"
#include "collectives/algorithms/allreduce_eager.h"
#include "collectives/algorithms/broadcast.h"
#include "collectives/algorithms/dtype.h"
#include "collectives/backends/scratch.h"
#include "common/cursor.h"

#define GRANT_SIZE 24

/* What a peer sent for an operation. */
struct early {
    bool granted;
    uint64_t limit;
    uint8_t *data; /* eager bytes that came before start */
    uint32_t length;
    bool counts; /* this host is ahead with this operation */
    bool filling, whole;
};

struct op {
    struct exchange x; /* first: an algorithm's exchange is its operation */
    struct tcp *tcp;
    struct op *next;
    uint64_t sequence;
    bool started, dead;
    struct backend_request request;
    const struct algorithm *algorithm;
    void *state;
    uint32_t under_way;   /* sends */
    struct early early[]; /* [hosts] */
};

struct node {
    struct link_send send;
    struct op *op;
    uint32_t peer;
    struct node *next;
};

struct tcp {
    struct backend base;
    struct backend_tcp_config config;
    struct op *ops;
    struct op *parked;  /* ended, but a link may still write into what they keep */
    struct node *nodes; /* free ones */
    uint64_t nodes_total;
    struct scratch scratch;
    uint64_t started; /* the highest number */
    uint32_t in_flight;
    bool failed;
    struct err why;
};

/* ---- what algorithms use ------------------------------------------------------------------------------- */

static void settle(struct op *op);

/* A link writes into its place until its frame ends. Only a peer at fault lets an operation end before. */
static bool is_written_to(const struct op *op)
{
    for (uint32_t i = 0; i < op->tcp->config.hosts; i++)
        if (op->early[i].filling && op->early[i].data)
            return true;
    return false;
}

static void free_op(struct op *op)
{
    struct tcp *tcp = op->tcp;
    if (!tcp->failed && is_written_to(op)) {
        op->next = tcp->parked;
        tcp->parked = op;
        return;
    }
    for (uint32_t i = 0; i < tcp->config.hosts; i++)
        free(op->early[i].data);
    free(op);
}

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
            free_op(op);
        return;
    }
    if (status < 0)
        return; /* the host is lost: the owner is about to call fail */
    op->algorithm->sent(op->state, peer);
    settle(op);
}

static void x_send(struct exchange *x, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                   const void *data, uint32_t length)
{
    struct op *op = (struct op *)x;
    struct tcp *tcp = op->tcp;
    struct node *n = tcp->nodes; /* there is one: reserve_nodes */
    tcp->nodes = n->next;
    *n = (struct node){.op = op, .peer = peer};
    n->send = (struct link_send){
        .head = {.sequence = op->sequence, .offset = offset, .length = length, .channel = channel},
        .data = data,
        .done = on_sent};
    op->under_way++;
    if (tcp->config.wire->send_bulk(tcp->config.links, peer, &n->send, NULL) == 0)
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
    write_u64(&w, op->sequence);
    write_u64(&w, limit);
    op->tcp->config.wire->send_control(op->tcp->config.links, peer, message, sizeof message, NULL);
}

static void *x_borrow(struct exchange *x, size_t size)
{
    return scratch_borrow(&((struct op *)x)->tcp->scratch, size);
}

static void x_give_back(struct exchange *x, void *memory, size_t size)
{
    scratch_give_back(&((struct op *)x)->tcp->scratch, memory, size);
}

static void x_final(struct exchange *x, uint64_t offset, uint64_t size)
{
    struct backend_request *r = &((struct op *)x)->request;
    if (r->range)
        r->range(r->ctx, offset, size);
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static struct op *find_op(struct tcp *tcp, uint64_t sequence)
{
    for (struct op *op = tcp->ops; op; op = op->next)
        if (op->sequence == sequence)
            return op;
    return NULL;
}

static struct op *new_op(struct tcp *tcp, uint64_t sequence)
{
    struct op *op = calloc(1, sizeof *op + tcp->config.hosts * sizeof *op->early);
    if (!op)
        return NULL;
    op->x = (struct exchange){.self = tcp->config.self,
                              .hosts = tcp->config.hosts,
                              .send = x_send,
                              .grant = x_grant,
                              .borrow = x_borrow,
                              .give_back = x_give_back,
                              .final = x_final};
    op->tcp = tcp;
    op->sequence = sequence;
    op->next = tcp->ops;
    tcp->ops = op;
    return op;
}

static void unlink_op(struct op *op)
{
    struct op **at = &op->tcp->ops;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    op->tcp->in_flight -= op->started;
}

/* Ends it when it is complete. The last thing a caller does with `op`. */
static void settle(struct op *op)
{
    struct backend_request request = op->request;
    if (!op->algorithm->complete(op->state))
        return;
    unlink_op(op);
    op->algorithm->end(op->state);
    free_op(op);
    request.done(request.ctx, NULL);
}

static const struct algorithm *pick(const struct tcp *tcp, const struct backend_request *r, uint64_t bytes)
{
    if (r->kind == BACKEND_BROADCAST)
        return &broadcast;
    return allreduce_eager_fits(bytes, tcp->config.hosts, tcp->config.eager_bytes) ? &allreduce_eager
                                                                                   : &allreduce_direct;
}

static int check_request(const struct tcp *tcp, const struct backend_request *r, struct err *e)
{
    if (tcp->failed)
        return err_set(e, tcp->why.code, "%s", tcp->why.text);
    if (r->sequence <= tcp->started || tcp->in_flight >= BACKEND_IN_FLIGHT_MAX)
        return err_set(e, ERR_PROTOCOL, "operation %llu may not start now", (unsigned long long)r->sequence);
    if (r->kind != BACKEND_BARRIER && (dtype_size(r->dtype) == 0 || r->count > SIZE_MAX / 16))
        return err_set(e, ERR_PROTOCOL, "operation %llu has %llu elements of type %d",
                       (unsigned long long)r->sequence, (unsigned long long)r->count, (int)r->dtype);
    if (r->kind == BACKEND_BROADCAST && r->root >= tcp->config.hosts)
        return err_set(e, ERR_PROTOCOL, "a broadcast from host %u of %u", r->root, tcp->config.hosts);
    return 0;
}

/* Eager bytes of `host` that were kept go where the algorithm wants them. */
static int feed_early(struct op *op, uint32_t host, struct err *e)
{
    struct early *early = &op->early[host];
    void *place = op->algorithm->place(op->state, host, CHANNEL_EAGER, 0, early->length);
    early->whole = early->filling = false;
    if (!op->algorithm->eager || !place)
        return err_set(e, ERR_PROTOCOL, "host %u sent %u bytes for operation %llu of another size", host,
                       early->length, (unsigned long long)op->sequence);
    if (early->length > 0)
        memcpy(place, early->data, early->length);
    op->algorithm->arrived(op->state, host, CHANNEL_EAGER, 0, early->length);
    return 0;
}

static int feed_all_early(struct op *op, struct err *e)
{
    for (uint32_t i = 0; i < op->x.hosts; i++) {
        if (op->early[i].granted)
            op->algorithm->granted(op->state, i, op->early[i].limit);
        if (op->early[i].whole && feed_early(op, i, e) < 0)
            return -1;
    }
    return 0;
}

static void abandon(struct op *op)
{
    unlink_op(op);
    if (op->state)
        op->algorithm->end(op->state);
    op->state = NULL;
    op->dead = true;
    if (op->under_way == 0)
        free_op(op);
}

/* Nodes for all sends that the operations in flight may have under way: sending can then never fail for want
 * of memory. */
static int reserve_nodes(struct tcp *tcp, struct err *e)
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

static int tcp_start(struct backend *backend, const struct backend_request *request, struct err *e)
{
    struct tcp *tcp = (struct tcp *)backend;
    if (check_request(tcp, request, e) < 0 || reserve_nodes(tcp, e) < 0)
        return -1;
    size_t element = request->kind == BACKEND_BARRIER ? 1 : dtype_size(request->dtype);
    uint64_t count = request->kind == BACKEND_BARRIER ? 0 : request->count;
    struct op *op = find_op(tcp, request->sequence);
    if (!op)
        op = new_op(tcp, request->sequence);
    if (!op)
        return err_set(e, ERR_MEMORY, "no memory for an operation");
    op->request = *request;
    op->started = true;
    tcp->started = request->sequence;
    tcp->in_flight++;
    op->algorithm = pick(tcp, request, count * element);
    struct collective c = {.x = &op->x,
                           .data = request->data,
                           .count = count,
                           .element_size = element,
                           .dtype = request->dtype,
                           .op = request->op,
                           .divisor = request->op == HVD_AVERAGE ? request->divisor : 0,
                           .root = request->root};
    op->state = op->algorithm->start(&c, e);
    if (!op->state || feed_all_early(op, e) < 0) {
        abandon(op);
        return -1;
    }
    settle(op);
    return 0;
}

static void tcp_fail(struct backend *backend, const struct err *error)
{
    struct tcp *tcp = (struct tcp *)backend;
    tcp->failed = true;
    if (!tcp->why.code)
        tcp->why = *error;
    while (tcp->ops) {
        struct op *op = tcp->ops;
        struct backend_request request = op->request;
        bool started = op->started;
        abandon(op);
        if (started)
            request.done(request.ctx, error);
    }
    for (struct op *op; (op = tcp->parked);) {
        tcp->parked = op->next;
        free_op(op);
    }
}

static void tcp_free(struct backend *backend)
{
    struct tcp *tcp = (struct tcp *)backend;
    struct err closed = {.code = ERR_CLOSED, .text = "the backend was closed"};
    tcp_fail(backend, &closed);
    while (tcp->nodes) {
        struct node *n = tcp->nodes;
        tcp->nodes = n->next;
        free(n);
    }
    scratch_free(&tcp->scratch);
    free(tcp);
}

static const struct backend_ops tcp_ops = {
    .name = "tcp", .start = tcp_start, .fail = tcp_fail, .free = tcp_free};

struct backend *backend_tcp_new(const struct backend_tcp_config *config, struct err *e)
{
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp) {
        err_set(e, ERR_MEMORY, "no memory for the TCP backend");
        return NULL;
    }
    tcp->base.ops = &tcp_ops;
    tcp->config = *config;
    if (tcp->config.eager_bytes == 0)
        tcp->config.eager_bytes = EAGER_BYTES_DEFAULT;
    if (tcp->config.eager_bytes > EAGER_BYTES_MAX)
        tcp->config.eager_bytes = EAGER_BYTES_MAX;
    return &tcp->base;
}

/* ---- what comes from other hosts ----------------------------------------------------------------------- */

static uint32_t times_ahead(const struct tcp *tcp, uint32_t host)
{
    uint32_t n = 0;
    for (const struct op *op = tcp->ops; op; op = op->next)
        n += !op->started && op->early[host].counts;
    return n;
}

/* The operation that `host` means: one in flight, or one that begins here later. */
static struct op *op_for(struct tcp *tcp, uint32_t host, uint64_t sequence, struct err *e)
{
    struct op *op = find_op(tcp, sequence);
    if (op && (op->started || op->early[host].counts))
        return op;
    if (!op && sequence <= tcp->started) {
        err_set(e, ERR_PROTOCOL, "host %u sent something for operation %llu, which has ended", host,
                (unsigned long long)sequence);
        return NULL;
    }
    if (times_ahead(tcp, host) >= BACKEND_IN_FLIGHT_MAX) {
        err_set(e, ERR_PROTOCOL, "host %u is too far ahead with operation %llu", host,
                (unsigned long long)sequence);
        return NULL;
    }
    if (!op)
        op = new_op(tcp, sequence);
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
    uint64_t sequence = read_u64(&r), limit = read_u64(&r);
    if (tcp->failed)
        return 0;
    if (r.bad || r.left > 0 || type != BACKEND_CONTROL_TYPE || host >= tcp->config.hosts ||
        host == tcp->config.self)
        return err_set(e, ERR_PROTOCOL, "host %u sent a malformed grant", host);
    struct op *op = op_for(tcp, host, sequence, e);
    if (!op)
        return -1;
    if (!op->started) {
        op->early[host].granted = true;
        op->early[host].limit = limit;
        return 0;
    }
    op->algorithm->granted(op->state, host, limit);
    settle(op);
    return 0;
}

/* Room for eager bytes that are ahead. */
static void *keep_early(struct tcp *tcp, struct op *op, uint32_t host, const struct link_bulk *head)
{
    struct early *early = &op->early[host];
    if (head->channel != CHANNEL_EAGER || head->offset != 0 || head->length > tcp->config.eager_bytes ||
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
    return op->early[host].filling
               ? NULL
               : op->algorithm->place(op->state, host, head->channel, head->offset, head->length);
}

/* A frame without bytes was not asked a place for; it gets its check here. */
static int arrived_empty(struct tcp *tcp, struct op *op, uint32_t host, const struct link_bulk *head,
                         struct err *e)
{
    struct early *early = &op->early[host];
    if (head->channel != CHANNEL_EAGER || early->filling || early->whole ||
        (op->started && !op->algorithm->eager))
        return err_set(e, ERR_PROTOCOL, "host %u sent an empty frame for operation %llu", host,
                       (unsigned long long)op->sequence);
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
    if (!op || (head->length == 0 && arrived_empty(tcp, op, host, head, e) < 0))
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
        op->algorithm->arrived(op->state, host, head->channel, head->offset, head->length);
    }
    settle(op);
    return 0;
}
