/* The socket to the session: frames with Engine messages, both ways.
 *
 * The first frame must be EngineConfig, with the listening worker socket beside it, and the memory of the
 * flight recorder if there is one; nothing is accepted before. A frame that is none, or a message that may
 * not come, ends the engine: what the session says is no longer understood. The end of the stream is the
 * normal end. */
#include "collectives/engine/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/engine/autotune.h"
#include "collectives/engine/counters.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/hosts.h"
#include "collectives/engine/membership.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/workers.h"
#include "collectives/gpu/fuse.h"
#include "collectives/local/pipeline.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/protocol/host_ranks.h"

#define READ_BYTES 65536

/* ---- configuration ------------------------------------------------------------------------------------- */

static int check_hosts(const Hvd__EngineConfig *c, struct err *e)
{
    if (c->host_index >= c->n_host)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: %zu hosts, of which this is %u",
                       c->n_host, c->host_index);
    if (!c->newcomer && hosts_check_ranks(c->host, c->n_host, c->size, e) != 0)
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
        return err_set(e, ERR_PROTOCOL, "the session's configuration has a token of %zu bytes", c->token.len);
    if ((c->n_host > 1 || c->elastic) && c->key.len != AUTH_KEY_SIZE)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: a key of %zu bytes", c->key.len);
    if (listener < 0)
        return err_set(e, ERR_PROTOCOL, "the session's configuration came without the worker socket");
    return 0;
}

static int copy_token(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    engine->workers.token = secret_new(WORKER_TOKEN_SIZE);
    if (!engine->workers.token)
        return err_set(e, ERR_MEMORY, "no memory for the job's token");
    secret_copy(engine->workers.token, c->token.data, WORKER_TOKEN_SIZE);
    return 0;
}

static int copy_hosts(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    engine->epoch = c->epoch;
    if (c->elastic && membership_open(engine, c->newcomer) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the memberships of an elastic job");
    struct host_table table;
    const Hvd__HostRanks *here = c->host[c->host_index];
    int rc = c->newcomer ? host_table_alone(&table, here->name, here->id, e)
                         : host_table_make(&table, c->host, (uint32_t)c->n_host, c->host_index, c->size, e);
    if (rc == 0)
        host_table_swap(engine, &table);
    return rc;
}

int engine_make_region(struct engine *engine, struct err *e)
{
    const struct host *here = &engine->host[engine->self];
    struct region_shape shape = {.members = here->ranks,
                                 .hosts = engine->hosts,
                                 .size = engine->size,
                                 .epoch = engine->epoch,
                                 .rank = here->rank,
                                 .fuse = engine->options.gpu_fuse,
                                 .connect_ms = engine->options.gpu_connect_ms,
                                 .requires_nccl = engine->options.gpu_requires_nccl,
                                 .stream_least = engine->options.stream_least,
                                 .elastic = engine->membership != NULL};
    engine->region_fd = region_create(&engine->region, &shape, e);
    if (engine->region_fd < 0)
        return -1;
    for (uint32_t i = 0; shape.elastic && i < engine->size; i++)
        region_workers(&engine->region)[i] = engine_worker_of(engine, i);
    return 0;
}

/* Tensors that are fused, and those of flat mode, must be in shared memory as a whole. */
static uint64_t stream_least(const struct engine *engine, const Hvd__EngineTuning *t)
{
    bool varies = t->autotune && !t->fusion_given;
    uint64_t fused = varies ? autotune_range[AUTOTUNE_FUSION_BYTES].most : engine->options.fusion_bytes;
    if (engine->options.flat)
        return UINT64_MAX;
    return fused < STREAM_LEAST_FAR ? STREAM_LEAST_FAR : fused + 1;
}

/* Before the parts start. */
static void take_options(struct engine *engine, const Hvd__EngineTuning *t)
{
    engine->stall.warn_ns = t->stall_warning_ms * NSEC_PER_MSEC;
    engine->stall.give_up_ns = t->stall_shutdown_ms * NSEC_PER_MSEC;
    if (t->fusion_given) {
        engine->options.fusion_bytes = t->fusion_bytes;
        if (t->fusion_bytes < FUSE_ROOM)
            engine->options.gpu_fuse = (uint32_t)t->fusion_bytes;
    }
    if (t->gpu_connect_ms > 0)
        engine->options.gpu_connect_ms = t->gpu_connect_ms;
    engine->options.gpu_requires_nccl = t->gpu_require_nccl;
    engine->options.flat = t->flat_allreduce;
    if (engine->options.flat)
        engine->options.fusion_bytes = 0; /* tensors that travel as one were reduced on their host */
    engine->options.stream_least = stream_least(engine, t);
    if (t->cache_given)
        engine->options.cache_capacity = t->cache_capacity;
    engine->options.cycle_ns = t->cycle_us * NSEC_PER_USEC;
}

int engine_configure(struct engine *engine, const Hvd__EngineConfig *config, int listener, struct err *e)
{
    if (engine->configured)
        return err_set(e, ERR_PROTOCOL, "the session configures the engine twice");
    if (check_config(config, listener, e) != 0)
        return -1;
    if (config->log_level <= LOG_FATAL)
        log_init("hvd-engine", (enum log_level)config->log_level);
    if (config->tuning)
        take_options(engine, config->tuning);
    if (copy_token(engine, config, e) != 0 || copy_hosts(engine, config, e) != 0)
        return -1;
    engine->workers.listener = (struct watch){listener, workers_accept};
    if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0)
        return err_sys(e, errno, "the descriptor of the worker socket cannot be used");
    if (engine_make_region(engine, e) != 0 || engine_parts_start(engine, config, e) != 0)
        return -1;
    engine->loop.ping_ns = config->ping_ms * NSEC_PER_MSEC;
    engine->configured = true;
    return engine_watch(engine, &engine->workers.listener, EPOLLIN, e);
}

