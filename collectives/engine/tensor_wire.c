#include "collectives/engine/tensor_wire.h"

#include <string.h>

#include "collectives/algorithms/dtype.h"

int tensor_desc_check(const struct tensor_desc *d, struct err *e)
{
    size_t n = strnlen(d->name, sizeof d->name);
    bool data = d->kind == TENSOR_ALLREDUCE || d->kind == TENSOR_BROADCAST;
    if (n == 0 || n > TENSOR_NAME_MAX)
        return err_set(e, ERR_PROTOCOL, "a tensor's name has 1 to %d bytes", TENSOR_NAME_MAX);
    if (!data && d->kind != TENSOR_BARRIER && d->kind != TENSOR_SHUTDOWN)
        return err_set(e, ERR_PROTOCOL, "tensor '%s' is of the unknown kind %d", d->name, (int)d->kind);
    if (data && dtype_size(d->dtype) == 0)
        return err_set(e, ERR_PROTOCOL, "tensor '%s' has the unknown element type %d", d->name,
                       (int)d->dtype);
    if (d->kind == TENSOR_ALLREDUCE && !op_valid(d->op))
        return err_set(e, ERR_PROTOCOL, "tensor '%s' has the unknown operation %d", d->name, (int)d->op);
    return 0;
}

void tensor_wire_write(struct writer *w, const struct tensor_desc *d, const char *error)
{
    size_t name = strnlen(d->name, TENSOR_NAME_MAX), text = error ? strnlen(error, TENSOR_ERROR_MAX) : 0;
    write_u64(w, d->count);
    write_u32(w, d->root);
    write_u8(w, (uint8_t)d->kind);
    write_u8(w, (uint8_t)d->dtype);
    write_u8(w, (uint8_t)d->op);
    write_u8(w, 0);
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
    d->count = read_u64(r);
    d->root = read_u32(r);
    d->kind = read_u8(r);
    d->dtype = read_u8(r);
    d->op = read_u8(r);
    uint8_t flags = read_u8(r);
    size_t name = read_u16(r), text = read_u16(r);
    if (r->bad || flags != 0 || !read_text(r, d->name, name, TENSOR_NAME_MAX) ||
        !read_text(r, error, text, TENSOR_ERROR_MAX))
        return err_set(e, ERR_PROTOCOL, "a malformed message about tensors");
    return tensor_desc_check(d, e);
}

void tensor_message_header(uint8_t *message, uint8_t type, uint16_t count, uint32_t epoch)
{
    struct writer w = writer_of(message, TENSOR_MESSAGE_HEADER);
    write_u8(&w, type);
    write_u8(&w, 0);
    write_u16(&w, count);
    write_u32(&w, epoch);
}
