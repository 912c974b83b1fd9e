/* The engines of the other hosts: the links to them, and deaths told over them.
 *
 * Nothing is sent before every link is ready, which may take ENGINE_LINKS_MS from the moment when the session
 * has told where all engines listen. A link that is lost is a lost host; the job fails with that, unless the
 * shutdown was settled already, when hosts go as they please. Every engine sends its poison to all others at
 * once and gives its links up after that, so the first cause is the one that is seen everywhere. In an
 * elastic job an engine sends its poison to those beside it in the tree of hosts, which pass it on. Poison of
 * the next epoch waits until this one is settled here, and so does the loss of a host that is in it already:
 * all that this epoch needs of such a host has come. */
#include "collectives/engine/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "collectives/backends/tcp.h"
#include "collectives/engine/agree/host_tree.h"
#include "collectives/engine/engine.h"
#include "collectives/engine/membership.h"
#include "collectives/engine/rank_link.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define FAILED_HEADER 8
#define FENCE_SIZE    8
#define DOUBTS        2     /* turns */
#define EARLY_MAX     4096u /* messages; a host sends one or two before it needs an answer */

struct early_message {
    struct early_message *next;
    uint32_t from; /* the host's id */
    uint32_t epoch;
    size_t size;
    uint8_t bytes[];
};

_Static_assert(BACKEND_CONTROL_TYPE == ENGINE_MESSAGES, "a message is a part's or the backend's");

/* The links progress in this turn of the loop, as for a link's own socket. */
static void links_fd_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    (void)watch;
    links_event(engine->peers.links, engine->self, events);
}

static void link_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    links_event(engine->peers.links, (uint32_t)((struct host *)watch - engine->host), events);
}

static int on_watch(void *ctx, uint32_t host, int fd, uint32_t wanted, struct err *e)
{
    struct engine *engine = ctx;
    struct watch *watch = &engine->host[host].link;
    *watch = (struct watch){fd, link_ready};
    return engine_watch(engine, watch, wanted, e);
}

static bool are_linked(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->hosts; i++)
        if (i != engine->self && !links_ready(engine->peers.links, i))
            return false;
    return true;
}

/* Other hosts may connect before this engine knows all engines. No operation begins until then, since all
 * engines must cut tensors alike. */
static void note_links(struct engine *engine)
{
    engine->peers.up = engine->peers.met && are_linked(engine);
    if (engine->peers.up)
        log_debug("linked to %u hosts", engine->hosts - 1);
}

bool peers_share_machine(const struct engine *engine, uint32_t host)
{
    uint32_t machine = engine->host[host].machine;
    return machine != 0 && machine == engine->host[engine->self].machine;
}

/* As soon as the link is ready and both machines are known. */
static void tune_link(const struct engine *engine, uint32_t host)
{
    if (peers_share_machine(engine, host) && links_ready(engine->peers.links, host))
        net_set_near_options(engine->host[host].link.fd);
}

static void on_ready(void *ctx, uint32_t host)
{
    tune_link(ctx, host);
    note_links(ctx);
}

/* A message of the host could not be taken. */
static void peer_is_broken(struct engine *engine, uint32_t host, const struct err *why)
{
    if (why->code == ERR_MEMORY) { /* that is not the peer's fault */
        engine_out_of_memory(engine, why->text);
        return;
    }
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "the engine of %.100s sends what it may not: %.300s", engine->host[host].name,
             why->text);
    engine_poison(engine, HVD_ERR_PEER, text);
}

/* PEER_FAILED: that byte, the negated hvd_status, 2 bytes of 0, the epoch (4, little endian), the sentence.
 */
static int take_failure(struct engine *engine, uint32_t from, const void *message, size_t size, struct err *e)
{
    const uint8_t *data = message;
    (void)from;
    if (size < FAILED_HEADER)
        return err_set(e, ERR_PROTOCOL, "a failure of %zu bytes", size);
    char text[SHM_TEXT_MAX];
    size_t len = size - FAILED_HEADER < sizeof text ? size - FAILED_HEADER : sizeof text - 1;
    memcpy(text, data + FAILED_HEADER, len);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = ' ';
    engine_poison(engine, data[1] == -HVD_ERR_ENGINE ? HVD_ERR_ENGINE : HVD_ERR_PEER, text);
    return 0;
}

/* ---- messages of the next epoch ------------------------------------------------------------------------ */

