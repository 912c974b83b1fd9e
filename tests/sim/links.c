/* The network: common/net/links.h again, between fibers and in virtual time.
 *
 * Each direction of a link delivers in order, like TCP; links are slower or faster than one another by
 * chance, so everything else is reordered. A control frame overtakes bulk that the "kernel" has not taken
 * yet. A bulk frame is read from its sender's memory when it is taken, which is later than the send, and
 * arrives in pieces: place, parts, arrived. When a link is cut, what is on its way is gone, and each end
 * notices at a time of its own.
 *
 * Peers are kept by the host of the simulation, `id`. The owner counts hosts by the epoch that it is in;
 * in an elastic job these change (links_regroup). */
#include "common/net/links.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/sim/sim.h"

enum what { CONNECT, READY, CONTROL, HEAD, PART, ARRIVED, TAKEN, LOST };

/* Something that will happen to the links of one host. */
struct event {
    struct event *next;
    uint64_t at;
    enum what what;
    uint32_t peer;
    struct link_send *send; /* TAKEN */
    struct link_bulk head;
    uint32_t from, bytes; /* PART */
    uint8_t *data;        /* CONTROL, PART; freed with it */
    size_t size;
    struct err why;
};

struct peer {
    bool wanted, ready, gone;
    uint64_t give_up; /* CONNECT: until then it is tried */
    uint64_t arrives; /* the last thing sent to it */
    uint64_t taken;   /* the last bulk frame of ours */
    uint8_t *place;   /* of the frame that is coming in */
    uint8_t fence[LINKS_FENCE_MAX];
    size_t fence_size;
};

struct links {
    struct links_events events;
    void *ctx;
    uint32_t id, epoch;
    uint32_t self, hosts, host[SIM_HOSTS]; /* the owner's numbers; [hosts] ids */
    int fd;
    bool down;
    struct event *first;
    struct peer peer[SIM_HOSTS];
};

#define START_NS (30 * SEC) /* until a link that was never ready is given up */

static struct links *net[SIM_HOSTS];
static bool cut[SIM_HOSTS][SIM_HOSTS];
static uint32_t sends[SIM_HOSTS]; /* messages, by host */

void net_reset(void)
{
    memset(cut, 0, sizeof cut);
}

void net_count_anew(void)
{
    memset(sends, 0, sizeof sends);
}

uint32_t net_sent(uint32_t host)
{
    return sends[host];
}

