/* The ranks of a host of the plan. In the message they stand as a first one and a number where they follow
 * one another, else as a list. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

/* The rank of the host whose local rank is i. */
static inline uint32_t host_rank(const Hvd__HostRanks *host, uint32_t i)
{
    return host->n_rank ? host->rank[i] : host->first_rank + i;
}

/* The local rank; UINT32_MAX: the rank is another host's. */
uint32_t host_local_rank(const Hvd__HostRanks *host, uint32_t rank);
/* 0: the hosts have every rank below `size` once, each its own in ascending order. */
int hosts_check_ranks(Hvd__HostRanks *const *host, size_t hosts, uint32_t size, struct err *e);
