/* Any bytes into both ends of a control channel: noise, magic, frames, control messages. */
#include <stdlib.h>
#include <string.h>

#include "common/protocol/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void on_control(void *ctx, const Hvd__Control *m)
{
    /* Touch it, so that a wrong pointer is seen. */
    size_t *sum = ctx;
    *sum += protobuf_c_message_get_packed_size(&m->base);
}

static void on_data(void *ctx, const struct frame *f)
{
    size_t *sum = ctx;
    for (uint32_t i = 0; i < f->length; i++)
        *sum += f->payload[i];
}

/* The sequence numbers and the id of the session are made right, or hardly a second frame would ever be
 * looked at. */
static void repair(uint8_t *bytes, size_t len)
{
    uint32_t sequence = 0;
    for (size_t at = 0; len - at >= FRAME_HEADER_SIZE;) {
        uint32_t length = get_u32(bytes + at) & 0xffff;
        put_u32(bytes + at, length);
        put_u32(bytes + at + 8, 7);
        put_u32(bytes + at + 12, sequence++);
        if (len - at - FRAME_HEADER_SIZE < length)
            return;
        at += FRAME_HEADER_SIZE + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct channel_events events = {on_control, on_data, on_control};
    struct channel channel;
    size_t sum = 0;
    if (len < 2)
        return 0;
    uint8_t mode = bytes[0];
    size_t piece = bytes[1] ? bytes[1] : len;
    uint8_t *copy = malloc(len - 2 ? len - 2 : 1);
    if (!copy)
        return 0;
    memcpy(copy, bytes + 2, len - 2);
    len -= 2;
    if (mode & 2)
        repair(copy, len);
    channel_init(&channel, &events, &sum, mode & 1, 1 << 16);
    channel_set_session(&channel, 7);
    for (size_t at = 0; at < len; at += piece) {
        struct err e = ERR_INIT;
        if (channel_receive(&channel, copy + at, len - at < piece ? len - at : piece, &e) < 0)
            break;
    }
    channel_free(&channel);
    free(copy);
    return 0;
}
