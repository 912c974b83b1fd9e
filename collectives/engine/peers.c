/* The engines of the other hosts: the links to them, and deaths told over them.
 *
 * Nothing is sent before every link is ready, which may take ENGINE_LINKS_MS from the moment when the session
 * has told where all engines listen. A link that is lost is a lost host; the job fails with that, unless the
 * shutdown was settled already, when hosts go as they please. Every engine sends its poison to all others at
 * once and gives its links up after that, so the first cause is the one that is seen everywhere. Poison of
 * the next epoch waits until this one is settled here, and so does the loss of a host that is in it already:
 * all that this epoch needs of such a host has come. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "collectives/backends/tcp.h"
#include "collectives/engine/tuning.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define FAILED_HEADER 8

/* peers_progress follows in this turn of the loop, as for a link's own socket. */
static void links_fd_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    (void)watch;
    links_event(engine->links, engine->self, events);
}

static void link_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    links_event(engine->links, (uint32_t)((struct host *)watch - engine->host), events);
}

static int on_watch(void *ctx, uint32_t host, int fd, uint32_t wanted, struct err *e)
{
    struct engine *engine = ctx;
    struct watch *watch = &engine->host[host].link;

    *watch = (struct watch){fd, link_ready};
    return engine_watch(engine, watch, wanted, e);
}

static void on_ready(void *ctx, uint32_t host)
{
    struct engine *engine = ctx;

    (void)host;
    for (uint32_t i = 0; i < engine->hosts; i++)
        if (i != engine->self && !links_ready(engine->links, i))
            return;
    engine->links_up = true;
    log_debug("linked to %u hosts", engine->hosts - 1);
}

/* What it sent could not be taken. */
static void peer_is_broken(struct engine *engine, uint32_t host, const struct err *why)
{
    char text[SHM_TEXT_MAX];

    if (why->code == ERR_MEMORY) { /* that is not the peer's fault */
        engine_out_of_memory(engine, why->text);
        return;
    }
    snprintf(text, sizeof text, "the engine of %.100s sends what it may not: %.300s", engine->host[host].name,
             why->text);
    engine_poison(engine, HVD_ERR_PEER, text);
}

/* PEER_FAILED: that byte, the negated hvd_status, 2 bytes of 0, the epoch (4, little endian), the sentence.
 */
static int on_failed(struct engine *engine, const uint8_t *data, size_t size, struct err *e)
{
    char text[SHM_TEXT_MAX];

    if (size < FAILED_HEADER)
        return err_set(e, ERR_PROTOCOL, "a failure of %zu bytes", size);
    size_t len = size - FAILED_HEADER < sizeof text ? size - FAILED_HEADER : sizeof text - 1;
    memcpy(text, data + FAILED_HEADER, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = ' ';
    engine_poison(engine, data[1] == -HVD_ERR_ENGINE ? HVD_ERR_ENGINE : HVD_ERR_PEER, text);
    return 0;
}

/* Readiness of the world, or a failure, of the epoch after this one: nothing else comes before the first
 * barrier. */
static bool is_early(const struct engine *engine, const uint8_t *data, size_t size)
{
    return size >= 8 && *data <= PEER_FAILED && get_u32(data + 4) == engine->epoch + 1;
}

void peers_take(struct engine *engine, uint32_t host, const void *data, size_t size)
{
    const uint8_t *type = data;
    struct err e = ERR_INIT;
    int rc;

    if (size == 0)
        rc = err_set(&e, ERR_PROTOCOL, "an empty message");
    else if (is_early(engine, data, size))
        rc = again_early(engine, host, data, size, &e);
    else if (*type < PEER_FAILED)
        rc = sets_receive(engine, host, data, size, &e);
    else if (*type >= BACKEND_CONTROL_TYPE)
        rc = backend_tcp_control(engine->backend, host, data, size, &e);
    else if (*type == PEER_FAILED)
        rc = on_failed(engine, data, size, &e);
    else if (*type == PEER_SET)
        rc = sets_receive(engine, host, data, size, &e);
    else if (*type == PEER_TUNING)
        rc = tuning_receive(engine, host, data, size, &e);
    else if (*type == PEER_JOINED || *type == PEER_WANTED)
        rc = joins_receive(engine, host, data, size, &e);
    else if (*type == PEER_STALL)
        rc = stalls_receive(engine, host, data, size, &e);
    else
        rc = err_set(&e, ERR_PROTOCOL, "a message of unknown type %u", *type);
    if (rc != 0)
        peer_is_broken(engine, host, &e);
}

static void on_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    peers_take(ctx, host, data, size);
}

static void *on_bulk_place(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct engine *engine = ctx;

    return backend_tcp_bulk_place(engine->backend, host, head);
}

static void on_bulk_arrived(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct engine *engine = ctx;
    struct err e = ERR_INIT;

    if (backend_tcp_bulk_arrived(engine->backend, host, head, &e) != 0)
        peer_is_broken(engine, host, &e);
}

static void on_lost(void *ctx, uint32_t host, const struct err *why)
{
    struct engine *engine = ctx;
    const struct host *h = &engine->host[host];
    char text[SHM_TEXT_MAX], ranks[64];

    if (engine->finished || again_is_early(engine, host)) {
        engine->lost_host = host;
        return;
    }
    snprintf(text, sizeof text, "host %.100s (%s %s) is lost: %.250s", h->name,
             h->ranks > 1 ? "ranks" : "rank", ranks_text(h->rank, h->ranks, ranks, sizeof ranks), why->text);
    engine_poison(engine, HVD_ERR_PEER, text);
}

