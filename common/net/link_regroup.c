/* From one epoch's hosts to the next one's, over the same links (links_regroup in links.h).
 *
 *   1. half-made connections end: their handshakes name the old epoch
 *   2. links to hosts that leave are closed, kept links are cut (link_stream_cut)
 *   3. peers get their new places; new hosts and lost links begin as PEER_NONE
 *   4. the owner watches kept sockets anew, since the owner's own table of hosts has changed
 *
 * A kept link that cannot be cut is made anew, as a lost one. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/net/links_internal.h"

/* The link is as if there had been none. */
static void reset_peer(struct peer *p, const char *reason)
{
    links_peer_close(p, reason);
    if (p->stream)
        link_stream_free(p->stream);
    free(p->stream);
    free(p->address);
    *p = (struct peer){.host = p->host, .name = p->name};
}

static bool stays_ready(const struct peer *p)
{
    return p->state == PEER_READY && !p->failed;
}

/* A peer of the old epoch, in its new place. */
static void move_peer(struct links *l, struct peer *p, uint32_t host, const struct links_group *g)
{
    link_setup_drop_candidates(l, p);
    p->host = host;
    p->told = 0;
    p->next_told = NULL;
    if (!stays_ready(p) || link_stream_cut(p->stream) < 0) {
        reset_peer(p, NULL);
        return;
    }
    p->stream->host = host;
    p->fence_size = (uint32_t)g->fence_size;
    if (g->fence_size > 0)
        memcpy(p->fence, g->fence, g->fence_size);
    link_stream_deliver(p->stream, -1);
}

void links_cut(struct links *l)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_MEMORY, "no memory for the rest of a frame");
    for (uint32_t i = 0; i < l->hosts; i++) {
        if (!stays_ready(l->peer[i]))
            continue;
        if (link_stream_cut(l->peer[i]->stream) < 0)
            links_fail(l, l->peer[i], &e);
        link_stream_deliver(l->peer[i]->stream, -1);
    }
}

static int place_peers(struct links *l, struct peer **to, const struct links_group *g, struct err *e)
{
    for (uint32_t i = 0; i < g->hosts; i++) {
        if (g->from[i] < l->hosts && l->peer[g->from[i]]) {
            to[i] = l->peer[g->from[i]];
            l->peer[g->from[i]] = NULL;
            move_peer(l, to[i], i, g);
        } else {
            to[i] = links_peer_new(i, g->name[i]);
        }
        if (!to[i])
            return err_set(e, ERR_MEMORY, "no memory for links to %u hosts", g->hosts);
    }
    return 0;
}

static void drop_peers(struct links *l)
{
    for (uint32_t i = 0; i < l->hosts; i++) {
        if (!l->peer[i])
            continue;
        link_setup_drop_candidates(l, l->peer[i]);
        links_peer_close(l->peer[i], "it is not among the hosts of the job any more");
        links_peer_free(l->peer[i]);
        l->peer[i] = NULL;
    }
}

/* Counts the peers without a link, and watches those with one. */
static void count_peers(struct links *l)
{
    l->unsettled = 0;
    for (uint32_t i = 0; i < l->hosts; i++) {
        struct peer *p = l->peer[i];
        struct err e = ERR_INIT;
        p->linked = i != l->self;
        l->unsettled += p->linked && p->state != PEER_READY;
        if (p->state != PEER_READY)
            continue;
        if (l->events.watch)
            p->watch.events = 0;
        if (links_watch_peer(l, p, &e) < 0)
            links_fail(l, p, &e);
        links_timer(l, l->now);
    }
}

int links_regroup(struct links *l, const struct links_group *g, uint64_t now, struct err *e)
{
    struct peer **to = calloc(g->hosts, sizeof(struct peer *));
    if (!to)
        return err_set(e, ERR_MEMORY, "no memory for links to %u hosts", g->hosts);
    l->now = now;
    link_setup_drop_incoming(l);
    int rc = place_peers(l, to, g, e);
    drop_peers(l);
    free(l->peer);
    l->peer = to;
    l->hosts = g->hosts;
    if (rc < 0)
        return -1;
    l->self = l->identity.self = g->self;
    l->identity.hosts = g->hosts;
    l->identity.epoch = g->epoch;
    l->told = NULL;
    l->any_failed = l->any_ended = false;
    l->start_deadline = g->patient ? LINKS_PATIENT : 0;
    count_peers(l);
    link_setup_free_closed(l);
    return 0;
}
