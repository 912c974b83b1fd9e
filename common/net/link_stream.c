#include "common/net/link_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/crc32c.h"
#include "common/base/cursor.h"

#define SEND_PARTS 16
#define SEND_BYTES (4u << 20) /* of one sendmsg */
#define READ_SHARE (2u << 20) /* of one link in one round, before the others have their turn */
#define HEARD      1024u      /* bytes of a frame; more than all heartbeats in the time of a silence */
#define CHECKED    (LINK_FRAME_HEADER - 4) /* bytes of a header before its own check */

int link_stream_init(struct link_stream *s, int fd, uint32_t host, const struct links_events *events,
                     void *ctx, const void *first, size_t first_size, struct err *e)
{
    memset(s, 0, sizeof *s);
    s->fd = fd;
    s->host = host;
    s->events = events;
    s->ctx = ctx;
    buf_init(&s->control, LINKS_CONTROL_QUEUE_MAX);
    if (first_size > 0 && buf_put(&s->control, first, first_size) < 0)
        return err_set(e, ERR_MEMORY, "no memory for a link");
    return 0;
}

int link_stream_encrypt(struct link_stream *s, const struct tls_ops *ops,
                        const uint8_t secret[TLS_SECRET_SIZE], bool client, struct err *e)
{
    s->tls_ops = ops;
    s->tls = ops->open(s->fd, secret, client, buf_data(&s->control), s->control.len, e);
    if (!s->tls)
        return -1;
    buf_consume(&s->control, s->control.len);
    return 0;
}

void link_stream_close(struct link_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    if (s->bulk_first) {
        *(s->ended ? &s->ended_last->next : &s->ended) = s->bulk_first;
        s->ended_last = s->bulk_last;
    }
    s->bulk_first = s->bulk_last = NULL;
    s->bulk_sent = 0;
    s->place = NULL;
    s->place_left = 0;
    buf_free(&s->control);
}

/* Frames of the list. */
static uint64_t count_bulk(const struct link_send *send)
{
    uint64_t n = 0;
    for (; send; send = send->next)
        n++;
    return n;
}

static void free_rest(struct link_send *send, int status)
{
    (void)status;
    free(send);
}

/* A frame that the peer has a part of. The frame goes on from a copy. */
static struct link_send *copy_rest(const struct link_send *send, size_t sent)
{
    size_t done = sent > LINK_FRAME_HEADER ? sent - LINK_FRAME_HEADER : 0;
    struct link_send *copy = malloc(sizeof *copy + send->head.length);
    if (!copy)
        return NULL;
    *copy = *send;
    copy->next = NULL;
    copy->data = copy + 1;
    copy->done = free_rest;
    memcpy((uint8_t *)(copy + 1) + done, (const uint8_t *)send->data + done, send->head.length - done);
    return copy;
}

/* The current payload goes on to memory of the stream. */
static int divert_place(struct link_stream *s)
{
    if (!s->place || s->assembled)
        return 0;
    s->assembled = malloc(s->place_left);
    s->place = s->assembled;
    return s->assembled ? 0 : -1;
}

int link_stream_cut(struct link_stream *s)
{
    struct link_send *rest = s->bulk_sent > 0 ? copy_rest(s->bulk_first, s->bulk_sent) : NULL;
    if ((s->bulk_sent > 0 && !rest) || divert_place(s) < 0) {
        free(rest);
        return -1;
    }
    if (s->bulk_first) {
        *(s->ended ? &s->ended_last->next : &s->ended) = s->bulk_first;
        s->ended_last = s->bulk_last;
    }
    s->bulks.given -= count_bulk(s->bulk_first) - (rest != NULL);
    s->bulk_first = s->bulk_last = rest;
    return 0;
}

void link_stream_free(struct link_stream *s)
{
    if (s->tls)
        s->tls_ops->close(s->tls);
    s->tls = NULL;
    free(s->assembled);
    s->assembled = NULL;
    buf_free(&s->control);
}

