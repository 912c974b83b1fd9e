/* How the engines make the connection. Host 0 listens, host 1 connects.
 *
 *   host 1                                host 0
 *     WANTED  ------------------------------>      its rank has asked (host 0's rank may ask first)
 *             <------------------------------  OFFER    host 0 listens on this port
 *     connects, authenticates ------------->
 *             <------------------------------  READY    both have the connection
 *
 * REFUSED, in both directions: there is none in this epoch. Host 1 refuses only before it has sent the last
 * message of the handshake, host 0 only before READY; so both always end alike. The rank is answered then.
 *
 * Message between engines (integers little endian): PEER_RANK_LINK 1, what 1 (enum said), port 2, epoch 4. */
#include "collectives/engine/rank_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"

#define MESSAGE_SIZE 8
#define START_MS     3000 /* from the first address to the connection */
#define PROBE_S      15   /* firewalls forget connections that are silent for a minute or more */
#define NEARBY       (1u << 30)

enum said { WANTED = 1, OFFER, READY, REFUSED };

enum state {
    STATE_NEW,
    STATE_WANTED,     /* host 1: has said so */
    STATE_CONNECTING, /* both listen or connect */
    STATE_HELD,       /* host 1: has the connection, and does not know whether host 0 has it */
    STATE_UP,
    STATE_NONE
};

struct rank_link {
    enum state state;
    bool asked; /* the rank waits for the answer */
    int fd;     /* -1: not yet, or the rank has it */
    uint32_t heartbeat_ms;
    struct port_range ports;
    struct links *links; /* while it is made */
    struct watch watch;
};

/* ---- ends of the attempt ------------------------------------------------------------------------------- */

static void tell_other(struct engine *engine, enum said what, uint16_t port)
{
    uint8_t message[MESSAGE_SIZE];
    struct writer w = writer_of(message, sizeof message);
    struct err e = ERR_INIT;
    write_u8(&w, PEER_RANK_LINK);
    write_u8(&w, (uint8_t)what);
    write_u16(&w, port);
    write_u32(&w, engine->epoch);
    if (links_send_control(engine->peers.links, 1 - engine->self, message, sizeof message, &e) != 0)
        log_debug("no word about a link between ranks: %s", e.text);
}

static void close_fd(struct rank_link *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

static void drop_links(struct engine *engine, struct rank_link *r)
{
    if (!r->links)
        return;
    engine_unwatch(engine, &r->watch);
    links_free(r->links);
    r->links = NULL;
    r->watch.fd = -1;
}

static void answer_rank(struct engine *engine, struct rank_link *r)
{
    struct worker_message a = {.tag = WORKER_MESSAGE_TAG, .type = WORKER_RANK_LINK};
    struct worker *w = engine->workers.member[0].worker;
    struct err e = ERR_INIT;
    if (!r->asked)
        return;
    r->asked = false;
    if (w && worker_send(w->watch.fd, &a, &r->fd, r->fd >= 0, &e) != 0)
        log_debug("the rank does not hear of its link: %s", e.text);
    close_fd(r);
}

static void settle_state(struct engine *engine, enum state state)
{
    struct rank_link *r = engine->peers.rank_link;
    r->state = state;
    if (state == STATE_NONE)
        close_fd(r);
    answer_rank(engine, r);
}

/* There is none, and the other host has to know. */
static void refuse_link(struct engine *engine)
{
    tell_other(engine, REFUSED, 0);
    settle_state(engine, STATE_NONE);
}

/* ---- making it ----------------------------------------------------------------------------------------- */

/* The connection is kept beyond the links that made it. */
static int keep_socket(void *ctx, uint32_t host, int fd, uint32_t events, struct err *e)
{
    struct engine *engine = ctx;
    struct rank_link *r = engine->peers.rank_link;
    (void)host, (void)events;
    r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (r->fd < 0)
        err_sys(e, errno, "cannot keep the connection of rank %u to the other host", engine->region.rank[0]);
    if (r->fd >= 0 && net_set_quiet_options(fd, PROBE_S, e) == 0)
        return 0;
    if (engine->self == 1) /* host 0 has it, and may have given it to its rank */
        engine_poison(engine, HVD_ERR_ENGINE, e->text);
    return -1;
}

static void link_is_ready(void *ctx, uint32_t host)
{
    struct engine *engine = ctx;
    (void)host;
    if (engine->self == 0)
        tell_other(engine, READY, 0);
    engine->peers.rank_link->state = engine->self == 0 ? STATE_UP : STATE_HELD;
}

static void link_is_lost(void *ctx, uint32_t host, const struct err *why)
{
    struct engine *engine = ctx;
    (void)host;
    log_debug("no link between the ranks: %s", why->text);
    engine->peers.rank_link->state = STATE_NONE;
}

/* Neither may come: nothing is sent before both ranks have the connection. */
static void refuse_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    (void)ctx, (void)host, (void)data, (void)size;
}

