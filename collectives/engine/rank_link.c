/* How the engines make the connections, one between each two hosts, of which the lower one listens.
 *
 *   a host whose rank asks, or that gets an offer:      OFFER to all others: it listens on this port
 *   a host that has a connection to each other host:    READY to host 0
 *   host 0, when all are ready:                         UP to all others
 *
 * REFUSED, from any host to all others: there are none in this epoch. A host refuses only before it is ready,
 * and UP means that all are; so all hosts always end alike. The rank is answered then.
 *
 * Message between engines (integers little endian): PEER_RANK_LINK 1, what 1 (enum said), port 2, epoch 4.
 * Release 0.1.0 has connections between two hosts only, made in another way. An engine that does not say in
 * its Link that it makes them in this way gets no word but REFUSED. */
#include "collectives/engine/rank_link.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#define MESSAGE_SIZE 8
#define START_MS     3000     /* from the first offer to the connections */
#define SILENCE_MS   86400000 /* a day: no heartbeat may come into a connection that a rank gets */
#define PROBE_S      15       /* firewalls forget connections that are silent for a minute or more */
#define NEARBY       (1u << 30)

enum said { OFFER = 2, READY, REFUSED, UP }; /* 1: a word of release 0.1.0, which is refused */

enum state {
    STATE_NEW,
    STATE_CONNECTING,
    STATE_HELD, /* has all connections, and does not know whether all hosts have theirs */
    STATE_UP,
    STATE_NONE
};

struct rank_link {
    enum state state;
    bool agreed;            /* all engines make connections in this way */
    bool of_several;        /* the worker can have more than one */
    bool near;              /* the hosts are one machine, */
    bool crowded;           /* and none may use as many processors as there are hosts */
    bool asked;             /* the rank waits for the answer */
    uint32_t ready_hosts;   /* host 0: other hosts that are */
    uint32_t connected;     /* other hosts with a connection to this one */
    int fd[LINK_HOSTS_MAX]; /* to each host; -1: not yet, or the rank has it */
    struct port_range ports;
    struct links *links; /* while they are made */
    struct watch watch;
};

/* ---- ends of the attempt ------------------------------------------------------------------------------- */

static void tell_host(struct engine *engine, uint32_t host, enum said what, uint16_t port)
{
    uint8_t message[MESSAGE_SIZE];
    struct writer w = writer_of(message, sizeof message);
    struct err e = ERR_INIT;
    write_u8(&w, PEER_RANK_LINK);
    write_u8(&w, (uint8_t)what);
    write_u16(&w, port);
    write_u32(&w, engine->epoch);
    if (links_send_control(engine->peers.links, host, message, sizeof message, &e) != 0)
        log_debug("no word about a link between ranks: %s", e.text);
}

static void tell_others(struct engine *engine, enum said what, uint16_t port)
{
    for (uint32_t h = 0; h < engine->hosts; h++)
        if (h != engine->self)
            tell_host(engine, h, what, port);
}

