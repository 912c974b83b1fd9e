#include "collectives/engine/core.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "collectives/engine/engine.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define SEND_PATIENCE 1000 /* ms that a full socket of the session may hold us up */

/* ---- descriptors --------------------------------------------------------------------------------------- */

int engine_watch(struct engine *engine, struct watch *watch, uint32_t events, struct err *e)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(engine->loop.epoll, EPOLL_CTL_ADD, watch->fd, &event) == 0)
        return 0;
    if (errno == EEXIST && epoll_ctl(engine->loop.epoll, EPOLL_CTL_MOD, watch->fd, &event) == 0)
        return 0;
    return err_sys(e, errno, "cannot watch a descriptor");
}

void engine_unwatch(struct engine *engine, struct watch *watch)
{
    if (watch->fd >= 0)
        epoll_ctl(engine->loop.epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* ---- to the session ------------------------------------------------------------------------------------ */

/* Writes the queued messages. The session always reads, so waiting for it a moment is no risk, and a caller
 * can rely on the message being on its way. */
static int flush_messages(struct engine *engine, struct err *e)
{
    struct session_socket *s = &engine->session;
    while (s->out.len > 0) {
        ssize_t n = send(s->watch.fd, buf_data(&s->out), s->out.len, MSG_NOSIGNAL);
        struct pollfd p = {.fd = s->watch.fd, .events = POLLOUT};
        if (n >= 0)
            buf_consume(&s->out, (size_t)n);
        else if (errno == EPIPE || errno == ECONNRESET)
            return err_set(e, ERR_CLOSED, "the session has gone");
        else if (errno == EAGAIN && poll(&p, 1, SEND_PATIENCE) == 0)
            return err_set(e, ERR_TIMEOUT, "the session does not read");
        else if (errno != EAGAIN && errno != EINTR)
            return err_sys(e, errno, "cannot write to the session");
    }
    return 0;
}

static int queue_message(struct engine *engine, const Hvd__Engine *message, struct err *e)
{
    struct session_socket *s = &engine->session;
    struct frame f = {.kind = FRAME_CONTROL, .session = engine->self, .sequence = s->out_sequence};
    f.length = (uint32_t)hvd__engine__get_packed_size(message);
    uint8_t header[FRAME_HEADER_SIZE];
    if (f.length > buf_room(&s->out) || buf_room(&s->out) - f.length < sizeof header)
        return err_set(e, ERR_MEMORY, "too much waits for a session that does not read");
    frame_encode_header(&f, header);
    if (buf_put(&s->out, header, sizeof header) != 0 || message_pack(&message->base, &s->out, e) < 0)
        return err_set(e, ERR_MEMORY, "no memory for a message to the session");
    s->out_sequence++;
    return 0;
}

int engine_send(struct engine *engine, const Hvd__Engine *message, struct err *e)
{
    if (queue_message(engine, message, e) == 0 && flush_messages(engine, e) == 0)
        return 0;
    engine->loop.ended = engine->loop.ended || e->code == ERR_CLOSED;
    return -1;
}

static void send_notice(struct engine *engine, uint32_t level, const char *text, bool stall)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Notice notice = HVD__NOTICE__INIT;
    struct err e = ERR_INIT;
    notice.level = level;
    notice.stall = stall;
    notice.text = (char *)text;
    message.body_case = HVD__ENGINE__BODY_NOTICE;
    message.notice = &notice;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("a notice is lost: %s", e.text);
}

void engine_notice(struct engine *engine, uint32_t level, const char *text)
{
    send_notice(engine, level, text, false);
}

void engine_notice_stall(struct engine *engine, const char *text)
{
    send_notice(engine, LOG_WARNING, text, true);
}

void engine_ping(struct engine *engine)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Ping ping = HVD__PING__INIT;
    struct err e = ERR_INIT;
    message.body_case = HVD__ENGINE__BODY_PING;
    message.ping = &ping;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("a ping is lost: %s", e.text);
}

void engine_fault(struct engine *engine, const char *text)
{
    engine_fault_of(engine, text, NULL, 0);
}

