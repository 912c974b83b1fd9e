/* The socket to the session: frames with Engine messages, both ways.
 *
 * The first frame must be EngineConfig, with the listening worker socket beside it; nothing is accepted
 * before. A frame that is none, or a message that may not come, ends the engine: what the session says is no
 * longer understood. The end of the stream is the normal end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/gpu/fuse.h"
#include "collectives/engine/tuning.h"
#include "common/base/clock.h"
#include "common/protocol/host_ranks.h"
#include "common/base/log.h"
#include "common/base/secret.h"

#define READ_BYTES    65536
#define SEND_PATIENCE 1000 /* ms that a full socket of the session may hold us up */

/* Writes what is queued. The session always reads, so waiting for it a moment is no risk, and it lets a
 * caller rely on the message being on its way. */
static int flush(struct engine *engine, struct err *e)
{
    while (engine->out.len > 0) {
        ssize_t n = send(engine->session.fd, buf_data(&engine->out), engine->out.len, MSG_NOSIGNAL);
        struct pollfd p = {.fd = engine->session.fd, .events = POLLOUT};
        if (n >= 0)
            buf_consume(&engine->out, (size_t)n);
        else if (errno == EPIPE || errno == ECONNRESET)
            return err_set(e, ERR_CLOSED, "the session has gone");
        else if (errno == EAGAIN && poll(&p, 1, SEND_PATIENCE) == 0)
            return err_set(e, ERR_TIMEOUT, "the session does not read");
        else if (errno != EAGAIN && errno != EINTR)
            return err_sys(e, errno, "cannot write to the session");
    }
    return 0;
}

static int enqueue(struct engine *engine, const Hvd__Engine *message, struct err *e)
{
    struct frame f = {.kind = FRAME_CONTROL, .session = engine->self, .sequence = engine->out_sequence};
    uint8_t header[FRAME_HEADER_SIZE];

    f.length = (uint32_t)hvd__engine__get_packed_size(message);
    if (f.length > buf_room(&engine->out) || buf_room(&engine->out) - f.length < sizeof header)
        return err_set(e, ERR_MEMORY, "too much waits for a session that does not read");
    frame_encode_header(&f, header);
    if (buf_put(&engine->out, header, sizeof header) != 0 ||
        message_pack(&message->base, &engine->out, e) < 0)
        return err_set(e, ERR_MEMORY, "no memory for a message to the session");
    engine->out_sequence++;
    return 0;
}

int session_send(struct engine *engine, const Hvd__Engine *message, struct err *e)
{
    if (enqueue(engine, message, e) == 0 && flush(engine, e) == 0)
        return 0;
    engine->ended = engine->ended || e->code == ERR_CLOSED;
    return -1;
}

void session_notice(struct engine *engine, uint32_t level, const char *text)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Notice notice = HVD__NOTICE__INIT;
    struct err e = ERR_INIT;

    notice.level = level;
    notice.text = (char *)text;
    message.body_case = HVD__ENGINE__BODY_NOTICE;
    message.notice = &notice;
    if (session_send(engine, &message, &e) != 0)
        log_debug("a notice is lost: %s", e.text);
}

void session_ping(struct engine *engine)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Ping ping = HVD__PING__INIT;
    struct err e = ERR_INIT;

    message.body_case = HVD__ENGINE__BODY_PING;
    message.ping = &ping;
    if (session_send(engine, &message, &e) != 0)
        log_debug("a ping is lost: %s", e.text);
}

void session_poisoned(struct engine *engine, uint32_t rank)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__EngineRank poisoned = HVD__ENGINE_RANK__INIT;
    struct err e = ERR_INIT;

    poisoned.rank = rank;
    message.body_case = HVD__ENGINE__BODY_POISONED;
    message.poisoned = &poisoned;
    if (session_send(engine, &message, &e) != 0)
        log_debug("the session will not know that the job has failed: %s", e.text);
}

void session_fault(struct engine *engine, const char *text)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Fault fault = HVD__FAULT__INIT;
    struct err e = ERR_INIT;

    fault.text = (char *)text;
    fault.time = clock_now();
    message.body_case = HVD__ENGINE__BODY_FAULT;
    message.fault = &fault;
    if (session_send(engine, &message, &e) != 0)
        log_debug("the session will not know the cause: %s", e.text);
}

/* ---- configuration ------------------------------------------------------------------------------------- */

static int check_hosts(const Hvd__EngineConfig *c, struct err *e)
{
    if (c->host_index >= c->n_host)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: %zu hosts, of which this is %u",
                       c->n_host, c->host_index);
    if (hosts_check_ranks(c->host, c->n_host, c->size, e) != 0)
        return err_wrap(e, "the session's configuration");
    if (c->host[c->host_index]->ranks > SHM_MEMBERS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "%u ranks on one host; at most %u are possible",
                       c->host[c->host_index]->ranks, SHM_MEMBERS_MAX);
    return 0;
}