static void close_fds(struct rank_link *r)
{
    for (uint32_t h = 0; h < LINK_HOSTS_MAX; h++) {
        if (r->fd[h] >= 0)
            close(r->fd[h]);
        r->fd[h] = -1;
    }
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

/* The connections go in the order of ranks, which is that of hosts. */
static void answer_rank(struct engine *engine, struct rank_link *r)
{
    struct worker_message a = {.tag = WORKER_MESSAGE_TAG, .type = WORKER_RANK_LINK};
    struct worker *w = engine->workers.member[0].worker;
    struct err e = ERR_INIT;
    int fds[LINK_HOSTS_MAX];
    unsigned number = 0;
    if (!r->asked)
        return;
    r->asked = false;
    for (uint32_t h = 0; r->state == STATE_UP && h < engine->hosts; h++)
        if (r->fd[h] >= 0)
            fds[number++] = r->fd[h];
    a.set = r->crowded ? WORKER_LINKS_CROWDED : r->near ? WORKER_LINKS_NEAR : 0;
    a.id = number; /* a rank whose table of descriptors is full gets fewer */
    if (w && worker_send(w->watch.fd, &a, fds, number, &e) != 0)
        log_debug("the rank does not hear of its links: %s", e.text);
    close_fds(r);
}

/* A worker with the libhvd of release 0.1.0 knows the connection to one other rank only. */
static void show_rank(struct engine *engine)
{
    const struct rank_link *r = engine->peers.rank_link;
    enum shm_rank_link is = SHM_RANK_LINK_NONE;
    if (r && r->agreed && (engine->hosts == 2 || r->of_several))
        is = r->state == STATE_UP ? SHM_RANK_LINK_UP : SHM_RANK_LINK_MAY;
    atomic_store_explicit(&engine->region.header->rank_link, is, memory_order_relaxed);
}

static void settle_state(struct engine *engine, enum state state)
{
    struct rank_link *r = engine->peers.rank_link;
    r->state = state;
    if (state == STATE_NONE)
        close_fds(r);
    show_rank(engine);
    answer_rank(engine, r);
}

/* There are none, and the other hosts have to know. */
static void refuse_links(struct engine *engine)
{
    tell_others(engine, REFUSED, 0);
    settle_state(engine, STATE_NONE);
}

/* ---- making them --------------------------------------------------------------------------------------- */

/* The connection is kept beyond the links that made it. */
static int keep_socket(void *ctx, uint32_t host, int fd, uint32_t events, struct err *e)
{
    struct engine *engine = ctx;
    struct rank_link *r = engine->peers.rank_link;
    (void)events;
    r->fd[host] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (r->fd[host] < 0)
        return err_sys(e, errno, "cannot keep the connection of rank %u to host %s", engine->region.rank[0],
                       engine->host[host].name);
    if (peers_share_machine(engine, host))
        net_set_near_options(fd);
    return net_set_quiet_options(fd, PROBE_S, e);
}

static void link_is_ready(void *ctx, uint32_t host)
{
    struct engine *engine = ctx;
    (void)host;
    engine->peers.rank_link->connected++;
}

static void link_is_lost(void *ctx, uint32_t host, const struct err *why)
{
    struct engine *engine = ctx;
    (void)host;
    log_debug("no link between the ranks: %s", why->text);
    engine->peers.rank_link->state = STATE_NONE;
}

/* None may come: nothing is sent before all ranks have their connections. */
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

/* The end that listens only begins its time with that. */
static int connect_host(struct engine *engine, uint32_t host, uint16_t port, struct err *e)
{
    struct rank_link *r = engine->peers.rank_link;
    char own[NET_TEXT_MAX], other[NET_TEXT_MAX];
    const char *const there[] = {other};
    if (links_ends(engine->peers.links, host, own, other) != 0)
        return err_set(e, ERR_CLOSED, "the hosts are not linked");
    return links_connect(r->links, host, there, 1, port, clock_now(), e);
}

/* On all interfaces of the engines' own links, and at once for the hosts that connect to this one. */
static int open_links(struct engine *engine, struct err *e)
{
    struct rank_link *r = engine->peers.rank_link;
    char own[LINK_HOSTS_MAX][NET_TEXT_MAX], other[NET_TEXT_MAX];
    const char *name[LINK_HOSTS_MAX], *here[LINK_HOSTS_MAX];
    struct links_config config = {.kind = LINK_RANK,
                                  .self = engine->self,
                                  .hosts = engine->hosts,
                                  .name = name,
                                  .address = here,
                                  .ports = r->ports,
                                  .heartbeat_ms = SILENCE_MS,
                                  .start_ms = START_MS};
    for (uint32_t h = 0; h < engine->hosts; h++) {
        char *at = own[config.addresses];
        name[h] = engine->host[h].name;
        if (h == engine->self)
            continue;
        if (links_ends(engine->peers.links, h, at, other) != 0)
            return err_set(e, ERR_CLOSED, "the hosts are not linked");
        bool is_new = true;
        for (size_t i = 0; i < config.addresses; i++)
            is_new = is_new && strcmp(here[i], at) != 0;
        here[config.addresses] = at;
        config.addresses += is_new;
    }
    links_identify(engine->peers.links, &config);
    r->links = links_new(&config, &events, engine, clock_now(), e);
    if (!r->links)
        return -1;
    r->watch = (struct watch){links_fd(r->links), links_move};
    r->state = STATE_CONNECTING;
    if (engine_watch(engine, &r->watch, EPOLLIN, e) != 0)
        return -1;
    for (uint32_t h = engine->self + 1; h < engine->hosts; h++)
        if (connect_host(engine, h, links_port(r->links), e) != 0)
            return -1;
    return 0;
}

static void give_up(struct engine *engine, const struct err *why)
{
    log_debug("no link between the ranks: %s", why->text);
    drop_links(engine, engine->peers.rank_link);
    refuse_links(engine);
}

static void begin_links(struct engine *engine)
{
    struct err e = ERR_INIT;
    if (!engine->peers.up || !engine->region.header->rank_link)
        refuse_links(engine);
    else if (open_links(engine, &e) != 0)
        give_up(engine, &e);
    else
        tell_others(engine, OFFER, links_port(engine->peers.rank_link->links));
}

/* Host 0: this host or another one has become ready. */
static void count_ready(struct engine *engine)
{
    struct rank_link *r = engine->peers.rank_link;
    if (r->state != STATE_HELD || r->ready_hosts != (1u << engine->hosts) - 2)
        return;
    tell_others(engine, UP, 0);
    settle_state(engine, STATE_UP);
}

static void move_links(struct engine *engine, struct turn *turn)
{
    struct rank_link *r = engine->peers.rank_link;
    if (__builtin_expect(!r || !r->links, 1))
        return;
    links_progress(r->links, turn->now);
    if (r->state == STATE_CONNECTING && r->connected < engine->hosts - 1) {
        turn_within(turn, links_timeout(r->links, turn->now));
        return;
    }
    drop_links(engine, r);
    if (r->state == STATE_NONE) {
        refuse_links(engine);
        return;
    }
    r->state = STATE_HELD;
    if (engine->self == 0)
        count_ready(engine);
    else
        tell_host(engine, 0, READY, 0);
}

/* ---- questions and messages ---------------------------------------------------------------------------- */

void rank_link_ask(struct engine *engine, const struct worker_message *question)
{
    struct rank_link *r = engine->peers.rank_link;
    if (!r) {
        struct rank_link none = {.asked = true, .state = STATE_NONE};
        for (uint32_t h = 0; h < LINK_HOSTS_MAX; h++)
            none.fd[h] = -1;
        answer_rank(engine, &none);
        return;
    }
    r->asked = true;
    if (r->state == STATE_NEW && question->id != 0)
        refuse_links(engine);
    else if (r->state == STATE_NEW)
        begin_links(engine);
    else if (r->state == STATE_UP || r->state == STATE_NONE)
        answer_rank(engine, r);
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

bool rank_link_is_stopped(const struct engine *engine, const struct tensor_view *v, uint32_t operation)
{
    char path[64], text[512];
    if (!rank_link_is_busy(engine, v) || tensor_latest(v, 0) != operation)
        return false;
    snprintf(path, sizeof path, "/proc/%u/stat", engine->workers.member[0].pid);
    const char *state = file_read(path, O_RDONLY, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return state && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0);
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

static int take_offer(struct engine *engine, uint32_t from, uint16_t port)
{
    struct rank_link *r = engine->peers.rank_link;
    struct err e = ERR_INIT;
    if (r->state == STATE_NEW)
        begin_links(engine);
    if (r->state == STATE_CONNECTING && from < engine->self && connect_host(engine, from, port, &e) != 0)
        give_up(engine, &e);
    return 0;
}

static int take_said(struct engine *engine, uint32_t from, uint8_t what, uint16_t port, struct err *e)
{
    struct rank_link *r = engine->peers.rank_link;
    if (what == OFFER && port != 0)
        return take_offer(engine, from, port);
    if (what == READY && engine->self == 0) {
        r->ready_hosts |= 1u << from;
        count_ready(engine);
    } else if (what == UP && from == 0 && r->state == STATE_HELD) {
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
    read_u8(&in);
    uint8_t what = read_u8(&in);
    uint16_t port = read_u16(&in);
    uint32_t epoch = read_u32(&in);
    if (in.bad || in.left != 0)
        return err_set(e, ERR_PROTOCOL, "a malformed word about a link between ranks");
    if (!engine->peers.rank_link && what != REFUSED)
        tell_host(engine, from, REFUSED, 0);
    if (!engine->peers.rank_link || epoch != engine->epoch)
        return 0;
    return take_said(engine, from, what, port, e);
}

/* ---- the part ------------------------------------------------------------------------------------------ */

static void end_rank_link(struct engine *engine)
{
    struct rank_link *r = engine->peers.rank_link;
    if (!r)
        return;
    drop_links(engine, r);
    close_fds(r);
    r->state = STATE_NEW;
    r->asked = r->of_several = false;
    r->ready_hosts = r->connected = 0;
}

static void free_rank_link(struct engine *engine)
{
    struct rank_link *r = engine->peers.rank_link;
    end_rank_link(engine);
    free(r);
    engine->peers.rank_link = NULL;
}

void rank_link_advertise(const struct engine *engine, Hvd__Link *link)
{
    cpu_set_t set;
    char boot[64];
    link->rank_link_hosts = engine->options.rank_link ? LINK_HOSTS_MAX : 0;
    link->processors = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
    if (file_read("/proc/sys/kernel/random/boot_id", O_RDONLY, boot, sizeof boot) > 0)
        link->machine = hash_text(0, boot) | 1;
}

static bool is_one_machine(Hvd__Link *const *link, size_t links)
{
    bool one = links > 0 && link[0]->machine != 0;
    for (size_t i = 0; one && i < links; i++)
        one = link[i]->machine == link[0]->machine;
    return one;
}

static bool has_few_processors(Hvd__Link *const *link, size_t links)
{
    bool few = links > 0;
    for (size_t i = 0; few && i < links; i++)
        few = link[i]->processors > 0 && link[i]->processors < links;
    return few;
}

void rank_link_meet(struct engine *engine, Hvd__Link *const *link, size_t links)
{
    if (!engine->peers.rank_link)
        return;
    bool agreed = links >= engine->hosts;
    for (size_t i = 0; i < links; i++)
        agreed = agreed && link[i]->rank_link_hosts >= engine->hosts;
    engine->peers.rank_link->agreed = agreed;
    engine->peers.rank_link->near = agreed && is_one_machine(link, links);
    engine->peers.rank_link->crowded = engine->peers.rank_link->near && has_few_processors(link, links);
    if (!agreed)
        free_rank_link(engine);
    show_rank(engine);
}

void rank_link_welcome(struct engine *engine, const struct worker_message *hello)
{
    if (engine->peers.rank_link)
        engine->peers.rank_link->of_several = hello->set == WORKER_SEVERAL_LINKS;
    show_rank(engine);
}

static int begin_rank_link(struct engine *engine, struct err *e)
{
    (void)e;
    show_rank(engine);
    return 0;
}

/* Ranks sum in their own order, and engines in that of hosts. The bits are the same if the orders are. */
static bool is_rank_a_host(const struct engine *engine)
{
    bool is = engine->hosts > 1 && engine->hosts <= LINK_HOSTS_MAX;
    for (uint32_t h = 0; is && h < engine->hosts; h++)
        is = engine->host[h].ranks == 1 && engine->host[h].rank[0] == h;
    return is;
}

/* A timeline and the tuning want to see all operations. */
static int start_rank_link(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    /* By the configuration, which is the same on all hosts: one of them may fail to open its file. */
    bool has_timeline = config->tuning && *config->tuning->timeline;
    bool may =
        engine->options.rank_link && !config->encrypt && !config->elastic && !has_timeline && !engine->tuning;
    if (!is_rank_a_host(engine) || !may)
        return 0;
    struct rank_link *r = engine->peers.rank_link = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for the engine");
    for (uint32_t h = 0; h < LINK_HOSTS_MAX; h++)
        r->fd[h] = -1;
    r->watch.fd = -1;
    return port_range_set(&r->ports, config->port_low, config->port_high, e) < 0 ? -1 : 0;
}

static void fail_rank_link(struct engine *engine)
{
    if (!engine->peers.rank_link)
        return;
    drop_links(engine, engine->peers.rank_link);
    if (engine->peers.rank_link->state != STATE_UP)
        settle_state(engine, STATE_NONE);
}

const struct engine_part rank_link_part = {.start = start_rank_link,
                                           .epoch_begin = begin_rank_link,
                                           .epoch_end = end_rank_link,
                                           .progress = move_links,
                                           .failed = fail_rank_link,
                                           .messages = 1u << PEER_RANK_LINK,
                                           .message = take_message,
                                           .free = free_rank_link};
