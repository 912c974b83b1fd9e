#include "common/protocol/channel.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/secret.h"

#define SESSION_UNKNOWN UINT32_MAX

void channel_init(struct channel *c, const struct channel_events *events, void *ctx, bool expects_magic,
                  size_t bulk_max)
{
    memset(c, 0, sizeof *c);
    c->events = events;
    c->ctx = ctx;
    c->session = SESSION_UNKNOWN;
    c->expects_magic = expects_magic;
    buf_init(&c->noise, FRAME_NOISE_MAX + FRAME_MAGIC_SIZE);
    buf_init(&c->in, FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX + (256u << 10));
    buf_init(&c->control, CHANNEL_CONTROL_MAX);
    buf_init(&c->bulk, bulk_max);
    buf_init(&c->wire, CHANNEL_WIRE_MAX + FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX);
    c->sends_magic = !expects_magic;
    buf_secret(&c->in, !expects_magic); /* a session hears Hello first */
}

void channel_free(struct channel *c)
{
    buf_free(&c->noise);
    buf_free(&c->in);
    buf_free(&c->control);
    buf_free(&c->bulk);
    buf_free(&c->wire);
}

void channel_set_session(struct channel *c, uint32_t session)
{
    c->session = session;
}

bool channel_is_open(const struct channel *c)
{
    return !c->expects_magic;
}

size_t channel_bulk_waiting(const struct channel *c)
{
    return c->bulk.len;
}

size_t channel_control_waiting(const struct channel *c)
{
    return c->control.len;
}

bool channel_is_drained(const struct channel *c)
{
    return c->control.len == 0 && c->bulk.len == 0 && c->wire.len == 0;
}

static int enqueue_frame(struct channel *c, struct buf *queue, struct frame *f, const uint8_t *payload,
                         const ProtobufCMessage *message)
{
    struct err ignored = ERR_INIT;
    if (message)
        f->length = (uint32_t)protobuf_c_message_get_packed_size(message);
    if (f->length > FRAME_PAYLOAD_MAX || buf_room(queue) < FRAME_HEADER_SIZE + (size_t)f->length)
        return -1;
    uint8_t header[FRAME_HEADER_SIZE];
    f->session = c->session == SESSION_UNKNOWN ? 0 : c->session;
    frame_encode_header(f, header);
    if (!buf_reserve(queue, FRAME_HEADER_SIZE + f->length) || buf_put(queue, header, sizeof header) < 0)
        return -1;
    return message ? (message_pack(message, queue, &ignored) < 0 ? -1 : 0)
                   : buf_put(queue, payload, f->length);
}

int channel_send(struct channel *c, const Hvd__Control *message)
{
    struct frame f = {.kind = FRAME_CONTROL};
    if (message->body_case == HVD__CONTROL__BODY_HELLO) {
        buf_secret(&c->control, true);
        buf_secret(&c->wire, true);
    }
    int rc = enqueue_frame(c, &c->control, &f, NULL, &message->base);
    if (c->control.secret)
        secret_wipe_stack();
    return rc;
}

int channel_send_data(struct channel *c, uint32_t rank, enum frame_stream stream, uint8_t flags,
                      const void *bytes, size_t len)
{
    if (len > FRAME_DATA_MAX)
        return -1;
    struct frame f = {
        .kind = FRAME_DATA, .flags = flags, .stream = stream, .rank = rank, .length = (uint32_t)len};
    return enqueue_frame(c, &c->bulk, &f, bytes, NULL);
}

/* Moves one frame to the wire; here it gets its place in the sequence, because only here its order is
 * decided. */
static bool move_frame(struct channel *c, struct buf *queue)
{
    if (queue->len == 0)
        return false;
    uint8_t *front = queue->memory + queue->head;
    size_t size = FRAME_HEADER_SIZE + (size_t)get_u32(front);
    put_u32(front + 12, c->next_out);
    if (buf_put(&c->wire, front, size) < 0) {
        c->starved = c->wire.len == 0; /* else it is tried again when that was written */
        return false;
    }
    c->next_out++;
    buf_consume(queue, size);
    return true;
}

size_t channel_output(struct channel *c, const uint8_t **bytes)
{
    if (c->sends_magic && buf_put(&c->wire, FRAME_MAGIC, FRAME_MAGIC_SIZE) < 0) {
        c->starved = true;
        return 0;
    }
    c->sends_magic = false;
    while (c->wire.len < CHANNEL_WIRE_MAX && move_frame(c, &c->control))
        ;
    while (c->wire.len < CHANNEL_WIRE_MAX && c->control.len == 0 && move_frame(c, &c->bulk))
        ;
    *bytes = buf_data(&c->wire);
    return c->wire.len;
}

bool channel_is_starved(const struct channel *c)
{
    return c->starved;
}

void channel_written(struct channel *c, size_t len)
{
    buf_consume(&c->wire, len);
    if (c->wire.secret && c->wire.len == 0 && c->control.len == 0) {
        buf_secret(&c->control, false);
        buf_secret(&c->wire, false);
    }
}

int channel_pack_attach(const Hvd__Control *message, struct buf *b)
{
    struct err ignored = ERR_INIT;
    size_t length = protobuf_c_message_get_packed_size(&message->base);
    struct frame f = {.kind = FRAME_CONTROL, .length = (uint32_t)length};
    if (length > FRAME_ATTACH_MAX || buf_room(b) < FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + length)
        return -1;
    uint8_t header[FRAME_HEADER_SIZE];
    frame_encode_header(&f, header);
    if (!buf_reserve(b, FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + length) ||
        buf_put(b, FRAME_ATTACH_MAGIC, FRAME_MAGIC_SIZE) < 0 || buf_put(b, header, sizeof header) < 0)
        return -1;
    return message_pack(&message->base, b, &ignored) < 0 ? -1 : 0;
}

