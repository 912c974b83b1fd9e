#include "agent/session/engine_host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/protocol/frame.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define ENGINE_PROGRAM "hvd-engine"
#define BACKLOG        4096
#define QUEUE_MAX      (32u << 20)
/* Its silence is noticed before the engines of other hosts (by the heartbeat time-out) and before the workers
 * here (after 10 s) give it up by themselves, so that they are never taken for the cause. */
#define SILENCE_MIN_MS 1000
#define SILENCE_MAX_MS 7500
#define START_MS       5000 /* from its start to its first word */

/* ---- frames -------------------------------------------------------------------------------------------- */

static void write_waiting(struct engine_host *h);
static void release_socket(struct engine_host *h);

static int enqueue_message(struct engine_host *h, const Hvd__Engine *message)
{
    struct err ignored = ERR_INIT;
    struct frame f = {.kind = FRAME_CONTROL,
                      .length = (uint32_t)hvd__engine__get_packed_size(message),
                      .sequence = h->next_out};
    uint8_t header[FRAME_HEADER_SIZE];
    if (f.length > FRAME_PAYLOAD_MAX || !buf_reserve(&h->out, FRAME_HEADER_SIZE + f.length))
        return -1;
    frame_encode_header(&f, header);
    buf_put(&h->out, header, sizeof header);
    if (message_pack(&message->base, &h->out, &ignored) < 0)
        return -1;
    h->next_out++;
    return 0;
}

static void send_message(struct engine_host *h, const Hvd__Engine *message)
{
    if (h->state != ENGINE_LISTENING && h->state != ENGINE_RUNNING)
        return;
    if (enqueue_message(h, message) < 0)
        child_fail(&h->child, "does not read what it is sent");
}

void engine_host_flush(struct engine_host *h)
{
    if (h->state == ENGINE_RUNNING && h->out.len > 0)
        write_waiting(h);
}

void engine_host_links(struct engine_host *h, Hvd__Links *links)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    m.body_case = HVD__ENGINE__BODY_LINKS;
    m.links = links;
    send_message(h, &m);
}

void engine_host_rank_ended(struct engine_host *h, Hvd__RankEnded *ended)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    m.body_case = HVD__ENGINE__BODY_RANK_ENDED;
    m.rank_ended = ended;
    send_message(h, &m);
}

void engine_host_membership(struct engine_host *h, Hvd__Membership *membership)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    m.body_case = HVD__ENGINE__BODY_MEMBERSHIP;
    m.membership = membership;
    send_message(h, &m);
}

bool engine_host_count(struct engine_host *h, bool pending)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    m.body_case = pending ? HVD__ENGINE__BODY_LOOK : HVD__ENGINE__BODY_COUNT;
    m.count = true; /* and m.look: they are one */
    if (h->state != ENGINE_RUNNING)
        return false;
    send_message(h, &m);
    return h->state == ENGINE_RUNNING;
}

#define BODY(name) HVD__ENGINE__BODY_##name
#define RUNS       (1u << ENGINE_RUNNING)
#define ENDED      (1u << ENGINE_ENDED)

static const struct legal_row rows[] = {
    {BODY(LINK), RUNS, ENDED, true},         {BODY(INITIALIZED), RUNS, ENDED, false},
    {BODY(SHUT_DOWN), RUNS, ENDED, false},   {BODY(POISONED), RUNS, ENDED, false},
    {BODY(NOTICE), RUNS, ENDED, false},      {BODY(FAULT), RUNS, ENDED, false},
    {BODY(COUNTERS), RUNS, ENDED, false},    {BODY(PING), RUNS, ENDED, false},
    {BODY(STAGE), RUNS, ENDED, false},       {BODY(WAITS), RUNS, ENDED, false},
    {BODY(UNREACHABLE), RUNS, ENDED, false},
};
static const struct legal_table table = LEGAL_TABLE(rows, legal_engine_name);

static void handle_message(struct engine_host *h, const Hvd__Engine *m)
{
    if (!legal_hears(&h->legal, &table, m->body_case, h->state, "the engine", "running"))
        return;
    switch (m->body_case) {
    case HVD__ENGINE__BODY_LINK:
        h->events->link(h->ctx, m->link);
        break;
    case HVD__ENGINE__BODY_INITIALIZED:
        h->events->initialized(h->ctx, m->initialized);
        break;
    case HVD__ENGINE__BODY_STAGE:
        h->events->stage(h->ctx, m->stage);
        break;
    case HVD__ENGINE__BODY_WAITS:
        h->events->waits(h->ctx, m->waits);
        break;
    case HVD__ENGINE__BODY_UNREACHABLE:
        h->events->unreachable(h->ctx, m->unreachable);
        break;
    case HVD__ENGINE__BODY_SHUT_DOWN:
        h->events->shut_down(h->ctx, m->shut_down->rank);
        break;
    case HVD__ENGINE__BODY_POISONED:
        h->events->poisoned(h->ctx, m->poisoned->rank, m->poisoned->why);
        break;
    case HVD__ENGINE__BODY_NOTICE:
        h->events->notice(h->ctx, m->notice->level, m->notice->text, m->notice->stall);
        break;
    case HVD__ENGINE__BODY_FAULT:
        h->events->fault(h->ctx, m->fault);
        break;
    case HVD__ENGINE__BODY_COUNTERS:
        h->events->counters(h->ctx, m->counters);
        break;
    default:
        child_moves(&h->child); /* Ping */
        break;
    }
}

