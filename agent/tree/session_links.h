/* The data links of a session to its neighbours in the tree of tree.h, made when the first message is to
 * be sent: it asks the launcher, which has all sessions of the job listen and tells each where the others
 * are. A job that needs no rendezvous across hosts opens nothing.
 *
 *   NONE -> ORDERED (we asked, or were told) -> LISTENING (the launcher knows our port) -> LINKED
 *
 * A message is a chain of bulk frames. Messages wait here until their link is ready. When a link breaks, so
 * does the tree. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/tree/tree.h"
#include "common/net/port_range.h"
#include "common/protocol/control.pb-c.h"

struct links;

struct session_links_events {
    void (*order)(void *ctx);                      /* ask the launcher for links */
    void (*listening)(void *ctx, Hvd__Link *link); /* tell it where we are */
    /* There will never be links from here: the others, who wait for our word, must not wait for ever. */
    void (*failed)(void *ctx, const struct err *why);
    /* They were there, have broken, and that was noticed: an operation across hosts has failed with it. */
    void (*lost)(void *ctx, const struct err *why);
};

/* The job, for the links; everything must stay valid until session_links_close. */
struct session_links_job {
    const char *job;
    uint32_t epoch;
    const uint8_t *key;
    uint32_t self, hosts;
    Hvd__HostRanks **host;
    char **address;
    size_t addresses;
    struct port_range ports;
    uint32_t heartbeat_ms;
    bool encrypt;
};

enum session_links_state {
    SESSION_LINKS_NONE,
    SESSION_LINKS_ORDERED,
    SESSION_LINKS_LISTENING,
    SESSION_LINKS_LINKED,
    SESSION_LINKS_BROKEN
};

struct session_links {
    enum session_links_state state;
    uv_loop_t *loop;
    const struct session_links_events *events;
    void *ctx;
    struct session_links_job job;
    struct tree *tree;
    struct links *links;
    struct neighbour *neighbour; /* [hosts] */
    uv_poll_t poll;
    uv_timer_t timer;
    bool watched, failed;
};

/* Makes the tree as well. -1 with *e when there is no memory. */
int session_links_init(struct session_links *l, uv_loop_t *loop, const struct session_links_job *job,
                       const struct session_links_events *events, void *ctx, struct err *e);
/* The launcher's order: listen. */
void session_links_listen(struct session_links *l);
/* The launcher tells where everybody is. */
void session_links_connect(struct session_links *l, const Hvd__Links *links);
/* Frees the tree too. Its handles are closed when the loop has run again. */
void session_links_close(struct session_links *l);