void link_stream_deliver(struct link_stream *s, int status)
{
    struct link_send *send = s->ended;
    s->ended = s->ended_last = NULL;
    while (send) {
        struct link_send *next = send->next;
        send->next = NULL;
        send->done(send, status);
        send = next;
    }
}

bool link_stream_idle(const struct link_stream *s)
{
    return s->control.len == 0 && !s->bulk_first && !(s->tls && s->tls_ops->unsent(s->tls));
}

bool link_stream_full(const struct link_stream *s)
{
    return s->blocked && (!s->tls || s->tls_ops->unsent(s->tls));
}

/* ---- the wire, in the clear or not --------------------------------------------------------------------- */

/* Returns the bytes taken, and says when the wire takes no more. -1 with *e. */
static ssize_t send_parts(struct link_stream *s, struct iovec *part, int parts, size_t size, struct err *e)
{
    ssize_t n;
    if (s->tls) {
        n = s->tls_ops->send(s->tls, part, parts, e);
        s->bytes_sent += n > 0 ? (size_t)n : 0;
        s->blocked = n >= 0 && ((size_t)n < size || s->tls_ops->unsent(s->tls));
        return n;
    }
    struct msghdr message = {.msg_iov = part, .msg_iovlen = (size_t)parts};
    do
        n = sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
        return err_sys(e, errno, "cannot send");
    n = n < 0 ? 0 : n;
    s->bytes_sent += (size_t)n;
    s->blocked = (size_t)n < size;
    return n;
}

/* Returns the bytes put into the parts, 0 when there are none now; *more: there may be more at once. */
static ssize_t receive_parts(struct link_stream *s, struct iovec *part, int parts, size_t size, bool *more,
                             struct err *e)
{
    if (s->tls) {
        ssize_t n = s->tls_ops->receive(s->tls, part, parts, e);
        *more = n > 0;
        return n;
    }
    ssize_t n = readv(s->fd, part, parts);
    if (n == 0)
        return err_set(e, ERR_CLOSED, "it closed the connection");
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR
                   ? 0
                   : err_sys(e, errno, "the connection broke");
    *more = (size_t)n == size;
    return n;
}

/* The check of a payload of `size` bytes after `n` more of them. */
static uint32_t check_data(const struct link_stream *s, size_t size, uint32_t check, const void *data,
                           size_t n)
{
    return s->tls || size > LINK_CHECKED_MAX ? 0 : crc32c(check, data, n);
}

static uint32_t check_head(const uint8_t *header, uint64_t number)
{
    uint8_t bytes[8];
    struct writer w = writer_of(bytes, sizeof bytes);
    write_u64(&w, number);
    return crc32c(crc32c(0, header, CHECKED), bytes, sizeof bytes);
}

static void encode_header(uint8_t *out, enum link_frame_type type, const struct link_bulk *head,
                          uint32_t check, uint64_t number)
{
    struct writer w = writer_of(out, LINK_FRAME_HEADER);
    write_u32(&w, head->length);
    write_u8(&w, (uint8_t)type);
    write_u8(&w, 0);
    write_u16(&w, head->channel);
    write_u64(&w, head->sequence);
    write_u64(&w, head->offset);
    write_u32(&w, check);
    write_u32(&w, check_head(out, number));
}

/* ---- sending ------------------------------------------------------------------------------------------- */

struct parts {
    struct iovec iov[SEND_PARTS];
    int n;
    size_t bytes;
};

static void add_part(struct parts *p, const void *data, size_t size)
{
    if (size == 0)
        return;
    p->iov[p->n++] = (struct iovec){.iov_base = (void *)data, .iov_len = size};
    p->bytes += size;
}

