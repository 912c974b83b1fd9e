#include "common/status/status_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/status/output_history.h"
#include "common/protocol/frame.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define AT_ONCE    128
#define PART_MAX   (512u << 10) /* bytes of a report in one answer */
#define QUEUE_MAX  (32u << 20)  /* bytes that one client has not read yet: the status of many hosts */
#define OUTPUT_MAX (ANSWER_MAX + (64u << 10)) /* likewise, of output */

struct status_client {
    struct status_server *all;
    struct status_client *next;
    struct stream stream;
    struct buf in, out;
    uid_t uid;
    bool asked, waits, follows, leaving; /* leaving: closed as soon as all is written */
    enum status_depth depth;             /* of the status that the client wants */
    uint32_t *rank;                      /* ranks whose output the client wants */
    size_t ranks;                        /* 0: of all ranks */
    uint64_t skipped;
};

void status_server_init(struct status_server *q)
{
    *q = (struct status_server){.listener = -1};
}

static void on_closed(void *ctx)
{
    struct status_client *i = ctx;
    buf_free(&i->in);
    buf_free(&i->out);
    free(i->rank);
    free(i);
}

static void drop_client(struct status_client *i)
{
    struct status_client **link = &i->all->first;
    while (*link && *link != i)
        link = &(*link)->next;
    if (!*link)
        return; /* on its way out already */
    *link = i->next;
    stream_close(&i->stream, on_closed);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void write_out(struct status_client *i)
{
    if (i->out.len > 0)
        buf_consume(&i->out, stream_write(&i->stream, buf_data(&i->out), i->out.len));
    if (i->leaving && i->out.len == 0)
        drop_client(i);
}

/* -1: it does not fit. */
static int queue_answer(struct status_client *i, Hvd__Answer *answer)
{
    answer->skipped = i->skipped;
    size_t size = hvd__answer__get_packed_size(answer);
    uint8_t *at = size <= ANSWER_MAX ? buf_reserve(&i->out, FRAME_HEADER_SIZE + size) : NULL;
    struct frame f = {.length = (uint32_t)size, .kind = FRAME_CONTROL};
    if (!at)
        return -1;
    frame_encode_header(&f, at);
    hvd__answer__pack(answer, at + FRAME_HEADER_SIZE);
    buf_commit(&i->out, FRAME_HEADER_SIZE + size);
    i->skipped = 0;
    return 0;
}

static void answer_last(struct status_client *i, Hvd__Answer *answer)
{
    if (queue_answer(i, answer) < 0)
        log_debug("an answer is lost: it is too long, or not read");
    i->leaving = true;
}

void status_server_tell(struct status_client *to, Hvd__JobStatus *status)
{
    Hvd__Answer a = HVD__ANSWER__INIT;
    a.body_case = HVD__ANSWER__BODY_STATUS;
    a.status = status;
    if (queue_answer(to, &a) < 0)
        log_debug("the status of a host is lost: it is too long, or not read");
}

static void answer_done(struct status_client *i)
{
    Hvd__Answer a = HVD__ANSWER__INIT;
    a.body_case = HVD__ANSWER__BODY_DONE;
    a.done = true;
    answer_last(i, &a);
}

/* why NULL: it was done. */
static void answer_wish(struct status_client *i, const char *why)
{
    Hvd__Answer a = HVD__ANSWER__INIT;
    if (!why) {
        answer_done(i);
        return;
    }
    a.body_case = HVD__ANSWER__BODY_REFUSED;
    a.refused = (char *)(uintptr_t)why;
    answer_last(i, &a);
}

void status_server_tell_report(struct status_client *to, const char *json, size_t size)
{
    for (size_t at = 0; at < size; at += PART_MAX) {
        Hvd__Answer a = HVD__ANSWER__INIT;
        a.body_case = HVD__ANSWER__BODY_REPORT;
        a.report.data = (uint8_t *)(uintptr_t)(json + at);
        a.report.len = size - at < PART_MAX ? size - at : PART_MAX;
        if (queue_answer(to, &a) == 0)
            continue;
        answer_wish(to, "the report is too long, or not read");
        return;
    }
    answer_done(to);
}

static void give_report(struct status_client *i)
{
    if (i->all->events->report)
        i->all->events->report(i->all->ctx, i);
    else
        answer_wish(i, "hvdrun alone has the report: ask on the host where hvdrun runs");
}

static bool wants_rank(const struct status_client *i, uint32_t rank)
{
    for (size_t k = 0; k < i->ranks; k++)
        if (i->rank[k] == rank)
            return true;
    return i->ranks == 0;
}

static void pass_on(struct status_client *i, uint32_t rank, enum frame_stream stream, const uint8_t *bytes,
                    size_t size)
{
    Hvd__OutputPart part = HVD__OUTPUT_PART__INIT;
    Hvd__Answer a = HVD__ANSWER__INIT;
    if (!wants_rank(i, rank))
        return;
    part.rank = rank;
    part.stream = stream;
    part.bytes.data = (uint8_t *)(uintptr_t)bytes;
    part.bytes.len = size;
    a.body_case = HVD__ANSWER__BODY_OUTPUT;
    a.output = &part;
    if (i->out.len > OUTPUT_MAX || queue_answer(i, &a) < 0)
        i->skipped += size;
}

static void pass_piece(void *ctx, const struct output_piece *p)
{
    pass_on(ctx, p->rank, p->stream, p->bytes, p->size);
}

void status_server_output(struct status_server *q, uint32_t rank, enum frame_stream stream,
                          const uint8_t *bytes, size_t size)
{
    output_history_add(&q->recent, rank, stream, bytes, size);
    for (struct status_client *i = q->first, *next; i; i = next) {
        next = i->next;
        if (!i->follows)
            continue;
        pass_on(i, rank, stream, bytes, size);
        write_out(i);
    }
}

/* ---- questions ----------------------------------------------------------------------------------------- */

static void say_status(struct status_client *i)
{
    i->all->events->status(i->all->ctx, i);
    i->leaving = true;
}

void status_server_refreshed(struct status_server *q, enum status_depth depth)
{
    struct status_refresh *r = &q->refresh[depth];
    void (*then)(void *ctx) = r->then;
    uv_timer_stop(&r->late);
    r->then = NULL;
    for (struct status_client *i = q->first, *next; i; i = next) {
        next = i->next;
        if (!i->waits || i->depth != depth)
            continue;
        i->waits = false;
        say_status(i);
        write_out(i);
    }
    if (then)
        then(r->then_ctx);
}

static void on_refresh_late(uv_timer_t *timer)
{
    struct status_refresh *r = timer->data;
    status_server_refreshed(r->owner, (enum status_depth)(r - r->owner->refresh));
}

/* false: all is known now. */
static bool start_refresh(struct status_server *q, enum status_depth depth)
{
    uv_timer_t *late = &q->refresh[depth].late;
    if (!q->events->refresh(q->ctx, depth))
        return false;
    if (!uv_is_active((uv_handle_t *)late))
        uv_timer_start(late, on_refresh_late, q->events->refresh_ms[depth], 0);
    return true;
}

void status_server_refresh(struct status_server *q, enum status_depth depth, void (*then)(void *ctx),
                           void *ctx)
{
    struct status_refresh *r = &q->refresh[depth];
    r->then = then;
    r->then_ctx = ctx;
    if (q->listener >= 0 && start_refresh(q, depth))
        return;
    r->then = NULL;
    then(ctx);
}

enum status_depth status_server_depth(const struct status_client *to)
{
    return to->depth;
}

static void prepare_status(struct status_client *i, enum status_depth depth)
{
    i->depth = depth;
    i->waits = start_refresh(i->all, depth);
    if (!i->waits)
        say_status(i);
}

const char *status_name_asker(uid_t uid)
{
    return uid == 0 && geteuid() != 0 ? "root" : "its user";
}

const char *status_refuse_ranks(uint32_t ranks, uint32_t least, uint32_t most, char *why, size_t size)
{
    if (ranks >= least && ranks > 0 && (most == 0 || ranks <= most))
        return NULL;
    if (ranks < least || ranks == 0)
        snprintf(why, size, "%u ranks are less than --min-np %u", ranks, least);
    else
        snprintf(why, size, "%u ranks are more than --max-np %u", ranks, most);
    return why;
}

static void give_output(struct status_client *i, const Hvd__Inquiry *inquiry)
{
    i->rank = calloc(inquiry->n_rank ? inquiry->n_rank : 1, sizeof *i->rank);
    if (!i->rank) {
        i->leaving = true;
        return;
    }
    i->ranks = inquiry->n_rank;
    if (i->ranks > 0)
        memcpy(i->rank, inquiry->rank, i->ranks * sizeof *i->rank);
    output_history_each(&i->all->recent, pass_piece, i);
    i->follows = inquiry->follow;
    if (!i->follows)
        answer_done(i);
}

static void answer_inquiry(struct status_client *i, const Hvd__Inquiry *inquiry)
{
    switch (inquiry->kind) {
    case HVD__INQUIRY__KIND__STATUS:
        prepare_status(i, STATUS_PLAIN);
        break;
    case HVD__INQUIRY__KIND__WHY:
        prepare_status(i, STATUS_WHY);
        break;
    case HVD__INQUIRY__KIND__FLIGHT:
        prepare_status(i, STATUS_FLIGHT);
        break;
    case HVD__INQUIRY__KIND__REPORT:
        give_report(i);
        break;
    case HVD__INQUIRY__KIND__OUTPUT:
        give_output(i, inquiry);
        break;
    case HVD__INQUIRY__KIND__RESIZE:
        answer_wish(i, i->all->events->resize(i->all->ctx, i->uid, inquiry->ranks));
        break;
    case HVD__INQUIRY__KIND__LEAVE:
        answer_wish(i, i->all->events->leave(i->all->ctx, i->uid, inquiry->reason));
        break;
    case HVD__INQUIRY__KIND__END:
        answer_done(i);
        i->all->events->end(i->all->ctx, i->uid);
        break;
    default:
        i->leaving = true;
    }
}

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct status_client *i = ctx;
    struct frame f;
    struct err e = ERR_INIT;
    if (i->asked || buf_put(&i->in, bytes, len) < 0) {
        drop_client(i); /* one inquiry is all there is */
        return;
    }
    int rc = frame_decode(&i->in, &f, &e);
    if (rc == 0)
        return;
    Hvd__Inquiry *inquiry =
        rc > 0 && f.kind == FRAME_CONTROL ? message_unpack_inquiry(f.payload, f.length, &e) : NULL;
    i->asked = true;
    if (!inquiry) {
        log_debug("an inquiry: %s", e.text);
        drop_client(i);
        return;
    }
    answer_inquiry(i, inquiry);
    message_free(inquiry);
    write_out(i);
}