void engine_fault_of(struct engine *engine, const char *text, uint32_t *worker, size_t workers)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Fault fault = HVD__FAULT__INIT;
    struct err e = ERR_INIT;
    fault.text = (char *)text;
    fault.time = clock_now();
    fault.stalled = worker;
    fault.n_stalled = workers;
    message.body_case = HVD__ENGINE__BODY_FAULT;
    message.fault = &fault;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("the session will not know the cause: %s", e.text);
}

/* ---- the failure of the job ---------------------------------------------------------------------------- */

/* rank UINT32_MAX: no rank of this host is the cause. */
static void report_poison(struct engine *engine, uint32_t rank, const char *why)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__EngineRank poisoned = HVD__ENGINE_RANK__INIT;
    struct err e = ERR_INIT;
    poisoned.rank = engine_worker_of(engine, rank);
    poisoned.why = (char *)(uintptr_t)why;
    message.body_case = HVD__ENGINE__BODY_POISONED;
    message.poisoned = &poisoned;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("the session will not know that the job has failed: %s", e.text);
}

/* `why`: the words of a rank that gave up, else "". */
static void poison_job(struct engine *engine, uint32_t rank, const char *why, int status, const char *text)
{
    if (!engine->region.header || region_poisoned(&engine->region))
        return;
    /* First the session: a worker that ends because of the poison must not be taken for the cause. */
    report_poison(engine, rank, why);
    log_info("the job has failed: %s", text);
    region_poison(&engine->region, status, text);
    engine->loop.failed = true;
}

void engine_poison_by(struct engine *engine, uint32_t rank, int status, const char *text)
{
    poison_job(engine, rank, "", status, text);
}

void engine_gave_up(struct engine *engine, uint32_t rank, const char *why, const char *text)
{
    poison_job(engine, rank, why, HVD_ERR_PEER, text);
}

void engine_poison(struct engine *engine, int status, const char *text)
{
    engine_poison_by(engine, UINT32_MAX, status, text);
}

void engine_out_of_memory(struct engine *engine, const char *why)
{
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "the engine of %.100s cannot go on: %.300s", engine->host[engine->self].name,
             why);
    engine_poison(engine, HVD_ERR_ENGINE, text);
}

uint32_t engine_worker_of(const struct engine *engine, uint32_t rank)
{
    if (rank >= engine->size)
        return UINT32_MAX;
    const struct rank_place *p = &engine->place[rank];
    const struct host *h = &engine->host[p->host];
    return h->worker ? h->worker[p->local] : rank;
}

uint32_t engine_rank_of(const struct engine *engine, uint32_t worker)
{
    if (!engine->membership)
        return worker < engine->size ? worker : UINT32_MAX;
    for (uint32_t h = 0; h < engine->hosts; h++)
        for (uint32_t i = 0; i < engine->host[h].ranks; i++)
            if (engine->host[h].worker[i] == worker)
                return engine->host[h].rank[i];
    return UINT32_MAX;
}

const char *engine_host_of(const struct engine *engine, uint32_t rank)
{
    return rank < engine->size ? engine->host[engine->place[rank].host].name : "an unknown host";
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static size_t count_parts(const struct engine *engine)
{
    size_t n = 0;
    while (engine->parts[n])
        n++;
    return n;
}

int engine_parts_start(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    for (size_t i = count_parts(engine); i-- > 0;)
        if (engine->parts[i]->start && engine->parts[i]->start(engine, config, e) != 0)
            return -1;
    return 0;
}

int engine_parts_begin(struct engine *engine, struct err *e)
{
    for (size_t i = count_parts(engine); i-- > 0;)
        if (engine->parts[i]->epoch_begin && engine->parts[i]->epoch_begin(engine, e) != 0)
            return -1;
    return 0;
}

void engine_parts_end(struct engine *engine)
{
    for (size_t i = 0; engine->parts[i]; i++)
        if (engine->parts[i]->epoch_end)
            engine->parts[i]->epoch_end(engine);
}

int engine_parts_regroup(struct engine *engine, const struct engine_regroup *g, struct err *e)
{
    for (size_t i = count_parts(engine); i-- > 0;)
        if (engine->parts[i]->regroup && engine->parts[i]->regroup(engine, g, e) != 0)
            return -1;
    return 0;
}

void engine_parts_left(struct engine *engine)
{
    for (size_t i = 0; engine->parts[i]; i++)
        if (engine->parts[i]->all_left)
            engine->parts[i]->all_left(engine);
}