static uint64_t delay(void)
{
    if (sim_steady)
        return STEADY_NS;
    uint64_t mean = chance_one_in(&sim_timing, 50)  ? 50 * MSEC
                    : chance_one_in(&sim_timing, 4) ? MSEC
                                                    : 20 * USEC;

    return 1 + chance_below(&sim_timing, mean);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static struct event *put(struct links *l, uint64_t at, enum what what, uint32_t peer)
{
    struct event *event = calloc(1, sizeof *event), **place = &l->first;

    if (!event)
        abort();
    *event = (struct event){.at = at, .what = what, .peer = peer};
    while (*place && (*place)->at <= at)
        place = &(*place)->next;
    event->next = *place;
    *place = event;
    return event;
}

static uint32_t index_of(const struct links *l, uint32_t id)
{
    uint32_t i = 0;

    while (i < l->hosts && l->host[i] != id)
        i++;
    return i;
}

static void drop(struct event *event)
{
    free(event->data);
    free(event);
}

/* Drops all bytes from this peer and to it. The sends to it end with -1. */
static void forget(struct links *l, uint32_t peer)
{
    for (struct event **at = &l->first; *at;) {
        struct event *event = *at;
        if (event->peer != peer) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        if (event->what == TAKEN)
            event->send->done(event->send, -1);
        drop(event);
        at = &l->first; /* done may have changed the list */
    }
    l->peer[peer].place = NULL;
}

static bool passes(const struct links *l, uint32_t peer)
{
    return net[peer] && !net[peer]->down && !net[peer]->peer[l->id].gone && !cut[l->id][peer];
}

/* When the next thing from here to there arrives: in order. */
static uint64_t arrival(struct links *l, uint32_t peer)
{
    struct peer *p = &l->peer[peer];
    uint64_t at = sim_now + delay();

    if (at <= p->arrives)
        at = p->arrives + 1;
    return p->arrives = at;
}

static void lose(struct links *l, uint64_t at, uint32_t peer, const char *why)
{
    struct event *event = put(l, at, LOST, peer);

    err_set(&event->why, ERR_CLOSED, "%s", why);
}

void net_cut(uint32_t a, uint32_t b)
{
    cut[a][b] = cut[b][a] = true;
    sim_say("-- the link between hosts %u and %u is cut", a, b);
    if (net[a])
        lose(net[a], sim_now + chance_below(&sim_timing, 2 * SEC), b, "no heartbeat");
    if (net[b])
        lose(net[b], sim_now + chance_below(&sim_timing, 2 * SEC), a, "no heartbeat");
}

void net_host_died(uint32_t host)
{
    for (uint32_t i = 0; i < job.hosts; i++) {
        if (i == host || cut[host][i])
            continue;
        cut[host][i] = cut[i][host] = true;
        if (net[i])
            lose(net[i], sim_now + chance_below(&sim_timing, 100 * MSEC), host, "it closed the link");
    }
}

uint64_t net_events(void)
{
    uint64_t next = 0, one = 1;

    for (uint32_t i = 0; i < SIM_HOSTS; i++) {
        struct links *l = net[i];
        if (!l || l->down || !l->first)
            continue;
        if (l->first->at > sim_now) {
            next = next == 0 || l->first->at < next ? l->first->at : next;
        } else if (!job.host[i].fiber.poked) {
            if (write(l->fd, &one, sizeof one) < 0)
                abort();
            fiber_poke(&job.host[i].fiber);
        }
    }
    return next;
}

/* ---- links.h ------------------------------------------------------------------------------------------- */

/* A host's name is its letter. */
static void number_hosts(struct links *l, uint32_t epoch, uint32_t self, uint32_t hosts,
                         const char *const *name)
{
    l->epoch = epoch;
    l->self = self;
    l->hosts = hosts;
    for (uint32_t i = 0; i < hosts; i++)
        l->host[i] = (uint8_t)name[i][0] - (uint32_t)'a';
}

struct links *links_new(const struct links_config *config, const struct links_events *events, void *ctx,
                        uint64_t now, struct err *e)
{
    struct links *l = calloc(1, sizeof *l);

    (void)now, (void)e;
    if (!l)
        abort();
    l->events = *events;
    l->ctx = ctx;
    number_hosts(l, config->epoch, config->self, config->hosts, config->name);
    l->id = l->host[l->self];
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    net[l->id] = l;
    return l;
}

void links_free(struct links *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < SIM_HOSTS; i++)
        forget(l, i);
    net[l->id] = NULL;
    close(l->fd);
    free(l);
}

void links_shutdown(struct links *l, const char *reason)
{
    uint64_t count;

    if (l->down)
        return;
    l->down = true;
    if (read(l->fd, &count, sizeof count) < 0)
        count = 0; /* it was quiet already */
    for (uint32_t i = 0; i < l->hosts; i++) {
        uint32_t id = l->host[i];
        if (id != l->id && !l->peer[id].gone && passes(l, id))
            lose(net[id], l->peer[id].ready ? arrival(l, id) : sim_now + START_NS, l->id,
                 reason ? reason : "it closed the link");
        l->peer[id].gone = true;
        forget(l, id);
    }
}

/* Bulk that was queued to the peer ends; bulk that comes has no place any more. */
static void cut_peer(struct links *l, uint32_t peer)
{
    for (struct event **at = &l->first; *at;) {
        struct event *event = *at;
        if (event->peer != peer || event->what != TAKEN) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        event->send->done(event->send, -1);
        drop(event);
        at = &l->first;
    }
    l->peer[peer].place = NULL;
}

void links_cut(struct links *l)
{
    for (uint32_t i = 0; i < l->hosts; i++)
        cut_peer(l, l->host[i]);
}

