#include "agent/daemon/protocol/wire.h"

#include <string.h>

#include "common/protocol/message.h"

ptrdiff_t daemon_pack(const Hvd__Daemon *message, uint8_t *out, size_t size, struct err *e)
{
    size_t length = hvd__daemon__get_packed_size(message);
    if (length + FRAME_HEADER_SIZE > size)
        return err_set(e, ERR_PROTOCOL, "a message of %zu bytes for the managed agent is too long", length);
    struct frame f = {.length = (uint32_t)length, .kind = FRAME_CONTROL};
    frame_encode_header(&f, out);
    hvd__daemon__pack(message, out + FRAME_HEADER_SIZE);
    return (ptrdiff_t)(FRAME_HEADER_SIZE + length);
}

ptrdiff_t daemon_frame_length(const uint8_t header[FRAME_HEADER_SIZE], size_t most, struct err *e)
{
    static const uint8_t rest[FRAME_HEADER_SIZE - 5];
    uint32_t length = get_u32(header);
    if (header[4] != FRAME_CONTROL || memcmp(header + 5, rest, sizeof rest) != 0)
        return err_set(e, ERR_PROTOCOL, "what came is no message of ours");
    if (length > most)
        return err_set(e, ERR_PROTOCOL, "a message of %u bytes is over the limit", length);
    return (ptrdiff_t)(FRAME_HEADER_SIZE + length);
}

Hvd__Daemon *daemon_unpack(const uint8_t *frame, size_t len, struct err *e)
{
    return message_unpack_daemon(frame + FRAME_HEADER_SIZE, len - FRAME_HEADER_SIZE, e);
}

Hvd__Daemon *daemon_unpack_answer(const uint8_t *bytes, size_t have, size_t *len, struct err *e)
{
    ptrdiff_t whole = have < FRAME_HEADER_SIZE ? -1 : daemon_frame_length(bytes, DAEMON_ANSWER_MAX, e);
    *len = whole > 0 ? (size_t)whole : 0;
    return whole > 0 && *len <= have ? daemon_unpack(bytes, *len, e) : NULL;
}