static const uint8_t *find_magic(const struct buf *b, const char *magic)
{
    return memmem(buf_data(b), b->len, magic, FRAME_MAGIC_SIZE);
}

/* The message of attach that is the first thing in `noise`, behind its magic: 1 when it was handled and
 * dropped, 0 when more of it is to come, -1 with *e when it is none. */
static int take_attach_frame(struct channel *c, struct err *e)
{
    struct buf rest = c->noise;
    rest.head += FRAME_MAGIC_SIZE;
    rest.len -= FRAME_MAGIC_SIZE;
    bool has_length = rest.len >= sizeof(uint32_t);
    if (has_length && get_u32(buf_data(&rest)) > FRAME_ATTACH_MAX)
        return err_set(e, ERR_PROTOCOL, "a frame of hvdagent attach with %u bytes is over the limit",
                       get_u32(buf_data(&rest)));
    struct frame f;
    int rc = frame_decode(&rest, &f, e);
    if (rc <= 0)
        return rc;
    if (f.kind != FRAME_CONTROL)
        return err_set(e, ERR_PROTOCOL, "a frame of hvdagent attach of kind %u", f.kind);
    Hvd__Control *message = message_unpack_control(f.payload, f.length, e);
    if (!message)
        return -1;
    if (c->events->attach)
        c->events->attach(c->ctx, message);
    message_free(message);
    buf_consume(&c->noise, FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + f.length);
    return 1;
}

static void drop_noise(struct channel *c, const uint8_t *until)
{
    size_t noise = (size_t)(until - buf_data(&c->noise));
    if (noise > 0)
        log_debug("skipped %zu bytes that the remote shell printed", noise);
    buf_consume(&c->noise, noise);
}

/* Keeps what comes before the session's magic as noise, and handles the messages of attach in it. Returns how
 * many of `bytes` were taken; -1 with *e when there is too much noise, or a wrong message. */
static ptrdiff_t take_noise(struct channel *c, const uint8_t *bytes, size_t len, struct err *e)
{
    size_t take = len < buf_room(&c->noise) ? len : buf_room(&c->noise);
    int handled = 1;
    if (buf_put(&c->noise, bytes, take) < 0)
        return err_set(e, ERR_MEMORY, "no memory for what the host printed");
    while (handled > 0) {
        const uint8_t *session = find_magic(&c->noise, FRAME_MAGIC);
        const uint8_t *attach = find_magic(&c->noise, FRAME_ATTACH_MAGIC);
        if (session && (!attach || session < attach)) {
            drop_noise(c, session);
            size_t left = c->noise.len - FRAME_MAGIC_SIZE;
            c->expects_magic = false;
            buf_free(&c->noise);
            return (ptrdiff_t)(take - left);
        }
        if (!attach)
            break;
        drop_noise(c, attach);
        handled = take_attach_frame(c, e);
    }
    if (handled < 0)
        return -1;
    if (buf_room(&c->noise) == 0)
        return err_set(e, ERR_PROTOCOL, "the host printed %u bytes and no session began", FRAME_NOISE_MAX);
    return (ptrdiff_t)take;
}

static int handle_frame(struct channel *c, const struct frame *f, struct err *e)
{
    if (c->session == SESSION_UNKNOWN)
        c->session = f->session;
    if (f->session != c->session)
        return err_set(e, ERR_PROTOCOL, "a frame of session %u on the channel of session %u", f->session,
                       c->session);
    if (f->sequence != c->next_in)
        return err_set(e, ERR_PROTOCOL, "frame %u came where %u was due", f->sequence, c->next_in);
    c->next_in++;
    if (f->kind == FRAME_DATA) {
        c->events->data(c->ctx, f);
        return 0;
    }
    Hvd__Control *message = message_unpack_control(f->payload, f->length, e);
    if (!message)
        return -1;
    c->events->control(c->ctx, message);
    bool secret = message->body_case == HVD__CONTROL__BODY_HELLO;
    message_free(message);
    if (secret)
        secret_wipe_stack();
    buf_secret(&c->in, false);
    return 0;
}

static int handle_frames(struct channel *c, struct err *e)
{
    struct frame f;
    int got = frame_decode(&c->in, &f, e);
    while (got > 0) {
        if (handle_frame(c, &f, e) < 0)
            return -1;
        buf_consume(&c->in, FRAME_HEADER_SIZE + f.length);
        got = frame_decode(&c->in, &f, e);
    }
    return got;
}

/* Returns how many of `bytes` were taken; -1 with *e. There is never more in the buffer than one frame needs:
 * bytes beyond its ceiling wait in the caller's hand. */
static ptrdiff_t take_frames(struct channel *c, const uint8_t *bytes, size_t len, struct err *e)
{
    size_t take = len < buf_room(&c->in) ? len : buf_room(&c->in);
    if (take == 0 || buf_put(&c->in, bytes, take) < 0)
        return err_set(e, ERR_MEMORY, "no memory for a frame");
    return handle_frames(c, e) < 0 ? -1 : (ptrdiff_t)take;
}

int channel_receive(struct channel *c, const uint8_t *bytes, size_t len, struct err *e)
{
    if (c->failed)
        return err_set(e, ERR_PROTOCOL, "the channel has failed before");
    while (len > 0) {
        ptrdiff_t taken = c->expects_magic ? take_noise(c, bytes, len, e) : take_frames(c, bytes, len, e);
        if (taken < 0) {
            c->failed = true;
            return -1;
        }
        bytes += taken;
        len -= (size_t)taken;
    }
    return 0;
}