int links_regroup(struct links *l, const struct links_group *g, uint64_t now, struct err *e)
{
    bool stays[SIM_HOSTS] = {false};

    (void)now, (void)e;
    for (uint32_t i = 0; i < g->hosts; i++)
        stays[(uint8_t)g->name[i][0] - 'a'] = true;
    for (uint32_t id = 0; id < SIM_HOSTS; id++) {
        struct peer *p = &l->peer[id];
        bool ready = p->ready && !p->gone;
        if (id == l->id)
            continue;
        if (ready && stays[id]) {
            cut_peer(l, id);
            memcpy(p->fence, g->fence, p->fence_size = g->fence_size);
            continue;
        }
        if (ready && passes(l, id))
            lose(net[id], arrival(l, id), l->id, "it is not among the hosts of the job any more");
        forget(l, id);
        *p = (struct peer){.arrives = p->arrives, .taken = p->taken};
    }
    number_hosts(l, g->epoch, g->self, g->hosts, g->name);
    return 0;
}

uint16_t links_port(const struct links *l)
{
    return (uint16_t)(1 + l->id);
}

int links_connect(struct links *l, uint32_t host, const char *const *address, size_t addresses, uint16_t port,
                  uint64_t now, struct err *e)
{
    uint32_t id = l->host[host];

    (void)address, (void)addresses, (void)port, (void)now, (void)e;
    if (l->down || l->peer[id].wanted || l->peer[id].ready)
        return 0;
    l->peer[id].wanted = true;
    l->peer[id].give_up = sim_now + START_NS;
    put(l, sim_now + (l->self > host ? delay() : START_NS), CONNECT, id); /* the one with the higher number */
    return 0;
}

/* An answer is there when the other one is in the same epoch, and has no link to this one. */
static void connect_peer(struct links *l, uint32_t id)
{
    struct links *other = net[id];
    struct peer *p = &l->peer[id];

    if (p->ready)
        return;
    if (sim_now >= p->give_up) {
        lose(l, sim_now, id, "nobody answers");
    } else if (!other || other->down || cut[l->id][id] || other->epoch != l->epoch ||
               (other->peer[l->id].ready && !other->peer[l->id].gone)) {
        put(l, sim_now + 5 * MSEC, CONNECT, id);
    } else {
        put(l, arrival(other, l->id), READY, id);
        put(other, arrival(l, id), READY, l->id);
    }
}

/* Ranks have no links of their own here: nothing asks. */
int links_ends(const struct links *l, uint32_t host, char *own, char *other)
{
    (void)l, (void)host, (void)own, (void)other;
    return -1;
}

void links_identify(const struct links *l, struct links_config *config)
{
    (void)l, (void)config;
}

uint32_t links_resent(const struct links *l, uint32_t host)
{
    (void)l, (void)host;
    return 0;
}

bool links_ready(const struct links *l, uint32_t host)
{
    uint32_t id = l->host[host];

    return l->peer[id].ready && !l->peer[id].gone && !l->down;
}

int links_fd(const struct links *l)
{
    return l->fd;
}

/* Every round looks at everything that has come. */
void links_traffic(const struct links *links, uint32_t host, uint64_t *sent, uint64_t *received)
{
    (void)links, (void)host;
    *sent = *received = 0;
}

void links_event(struct links *l, uint32_t host, uint32_t events)
{
    (void)l, (void)host, (void)events;
}

int links_timeout(const struct links *l, uint64_t now)
{
    (void)l, (void)now;
    return -1; /* the descriptor tells in time */
}

static void send_fence(struct links *l, uint32_t host)
{
    struct peer *p = &l->peer[l->host[host]];
    size_t size = p->fence_size;

    p->fence_size = 0;
    if (size > 0)
        links_send_control(l, host, p->fence, size, NULL);
}

int links_send_control(struct links *l, uint32_t host, const void *data, size_t size, struct err *e)
{
    if (!links_ready(l, host))
        return err_set(e, ERR_CLOSED, "there is no link to host %u", host);
    send_fence(l, host);
    host = l->host[host];
    if (!passes(l, host))
        return 0;
    sends[l->id]++;
    struct event *event = put(net[host], arrival(l, host), CONTROL, l->id);
    event->data = malloc(size ? size : 1);
    event->size = size;
    memcpy(event->data, data, size);
    return 0;
}

