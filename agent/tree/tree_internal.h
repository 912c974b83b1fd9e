/* Shared by tree.c (routes, requests, broadcasts) and tree_gather.c (gathers). */
#pragma once

#include "agent/tree/tree.h"
#include "common/protocol/control.pb-c.h"

/* Gathers of one id that this host has joined. */
struct gather_round {
    struct gather_round *next;
    uint32_t service;
    uint8_t *id;
    size_t id_len;
    uint32_t joined;
};

struct gather_part {
    uint32_t host;
    uint8_t *data;
    size_t len;
};

/* One that is under way: this host has joined it, or a host below it has. */
struct gather {
    struct gather *next;
    uint32_t service, round;
    uint8_t *id;
    size_t id_len;
    uint32_t *host; /* ascending */
    size_t hosts;
    size_t below;             /* how many of them are in our subtree, with us */
    struct gather_part *part; /* `parts` of `below` */
    size_t parts;
    uint64_t handle; /* 0: this host has not joined */
    struct err *why; /* cancelled elsewhere before this host has joined; it will hear of it then. Or NULL */
    tree_done *done;
    void *ctx;
};

struct request { /* of this host */
    struct request *next;
    uint64_t ticket;
    uint32_t service, host;
    tree_done *done;
    void *ctx;
};

struct tree {
    uint32_t self, hosts;
    struct tree_events events;
    void *ctx;
    struct {
        const struct tree_handler *handler;
        void *ctx;
    } service[TREE_SERVICES];
    struct gather *gather;
    struct gather_round *round;
    struct request *request;
    uint64_t next_handle; /* of gathers and requests alike */
    struct err broken;    /* code: no message goes through any more */
    bool missed;
    struct tree_count sent;
};

/* ---- tree.c ---------------------------------------------------------------------------------------- */
/* Our children are the hosts from this one on that come before *end. */
uint32_t tree_children(const struct tree *x, uint32_t *end);
/* Is `host` in the subtree of `top`? */
bool tree_is_below(uint32_t top, uint32_t host);
/* An operation fails because of x->broken. */
void tree_missed(struct tree *x);
void tree_send(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m);

/* ---- tree_gather.c --------------------------------------------------------------------------------- */
int gather_up(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e);
int gather_down(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e);
int gather_cancelled(struct tree *x, uint32_t neighbour, const Hvd__Exchange *m, struct err *e);
/* Ends all of them that this host has joined, and forgets the others. */
void gather_fail_all(struct tree *x, const struct err *why);
bool gather_cancel(struct tree *x, uint64_t handle, const struct err *why);
void gather_free_all(struct tree *x);