static int check_config(const Hvd__EngineConfig *c, int listener, struct err *e)
{
    if (check_hosts(c, e) != 0)
        return -1;
    if (c->token.len != WORKER_TOKEN_SIZE)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: a token of %zu bytes", c->token.len);
    if (c->n_host > 1 && c->key.len != AUTH_KEY_SIZE)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: a key of %zu bytes", c->key.len);
    if (listener < 0)
        return err_set(e, ERR_PROTOCOL, "the session's configuration came without the worker socket");
    return 0;
}

static int copy_ranks(struct engine *engine, uint32_t host, const Hvd__HostRanks *ranks)
{
    struct host *h = &engine->host[host];

    h->name = strdup(ranks->name);
    h->ranks = ranks->ranks;
    h->rank = calloc(h->ranks, sizeof *h->rank);
    for (uint32_t i = 0; h->rank && i < h->ranks; i++) {
        h->rank[i] = host_rank(ranks, i);
        engine->place[h->rank[i]] = (struct rank_place){host, i};
    }
    return h->name && h->rank ? 0 : -1;
}

static int copy_hosts(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    engine->hosts = (uint32_t)c->n_host;
    engine->self = c->host_index;
    engine->size = c->size;
    engine->epoch = c->epoch;
    engine->token = secret_new(WORKER_TOKEN_SIZE);
    if (engine->token)
        secret_copy(engine->token, c->token.data, WORKER_TOKEN_SIZE);
    engine->job = strdup(c->job);
    engine->host = calloc(engine->hosts, sizeof *engine->host);
    engine->place = calloc(engine->size, sizeof *engine->place);
    bool good = engine->token && engine->job && engine->host && engine->place;
    for (uint32_t i = 0; good && i < engine->hosts; i++)
        good = copy_ranks(engine, i, c->host[i]) == 0;
    return good ? 0 : err_set(e, ERR_MEMORY, "no memory for %u hosts", engine->hosts);
}

struct region_shape engine_shape(const struct engine *engine)
{
    const struct host *here = &engine->host[engine->self];

    return (struct region_shape){.members = here->ranks,
                                 .hosts = engine->hosts,
                                 .size = engine->size,
                                 .epoch = engine->epoch,
                                 .rank = here->rank,
                                 .fuse = engine->device_fuse,
                                 .connect_ms = engine->device_connect_ms,
                                 .requires_nccl = engine->device_requires};
}

static int make_members(struct engine *engine, struct err *e)
{
    const struct host *here = &engine->host[engine->self];
    struct region_shape shape = engine_shape(engine);

    uint32_t workers = here->ranks + ENGINE_STRANGERS_MAX;
    engine->member = calloc(here->ranks, sizeof *engine->member);
    engine->worker = calloc(workers, sizeof *engine->worker);
    if (!engine->member || !engine->worker)
        return err_set(e, ERR_MEMORY, "no memory for %u members", here->ranks);
    engine->workers = workers;
    for (uint32_t i = 0; i < here->ranks; i++)
        engine->member[i].pidfd.fd = -1;
    for (uint32_t i = 0; i < engine->workers; i++)
        engine->worker[i].watch.fd = -1;
    engine->members = here->ranks;
    engine->region_fd = region_create(&engine->region, &shape, e);
    if (engine->region_fd < 0 || sets_start(engine, e) != 0 || joins_start(engine, e) != 0)
        return -1;
    return names_fixed(engine, e);
}

/* What must be known before sets and names are made. */
static void take_knobs(struct engine *engine, const Hvd__EngineTuning *t)
{
    engine->stall.warn_ns = t->stall_warning_ms * NSEC_PER_MSEC;
    engine->stall.give_up_ns = t->stall_shutdown_ms * NSEC_PER_MSEC;
    if (t->fusion_given) {
        engine->fusion_bytes = t->fusion_bytes;
        if (t->fusion_bytes < FUSE_ROOM)
            engine->device_fuse = (uint32_t)t->fusion_bytes;
    }
    if (t->gpu_connect_ms > 0)
        engine->device_connect_ms = t->gpu_connect_ms;
    engine->device_requires = t->gpu_require_nccl;
    engine->flat = t->flat_allreduce;
    if (engine->flat)
        engine->fusion_bytes = 0; /* what travels as one was reduced on its host */
    if (t->cache_given)
        engine->cache_capacity = t->cache_capacity;
    engine->cycle_ns = t->cycle_us * NSEC_PER_USEC;
}

/* Tells the session that engines of other hosts may connect: on one host there is nothing to connect to. */
static int announce_alone(struct engine *engine, struct err *e)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Link link = HVD__LINK__INIT;

    link.host = engine->self;
    message.body_case = HVD__ENGINE__BODY_LINK;
    message.link = &link;
    return session_send(engine, &message, e);
}

