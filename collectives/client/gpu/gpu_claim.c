/* Whether a call's buffers are memory of the host or of a GPU. */
#include "collectives/client/gpu/gpu_path.h"

#include "collectives/client/group.h"
#include "collectives/gpu/pointer.h"
#include "collectives/kernels/dtype.h"

/* The buffers of a call that were looked at. */
struct claim {
    bool host, device, empty; /* empty: no buffer has elements */
    struct pointer at;        /* of the first one on a GPU */
};

static int look_at_buffer(struct claim *c, const void *buffer)
{
    struct err e = ERR_INIT;
    if (!buffer)
        return HVD_SUCCESS;
    struct pointer p;
    if (pointer_find(buffer, &p, &e) != 0)
        return fail(HVD_ERR_INVALID, "%s", e.text);
    if (p.device && c->device && p.ordinal != c->at.ordinal)
        return fail(HVD_ERR_INVALID, "one buffer is memory of GPU %d, another one of GPU %d", c->at.ordinal,
                    p.ordinal);
    if (p.device && !c->device)
        c->at = p;
    c->device = c->device || p.device;
    c->host = c->host || !p.device;
    return c->device && c->host
               ? fail(HVD_ERR_INVALID, "one buffer is memory of GPU %d, another one of the host",
                      c->at.ordinal)
               : HVD_SUCCESS;
}

/* An output that is an input too: the driver is asked once, since each question takes it a while. */
static bool is_in_place(const struct group *g, size_t i)
{
    return i >= g->ins && i - g->ins < g->ins && g->piece[i].at == g->piece[i - g->ins].at;
}

/* Looks at the buffers that have elements (`full`), or at those that have none and are not NULL. */
static int look_at_buffers(struct claim *c, const struct request *r, bool full)
{
    uint64_t in = tensor_all_bytes(&r->op);
    int status = HVD_SUCCESS;
    if (r->in && (in > 0) == full)
        status = look_at_buffer(c, r->in);
    if (status == HVD_SUCCESS && r->out && r->out != r->in && (r->capacity > 0) == full)
        status = look_at_buffer(c, r->out);
    for (size_t i = 0; r->group && i < r->group->ins + r->group->outs && status == HVD_SUCCESS; i++) {
        const struct piece *p = &r->group->piece[i];
        if ((p->bytes > 0) == full && !is_in_place(r->group, i))
            status = look_at_buffer(c, p->at);
    }
    return status;
}

static int look_at_request(struct claim *c, const struct request *r)
{
    int status = HVD_SUCCESS;
    *c = (struct claim){.at = {.ordinal = -1}};
    if (op_moves(r->op.kind))
        status = look_at_buffers(c, r, true);
    c->empty = op_moves(r->op.kind) && !c->host && !c->device;
    if (status == HVD_SUCCESS && c->empty)
        status = look_at_buffers(c, r, false);
    return status;
}

/* A kernel that loads an element from such an address ends the use of its GPU for the whole process. */
static bool is_misaligned(const struct request *r, const void *buffer, uint64_t bytes)
{
    return bytes > 0 && (uintptr_t)buffer % dtype_size(r->op.dtype) != 0;
}

/* Only operations that combine elements need this check: moving needs no alignment. */
static int check_alignment(const struct request *r, int gpu)
{
    const void *misaligned = is_misaligned(r, r->in, tensor_all_bytes(&r->op)) ? r->in
                             : is_misaligned(r, r->out, r->capacity)           ? r->out
                                                                               : NULL;
    for (size_t i = 0; !misaligned && r->group && i < r->group->ins + r->group->outs; i++)
        if (is_misaligned(r, r->group->piece[i].at, r->group->piece[i].bytes))
            misaligned = r->group->piece[i].at;
    if (!misaligned)
        return HVD_SUCCESS;
    return fail(
        HVD_ERR_INVALID,
        "%p in memory of GPU %d is not aligned: an address of %s that a GPU combines is a multiple of "
        "%zu",
        misaligned, gpu, dtype_name(r->op.dtype), dtype_size(r->op.dtype));
}

int gpu_claim(struct request *r)
{
    struct claim c;
    int status = look_at_request(&c, r);
    if (status == HVD_SUCCESS && c.device && op_reduces(r->op.kind) && dtype_size(r->op.dtype) > 0)
        status = check_alignment(r, c.at.ordinal);
    r->at = c.at;
    if (status == HVD_SUCCESS)
        r->op.device = c.empty ? gpu_claim_empty(r, c.device) : c.device;
    return status;
}

int gpu_locate(const struct request *r, struct pointer *at, bool *found)
{
    struct claim c = {.device = r->at.device, .at = r->at};
    int status = c.device ? HVD_SUCCESS : look_at_request(&c, r);
    *found = status == HVD_SUCCESS && (c.device || gpu_locate_empty(r, &c.at) || r->op.device != OP_EITHER);
    *at = c.at;
    return status;
}