/* ---- messages of the session --------------------------------------------------------------------------- */

static void wipe_secret(const ProtobufCBinaryData *secret)
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
        int listener = engine->session.passed[0];
        engine->flight.fd = engine->session.passed[1];
        engine->session.passed[0] = engine->session.passed[1] = -1;
        int rc = engine_configure(engine, m->config, listener, e);
        wipe_secret(&m->config->key);
        wipe_secret(&m->config->token);
        return rc;
    }
    case HVD__ENGINE__BODY_LINKS:
        peers_connect(engine, m->links);
        rank_link_meet(engine, m->links->link, m->links->n_link);
        return 0;
    case HVD__ENGINE__BODY_RANK_ENDED:
        workers_rank_ended(engine, m->rank_ended);
        return 0;
    case HVD__ENGINE__BODY_MEMBERSHIP:
        return membership_take(engine, m->membership, e);
    case HVD__ENGINE__BODY_COUNT:
        counters_tell(engine);
        return 0;
    case HVD__ENGINE__BODY_LOOK:
        counters_tell_pending(engine);
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
    while ((rc = frame_decode(&engine->session.in, &f, e)) == 1) {
        if (f.kind != FRAME_CONTROL || f.sequence != engine->session.in_sequence)
            return err_set(e, ERR_PROTOCOL, "the session sends frame %u where %u is due", f.sequence,
                           engine->session.in_sequence);
        engine->session.in_sequence++;
        Hvd__Engine *m = message_unpack_engine(f.payload, f.length, e);
        rc = m ? take_message(engine, m, e) : -1;
        message_free(m);
        if (engine->session.in.secret)
            secret_wipe_stack();
        buf_secret(&engine->session.in, false);
        buf_consume(&engine->session.in, FRAME_HEADER_SIZE + f.length);
        if (rc != 0)
            return -1;
    }
    return rc;
}

static void keep_fds(struct engine *engine, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        int fd[2] = {-1, -1};
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(sizeof *fd))
            continue;
        memcpy(fd, CMSG_DATA(c), c->cmsg_len < CMSG_LEN(sizeof fd) ? sizeof *fd : sizeof fd);
        for (size_t i = 0; i < 2; i++) {
            if (engine->session.passed[i] >= 0)
                close(engine->session.passed[i]);
            engine->session.passed[i] = fd[i];
        }
    }
}

/* 1: bytes came; 0: nothing now; -1: the stream has ended (ERR_CLOSED) or failed. */
static int receive_bytes(struct engine *engine, struct err *e)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_len = READ_BYTES};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    if (buf_room(&engine->session.in) < iov.iov_len)
        iov.iov_len = buf_room(&engine->session.in);
    iov.iov_base = buf_reserve(&engine->session.in, iov.iov_len);
    if (!iov.iov_base)
        return err_set(e, ERR_MEMORY, "no memory for the session's messages");
    ssize_t n = recvmsg(engine->session.watch.fd, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 && errno != ECONNRESET)
        return err_sys(e, errno, "cannot read from the session");
    if (n <= 0)
        return err_set(e, ERR_CLOSED, "the session has gone");
    keep_fds(engine, &msg);
    buf_commit(&engine->session.in, (size_t)n);
    return 1;
}

void session_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    struct err e = ERR_INIT;
    (void)watch, (void)events;
    int rc;
    while ((rc = receive_bytes(engine, &e)) == 1 && (rc = take_frames(engine, &e)) == 0 &&
           !engine->loop.ended)
        ;
    if (rc >= 0)
        return;
    engine->loop.ended = true;
    if (e.code == ERR_CLOSED)
        return;
    if (engine->configured)
        log_error("%s", e.text);
    else
        engine_fault(engine, e.text); /* no engine, no job */
    engine_poison(engine, HVD_ERR_ENGINE, e.text);
}
