/* Operations over the engine's links: which are in flight, what came for them before they began here, and the
 * frames between them and the links.
 *
 * The story. start picks an algorithm by kind and size (from what all participants know, so they pick alike)
 * and runs it; bulk frames and grants reach it by the operation's name (set and number). A host may be ahead:
 * what comes for an operation that has not begun here is kept: a grant is a number, eager data a buffer of at
 * most BACKEND_EAGER_MAX. One host can be ahead by at most BACKEND_IN_FLIGHT_MAX operations of a set that
 * concern us (none of them can end without us), so more is a fault, and memory is bounded. For an operation
 * that has ended, nothing may come, and nothing of a host that takes no part.
 *
 * An operation ends when its algorithm says so, which includes that the kernel has taken all its sends. On
 * failure the owner has shut the links down before (links.h): nobody sends or writes; `fail` ends them all.
 *
 * GRANT (control frame, little endian): type 1 (BACKEND_CONTROL_TYPE), pad 7, operation 8 (the set in the
 * upper 24 bits, its number in it below), limit 8. */
#include "collectives/backends/tcp.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/pairwise.h"
#include "collectives/algorithms/segments.h"
#include "collectives/backends/tcp_operation.h"
#include "collectives/kernels/dtype.h"

#define ELEMENTS_MAX (SIZE_MAX / 16)

/* ---- the check of a request ---------------------------------------------------------------------------- */

/* The kinds that have these arrays; the arrays of other kinds are not read. */
static bool has_parts(enum backend_kind kind)
{
    return kind == BACKEND_ALLGATHER || kind == BACKEND_REDUCESCATTER || kind == BACKEND_ALLTOALL;
}

static bool is_reduction(enum backend_kind kind)
{
    return kind == BACKEND_ALLREDUCE || kind == BACKEND_REDUCESCATTER;
}

static int check_participants(const struct tcp *tcp, const struct backend_request *r, struct err *e)
{
    bool self = !r->host, root = !r->host && r->root < tcp->config.hosts;
    for (uint32_t i = 0; r->host && i < r->hosts; i++) {
        if (r->host[i] >= tcp->config.hosts || (i > 0 && r->host[i] <= r->host[i - 1]))
            return err_set(e, ERR_PROTOCOL, "an operation of host %u, in place %u, of %u hosts", r->host[i],
                           i, tcp->config.hosts);
        self = self || r->host[i] == tcp->config.self;
        root = root || r->host[i] == r->root;
    }
    if (!self)
        return err_set(e, ERR_PROTOCOL, "an operation without this host");
    if (r->kind == BACKEND_BROADCAST && !root)
        return err_set(e, ERR_PROTOCOL, "a broadcast from host %u, which takes no part", r->root);
    return 0;
}

static bool parts_fit(const uint64_t *part, uint32_t hosts)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < hosts; i++) {
        if (part[i] > ELEMENTS_MAX - total)
            return false;
        total += part[i];
    }
    return true;
}

static int check_elements(const struct tcp *tcp, const struct backend_request *r, struct err *e)
{
    uint32_t hosts = r->host ? r->hosts : tcp->config.hosts;
    bool fits = r->kind == BACKEND_BARRIER || dtype_size(r->dtype) > 0;
    if (r->kind == BACKEND_ALLREDUCE || r->kind == BACKEND_BROADCAST)
        fits = fits && r->count <= ELEMENTS_MAX;
    if (has_parts(r->kind))
        fits = fits && r->part && parts_fit(r->part, hosts);
    if (r->kind == BACKEND_ALLTOALL)
        fits = fits && r->part_in && parts_fit(r->part_in, hosts);
    if (r->rounded)
        fits = fits && is_reduction(r->kind) && r->dtype == HVD_FLOAT32 &&
               (r->rounded == HVD_FLOAT16 || r->rounded == HVD_BFLOAT16);
    if (!fits)
        return err_set(e, ERR_PROTOCOL, "operation %llu has impossible elements",
                       (unsigned long long)r->sequence);
    return 0;
}

static int check_request(const struct tcp *tcp, const struct backend_request *r, struct err *e)
{
    const struct tcp_set *set = operation_set_find(tcp, r->set);
    if (tcp->failed)
        return err_set(e, tcp->why.code, "%s", tcp->why.text);
    if (r->kind < BACKEND_ALLREDUCE || r->kind > BACKEND_ALLTOALL)
        return err_set(e, ERR_PROTOCOL, "an operation of the unknown kind %d", (int)r->kind);
    if (r->eager_bytes > BACKEND_EAGER_MAX || r->piece_bytes > BACKEND_PIECE_MAX || r->piece_bytes % 64 ||
        (r->piece_bytes & (r->piece_bytes - 1)))
        return err_set(e, ERR_PROTOCOL, "operation %llu in impossible pieces",
                       (unsigned long long)r->sequence);
    if (r->set > BACKEND_SET_MAX || r->sequence > BACKEND_SEQUENCE_MAX || r->sequence == 0 ||
        (set && (r->sequence <= set->started || set->in_flight >= BACKEND_IN_FLIGHT_MAX)))
        return err_set(e, ERR_PROTOCOL, "operation %llu may not start now", (unsigned long long)r->sequence);
    return check_participants(tcp, r, e) < 0 || check_elements(tcp, r, e) < 0 ? -1 : 0;
}

/* ---- start --------------------------------------------------------------------------------------------- */

/* 60 KiB in place of each 64 KiB, if pieces are to fit packets. */
static uint32_t largest_piece(const struct backend_request *r)
{
    uint32_t most = r->piece_bytes ? r->piece_bytes : SEGMENT_PIECE_DEFAULT;
    return r->fit_packets && most >= SEGMENT_PACKET_MAX ? most / SEGMENT_PACKET_MAX * SEGMENT_PACKET : most;
}

