#include "common/protocol/frame.h"

void frame_encode_header(const struct frame *f, uint8_t out[FRAME_HEADER_SIZE])
{
    put_u32(out, f->length);
    out[4] = (uint8_t)f->kind;
    out[5] = f->flags;
    out[6] = (uint8_t)f->stream;
    out[7] = 0;
    put_u32(out + 8, f->session);
    put_u32(out + 12, f->sequence);
    put_u32(out + 16, f->rank);
}

int frame_decode(const struct buf *b, struct frame *f, struct err *e)
{
    if (b->len < FRAME_HEADER_SIZE)
        return 0;
    const uint8_t *p = buf_data(b);
    uint32_t length = get_u32(p);
    if (p[4] != FRAME_CONTROL && p[4] != FRAME_DATA)
        return err_set(e, ERR_PROTOCOL, "a frame of unknown kind %u", p[4]);
    if (length > (p[4] == FRAME_DATA ? FRAME_DATA_MAX : FRAME_PAYLOAD_MAX))
        return err_set(e, ERR_PROTOCOL, "a frame of %u bytes is over the limit", length);
    if (p[6] > STREAM_FILE)
        return err_set(e, ERR_PROTOCOL, "a frame of unknown stream %u", p[6]);
    if (b->len - FRAME_HEADER_SIZE < length)
        return 0;
    f->length = length;
    f->kind = p[4];
    f->flags = p[5];
    f->stream = p[6];
    f->session = get_u32(p + 8);
    f->sequence = get_u32(p + 12);
    f->rank = get_u32(p + 16);
    f->payload = p + FRAME_HEADER_SIZE;
    return 1;
}
