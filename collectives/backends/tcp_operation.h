/* Operations of the TCP backend: what its files share.
 *
 *   tcp.c            start, failure          tcp_exchange.c   for algorithms: sends, grants, memory
 *   tcp_receive.c    frames of other hosts   tcp_operation.c  the operations in flight
 *
 * Hosts of the job are `host`; an operation's participants are `peer`, as in endpoint.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "collectives/algorithms/endpoint.h"
#include "collectives/backends/scratch.h"
#include "collectives/backends/tcp.h"

#define GRANT_SIZE 24

#define NO_PEER UINT32_MAX

/* A host of the job, and what it sent before the operation began here. */
struct early {
    uint32_t peer; /* its index among the participants; NO_PEER: it is none */
    bool granted;
    uint64_t limit;
    uint8_t *data; /* eager bytes that came before start */
    uint32_t length;
    bool counts; /* this host is ahead with this operation */
    bool filling, whole;
};

struct op {
    struct exchange x; /* first: an algorithm's exchange is its operation */
    struct tcp *tcp;
    struct op *next;
    uint64_t id;
    bool started, dead;
    struct backend_request request;
    const struct algorithm *algorithm;
    void *state;
    uint32_t under_way;   /* sends */
    uint32_t *host;       /* [x.hosts] the participants */
    struct early early[]; /* [hosts of the job] */
};

struct node {
    struct link_send send;
    struct op *op;
    uint32_t peer;
    struct node *next;
};

#define TCP_SET_BUCKETS 1024u

/* A process set, as far as its operations have begun. */
struct tcp_set {
    struct tcp_set *next; /* in its bucket */
    uint32_t set;
    uint64_t started; /* the highest number */
    uint32_t in_flight;
};

struct tcp {
    struct backend base;
    struct backend_tcp_config config;
    struct op *ops;
    struct op *parked;                    /* ended, but a link may still write into what they keep */
    struct tcp_set *set[TCP_SET_BUCKETS]; /* by number */
    struct node *nodes;                   /* free ones */
    uint64_t nodes_total;
    struct scratch scratch;
    uint32_t in_flight;
    bool failed;
    struct err why;
};

/* How an operation is named on the wire: the set in the upper 24 bits. */
static inline uint64_t operation_id(uint32_t set, uint64_t sequence)
{
    return (uint64_t)set << 40 | sequence;
}

static inline uint32_t operation_set(uint64_t id)
{
    return (uint32_t)(id >> 40);
}

static inline uint64_t operation_sequence(uint64_t id)
{
    return id & BACKEND_SEQUENCE_MAX;
}

/* tcp_operation.c */
/* NULL: nothing of the set has begun here. */
struct tcp_set *operation_set_find(const struct tcp *tcp, uint32_t set);
struct tcp_set *operation_set_make(struct tcp *tcp, uint32_t set, struct err *e);
void operation_set_forget(struct tcp *tcp, uint32_t set);
struct op *operation_find(struct tcp *tcp, uint64_t id);
struct op *operation_new(struct tcp *tcp, uint64_t id);
/* The set's highest number that has begun here. */
uint64_t operation_started(const struct tcp *tcp, uint32_t set);
/* Ends it when it is complete. The last thing a caller does with `op`. */
void operation_settle(struct op *op);
/* Ends it without its end: its sends may still be under way. */
void operation_abandon(struct op *op);
/* Frees it, now or when no link writes into its memory any more. */
void operation_free(struct op *op);

/* tcp_exchange.c */
extern const struct exchange tcp_exchange; /* its methods */
/* Nodes for all sends that the operations in flight may have under way: sending can then never fail for want
 * of memory. */
int exchange_reserve(struct tcp *tcp, struct err *e);

/* tcp_receive.c */
/* Takes the frames that came before the operation began. -1 with *e: a peer is broken. */
int receive_early(struct op *op, struct err *e);
