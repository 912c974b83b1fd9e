/* The ports of this host that its workers are promised: rank 0's MASTER_PORT and coordinator port, and one
 * for each rank where a contract asks for that. Without --port-range they are any that the kernel gives to
 * nobody by itself; of a range they are ours until the session ends. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"
#include "common/net/port_range.h"

struct session_ports {
    struct port_range range;
    uint32_t master, coordinator; /* 0: none */
    uint32_t *worker;
    size_t workers;
    uint32_t *all; /* the memory of the ports above */
    int *claim;
    size_t claims;
};

/* `ranks`: how many may come here. */
int session_ports_choose(struct session_ports *p, const Hvd__Hello *hello, uint32_t ranks, struct err *e);
void session_ports_close(struct session_ports *p);
