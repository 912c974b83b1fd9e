#include "collectives/engine/agree/report.h"

#include "common/base/buf.h"
#include "common/base/ranks.h"

bool report_contributes(const struct report_context *c, const struct tensor_op *op, uint32_t host)
{
    const struct readiness_host *h = &c->host[host];
    if (op->kind == SHM_ALLREDUCE)
        return true;
    return h->rank ? ranks_find(h->rank, h->ranks, op->root) != UINT32_MAX
                   : op->root - h->first_rank < h->ranks;
}

bool report_may_be_direct(const struct report_context *c, const struct tensor_op *op)
{
    return c->tree.hosts == 2 &&
           (op->kind == SHM_BARRIER || contribution_bytes(op, &c->shape, c->data_bytes) > 0);
}

/* How many hosts of a child's subtree add elements. */
static uint32_t count_contributors(const struct report_context *c, const struct tensor_op *op, uint32_t child)
{
    if (op->kind == SHM_ALLREDUCE)
        return c->tree.below[child - c->tree.first_child];
    for (uint32_t h = child; h < c->tree.hosts; h++)
        if (report_contributes(c, op, h))
            return host_tree_is_below(h, child);
    return 0;
}

static void write_parts(const struct report_context *c, struct writer *w, const struct tensor_op *op,
                        const uint8_t *parts)
{
    size_t bytes = contribution_bytes(op, &c->shape, c->data_bytes);
    uint8_t *count = w->at;
    uint32_t n = 0;
    write_u32(w, 0);
    for (uint32_t h = c->tree.self; h < c->tree.hosts; h++) {
        if (!report_contributes(c, op, h) || !host_tree_is_below(h, c->tree.self))
            continue;
        write_u32(w, h);
        write_bytes(w, parts + contribution_offset(op, h, bytes), bytes);
        n++;
    }
    put_u32(count, n);
}

void readiness_report_write(const struct report_context *c, struct writer *w, const struct tensor_desc *desc,
                            const char *error, uint32_t witness, const uint8_t *parts)
{
    if (tensor_wire_put(w, c->cache, desc, error, parts ? TENSOR_HAS_DATA : 0))
        write_u32(w, witness);
    if (parts)
        write_parts(c, w, &desc->what, parts);
}

void report_write_direct(const struct report_context *c, struct writer *w, const struct report *said)
{
    tensor_wire_put(w, c->cache, &said->desc, NULL, TENSOR_DIRECT | (said->parts ? TENSOR_HAS_DATA : 0));
    if (said->parts) {
        write_u32(w, said->parts);
        write_bytes(w, said->first, said->parts * (4 + said->bytes));
    }
}

/* Exactly the hosts that have something to add, in their order: then nothing is missing in the end. */
static int read_parts(const struct report_context *c, struct reader *in, uint32_t from, struct report *said,
                      uint32_t expected, struct err *e)
{
    uint32_t last = 0;
    said->parts = read_u32(in);
    if (in->bad || expected == 0 || said->parts != expected)
        return err_set(e, ERR_PROTOCOL, "tensor '%s' with elements that it does not have", said->desc.name);
    said->first = read_bytes(in, said->parts * (4 + said->bytes));
    for (uint32_t i = 0; said->first && i < said->parts; i++) {
        uint32_t host = get_u32(said->first + i * (4 + said->bytes));
        if (host >= c->tree.hosts || (i > 0 && host <= last) || !host_tree_is_below(host, from) ||
            (said->direct && host != from) || !report_contributes(c, &said->desc.what, host))
            return err_set(e, ERR_PROTOCOL, "tensor '%s' with elements of host %u", said->desc.name, host);
        last = host;
    }
    return said->first ? 0 : err_set(e, ERR_PROTOCOL, "a malformed message about tensors");
}

int report_read(const struct report_context *c, struct reader *in, uint32_t from, struct report *said,
                struct err *e)
{
    said->parts = 0;
    uint32_t flags;
    bool in_full;
    if (tensor_wire_get(in, c->cache, &said->desc, said->error, &flags, &in_full, e) < 0)
        return -1;
    said->witness = in_full ? read_u32(in) : from;
    said->bytes = contribution_bytes(&said->desc.what, &c->shape, c->data_bytes);
    if (in->bad || said->witness >= c->tree.hosts || (flags & TENSOR_JOINED))
        return err_set(e, ERR_PROTOCOL, "a report of host %u of %u", said->witness, c->tree.hosts);
    said->direct = (flags & TENSOR_DIRECT) != 0;
    if (said->direct && (in_full || !report_may_be_direct(c, &said->desc.what)))
        return err_set(e, ERR_PROTOCOL, "tensor '%s' cannot be reported directly", said->desc.name);
    if (!said->direct && !host_tree_is_child(&c->tree, from))
        return err_set(e, ERR_PROTOCOL, "host %u is no child of host %u", from, c->tree.self);
    uint32_t expected;
    if (said->direct)
        expected = said->bytes > 0 && report_contributes(c, &said->desc.what, from);
    else
        expected = said->bytes > 0 && !said->error[0] ? count_contributors(c, &said->desc.what, from) : 0;
    if (flags & TENSOR_HAS_DATA)
        return read_parts(c, in, from, said, expected, e);
    return expected == 0 ? 0
                         : err_set(e, ERR_PROTOCOL, "tensor '%s' came without its elements", said->desc.name);
}