static const struct links_events events = {on_ready,        on_control, on_bulk_place,
                                           on_bulk_arrived, on_lost,    on_watch};

static int open_links(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    const char **name = calloc(engine->hosts, sizeof *name);
    struct links_config config = {
        .job = engine->job,
        .epoch = engine->epoch,
        .key = c->key.data,
        .auth = auth_open(e),
        .tls = c->encrypt ? tls_open(e) : NULL,
        .kind = LINK_ENGINE,
        .self = engine->self,
        .hosts = engine->hosts,
        .name = name,
        .address = (const char *const *)c->address,
        .addresses = c->n_address,
        .heartbeat_ms = c->heartbeat_ms,
        .start_ms = ENGINE_LINKS_MS,
    };

    if (!name)
        err_set(e, ERR_MEMORY, "no memory for %u hosts", engine->hosts);
    for (uint32_t i = 0; name && i < engine->hosts; i++)
        name[i] = engine->host[i].name;
    if (name && config.auth && (config.tls || !c->encrypt) &&
        port_range_set(&config.ports, c->port_low, c->port_high, e) == 0) {
        config.ports.promised = (uint16_t)c->port_promised;
        engine->links = links_new(&config, &events, engine, clock_now(), e);
    }
    free(name);
    return engine->links ? 0 : -1;
}

static int advertise(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Link link = HVD__LINK__INIT;

    link.host = engine->self;
    link.address = c->address;
    link.n_address = c->n_address;
    link.port = links_port(engine->links);
    message.body_case = HVD__ENGINE__BODY_LINK;
    message.link = &link;
    return session_send(engine, &message, e);
}

static int make_backend(struct engine *engine, struct err *e)
{
    struct backend_tcp_config config = {
        .wire = &links_wire, .self = engine->self, .hosts = engine->hosts, .links = engine->links};

    engine->backend = backend_tcp_new(&config, e);
    return engine->backend ? 0 : -1;
}

int peers_again(struct engine *engine, struct err *e)
{
    engine->backend->ops->free(engine->backend);
    return make_backend(engine, e);
}

int peers_start(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    if (open_links(engine, c, e) != 0 || make_backend(engine, e) != 0)
        return -1;
    engine->links_watch = (struct watch){links_fd(engine->links), links_fd_ready};
    if (engine_watch(engine, &engine->links_watch, EPOLLIN, e) != 0)
        return -1;
    return advertise(engine, c, e);
}

void peers_connect(struct engine *engine, const Hvd__Links *links)
{
    uint64_t now = clock_now();
    struct err e = ERR_INIT;

    if (!engine->links)
        return;
    for (size_t i = 0; i < links->n_link; i++) {
        const Hvd__Link *l = links->link[i];
        if (l->host == engine->self || l->host >= engine->hosts)
            continue;
        if (l->port == 0 || l->port > UINT16_MAX)
            err_set(&e, ERR_PROTOCOL, "host %s is said to listen on port %u", engine->host[l->host].name,
                    l->port);
        else
            links_connect(engine->links, l->host, (const char *const *)l->address, l->n_address,
                          (uint16_t)l->port, now, &e);
    }
    if (e.code)
        engine_poison(engine, HVD_ERR_PEER, e.text);
}

void peers_tell_death(struct engine *engine, int status, const char *text)
{
    uint8_t message[FAILED_HEADER + SHM_TEXT_MAX] = {PEER_FAILED, (uint8_t)-status};
    size_t len = strnlen(text, SHM_TEXT_MAX);
    struct err e = ERR_INIT;

    put_u32(message + 4, engine->epoch);
    memcpy(message + FAILED_HEADER, text, len);
    for (uint32_t i = 0; engine->links && i < engine->hosts; i++)
        if (i != engine->self && links_ready(engine->links, i))
            links_send_control(engine->links, i, message, FAILED_HEADER + len, &e);
}

/* After a failure: nothing may write into the workers' memory any more. Not from inside a callback of links
 * or backend, which may be in the middle of something, but before the loop waits again. */
static void shut_down(struct engine *engine)
{
    char text[SHM_TEXT_MAX] = "its part of the job has ended";
    struct err e = ERR_INIT;

    if (region_poisoned(&engine->region))
        region_poison_read(&engine->region, text, sizeof text);
    err_set(&e, ERR_CLOSED, "%s", text);
    links_shutdown(engine->links, text);
    engine->backend->ops->fail(engine->backend, &e);
    engine->links_down = true;
}

bool peers_progress(struct engine *engine, uint64_t now)
{
    bool active;

    if (!engine->links || engine->links_down)
        return false;
    active = links_progress(engine->links, now) > 0;
    if (region_poisoned(&engine->region))
        shut_down(engine);
    return active;
}

bool peers_look(struct engine *engine, uint64_t now)
{
    if (!engine->has_sent)
        return false;
    engine->has_sent = false;
    if (engine->hosts != 2)
        return false;
    links_event(engine->links, 1 - engine->self, EPOLLIN);
    return peers_progress(engine, now);
}

int peers_timeout(const struct engine *engine, uint64_t now)
{
    return engine->links && !engine->links_down ? links_timeout(engine->links, now) : -1;
}

void peers_free(struct engine *engine)
{
    if (engine->links && engine->backend && !engine->links_down)
        shut_down(engine);
    if (engine->backend)
        engine->backend->ops->free(engine->backend);
    links_free(engine->links);
}