/* Readiness of the world, or a failure, of the epoch after this one: nothing else comes before the first
 * barrier. */
static bool is_early(const struct engine *engine, const uint8_t *data, size_t size)
{
    return size >= 8 && *data <= PEER_FAILED && get_u32(data + 4) == engine->epoch + 1;
}

static int keep_early(struct engine *engine, uint32_t from, uint32_t epoch, const void *data, size_t size,
                      struct err *e)
{
    struct early_message **end = &engine->peers.early;
    struct early_message *m = engine->peers.earlies < EARLY_MAX ? malloc(sizeof *m + size) : NULL;
    if (!m)
        return err_set(e, ERR_MEMORY, "too much of epoch %u while this host is at %u", epoch, engine->epoch);
    *m = (struct early_message){.from = engine->host[from].id, .epoch = epoch, .size = size};
    memcpy(m->bytes, data, size);
    while (*end)
        end = &(*end)->next;
    *end = m;
    engine->peers.earlies++;
    return 0;
}

/* A message of that host is kept: it has finished this epoch. */
static bool has_early(const struct engine *engine, uint32_t host)
{
    for (const struct early_message *m = engine->peers.early; m; m = m->next)
        if (m->from == engine->host[host].id)
            return true;
    return false;
}

static struct early_message *take_first_early(struct engine *engine)
{
    struct early_message *m = engine->peers.early;
    if (m) {
        engine->peers.early = m->next;
        engine->peers.earlies--;
    }
    return m;
}

/* ---- messages of other engines ------------------------------------------------------------------------- */

/* PEER_FENCE: that byte, 3 of 0, the membership (4, little endian) that the link's messages are of from now
 * on. */
static int take_fence(struct engine *engine, uint32_t host, const uint8_t *data, size_t size, struct err *e)
{
    uint32_t epoch = size == FENCE_SIZE ? get_u32(data + 4) : 0;
    if (!engine->membership || epoch <= engine->host[host].sends)
        return err_set(e, ERR_PROTOCOL, "a fence of %zu bytes before epoch %u", size, epoch);
    engine->host[host].sends = epoch;
    return 0;
}

/* Elastic: the message is of an epoch that is over here, or has failed. */
static bool is_late(const struct engine *engine, uint32_t host)
{
    uint32_t sends = engine->host[host].sends;
    return engine->membership && (sends < engine->epoch || (sends == engine->epoch && engine->peers.down));
}

static bool is_ahead(const struct engine *engine, uint32_t host, const void *data, size_t size)
{
    return engine->membership ? engine->host[host].sends > engine->epoch : is_early(engine, data, size);
}

/* A message of the present epoch. */
static void handle_message(struct engine *engine, uint32_t host, const void *data, size_t size)
{
    const uint8_t *type = data;
    struct err e = ERR_INIT;
    int rc;
    if (*type >= BACKEND_CONTROL_TYPE)
        rc = backend_tcp_control(engine->peers.backend, host, data, size, &e);
    else if (engine->peers.receiver[*type])
        rc = engine->peers.receiver[*type]->message(engine, host, data, size, &e);
    else
        rc = err_set(&e, ERR_PROTOCOL, "a message of unknown type %u", *type);
    if (rc != 0)
        peer_is_broken(engine, host, &e);
}

static void take_message(struct engine *engine, uint32_t host, const void *data, size_t size)
{
    uint32_t epoch = engine->membership ? engine->host[host].sends : engine->epoch + 1;
    struct err e = ERR_INIT;
    int rc = 0;
    if (size == 0)
        rc = err_set(&e, ERR_PROTOCOL, "an empty message");
    else if (*(const uint8_t *)data == PEER_FENCE)
        rc = take_fence(engine, host, data, size, &e);
    else if (is_ahead(engine, host, data, size))
        rc = keep_early(engine, host, epoch, data, size, &e);
    else if (!is_late(engine, host))
        handle_message(engine, host, data, size);
    if (rc != 0)
        peer_is_broken(engine, host, &e);
}

