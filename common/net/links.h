/* Links: one authenticated TCP connection to each other host of the job, or to some of them; between engines
 * (collectives) and between sessions (rendezvous).
 *
 * The story. links_new listens on all local addresses given, on one port, which the owner advertises (Link
 * message). When the owner knows where another host listens it calls links_connect: the end with the higher
 * host index connects, the other one accepts, so a pair has exactly one link. The connector tries all
 * candidate addresses at once and lets each authenticate; the best-ranked among those that did within 50 ms
 * of the first is chosen, the others are closed. `ready` is called. From then on control frames (small,
 * copied, ahead of everything queued) and bulk (pointers, never copied) flow both ways until `lost`.
 *
 * Failures: a peer that cannot be reached or authenticated by the deadline, that closes, sends something
 * wrong, is silent for heartbeat_ms (frozen), or does not acknowledge for as long (TCP_USER_TIMEOUT): `lost`
 * is called once for that host, with the sentence, and every bulk send to it ends with done(-1). A lost link
 * stays lost in this epoch. Strangers that connect hold one of a few slots for at most the handshake's
 * deadline.
 *
 * Threads: all calls from the engine's loop thread. Callbacks come from links_progress only, never from
 * inside a send. A callback may call everything but links_free. Memory: fixed per peer, plus control frames
 * queued up to LINKS_CONTROL_QUEUE_MAX, over which a peer that does not read is lost. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/auth.h"
#include "common/net/link_bulk.h"
#include "common/net/link_handshake.h"
#include "common/net/port_range.h"
#include "common/net/tls.h"

#define LINKS_CONTROL_QUEUE_MAX (16u << 20)

struct links_events {
    void (*ready)(void *ctx, uint32_t host);
    /* `data` is valid during the call only. */
    void (*control)(void *ctx, uint32_t host, const void *data, size_t size);
    /* Returns the place for the data of this frame (head->length bytes, valid until bulk_arrived or lost);
     * NULL: the peer may not send that, and is lost. Not called for length 0. */
    void *(*bulk_place)(void *ctx, uint32_t host, const struct link_bulk *head);
    void (*bulk_arrived)(void *ctx, uint32_t host, const struct link_bulk *head);
    void (*lost)(void *ctx, uint32_t host, const struct err *why);
    /* For an owner with an epoll of its own, that wants no turn through links_fd for each message: it watches
     * this socket of a ready link for `events`, until that is closed, and calls links_event. NULL: links_fd
     * speaks for every socket. May also be called from inside a send. */
    int (*watch)(void *ctx, uint32_t host, int fd, uint32_t events, struct err *e);
};

struct links_config {
    const char *job;
    uint32_t epoch;
    const uint8_t *key;          /* AUTH_KEY_SIZE bytes */
    const struct auth_ops *auth; /* auth_open() */
    const struct tls_ops *tls;   /* tls_open(): encrypted, on both ends; NULL: in the clear */
    enum link_kind kind;
    uint32_t self, hosts;       /* host indexes */
    const bool *linked;         /* [hosts]: is there a link to that host? NULL: to all. Both ends agree */
    const char *const *name;    /* [hosts], for sentences */
    const char *const *address; /* local, numeric; where to listen */
    size_t addresses;
    struct port_range ports;
    uint32_t heartbeat_ms; /* silence after which a peer is lost; 0: 30000 */
    uint32_t start_ms;     /* from the first links_connect until every link must be ready; 0: 30000 */
    bool lasting;          /* links_regroup may follow: the listeners stay open */
};

#define LINKS_FENCE_MAX 8

/* The hosts of the next epoch. */
struct links_group {
    uint32_t epoch, self, hosts;
    const uint32_t *from;    /* [hosts]: the host's index until now; UINT32_MAX: it is new */
    const char *const *name; /* [hosts] */
    bool
        patient; /* the others come to the epoch at any time: the limit for links begins with the first one */
    const void
        *fence; /* a control message that goes before the first other one of the epoch on a kept link; */
    size_t fence_size; /* at most LINKS_FENCE_MAX; 0: none */
};

struct links;

/* Everything in `config` is copied. `now`: CLOCK_MONOTONIC nanoseconds, here and below. */
struct links *links_new(const struct links_config *config, const struct links_events *events, void *ctx,
                        uint64_t now, struct err *e);
/* Closes everything; calls done(-1) of what was queued, nothing else. */
void links_free(struct links *links);
/* Gives all links up, also from inside a callback: what was queued ends with done(-1) before this returns, no
 * place given by bulk_place is touched again, `lost` is not called any more. With `reason`, the peers' `lost`
 * carries it as this host's last words where the wire allows. So after the first `lost`: links_shutdown, then
 * backend->ops->fail; the epoch is over. */
void links_shutdown(struct links *links, const char *reason);
/* The epoch has failed, and links_regroup will follow: what is queued ends with done(-1), and places are not
 * touched again, as in links_regroup. Links and control frames go on. Not from inside a callback. */
void links_cut(struct links *links);
/* The hosts are those of `group` from now on. Links to hosts that stay are kept, and ready at once. Bulk that
 * was queued on them ends with done(-1) before this returns. No place that bulk_place gave is touched again:
 * the rest of a frame that has begun is read and thrown away. So a kept link may still bring frames of the
 * epoch before, and the fence tells where the new epoch begins. Links to hosts that leave
 * are closed; lost links and links to new hosts are made after links_connect. Only for `lasting` links, not
 * from inside a callback. After -1 with *e only links_free is useful. */
int links_regroup(struct links *links, const struct links_group *group, uint64_t now, struct err *e);
uint16_t links_port(const struct links *links);
/* `host` listens at these addresses, best first. Also for hosts with a higher index (which connect to us):
 * sets nothing in motion then. */
int links_connect(struct links *links, uint32_t host, const char *const *address, size_t addresses,
                  uint16_t port, uint64_t now, struct err *e);
bool links_ready(const struct links *links, uint32_t host);

/* Both ends of the link of `host`, numeric and without ports, NET_TEXT_MAX bytes each. -1: it is not ready.
 */
int links_ends(const struct links *links, uint32_t host, char *own, char *other);
/* For further links of the same job beside these: its job, epoch and key, which stay those of `links`. */
void links_identify(const struct links *links, struct links_config *config);

/* TCP segments that were sent again on the link of `host`, since some were lost; 0 when it is not ready. */
uint32_t links_resent(const struct links *links, uint32_t host);
/* Bytes that went over the link of `host`; 0 when it is not ready. */
void links_traffic(const struct links *links, uint32_t host, uint64_t *sent, uint64_t *received);

/* An epoll descriptor for the owner's loop: readable when links_progress has something to do. */
int links_fd(const struct links *links);
/* Milliseconds until links_progress must be called even when the descriptor is quiet; 0: now; -1: never. */
int links_timeout(const struct links *links, uint64_t now);
/* With events.watch: epoll's `events` came for the link of `host`, or (this host itself) for links_fd; the
 * next links_progress takes care of that, and of nothing that was not told. */
void links_event(struct links *links, uint32_t host, uint32_t events);
/* Does what can be done without waiting. Returns how many frames came in (0: nothing was there, for a loop
 * that spins). */
int links_progress(struct links *links, uint64_t now);

/* Queues a control frame (copied) and sends what the socket takes. -1 with *e when the host has no ready
 * link. */
int links_send_control(struct links *links, uint32_t host, const void *data, size_t size, struct err *e);
/* Queues a bulk frame. -1 with *e when the host has no ready link (done is not called then); else done is
 * called exactly once. */
int links_send_bulk(struct links *links, uint32_t host, struct link_send *send, struct err *e);
