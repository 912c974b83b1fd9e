/* The epoll that watches each link, the links' own or (of a ready link) the owner's, and the traffic of each
 * link. */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "common/net/links_internal.h"

int links_watch(struct links *l, int fd, struct watch *watch, uint32_t events, struct err *e)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (watch->events == events)
        return 0;
    if (epoll_ctl(l->epoll, watch->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
        return err_sys(e, errno, "cannot watch a socket");
    watch->events = events;
    return 0;
}

int links_watch_peer(struct links *l, struct peer *p, struct err *e)
{
    uint32_t events = EPOLLIN | (link_stream_full(p->stream) ? EPOLLOUT : 0u);
    if (!l->events.watch)
        return links_watch(l, p->stream->fd, &p->watch, events, e);
    if (p->watch.events == events)
        return 0;
    p->watch.events = events;
    return l->events.watch(l->ctx, p->host, p->stream->fd, events, e);
}

void links_event(struct links *l, uint32_t host, uint32_t events)
{
    struct peer *p = l->peer[host];
    if (host == l->self) {
        l->own_told = true;
        return;
    }
    if (p->told == 0) {
        p->next_told = l->told;
        l->told = p;
    }
    p->told |= events;
}

void links_traffic(const struct links *l, uint32_t host, uint64_t *sent, uint64_t *received)
{
    const struct link_stream *s = l->peer[host]->stream;
    *sent = s ? s->bytes_sent : 0;
    *received = s ? s->bytes_received : 0;
}

uint32_t links_resent(const struct links *l, uint32_t host)
{
    const struct peer *p = l->peer[host];
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return p->state == PEER_READY && getsockopt(p->stream->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0
               ? info.tcpi_total_retrans
               : 0;
}