static void on_writable(void *ctx)
{
    write_out(ctx);
}

/* After its end, a stream takes no bytes: the rest of an answer is lost with the client. */
static void on_ended(void *ctx, int errnum)
{
    (void)errnum;
    drop_client(ctx);
}

static const struct stream_events stream_events = {on_received, on_writable, on_ended};

/* ---- the socket ---------------------------------------------------------------------------------------- */

static void make_room(struct status_server *q)
{
    size_t count = 0;
    struct status_client *oldest = NULL;
    for (struct status_client *i = q->first; i; i = i->next, count++)
        oldest = i;
    if (count >= AT_ONCE)
        drop_client(oldest);
}

static void accept_client(struct status_server *q, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct err e = ERR_INIT;
    bool ours = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                (peer.uid == geteuid() || peer.uid == 0);
    struct status_client *i = ours ? calloc(1, sizeof *i) : NULL;
    if (!i) {
        close(fd);
        return;
    }
    make_room(q);
    i->all = q;
    i->uid = peer.uid;
    buf_init(&i->in, INQUIRY_MAX);
    buf_init(&i->out, QUEUE_MAX);
    if (stream_open(&i->stream, q->loop, fd, fd, &stream_events, i, &e) < 0) {
        close(fd);
        free(i);
        return;
    }
    i->next = q->first;
    q->first = i;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct status_server *q = poll->data;
    int fd = accept4(q->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        accept_client(q, fd);
}

int status_server_open(struct status_server *q, uv_loop_t *loop, const struct status_address *at,
                       const struct status_server_events *events, void *ctx, struct err *e)
{
    q->loop = loop;
    q->events = events;
    q->ctx = ctx;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&at->un, at->size) == 0 && listen(fd, AT_ONCE) == 0 &&
        uv_poll_init(loop, &q->poll, fd) == 0) {
        q->listener = fd;
        q->poll.data = q;
        for (int depth = 0; depth < STATUS_DEPTHS; depth++) {
            uv_timer_init(loop, &q->refresh[depth].late);
            q->refresh[depth].late.data = &q->refresh[depth];
            q->refresh[depth].owner = q;
        }
        uv_poll_start(&q->poll, UV_READABLE, on_connection);
        return 0;
    }
    err_sys(e, errno, "cannot make the socket %.*s", (int)(sizeof at->un.sun_path - 1),
            at->un.sun_path + (at->un.sun_path[0] ? 0 : 1));
    if (fd >= 0)
        close(fd);
    return -1;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct status_server *q = handle->data;
    close(q->listener);
    q->listener = -1;
}

void status_server_close(struct status_server *q)
{
    while (q->first) {
        struct status_client *i = q->first;
        if (i->follows)
            answer_done(i);
        if (i->out.len > 0)
            (void)stream_write(&i->stream, buf_data(&i->out), i->out.len);
        drop_client(i);
    }
    output_history_free(&q->recent);
    if (q->listener < 0)
        return;
    for (int depth = 0; depth < STATUS_DEPTHS; depth++)
        uv_close((uv_handle_t *)&q->refresh[depth].late, NULL);
    uv_close((uv_handle_t *)&q->poll, on_poll_closed);
}
