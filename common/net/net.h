/* Addresses of this host, and sockets that never block.
 *
 * A host offers the addresses of its interfaces that are up, filtered by --network-interfaces, best first:
 * private and public ones by the interfaces' order, bridges and tunnels of container systems after them,
 * loopback only when nothing else is left or when the filter names it. Link-local addresses need a scope and
 * are never offered. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/base/err.h"

#define NET_TEXT_MAX      64 /* "[v6 address]:65535" and its end */
#define NET_ADDRESSES_MAX 32

union net_address { /* an IPv4 or IPv6 address with its port */
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* "10.0.0.1", "::1", with a port of its own: "10.0.0.1:22", "[::1]:22", "[::1]". Numeric only. Without a port
 * in `text`, `port` is taken. */
int net_parse(const char *text, uint16_t port, union net_address *address, struct err *e);
/* Without the port: "10.0.0.1", "::1". Returns `text`, which holds NET_TEXT_MAX bytes. */
char *net_format(const union net_address *address, char *text);
/* With the port: "10.0.0.1:22", "[::1]:22". */
char *net_format_port(const union net_address *address, char *text);
uint16_t net_port(const union net_address *address);
void net_set_port(union net_address *address, uint16_t port);
socklen_t net_length(const union net_address *address);

/* One interface address as the kernel lists it; the filter is pure, so that tests can feed it. */
struct net_candidate {
    char interface[32];
    union net_address address;
    bool up;
};

/* Checks the entries of --network-interfaces: interface names (a trailing * matches any end), CIDRs or
 * addresses (10.0.0.0/8, fd00::/8, ::1), each excluded by a leading ^. -1 with *e naming the bad entry. */
int net_filter_check(const char *const *entry, size_t entries, struct err *e);
/* Picks and orders; returns how many of `out` were filled (at most `max`), -1 with *e for a bad entry. No
 * entry that includes: all are included. */
int net_filter(const struct net_candidate *candidate, size_t candidates, const char *const *entry,
               size_t entries, union net_address *out, size_t max, struct err *e);
/* net_filter over this host's interfaces. -1 with *e also when nothing is left, which names the entries and
 * what there is. */
int net_local_addresses(const char *const *entry, size_t entries, union net_address *out, size_t max,
                        struct err *e);
/* The interface that has this address, whatever its port. */
bool net_interface_of(const union net_address *address, char *name, size_t size);
/* The address of this host that packets to `to` leave with; false when there is no way. */
bool net_source_for(const union net_address *to, union net_address *source);

/* A listening socket, non-blocking, close-on-exec; *address gets the port that was bound (port 0: any). */
int net_listen(union net_address *address, int backlog, struct err *e);
/* Listens on all addresses with one port, which is returned in *port (0: any); fds[i] belongs to address[i].
 * On failure errno says why, too. */
int net_listen_all(const union net_address *address, size_t addresses, uint16_t *port, int *fds,
                   struct err *e);
/* Starts to connect; the descriptor becomes writable when it ended, net_connected then says how. */
int net_connect(const union net_address *address, struct err *e);
int net_connected(int fd, struct err *e);
/* The next connection with TCP_NODELAY, non-blocking and close-on-exec; -1 with errno when there is none. */
int net_accept(int listener, union net_address *peer);
/* For a link: unacknowledged bytes end the connection after about `ms`, and the socket is full when `unsent`
 * bytes wait in it for the wire. */
int net_set_link_options(int fd, unsigned ms, unsigned unsent, struct err *e);
/* For a connection whose ends are one machine: there is no network to measure. Some machines send at a
 * rate that they have measured (BBR), which is far too low there. */
void net_set_near_options(int fd);
/* For a connection that is silent for as long as its ends like, while others watch its peer: it has no limit
 * of its own, and the kernel sends a probe every `seconds`, so that firewalls remember it. */
int net_set_quiet_options(int fd, int seconds, struct err *e);