int links_send_bulk(struct links *l, uint32_t host, struct link_send *send, struct err *e)
{
    if (!links_ready(l, host))
        return err_set(e, ERR_CLOSED, "there is no link to host %u", host);
    send_fence(l, host);
    host = l->host[host];
    uint64_t slow = chance_one_in(&sim_timing, 8) && !sim_steady ? 5 * MSEC : 10 * USEC;
    uint64_t at = sim_now + chance_below(&sim_timing, slow);
    sends[l->id]++;
    if (at <= l->peer[host].taken)
        at = l->peer[host].taken + 1;
    l->peer[host].taken = at;
    put(l, at, TAKEN, host)->send = send;
    return 0;
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void travel(struct links *l, uint32_t peer, const struct link_send *send)
{
    uint32_t bytes = send->head.length, parts = bytes ? 1 + (uint32_t)chance_below(&sim_timing, 3) : 0;

    put(net[peer], arrival(l, peer), HEAD, l->id)->head = send->head;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t from = (uint32_t)((uint64_t)bytes * i / parts),
                 to = (uint32_t)((uint64_t)bytes * (i + 1) / parts);
        struct event *part = put(net[peer], arrival(l, peer), PART, l->id);
        part->from = from;
        part->bytes = to - from;
        part->data = malloc(to - from + 1);
        memcpy(part->data, (const char *)send->data + from, to - from);
    }
    put(net[peer], arrival(l, peer), ARRIVED, l->id)->head = send->head;
}

static void break_link(struct links *l, uint32_t peer, const struct err *why)
{
    l->peer[peer].gone = true;
    if (passes(l, peer))
        lose(net[peer], arrival(l, peer), l->id, why->text);
    forget(l, peer);
    l->events.lost(l->ctx, index_of(l, peer), why);
}

static void head(struct links *l, const struct event *event)
{
    struct peer *p = &l->peer[event->peer];
    struct err why = ERR_INIT;

    if (event->head.length == 0 ||
        (p->place = l->events.bulk_place(l->ctx, index_of(l, event->peer), &event->head)))
        return;
    if (l->down)
        return;
    err_set(&why, ERR_PROTOCOL, "it sends what has no place");
    sim_say("nothing is placed: channel %u offset %llu length %u", event->head.channel,
            (unsigned long long)event->head.offset, event->head.length);
    break_link(l, event->peer, &why);
}

static void happen(struct links *l, struct event *event)
{
    struct peer *p = &l->peer[event->peer];
    uint32_t host = index_of(l, event->peer);

    if ((p->gone || host == l->hosts) && event->what != TAKEN)
        return;
    switch (event->what) {
    case CONNECT:
        connect_peer(l, event->peer);
        break;
    case READY:
        p->ready = true;
        l->events.ready(l->ctx, host);
        break;
    case CONTROL:
        l->events.control(l->ctx, host, event->data, event->size);
        break;
    case HEAD:
        head(l, event);
        break;
    case PART:
        if (p->place)
            memcpy(p->place + event->from, event->data, event->bytes);
        break;
    case ARRIVED:
        p->place = NULL;
        l->events.bulk_arrived(l->ctx, host, &event->head);
        break;
    case TAKEN:
        if (passes(l, event->peer))
            travel(l, event->peer, event->send);
        event->send->done(event->send, 0);
        break;
    case LOST:
        p->gone = true;
        forget(l, event->peer);
        l->events.lost(l->ctx, host, &event->why);
        break;
    }
}

int links_progress(struct links *l, uint64_t now)
{
    uint64_t count;
    int happened = 0;

    (void)now;
    if (read(l->fd, &count, sizeof count) < 0 && (!l->first || l->first->at > sim_now))
        return 0;
    while (!l->down && l->first && l->first->at <= sim_now) {
        struct event *event = l->first;
        l->first = event->next;
        happen(l, event);
        drop(event);
        happened++;
    }
    return happened;
}
