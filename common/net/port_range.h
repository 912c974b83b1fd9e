/* --port-range: the TCP ports that a job may listen on, where others on the network reach it.
 *
 * Two kinds of ports come from it: those on which we listen at once (data links), and those that are promised
 * to a worker, which binds one later (MASTER_PORT). A promised port would be taken by the next of our jobs
 * that looks for one. So whoever takes a port of a range claims it first, by the name of a unix socket in the
 * abstract space: the kernel keeps that, as it keeps ports, for each network namespace, whoever the user is,
 * and forgets it with the process. Ports of other programs are found by binding. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/net.h"

struct port_range {
    uint16_t low, high; /* 0: any port will do */
    uint16_t promised;  /* to a worker of this job; taken for links when no other is free. 0: none */
};

/* "29500-29999", or "29500" for one. */
int port_range_parse(const char *text, struct port_range *range, struct err *e);
/* As a message has it; 0, 0: any. */
int port_range_set(struct port_range *range, uint32_t low, uint32_t high, struct err *e);
/* Binds it at all addresses and lets go: returns the port, 0 when it is taken or forbidden (*errnum). With
 * port 0: one that is free. */
uint16_t port_try(uint16_t port, int *errnum);
/* Promises `count` ports of a range that is none of `any`: port[i], for as long as claim[i] is open. All or
 * none. */
int port_range_promise(const struct port_range *range, uint32_t *port, int *claim, size_t count,
                       struct err *e);
/* net_listen_all within the range. */
int port_range_listen(const struct port_range *range, const union net_address *address, size_t addresses,
                      uint16_t *port, int *fds, struct err *e);
