#include "collectives/engine/agree/tensor_wire.h"

#include <string.h>

#include "collectives/kernels/dtype.h"

int tensor_desc_check(const struct tensor_desc *d, struct err *e)
{
    size_t n = strnlen(d->name, sizeof d->name);
    if (n == 0 || n > TENSOR_NAME_MAX)
        return err_set(e, ERR_PROTOCOL, "a tensor's name has 1 to %d bytes", TENSOR_NAME_MAX);
    char wrong[128];
    if (op_wrong(&d->what, 0, wrong, sizeof wrong))
        return err_set(e, ERR_PROTOCOL, "tensor '%s': %s", d->name, wrong);
    return 0;
}

uint64_t tensor_data_bytes(const struct tensor_op *op)
{
    return op_moves(op->kind) && !op->device ? op->count * dtype_size(op->dtype)
                                             : 0; /* checked: it does not overflow */
}

static void write_double(struct writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    write_u64(w, bits);
}

static double read_double(struct reader *r)
{
    uint64_t bits = read_u64(r);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Nothing is said of the memory of who has no elements. */
static bool has_mark(const struct tensor_op *op)
{
    return op->device && op->device != OP_EITHER;
}

void tensor_wire_write(struct writer *w, const struct tensor_desc *d, const char *error)
{
    size_t name = strnlen(d->name, TENSOR_NAME_MAX), text = error ? strnlen(error, TENSOR_ERROR_MAX) : 0;
    const struct tensor_op *op = &d->what;
    write_u64(w, op->count);
    write_u64(w, op->row);
    write_double(w, op->prescale);
    write_double(w, op->postscale);
    write_u32(w, op->root);
    write_u32(w, (uint32_t)op->set);
    write_u32(w, op->group);
    write_u8(w, op->kind);
    write_u8(w, op->dtype);
    write_u8(w, op->op);
    write_u8(w, (uint8_t)(op->compression | op->device << 4));
    if (has_mark(op))
        write_u64(w, d->known);
    write_u16(w, (uint16_t)name);
    write_u16(w, (uint16_t)text);
    write_bytes(w, d->name, name);
    write_bytes(w, error, text);
}

/* A string of `size` bytes without a NUL inside. */
static bool read_text(struct reader *r, char *out, size_t size, size_t max)
{
    const uint8_t *p = size <= max ? read_bytes(r, size) : NULL;
    if (!p || memchr(p, '\0', size))
        return false;
    memcpy(out, p, size);
    out[size] = '\0';
    return true;
}

int tensor_wire_read(struct reader *r, struct tensor_desc *d, char *error, struct err *e)
{
    memset(d, 0, sizeof *d);
    struct tensor_op *op = &d->what;
    op->count = read_u64(r);
    op->row = read_u64(r);
    op->prescale = read_double(r);
    op->postscale = read_double(r);
    op->root = read_u32(r);
    op->set = (int32_t)read_u32(r);
    op->group = read_u32(r);
    op->kind = read_u8(r);
    op->dtype = read_u8(r);
    op->op = read_u8(r);
    uint8_t last = read_u8(r);
    op->compression = last & 15;
    op->device = last >> 4;
    if (has_mark(op))
        d->known = read_u64(r);
    size_t name = read_u16(r), text = read_u16(r);
    if (r->bad || !read_text(r, d->name, name, TENSOR_NAME_MAX) ||
        !read_text(r, error, text, TENSOR_ERROR_MAX))
        return err_set(e, ERR_PROTOCOL, "a malformed message about tensors");
    return tensor_desc_check(d, e);
}

bool tensor_wire_put(struct writer *w, const struct tensor_cache *cache, const struct tensor_desc *d,
                     const char *error, uint32_t flags)
{
    bool wrong = error && *error;
    uint32_t number = wrong ? TENSOR_CACHE_NONE : tensor_cache_find(cache, d);
    if (number != TENSOR_CACHE_NONE) {
        write_u32(w, number | flags);
        return false;
    }
    write_u32(w, TENSOR_IN_FULL | flags);
    tensor_wire_write(w, d, error);
    return true;
}

int tensor_wire_get(struct reader *r, const struct tensor_cache *cache, struct tensor_desc *d, char *error,
                    uint32_t *flags, bool *in_full, struct err *e)
{
    uint32_t head = read_u32(r), number = head & TENSOR_NUMBER;
    *flags = head & TENSOR_FLAGS;
    *in_full = number == TENSOR_IN_FULL;
    if (r->bad || (head & ~(TENSOR_NUMBER | TENSOR_FLAGS)))
        return err_set(e, ERR_PROTOCOL, "a malformed message about tensors");
    if (*in_full)
        return tensor_wire_read(r, d, error, e);
    const struct tensor_desc *known = tensor_cache_get(cache, number);
    if (!known)
        return err_set(e, ERR_PROTOCOL, "a message about tensor number %u, which there is not", number);
    *d = *known;
    *error = '\0';
    return 0;
}

void tensor_message_header(uint8_t *message, uint8_t type, uint16_t count, uint32_t epoch)
{
    struct writer w = writer_of(message, TENSOR_MESSAGE_HEADER);
    write_u8(&w, type);
    write_u8(&w, 0);
    write_u16(&w, count);
    write_u32(&w, epoch);
}