static void *refuse_bulk(void *ctx, uint32_t host, const struct link_bulk *head)
{
    (void)ctx, (void)host, (void)head;
    return NULL;
}

static void refuse_arrival(void *ctx, uint32_t host, const struct link_bulk *head)
{
    (void)ctx, (void)host, (void)head;
}

static const struct links_events events = {link_is_ready,  refuse_control, refuse_bulk,
                                           refuse_arrival, link_is_lost,   keep_socket};

/* They progress in this turn of the loop. */
static void links_move(struct engine *engine, struct watch *watch, uint32_t told)
{
    (void)watch;
    links_event(engine->peers.rank_link->links, engine->self, told);
}

/* port 0: this host listens. */
static int open_links(struct engine *engine, uint16_t port, struct err *e)
{
    struct rank_link *r = engine->peers.rank_link;
    char own[NET_TEXT_MAX], other[NET_TEXT_MAX];
    const char *const name[] = {engine->host[0].name, engine->host[1].name};
    const char *const here[] = {own}, *const there[] = {other};
    struct links_config config = {.kind = LINK_RANK,
                                  .self = engine->self,
                                  .hosts = 2,
                                  .name = name,
                                  .address = here,
                                  .addresses = 1,
                                  .ports = r->ports,
                                  .heartbeat_ms = r->heartbeat_ms,
                                  .start_ms = START_MS};
    uint64_t now = clock_now();
    if (links_ends(engine->peers.links, 1 - engine->self, own, other) != 0)
        return err_set(e, ERR_CLOSED, "the hosts are not linked");
    links_identify(engine->peers.links, &config);
    r->links = links_new(&config, &events, engine, now, e);
    if (!r->links)
        return -1;
    r->watch = (struct watch){links_fd(r->links), links_move};
    r->state = STATE_CONNECTING;
    if (engine_watch(engine, &r->watch, EPOLLIN, e) != 0)
        return -1;
    /* The end that listens only begins its time with that. */
    return links_connect(r->links, 1 - engine->self, there, 1, port ? port : links_port(r->links), now, e);
}

static void begin_link(struct engine *engine, uint16_t port)
{
    struct rank_link *r = engine->peers.rank_link;
    struct err e = ERR_INIT;
    if (open_links(engine, port, &e) == 0) {
        if (engine->self == 0)
            tell_other(engine, OFFER, links_port(r->links));
        return;
    }
    log_debug("no link between the ranks: %s", e.text);
    drop_links(engine, r);
    refuse_link(engine);
}

static void move_link(struct engine *engine, struct turn *turn)
{
    struct rank_link *r = engine->peers.rank_link;
    if (__builtin_expect(!r || !r->links, 1))
        return;
    links_progress(r->links, turn->now);
    if (r->state == STATE_CONNECTING) {
        turn_within(turn, links_timeout(r->links, turn->now));
        return;
    }
    drop_links(engine, r);
    if (r->state == STATE_NONE)
        refuse_link(engine);
    else if (r->state == STATE_UP)
        answer_rank(engine, r);
}

/* ---- questions and messages ---------------------------------------------------------------------------- */

void rank_link_ask(struct engine *engine, const struct worker_message *question)
{
    struct rank_link *r = engine->peers.rank_link;
    if (!r) {
        struct rank_link none = {.fd = -1, .asked = true};
        answer_rank(engine, &none);
        return;
    }
    r->asked = true;
    if (r->state == STATE_NEW && (question->id != 0 || !engine->peers.up)) {
        refuse_link(engine);
    } else if (r->state == STATE_NEW && engine->self == 0) {
        begin_link(engine, 0);
    } else if (r->state == STATE_NEW) {
        tell_other(engine, WANTED, 0);
        r->state = STATE_WANTED;
    } else if (r->state == STATE_UP || r->state == STATE_NONE) {
        answer_rank(engine, r);
    }
}

static uint32_t last_carried(const struct engine *engine, uint32_t slot)
{
    return atomic_load(&region_slot(&engine->region, slot)->member_slot[0].carried);
}

bool rank_link_carried(const struct engine *engine, uint32_t slot, uint32_t operation)
{
    return engine->peers.rank_link && last_carried(engine, slot) == operation;
}

