/* Shared by links.c (peers, time, the public calls) and link_setup.c (from listen and connect to a ready
 * link). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/net/link_handshake.h"
#include "common/net/link_stream.h"
#include "common/net/links.h"
#include "common/net/net.h"

/* Each object that an epoll event points to starts with one of these. */
enum watch_kind { WATCH_LISTENER, WATCH_CONN, WATCH_PEER };

struct watch {
    enum watch_kind kind;
    uint32_t events; /* registered; 0: not in the set */
};

/* A connection until its handshake has ended and it is chosen. */
struct conn {
    struct watch watch;
    int fd; /* -1: closed, freed at the end of the round */
    bool connecting;
    bool incoming;
    uint32_t rank; /* outgoing: index among the peer's addresses */
    struct link_handshake handshake;
    uint64_t deadline;
    struct conn *next;
};

enum peer_state { PEER_NONE, PEER_CONNECTING, PEER_READY, PEER_LOST };

struct peer {
    struct watch watch;
    uint32_t host;
    char *name;
    bool linked; /* there is to be a link to it */
    enum peer_state state;
    struct link_stream *stream; /* from READY on */
    bool failed;                /* lost, to be told at the end of the round */
    bool unread;                /* failed by a send, so the peer's last words may lie in the socket */
    struct err why;             /* failed: why; before: what went wrong last */
    uint64_t received_at, sent_at;
    uint8_t fence[LINKS_FENCE_MAX]; /* goes before the next message, after links_regroup */
    uint32_t fence_size;            /* 0: none */
    uint32_t told;                  /* events of its link, from links_event */
    struct peer *next_told;         /* while there are some */

    union net_address *address; /* outgoing candidates, best first */
    uint32_t addresses;
    struct conn *candidate;       /* list */
    uint64_t choose_at, retry_at; /* 0: not set */
};

struct listener {
    struct watch watch;
    int fd;
};

/* A start_deadline that is not set yet (links_group). */
#define LINKS_PATIENT UINT64_MAX

struct links {
    struct links_events events;
    void *ctx;
    struct link_identity identity;
    const struct tls_ops *tls; /* NULL: in the clear */
    uint8_t *key;              /* AUTH_KEY_SIZE secret bytes */
    char job[LINK_JOB_MAX + 1];
    uint64_t heartbeat, start; /* nanoseconds */
    uint32_t hosts, self;

    int epoll;
    uint16_t port;
    struct listener *listener;
    size_t listeners;
    struct conn *incoming; /* list, the youngest first */
    uint32_t incoming_count;
    struct conn *closed; /* to be freed at the end of the round */
    struct peer **peer;  /* [hosts] */
    uint32_t unsettled;  /* peers neither ready nor lost */
    struct peer *told;   /* peers that links_event has reported since the last round */
    bool own_told;       /* also of links_fd */
    bool any_failed;     /* a peer has failed; tell it */
    bool any_ended;      /* a bulk send has ended; deliver it */
    bool down;           /* links_shutdown */
    bool lasting;        /* links_regroup will follow: the listeners stay */
    uint64_t
        start_deadline; /* 0: links_connect was not called yet; LINKS_PATIENT: begins with the first link */
    uint64_t timer;     /* the next time something is due; 0: never */
    uint64_t now;       /* of this round */
    uint64_t round_at;  /* when the last one was */
    uint64_t frames;    /* received, all links */
};

/* ---- links.c ------------------------------------------------------------------------------------------- */
void links_timer(struct links *l, uint64_t at); /* something is due at `at` */
/* The peer is lost because of *why; `lost` is called at the end of the round. */
void links_fail(struct links *l, struct peer *p, const struct err *why);
/* Its link is chosen and authenticated, as `h` says; takes `fd`. */
void links_peer_ready(struct links *l, struct peer *p, int fd, const struct link_handshake *h);
struct peer *links_peer_new(uint32_t host, const char *name); /* NULL: no memory */
void links_peer_free(struct peer *p);                         /* its link is closed */
/* Closes the link of the peer, if there is one. Queued bulk ends with done(-1). */
void links_peer_close(struct peer *p, const char *reason);

/* ---- link_watch.c -------------------------------------------------------------------------------------- */
int links_watch(struct links *l, int fd, struct watch *watch, uint32_t events, struct err *e);
/* The socket of a ready link. */
int links_watch_peer(struct links *l, struct peer *p, struct err *e);

/* ---- link_report.c ------------------------------------------------------------------------------------- */
/* All peers are settled: tells which ways the links of this host go, if the log wants to know. */
void link_report(const struct links *l);
/* Its `why` becomes a sentence that names both hosts. */
void link_report_lost(const struct links *l, struct peer *p);

/* ---- link_setup.c -------------------------------------------------------------------------------------- */
int link_setup_listen(struct links *l, const char *const *address, size_t addresses,
                      const struct port_range *ports, struct err *e);
/* No more connections are expected, or everything ends. */
void link_setup_close_listeners(struct links *l);
/* Closes what others have begun. */
void link_setup_drop_incoming(struct links *l);
void link_setup_accept(struct links *l, struct listener *listener);
/* Tries all addresses of the peer. */
void link_setup_connect(struct links *l, struct peer *p);
void link_setup_event(struct links *l, struct conn *c, uint32_t events);
/* Deadlines of the peer's connection attempts and of incoming handshakes. */
void link_setup_peer_timer(struct links *l, struct peer *p);
void link_setup_incoming_timer(struct links *l);
void link_setup_drop_candidates(struct links *l, struct peer *p);
void link_setup_free_closed(struct links *l);