/* Header and data of a bulk frame, without the first `skip` bytes. `header` must live until the send. */
static void add_bulk(const struct link_stream *s, struct parts *p, uint8_t *header, struct link_send *send,
                     size_t skip)
{
    if (!send->checked)
        send->check = check_data(s, send->head.length, 0, send->data, send->head.length);
    send->checked = true;
    encode_header(header, LINK_BULK, &send->head, send->check, send->number);
    if (skip < LINK_FRAME_HEADER)
        add_part(p, header + skip, LINK_FRAME_HEADER - skip);
    size_t done = skip > LINK_FRAME_HEADER ? skip - LINK_FRAME_HEADER : 0;
    if (send->head.length > done)
        add_part(p, (const uint8_t *)send->data + done, send->head.length - done);
}

static size_t bulk_size(const struct link_send *send)
{
    return LINK_FRAME_HEADER + send->head.length;
}

/* Counts `sent` bytes against the first bulk frame; returns what is left of them when it ends. */
static size_t account_bulk(struct link_stream *s, size_t sent)
{
    struct link_send *send = s->bulk_first;
    size_t rest = bulk_size(send) - s->bulk_sent;
    if (sent < rest) {
        s->bulk_sent += sent;
        return 0;
    }
    s->bulk_first = send->next;
    if (!s->bulk_first)
        s->bulk_last = NULL;
    s->bulk_sent = 0;
    send->next = NULL;
    *(s->ended ? &s->ended_last->next : &s->ended) = send;
    s->ended_last = send;
    return sent - rest;
}

/* The same order as in flush_once. */
static void account_bytes(struct link_stream *s, size_t sent, size_t control)
{
    if (s->bulk_sent > 0)
        sent = account_bulk(s, sent);
    size_t n = sent < control ? sent : control;
    buf_consume(&s->control, n);
    sent -= n;
    while (sent > 0)
        sent = account_bulk(s, sent);
}

/* 1: sent something and there may be more; 0: nothing to send, or the socket is full. */
static int flush_once(struct link_stream *s, struct err *e)
{
    uint8_t header[SEND_PARTS][LINK_FRAME_HEADER];
    struct parts p = {.n = 0};
    struct link_send *bulk = s->bulk_first;
    size_t control = s->control.len;
    int headers = 0;
    if (bulk && s->bulk_sent > 0) {
        add_bulk(s, &p, header[headers++], bulk, s->bulk_sent);
        bulk = bulk->next;
    }
    if (control > 0)
        add_part(&p, buf_data(&s->control), control);
    for (; bulk && p.n + 2 <= SEND_PARTS && p.bytes < SEND_BYTES; bulk = bulk->next)
        add_bulk(s, &p, header[headers++], bulk, 0);
    if (p.n == 0 && !s->tls)
        return 0;
    ssize_t sent = send_parts(s, p.iov, p.n, p.bytes, e);
    if (sent < 0)
        return -1;
    account_bytes(s, (size_t)sent, control);
    return p.n > 0 && !s->blocked;
}

int link_stream_flush(struct link_stream *s, struct err *e)
{
    int rc = 1;
    s->blocked = false;
    while (rc > 0)
        rc = flush_once(s, e);
    return rc;
}

int link_stream_send(struct link_stream *s, enum link_frame_type type, const void *data, size_t size,
                     struct err *e)
{
    uint8_t header[LINK_FRAME_HEADER];
    struct link_bulk head = {.length = (uint32_t)size};
    struct iovec iov[] = {{header, sizeof header}, {(void *)data, size}};
    ssize_t sent = 0;
    encode_header(header, type, &head, check_data(s, size, 0, data, size), s->others.given++);
    /* Nothing before it: straight from where it lies. */
    if (s->control.len == 0 && s->bulk_sent == 0 && !s->blocked)
        sent = send_parts(s, iov, size ? 2 : 1, sizeof header + size, e);
    if (sent < 0)
        return -1;
    size_t done = (size_t)sent;
    if (done == sizeof header + size)
        return 0;
    if (buf_room(&s->control) < sizeof header + size)
        return err_set(e, ERR_MEMORY, "it does not read: %zu bytes of control frames wait", s->control.len);
    int rc = done < sizeof header ? buf_put(&s->control, header + done, sizeof header - done) : 0;
    size_t data_done = done > sizeof header ? done - sizeof header : 0;
    if (rc < 0 || buf_put(&s->control, (const uint8_t *)data + data_done, size - data_done) < 0)
        return err_set(e, ERR_MEMORY, "no memory to queue a control frame");
    return s->blocked ? 0 : link_stream_flush(s, e);
}