void peers_take_early(struct engine *engine)
{
    struct early_message *m = engine->peers.early, *next;
    engine->peers.early = NULL;
    engine->peers.earlies = 0;
    for (; m; m = next) {
        uint32_t host = 0;
        struct err e = ERR_INIT;
        next = m->next;
        while (host < engine->hosts && engine->host[host].id != m->from)
            host++;
        if (host < engine->hosts && m->epoch == engine->epoch)
            handle_message(engine, host, m->bytes, m->size);
        else if (host < engine->hosts && m->epoch > engine->epoch &&
                 keep_early(engine, host, m->epoch, m->bytes, m->size, &e) != 0)
            engine_out_of_memory(engine, e.text);
        free(m);
    }
}

static void on_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    take_message(ctx, host, data, size);
}

static void *on_bulk_place(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct engine *engine = ctx;
    if (is_late(engine, host)) {
        if (!engine->peers.scrap)
            engine->peers.scrap = malloc(LINKS_BULK_MAX);
        return engine->peers.scrap;
    }
    return backend_tcp_bulk_place(engine->peers.backend, host, head);
}

static void on_bulk_arrived(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct engine *engine = ctx;
    struct err e = ERR_INIT;
    if (is_late(engine, host))
        return;
    if (backend_tcp_bulk_arrived(engine->peers.backend, host, head, &e) != 0)
        peer_is_broken(engine, host, &e);
}

/* The launcher names a membership without the host. */
static void tell_unreachable(struct engine *engine, uint32_t host, const struct err *why)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Unreachable lost = HVD__UNREACHABLE__INIT;
    struct err e = ERR_INIT;
    lost.id = engine->host[host].id;
    lost.text = (char *)(uintptr_t)why->text;
    message.body_case = HVD__ENGINE__BODY_UNREACHABLE;
    message.unreachable = &lost;
    if (engine_send(engine, &message, &e) != 0)
        log_debug("the session will not know of a lost link: %s", e.text);
}

static bool is_beside_in_tree(uint32_t a, uint32_t b)
{
    return (a > 0 && (a - 1) / HOST_TREE_RADIX == b) || (b > 0 && (b - 1) / HOST_TREE_RADIX == a);
}

/* All ranks here wait to hear that all others have called hvd_shutdown. The host may have heard that already,
 * and be gone. If it died before, those beside it in the tree of hosts tell all. */
static bool may_have_shut_down(const struct engine *engine, uint32_t host)
{
    const struct name *shutdown = &engine->names.name[SHM_SLOT_SHUTDOWN];
    return (shutdown->announced || shutdown->running) && !is_beside_in_tree(engine->self, host);
}

static void on_lost(void *ctx, uint32_t host, const struct err *why)
{
    struct engine *engine = ctx;
    const struct host *h = &engine->host[host];
    if (engine->membership)
        tell_unreachable(engine, host, why);
    if (engine->finished || has_early(engine, host) || may_have_shut_down(engine, host)) {
        engine->peers.lost_host = host;
        return;
    }
    char text[SHM_TEXT_MAX], ranks[64];
    snprintf(text, sizeof text, "host %.100s (%s %s) is lost: %.250s", h->name,
             h->ranks > 1 ? "ranks" : "rank", ranks_text(h->rank, h->ranks, ranks, sizeof ranks), why->text);
    bool doubtful = engine->names.name[SHM_SLOT_SHUTDOWN].announced && !engine->peers.doubt;
    if (doubtful) {
        engine->peers.doubt = strdup(text);
        engine->peers.doubts = 0;
        engine->peers.lost_host = host;
    }
    if (!doubtful || !engine->peers.doubt)
        engine_poison(engine, HVD_ERR_PEER, text);
}

/* A host was lost while this one waits for the end of the job. The word of that end may have come just
 * before, and is looked at in this turn or the next one. */
static void settle_doubt(struct engine *engine, struct turn *turn)
{
    char *doubt = engine->peers.doubt;
    turn->more = true;
    if (!engine->finished && engine->peers.doubts++ < DOUBTS)
        return;
    engine->peers.doubt = NULL;
    if (!engine->finished)
        engine_poison(engine, HVD_ERR_PEER, doubt);
    free(doubt);
}

static const struct links_events events = {on_ready,        on_control, on_bulk_place,
                                           on_bulk_arrived, on_lost,    on_watch};