int session_configure(struct engine *engine, const Hvd__EngineConfig *config, int listener, struct err *e)
{
    if (engine->configured)
        return err_set(e, ERR_PROTOCOL, "the session configures the engine twice");
    if (check_config(config, listener, e) != 0)
        return -1;
    if (config->log_level <= LOG_FATAL)
        log_init("hvd-engine", (enum log_level)config->log_level);
    if (config->tuning)
        take_knobs(engine, config->tuning);
    if (copy_hosts(engine, config, e) != 0 || make_members(engine, e) != 0)
        return -1;
    engine->listener = (struct watch){listener, workers_accept};
    if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0)
        return err_sys(e, errno, "what came as the worker socket cannot be used");
    if ((engine->hosts > 1 ? peers_start(engine, config, e) : announce_alone(engine, e)) != 0)
        return -1;
    /* A spinning engine must not take a processor from a rank. */
    engine->may_spin = engine->hosts > 1 && sysconf(_SC_NPROCESSORS_ONLN) > (long)engine->members;
    if (config->tuning) {
        if (*config->tuning->timeline)
            timeline_start(engine, config->tuning);
        if (tuning_start(engine, config->tuning, e) != 0 ||
            (config->tuning->gpu_placement && devices_start(engine, e) != 0))
            return -1;
    }
    engine->ping_ns = config->ping_ms * NSEC_PER_MSEC;
    engine->configured = true;
    return engine_watch(engine, &engine->listener, EPOLLIN, e);
}

/* ---- what comes ---------------------------------------------------------------------------------------- */

static void wipe(const ProtobufCBinaryData *secret)
{
    if (secret->len > 0)
        explicit_bzero(secret->data, secret->len);
}

static int take_message(struct engine *engine, const Hvd__Engine *m, struct err *e)
{
    if (!engine->configured && m->body_case != HVD__ENGINE__BODY_CONFIG)
        return err_set(e, ERR_PROTOCOL, "the session's first message is not the configuration");
    switch (m->body_case) {
    case HVD__ENGINE__BODY_CONFIG: {
        int listener = engine->passed_fd;
        engine->passed_fd = -1;
        int rc = session_configure(engine, m->config, listener, e);
        wipe(&m->config->key);
        wipe(&m->config->token);
        return rc;
    }
    case HVD__ENGINE__BODY_LINKS:
        peers_connect(engine, m->links);
        return 0;
    case HVD__ENGINE__BODY_RANK_ENDED:
        workers_rank_ended(engine, m->rank_ended);
        return 0;
    case HVD__ENGINE__BODY_COUNT:
        counters_tell(engine);
        return 0;
    default:
        return err_set(e, ERR_PROTOCOL, "the session sends message %d, which only an engine may",
                       (int)m->body_case);
    }
}

static int take_frames(struct engine *engine, struct err *e)
{
    struct frame f;
    int rc;

    while ((rc = frame_decode(&engine->in, &f, e)) == 1) {
        if (f.kind != FRAME_CONTROL || f.sequence != engine->in_sequence)
            return err_set(e, ERR_PROTOCOL, "the session sends frame %u where %u is due", f.sequence,
                           engine->in_sequence);
        engine->in_sequence++;
        Hvd__Engine *m = message_unpack_engine(f.payload, f.length, e);
        rc = m ? take_message(engine, m, e) : -1;
        message_free(m);
        if (engine->in.secret)
            secret_wipe_stack();
        buf_secret(&engine->in, false);
        buf_consume(&engine->in, FRAME_HEADER_SIZE + f.length);
        if (rc != 0)
            return -1;
    }
    return rc;
}

static void keep_fd(struct engine *engine, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        int fd;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof fd))
            continue;
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
        if (engine->passed_fd >= 0)
            close(engine->passed_fd);
        engine->passed_fd = fd;
    }
}

/* 1: bytes came; 0: nothing now; -1: the stream has ended (ERR_CLOSED) or failed. */
static int receive(struct engine *engine, struct err *e)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_len = READ_BYTES};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};

    if (buf_room(&engine->in) < iov.iov_len)
        iov.iov_len = buf_room(&engine->in);
    if (!(iov.iov_base = buf_reserve(&engine->in, iov.iov_len)))
        return err_set(e, ERR_MEMORY, "no memory for the session's messages");
    ssize_t n = recvmsg(engine->session.fd, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 && errno != ECONNRESET)
        return err_sys(e, errno, "cannot read from the session");
    if (n <= 0)
        return err_set(e, ERR_CLOSED, "the session has gone");
    keep_fd(engine, &msg);
    buf_commit(&engine->in, (size_t)n);
    return 1;
}

void session_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    struct err e = ERR_INIT;
    int rc;

    (void)watch, (void)events;
    while ((rc = receive(engine, &e)) == 1 && (rc = take_frames(engine, &e)) == 0 && !engine->ended)
        ;
    if (rc >= 0)
        return;
    engine->ended = true;
    if (e.code == ERR_CLOSED)
        return;
    if (engine->configured)
        log_error("%s", e.text);
    else
        session_fault(engine, e.text); /* no engine, no job */
    engine_poison(engine, HVD_ERR_ENGINE, e.text);
}
