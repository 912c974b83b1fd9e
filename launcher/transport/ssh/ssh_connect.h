/* A name becomes a connected socket: resolve, then try every address, each a little after the one before; the
 * first that connects wins. No call blocks. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

#include "common/base/err.h"

#define SSH_ADDRESSES_MAX 16
#define SSH_NUMERIC_MAX   64

struct ssh_connect;
struct ssh_lookup;

struct ssh_attempt {
    uv_poll_t poll;
    struct ssh_connect *owner;
    int fd; /* -1: not tried or over */
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
};

struct ssh_connect {
    uv_loop_t *loop;
    uv_timer_t next; /* when the next address is tried */
    struct ssh_attempt attempt[SSH_ADDRESSES_MAX];
    uv_poll_t lookup_poll;
    struct ssh_lookup *lookup; /* NULL: none is under way */
    const char *host;
    uint16_t port;
    size_t count, tried, failed;
    int fd;                        /* the winner's; the owner takes it */
    char numeric[SSH_NUMERIC_MAX]; /* its address */
    int open_handles;
    int family;
    unsigned lookups; /* that found no address */
    /* NULL: a name without an address is an error; else each look-up tells why, and the name is looked up
     * again. `unknown`: the resolver says that there is no such name. */
    void (*unresolved)(void *ctx, const char *why, bool unknown);
    void (*resolved)(void *ctx);  /* addresses are known, or err is filled */
    void (*connected)(void *ctx); /* fd is set, or err is filled */
    void (*closed)(void *ctx);
    void *ctx;
    struct err err;
};

/* Fills the callbacks and ctx beforehand; `host` stays valid until closed(). Numeric addresses are resolved
 * at once, no thread and no callback: then count > 0 on return. */
void ssh_connect_init(struct ssh_connect *c, uv_loop_t *loop, const char *host, uint16_t port);
void ssh_connect_resolve(struct ssh_connect *c, int family);
/* Once count > 0. */
void ssh_connect_begin(struct ssh_connect *c);
/* Ends everything but the winner's socket; closed() comes from the loop. */
void ssh_connect_close(struct ssh_connect *c);