static int open_links(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    const char **name = calloc(engine->hosts, sizeof *name);
    struct links_config config = {
        .job = c->job,
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
        .lasting = c->elastic,
    };
    if (!name)
        err_set(e, ERR_MEMORY, "no memory for %u hosts", engine->hosts);
    for (uint32_t i = 0; name && i < engine->hosts; i++)
        name[i] = engine->host[i].name;
    if (name && config.auth && (config.tls || !c->encrypt) &&
        port_range_set(&config.ports, c->port_low, c->port_high, e) == 0) {
        config.ports.promised = (uint16_t)c->port_promised;
        engine->peers.links = links_new(&config, &events, engine, clock_now(), e);
    }
    free(name);
    return engine->peers.links ? 0 : -1;
}

static int advertise_port(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Link link = HVD__LINK__INIT;
    link.host = engine->self;
    link.address = c->address;
    link.n_address = c->n_address;
    link.port = links_port(engine->peers.links);
    link.pieces_fit = true;
    rank_link_advertise(engine, &link);
    message.body_case = HVD__ENGINE__BODY_LINK;
    message.link = &link;
    return engine_send(engine, &message, e);
}

static int make_backend(struct engine *engine, struct err *e)
{
    struct backend_tcp_config config = {
        .wire = &links_wire, .self = engine->self, .hosts = engine->hosts, .links = engine->peers.links};
    engine->peers.backend = backend_tcp_new(&config, e);
    return engine->peers.backend ? 0 : -1;
}

/* A doubt about a host of the former epoch ends with that. */
static int begin_peers(struct engine *engine, struct err *e)
{
    free(engine->peers.doubt);
    engine->peers.doubt = NULL;
    if (!engine->peers.links)
        return 0;
    if (engine->peers.backend)
        engine->peers.backend->ops->free(engine->peers.backend);
    return make_backend(engine, e);
}

static void index_receivers(struct engine *engine)
{
    for (size_t i = 0; engine->parts[i]; i++)
        for (uint32_t type = 0; type < ENGINE_MESSAGES; type++)
            if (engine->parts[i]->messages & 1u << type)
                engine->peers.receiver[type] = engine->parts[i];
}

/* Tells the session that engines of other hosts may connect: on one host there is nothing to connect to. */
static int announce_alone(struct engine *engine, struct err *e)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__Link link = HVD__LINK__INIT;
    link.host = engine->self;
    message.body_case = HVD__ENGINE__BODY_LINK;
    message.link = &link;
    return engine_send(engine, &message, e);
}

static int start_peers(struct engine *engine, const Hvd__EngineConfig *c, struct err *e)
{
    if (engine->hosts == 1 && !engine->membership)
        return announce_alone(engine, e);
    index_receivers(engine);
    for (uint32_t i = 0; i < engine->hosts; i++)
        engine->host[i].sends = engine->epoch;
    if (open_links(engine, c, e) != 0 || make_backend(engine, e) != 0)
        return -1;
    engine->peers.watch = (struct watch){links_fd(engine->peers.links), links_fd_ready};
    if (engine_watch(engine, &engine->peers.watch, EPOLLIN, e) != 0)
        return -1;
    return advertise_port(engine, c, e);
}

void peers_connect(struct engine *engine, const Hvd__Links *links)
{
    if (engine->peers.links && (!engine->membership || engine->epoch == engine->membership->first))
        peers_meet(engine, links->link, links->n_link);
}