bool rank_link_is_busy(const struct engine *engine, const struct tensor_view *v)
{
    if (!engine->peers.rank_link || v->team->members != 1)
        return false;
    uint32_t latest = tensor_latest(v, 0);
    return latest != atomic_load(&v->slot->settled) && last_carried(engine, v->number) != latest;
}

uint32_t rank_link_operation(const struct engine *engine, const struct tensor_view *v, uint32_t otherwise)
{
    if (!engine->peers.rank_link || v->team->members != 1)
        return otherwise;
    return tensor_latest(v, 0) + !rank_link_is_busy(engine, v);
}

/* An older number is none of a later operation, however long ago the last one was. */
bool rank_link_went_on(const struct engine *engine, uint32_t slot, uint32_t operation)
{
    return engine->peers.rank_link && last_carried(engine, slot) - operation < NEARBY;
}

static int take_said(struct engine *engine, struct rank_link *r, uint8_t what, uint16_t port, struct err *e)
{
    bool root = engine->self == 0;
    if (what == WANTED && root) {
        if (r->state == STATE_NEW)
            begin_link(engine, 0);
        else if (r->state == STATE_NONE)
            tell_other(engine, REFUSED, 0);
    } else if (what == OFFER && !root && port != 0) {
        if (r->state == STATE_NEW || r->state == STATE_WANTED)
            begin_link(engine, port);
        else if (r->state == STATE_NONE)
            tell_other(engine, REFUSED, 0);
    } else if (what == READY && !root && r->state == STATE_HELD) {
        settle_state(engine, STATE_UP);
    } else if (what == REFUSED && r->state != STATE_UP) {
        drop_links(engine, r);
        settle_state(engine, STATE_NONE);
    } else if (what != REFUSED) {
        return err_set(e, ERR_PROTOCOL, "a word %u about a link between ranks, which is not due", what);
    }
    return 0;
}

static int take_message(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct reader in = reader_of(data, size);
    (void)from;
    read_u8(&in);
    uint8_t what = read_u8(&in);
    uint16_t port = read_u16(&in);
    uint32_t epoch = read_u32(&in);
    if (in.bad || in.left != 0)
        return err_set(e, ERR_PROTOCOL, "a malformed word about a link between ranks");
    if (!engine->peers.rank_link && what != REFUSED)
        tell_other(engine, REFUSED, 0);
    if (!engine->peers.rank_link || epoch != engine->epoch)
        return 0;
    return take_said(engine, engine->peers.rank_link, what, port, e);
}

/* ---- the part ------------------------------------------------------------------------------------------ */

static int begin_rank_link(struct engine *engine, struct err *e)
{
    (void)e;
    if (engine->peers.rank_link)
        engine->region.header->rank_link = 1;
    return 0;
}

/* A timeline and the tuning want to see all operations. */
static int start_rank_link(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    bool two = engine->hosts == 2 && engine->host[0].ranks == 1 && engine->host[1].ranks == 1;
    /* By the configuration, which is the same on both hosts: one of them may fail to open its file. */
    bool has_timeline = config->tuning && *config->tuning->timeline;
    bool may =
        engine->options.rank_link && !config->encrypt && !config->elastic && !has_timeline && !engine->tuning;
    if (!two || !may)
        return 0;
    struct rank_link *r = engine->peers.rank_link = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for the engine");
    r->fd = r->watch.fd = -1;
    r->heartbeat_ms = config->heartbeat_ms;
    return port_range_set(&r->ports, config->port_low, config->port_high, e) < 0 ? -1
                                                                                 : begin_rank_link(engine, e);
}

static void end_rank_link(struct engine *engine)
{
    struct rank_link *r = engine->peers.rank_link;
    if (!r)
        return;
    drop_links(engine, r);
    close_fd(r);
    r->state = STATE_NEW;
    r->asked = false;
}

static void fail_rank_link(struct engine *engine)
{
    if (!engine->peers.rank_link)
        return;
    drop_links(engine, engine->peers.rank_link);
    if (engine->peers.rank_link->state != STATE_UP)
        settle_state(engine, STATE_NONE);
}

static void free_rank_link(struct engine *engine)
{
    end_rank_link(engine);
    free(engine->peers.rank_link);
    engine->peers.rank_link = NULL;
}

const struct engine_part rank_link_part = {.start = start_rank_link,
                                           .epoch_begin = begin_rank_link,
                                           .epoch_end = end_rank_link,
                                           .progress = move_link,
                                           .failed = fail_rank_link,
                                           .messages = 1u << PEER_RANK_LINK,
                                           .message = take_message,
                                           .free = free_rank_link};