static int set_participants(struct op *op, const struct backend_request *r, struct err *e)
{
    const struct backend_tcp_config *config = &op->tcp->config;
    uint32_t hosts = r->host ? r->hosts : config->hosts;
    op->host = calloc(hosts, sizeof *op->host);
    if (!op->host)
        return err_set(e, ERR_MEMORY, "no memory for an operation");
    for (uint32_t i = 0; i < config->hosts; i++)
        op->early[i].peer = NO_PEER;
    for (uint32_t i = 0; i < hosts; i++) {
        op->host[i] = r->host ? r->host[i] : i;
        op->early[op->host[i]].peer = i;
    }
    op->x.hosts = hosts;
    op->x.self = op->early[config->self].peer;
    op->x.eager_bytes = r->eager_bytes ? r->eager_bytes : config->eager_bytes;
    op->x.piece_bytes = largest_piece(r);
    if (!r->packed)
        op->x.packed = NULL;
    return 0;
}

static const struct algorithm *pick_algorithm(const struct collective *c, enum backend_kind kind)
{
    uint64_t largest = 0, total = 0, limit = c->x->eager_bytes;
    switch (kind) {
    case BACKEND_BROADCAST:
        return &broadcast;
    case BACKEND_ALLGATHER:
        return &allgather;
    case BACKEND_ALLTOALL:
        return &alltoall;
    case BACKEND_REDUCESCATTER:
        for (uint32_t i = 0; i < c->x->hosts; i++) {
            largest = c->part[i] > largest ? c->part[i] : largest;
            total += c->part[i];
        }
        return eager_fits(largest * c->element_size, total * c->element_size, limit) ? &reducescatter_eager
                                                                                     : &reducescatter_direct;
    default:
        largest = c->count * c->element_size;
        return largest <= BACKEND_EAGER_MAX && eager_allreduce_fits(largest, c->x) ? &allreduce_eager
                                                                                   : &allreduce_direct;
    }
}

static int begin_operation(struct op *op, struct err *e)
{
    const struct backend_request *r = &op->request;
    bool barrier = r->kind == BACKEND_BARRIER;
    if (set_participants(op, r, e) < 0)
        return -1;
    struct collective c = {.x = &op->x,
                           .data = r->data,
                           .out = r->out,
                           .count = barrier ? 0 : r->count,
                           .part = r->part,
                           .part_in = r->part_in,
                           .element_size = barrier ? 1 : dtype_size(r->dtype),
                           .dtype = r->dtype,
                           .rounded = r->rounded,
                           .op = r->op,
                           .divisor = r->op == HVD_AVERAGE ? r->divisor : 0,
                           .postscale = r->postscale,
                           .root = r->kind == BACKEND_BROADCAST ? op->early[r->root].peer : 0};
    op->algorithm = pick_algorithm(&c, r->kind);
    op->state = op->algorithm->start(&c, e);
    return op->state ? receive_early(op, e) : -1;
}

static int tcp_start(struct backend *backend, const struct backend_request *request, struct err *e)
{
    struct tcp *tcp = (struct tcp *)backend;
    uint64_t id = operation_id(request->set, request->sequence);
    if (check_request(tcp, request, e) < 0 || exchange_reserve(tcp, e) < 0)
        return -1;
    struct tcp_set *set = operation_set_make(tcp, request->set, e);
    if (!set)
        return -1;
    struct op *op = operation_find(tcp, id);
    if (!op)
        op = operation_new(tcp, id);
    if (!op)
        return err_set(e, ERR_MEMORY, "no memory for an operation");
    op->request = *request;
    op->started = true;
    set->started = request->sequence;
    set->in_flight++;
    tcp->in_flight++;
    if (begin_operation(op, e) < 0) {
        operation_abandon(op);
        return -1;
    }
    operation_settle(op);
    return 0;
}

static void tcp_more(struct backend *backend, uint32_t set, uint64_t sequence)
{
    struct op *op = operation_find((struct tcp *)backend, operation_id(set, sequence));
    if (!op || !op->started || !op->algorithm->more)
        return;
    op->algorithm->more(op->state);
    operation_settle(op);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

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
        operation_abandon(op);
        if (started)
            request.done(request.ctx, error);
    }
    for (struct op *op; (op = tcp->parked);) {
        tcp->parked = op->next;
        operation_free(op);
    }
}

static void tcp_forget_set(struct backend *backend, uint32_t set)
{
    operation_set_forget((struct tcp *)backend, set);
}

static void tcp_free(struct backend *backend)
{
    struct tcp *tcp = (struct tcp *)backend;
    struct err closed = {.code = ERR_CLOSED, .text = "the backend was closed"};
    tcp_fail(backend, &closed);
    for (struct node *n; (n = tcp->nodes);) {
        tcp->nodes = n->next;
        free(n);
    }
    for (uint32_t i = 0; i < TCP_SET_BUCKETS; i++)
        for (struct tcp_set *s; (s = tcp->set[i]);) {
            tcp->set[i] = s->next;
            free(s);
        }
    scratch_free(&tcp->scratch);
    free(tcp);
}

static const struct backend_ops tcp_ops = {.name = "tcp",
                                           .start = tcp_start,
                                           .more = tcp_more,
                                           .forget_set = tcp_forget_set,
                                           .fail = tcp_fail,
                                           .free = tcp_free};

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
    if (tcp->config.eager_bytes > BACKEND_EAGER_MAX)
        tcp->config.eager_bytes = BACKEND_EAGER_MAX;
    return &tcp->base;
}