static int handle_frames(struct engine_host *h, struct err *e)
{
    struct frame f;
    int got;
    while ((got = frame_decode(&h->in, &f, e)) > 0) {
        if (f.kind != FRAME_CONTROL || f.sequence != h->next_in)
            return err_set(e, ERR_PROTOCOL, "frame %u came where %u was due", f.sequence, h->next_in);
        h->next_in++;
        Hvd__Engine *m = message_unpack_engine(f.payload, f.length, e);
        if (!m)
            return -1;
        handle_message(h, m);
        message_free(m);
        buf_consume(&h->in, FRAME_HEADER_SIZE + f.length);
    }
    return got;
}

void engine_host_drain(struct engine_host *h)
{
    struct err e = ERR_INIT;
    uint8_t bytes[16384];
    while (h->state == ENGINE_RUNNING) {
        ssize_t n = read(h->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            release_socket(h); /* it closed its end: its death is told when it is reaped */
            return;
        }
        if (buf_put(&h->in, bytes, (size_t)n) < 0)
            err_set(&e, ERR_MEMORY,
                    buf_room(&h->in) < (size_t)n ? "a frame is too large" : "no memory for a frame");
        if (e.code || handle_frames(h, &e) < 0) {
            child_fail(&h->child, "broke the protocol: %s", e.text);
            return;
        }
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct engine_host *h = poll->data;
    if (events & UV_WRITABLE)
        write_waiting(h);
    if (status < 0 || (events & UV_READABLE))
        engine_host_drain(h);
}

static void write_waiting(struct engine_host *h)
{
    if (h->state != ENGINE_RUNNING)
        return;
    if (buf_send(&h->out, h->fd) < 0)
        return; /* reading finds the end */
    uv_poll_start(&h->poll, UV_READABLE | (h->out.len ? UV_WRITABLE : 0), on_ready);
}

/* ---- start --------------------------------------------------------------------------------------------- */

/* The beginning of the queue with the listener and the flight recorder beside it. */
static int send_descriptors(struct engine_host *h)
{
    int fds[2] = {h->listener, h->flight};
    size_t size = (h->flight >= 0 ? 2 : 1) * sizeof(int);
    struct iovec iov = {(void *)(uintptr_t)buf_data(&h->out), h->out.len};
    union {
        char space[CMSG_SPACE(sizeof fds)];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(c), fds, size);
    ssize_t n;
    while ((n = sendmsg(h->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return -1;
    buf_consume(&h->out, (size_t)n);
    return 0;
}

static void on_drain(void *ctx)
{
    engine_host_drain(ctx);
}

static void on_let_go(void *ctx)
{
    release_socket(ctx);
}

static void on_failed(void *ctx, const char *text)
{
    struct engine_host *h = ctx;
    h->events->failed(h->ctx, text);
}

static void on_notice(void *ctx, enum log_level level, const char *text)
{
    struct engine_host *h = ctx;
    h->events->notice(h->ctx, level, text, false);
}

static const struct child_events child_events = {on_drain, on_let_go, on_failed, on_notice};

static int start_engine(struct engine_host *h, struct err *e)
{
    const struct child_program program = {.program = ENGINE_PROGRAM,
                                          .envp = h->envp,
                                          .cgroup_fd = h->cgroup_fd,
                                          .start_ms = START_MS,
                                          .silence_ms = h->silence_ms};
    h->fd = child_start(&h->child, &program, e);
    if (h->fd >= 0)
        log_debug("the engine has started (pid %d)", (int)h->child.pid);
    if (h->fd < 0)
        return -1;
    if (send_descriptors(h) < 0)
        return err_sys(e, errno, "cannot send it the worker socket");
    int rc = uv_poll_init(h->loop, &h->poll, h->fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch its socket: %s", uv_strerror(rc));
    h->poll.data = h;
    h->state = ENGINE_RUNNING;
    write_waiting(h);
    return 0;
}

static void close_recorder(struct engine_host *h)
{
    if (h->flight >= 0)
        close(h->flight);
    h->flight = -1;
}

static void stop_listening(struct engine_host *h)
{
    uv_close((uv_handle_t *)&h->listener_poll, NULL);
    close(h->listener);
    h->listener = -1;
    close_recorder(h);
}

static void on_first_worker(uv_poll_t *poll, int status, int events)
{
    struct engine_host *h = poll->data;
    struct err e = ERR_INIT;
    int rc = start_engine(h, &e);
    stop_listening(h); /* without an engine the worker's connection is reset, so its hvd_init fails at once */
    if (rc == 0)
        return;
    char text[ERR_TEXT_MAX + 64];
    snprintf(text, sizeof text, "cannot start the collectives engine: %s", e.text);
    h->child.failed = true;
    h->events->failed(h->ctx, text);
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    h->state = ENGINE_ENDED;
    child_let_go(&h->child);
}

static int bind_socket(struct engine_host *h, const char *directory, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, ENGINE_SOCKET_NAME);
    if (n < 0 || (size_t)n >= sizeof address.sun_path)
        return err_set(e, ERR_SYSTEM, "the path of the worker socket is too long: %s/%s", directory,
                       ENGINE_SOCKET_NAME);
    h->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->listener < 0 || bind(h->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(h->listener, BACKLOG) < 0)
        return err_sys(e, errno, "cannot make the worker socket %s", address.sun_path);
    return 0;
}

int engine_host_listen(struct engine_host *h, uv_loop_t *loop, const struct engine_host_events *events,
                       void *ctx, const struct engine_place *place, Hvd__EngineConfig *config, struct err *e)
{
    *h = (struct engine_host){.loop = loop, .events = events, .ctx = ctx, .listener = -1, .fd = -1};
    h->flight = place->flight_fd;
    child_init(&h->child, loop, "the collectives engine", &child_events, h);
    h->envp = place->envp;
    h->cgroup_fd = place->cgroup_fd;
    h->silence_ms = place->heartbeat_ms / 2;
    if (h->silence_ms < SILENCE_MIN_MS)
        h->silence_ms = SILENCE_MIN_MS;
    if (h->silence_ms > SILENCE_MAX_MS)
        h->silence_ms = SILENCE_MAX_MS;
    config->ping_ms = h->silence_ms / 4;
    buf_init(&h->in, QUEUE_MAX);
    buf_init(&h->out, QUEUE_MAX);
    buf_secret(&h->out, true); /* the configuration has the job's key */
    if (bind_socket(h, place->directory, e) < 0) {
        if (h->listener >= 0)
            close(h->listener);
        close_recorder(h);
        return -1;
    }
    int rc = uv_poll_init(loop, &h->listener_poll, h->listener);
    if (rc < 0) {
        close(h->listener);
        close_recorder(h);
        return err_set(e, ERR_SYSTEM, "cannot watch the worker socket: %s", uv_strerror(rc));
    }
    h->listener_poll.data = h;
    uv_poll_start(&h->listener_poll, UV_READABLE, on_first_worker);
    h->state = ENGINE_LISTENING;
    Hvd__Engine m = HVD__ENGINE__INIT;
    m.body_case = HVD__ENGINE__BODY_CONFIG;
    m.config = config;
    return enqueue_message(h, &m) < 0 ? err_set(e, ERR_MEMORY, "no memory for the engine's configuration")
                                      : 0;
}

/* ---- end ----------------------------------------------------------------------------------------------- */

/* Lets go of its socket, upon which it ends; kills it when it does not. */
static void release_socket(struct engine_host *h)
{
    if (h->state == ENGINE_LISTENING)
        stop_listening(h);
    if (h->state == ENGINE_RUNNING) {
        uv_close((uv_handle_t *)&h->poll, NULL);
        close(h->fd);
        h->fd = -1;
        child_let_go(&h->child);
    }
    if (h->state != ENGINE_NONE)
        h->state = ENGINE_ENDED;
}

void engine_host_end(struct engine_host *h)
{
    if (h->state != ENGINE_NONE)
        child_end(&h->child);
}

bool engine_host_reaped(struct engine_host *h, pid_t pid, uint32_t status, uint32_t signal)
{
    return child_reaped(&h->child, pid, status, signal);
}

bool engine_host_is_failing(const struct engine_host *h)
{
    return h->child.failed || (h->state == ENGINE_ENDED && !h->child.ending);
}

void engine_host_close(struct engine_host *h)
{
    if (h->state == ENGINE_NONE)
        return;
    engine_host_end(h);
    buf_free(&h->in);
    buf_free(&h->out);
    child_close(&h->child);
}