void peers_meet(struct engine *engine, Hvd__Link *const *link, size_t links)
{
    uint64_t now = clock_now();
    struct err e = ERR_INIT;
    engine->peers.fit = links >= engine->hosts;
    for (size_t i = 0; i < links; i++)
        if (link[i]->host < engine->hosts)
            engine->host[link[i]->host].machine = link[i]->machine;
    for (size_t i = 0; i < links; i++) {
        const Hvd__Link *l = link[i];
        engine->peers.fit = engine->peers.fit && l->pieces_fit;
        if (l->host == engine->self || l->host >= engine->hosts)
            continue;
        if (l->port == 0 || l->port > UINT16_MAX)
            err_set(&e, ERR_PROTOCOL, "host %s is said to listen on port %u", engine->host[l->host].name,
                    l->port);
        else
            links_connect(engine->peers.links, l->host, (const char *const *)l->address, l->n_address,
                          (uint16_t)l->port, now, &e);
        tune_link(engine, l->host);
    }
    engine->peers.met = true;
    note_links(engine);
    if (e.code)
        engine_poison(engine, HVD_ERR_PEER, e.text);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* In an elastic job along the tree of hosts. If that is broken, the launcher's next membership ends this one.
 */
static void send_failure(struct engine *engine, int status, const char *text)
{
    uint8_t message[FAILED_HEADER + SHM_TEXT_MAX] = {PEER_FAILED, (uint8_t)-status};
    size_t len = strnlen(text, SHM_TEXT_MAX);
    struct err e = ERR_INIT;
    put_u32(message + 4, engine->epoch);
    memcpy(message + FAILED_HEADER, text, len);
    for (uint32_t i = 0; i < engine->hosts; i++)
        if (i != engine->self && links_ready(engine->peers.links, i) &&
            (!engine->membership || is_beside_in_tree(i, engine->self)))
            links_send_control(engine->peers.links, i, message, FAILED_HEADER + len, &e);
}

/* After a failure, of which the other hosts hear first: nothing may write into the workers' memory any more.
 * Not from inside a callback of links or backend, which may be in the middle of something, but before the
 * loop waits again. `again`: another membership may use the links. */
static void close_links(struct engine *engine, bool again)
{
    char text[SHM_TEXT_MAX] = "its part of the job has ended";
    struct err e = ERR_INIT;
    if (engine->region.header && region_poisoned(&engine->region)) {
        int status = region_poison_read(&engine->region, text, sizeof text);
        send_failure(engine, status, text);
    }
    err_set(&e, ERR_CLOSED, "%s", text);
    if (again)
        links_cut(engine->peers.links);
    else
        links_shutdown(engine->peers.links, text);
    engine->peers.backend->ops->fail(engine->peers.backend, &e);
    engine->peers.down = true;
}

static bool progress_links(struct engine *engine, uint64_t now)
{
    if (!engine->peers.links || (engine->peers.down && !engine->membership))
        return false;
    bool active = links_progress(engine->peers.links, now) > 0;
    if (region_poisoned(&engine->region) && !engine->peers.down)
        close_links(engine, engine->membership != NULL);
    return active;
}

bool peers_look(struct engine *engine, uint64_t now)
{
    if (!engine->peers.has_sent)
        return false;
    engine->peers.has_sent = false;
    if (engine->hosts != 2)
        return false;
    links_event(engine->peers.links, 1 - engine->self, EPOLLIN);
    return progress_links(engine, now);
}

static void progress_peers(struct engine *engine, struct turn *turn)
{
    turn->active = progress_links(engine, turn->now) || turn->active;
    if (engine->peers.doubt)
        settle_doubt(engine, turn);
}

/* The links go on to the hosts of the next membership. */
static int regroup_peers(struct engine *engine, const struct engine_regroup *g, struct err *e)
{
    const char **name = calloc(engine->hosts, sizeof *name);
    uint8_t fence[FENCE_SIZE] = {PEER_FENCE};
    struct links_group group = {engine->epoch, engine->self, engine->hosts, g->host_was,
                                name,          g->was_alone, fence,         sizeof fence};
    if (!name)
        return err_set(e, ERR_MEMORY, "no memory for %u hosts", engine->hosts);
    for (uint32_t i = 0; i < engine->hosts; i++)
        name[i] = engine->host[i].name;
    put_u32(fence + 4, engine->epoch);
    int rc = links_regroup(engine->peers.links, &group, clock_now(), e);
    free(name);
    for (uint32_t i = 0; rc == 0 && i < engine->hosts; i++)
        if (i == engine->self || !links_ready(engine->peers.links, i))
            engine->host[i].sends = engine->epoch; /* a new link is made in this epoch */
    engine->peers.down = false;
    engine->peers.lost_host = UINT32_MAX;
    engine->peers.met = engine->peers.up = false;
    return rc;
}

static void free_peers(struct engine *engine)
{
    if (engine->peers.links && engine->peers.backend && !engine->peers.down)
        close_links(engine, false);
    free(engine->peers.scrap);
    free(engine->peers.doubt);
    if (engine->peers.backend)
        engine->peers.backend->ops->free(engine->peers.backend);
    links_free(engine->peers.links);
    for (struct early_message *m = take_first_early(engine); m; m = take_first_early(engine))
        free(m);
}

const struct engine_part peers_part = {.start = start_peers,
                                       .epoch_begin = begin_peers,
                                       .regroup = regroup_peers,
                                       .progress = progress_peers,
                                       .messages = 1u << PEER_FAILED,
                                       .message = take_failure,
                                       .free = free_peers};