void link_stream_queue(struct link_stream *s, struct link_send *send)
{
    send->next = NULL;
    send->checked = false;
    send->number = s->bulks.given++;
    *(s->bulk_last ? &s->bulk_last->next : &s->bulk_first) = send;
    s->bulk_last = send;
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

static size_t length_max(uint8_t type)
{
    return type == LINK_CONTROL    ? LINKS_CONTROL_MAX
           : type == LINK_BULK     ? LINKS_BULK_MAX
           : type == LINK_FAREWELL ? LINK_FAREWELL_MAX
                                   : 0;
}

/* A peer's last words, made printable. */
static int take_farewell(const uint8_t *payload, size_t size, struct err *e)
{
    char text[LINK_FAREWELL_MAX + 1];
    for (size_t i = 0; i < size; i++)
        text[i] = payload[i] < ' ' ? ' ' : (char)payload[i];
    text[size] = '\0';
    return err_set(e, ERR_CLOSED, "it gave up: %s", text);
}

static int is_corrupted(struct err *e)
{
    return err_set(e, ERR_CORRUPTED, "what it sent came as something else (checksum)");
}

/* The current frame is here, with its payload where it should be. */
static int frame_ended(struct link_stream *s, const uint8_t *payload, struct err *e)
{
    size_t size = s->head.length;
    if (s->check != s->wanted)
        return is_corrupted(e);
    s->frames++;
    switch (s->type) {
    case LINK_CONTROL:
        s->events->control(s->ctx, s->host, payload, size);
        return 0;
    case LINK_BULK:
        s->events->bulk_arrived(s->ctx, s->host, &s->head);
        return 0;
    case LINK_FAREWELL:
        return take_farewell(payload, size, e);
    default:
        return 0;
    }
}

static int decode_header(struct link_stream *s, const uint8_t *p, struct err *e)
{
    struct reader r = reader_of(p, LINK_FRAME_HEADER);
    s->head.length = read_u32(&r);
    s->type = read_u8(&r);
    uint8_t pad = read_u8(&r);
    s->head.channel = read_u16(&r);
    s->head.sequence = read_u64(&r);
    s->head.offset = read_u64(&r);
    s->wanted = read_u32(&r);
    s->check = 0;
    uint64_t *number = s->type == LINK_BULK ? &s->bulks.taken : &s->others.taken;
    if (read_u32(&r) != check_head(p, (*number)++))
        return is_corrupted(e);
    if (s->type < LINK_CONTROL || s->type > LINK_FAREWELL || pad != 0)
        return err_set(e, ERR_PROTOCOL, "it sent a frame of the unknown type %u", s->type);
    if (s->head.length > length_max(s->type))
        return err_set(e, ERR_PROTOCOL, "it sent a frame of type %u with %u bytes", s->type, s->head.length);
    return 0;
}

/* Finds the place for the payload of the frame just decoded, when not all of it is in the stage. */
static int find_place(struct link_stream *s, struct err *e)
{
    if (s->type == LINK_BULK)
        s->place = s->events->bulk_place(s->ctx, s->host, &s->head);
    else
        s->place = s->assembled = malloc(s->head.length);
    if (s->fd < 0)
        return 0;
    if (!s->place && s->type == LINK_BULK)
        return err_set(
            e, ERR_PROTOCOL,
            "it sent data that nobody asked for (operation %llu, channel %u, offset %llu, %u bytes)",
            (unsigned long long)s->head.sequence, s->head.channel, (unsigned long long)s->head.offset,
            s->head.length);
    if (!s->place)
        return err_set(e, ERR_MEMORY, "no memory for a control frame");
    s->place_left = s->head.length;
    return 0;
}

/* `n` more bytes of the current payload are in its place. */
static int take_placed(struct link_stream *s, size_t n, struct err *e)
{
    s->check = check_data(s, s->head.length, s->check, s->place, n);
    s->place += n;
    s->place_left -= n;
    if (s->place_left > 0)
        return 0;
    uint8_t *assembled = s->assembled;
    s->place = NULL;
    s->assembled = NULL;
    int rc = frame_ended(s, assembled, e);
    free(assembled);
    return rc;
}

/* Takes what it can from the stage: 1 progress, 0 more bytes are needed, -1. */
static int parse_stage(struct link_stream *s, struct err *e)
{
    const uint8_t *p = s->stage + s->stage_at;
    if (s->place) {
        size_t n = s->stage_len < s->place_left ? s->stage_len : s->place_left;
        if (n == 0)
            return 0;
        memcpy(s->place, p, n);
        s->stage_at += n;
        s->stage_len -= n;
        return take_placed(s, n, e) < 0 ? -1 : 1;
    }
    if (s->stage_len < LINK_FRAME_HEADER)
        return 0;
    if (decode_header(s, p, e) < 0)
        return -1;
    s->stage_at += LINK_FRAME_HEADER;
    s->stage_len -= LINK_FRAME_HEADER;
    bool whole = s->head.length == 0 || (s->type != LINK_BULK && s->head.length <= s->stage_len);
    if (!whole)
        return find_place(s, e) < 0 ? -1 : 1;
    s->stage_at += s->head.length;
    s->stage_len -= s->head.length;
    s->check = check_data(s, s->head.length, 0, p + LINK_FRAME_HEADER, s->head.length);
    return frame_ended(s, p + LINK_FRAME_HEADER, e) < 0 ? -1 : 1;
}

/* One readv: the rest of the payload, then the stage. Bytes; 0: nothing there. */
static ssize_t read_once(struct link_stream *s, bool *more, struct err *e)
{
    int n = 0;
    size_t wanted = s->place_left;
    if (s->stage_at > 0) /* parse_stage has left only a part of a header */
        memmove(s->stage, s->stage + s->stage_at, s->stage_len);
    s->stage_at = 0;
    struct iovec iov[2];
    if (s->place)
        iov[n++] = (struct iovec){s->place, s->place_left};
    iov[n++] = (struct iovec){s->stage + s->stage_len, sizeof s->stage - s->stage_len};
    ssize_t got = receive_parts(s, iov, n, wanted + iov[n - 1].iov_len, more, e);
    if (got <= 0)
        return got;
    size_t direct = (size_t)got < wanted ? (size_t)got : wanted;
    s->bytes_received += (size_t)got;
    s->stage_len += (size_t)got - direct;
    if (direct > 0 && take_placed(s, direct, e) < 0)
        return -1;
    return got;
}

/* True when TLS holds bytes that the socket has given already: they must not wait until it is readable. */
static bool has_unread(const struct link_stream *s)
{
    return s->tls && s->tls_ops->unread(s->tls);
}

bool link_stream_heard(struct link_stream *s)
{
    bool between = !s->place && s->stage_len == 0;
    if (!between && s->frames == s->heard_frames && s->bytes_received - s->heard_bytes < HEARD)
        return false;
    s->heard_frames = s->frames;
    s->heard_bytes = s->bytes_received;
    return true;
}

long link_stream_read(struct link_stream *s, struct err *e)
{
    long total = 0;
    bool more = true;
    while (more && s->fd >= 0 && (total < (long)READ_SHARE || has_unread(s))) {
        more = false;
        ssize_t n = read_once(s, &more, e);
        if (n <= 0)
            return n < 0 ? -1 : total;
        total += n;
        int rc = 1;
        while (rc > 0 && s->fd >= 0)
            rc = parse_stage(s, e);
        if (rc < 0)
            return -1;
    }
    return total;
}
