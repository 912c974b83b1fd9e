/* The host of a rank, by the plan. */
#include "agent/rendezvous/rendezvous.h"
#include "common/protocol/host_ranks.h"

/* A first guess: hosts have consecutive ranks, in the order of hosts. */
static uint32_t in_a_row(const struct rendezvous *r, uint32_t rank)
{
    uint32_t low = 0, high = (uint32_t)r->spawn->n_host - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const Hvd__HostRanks *h = r->spawn->host[middle];
        if (rank < h->first_rank + h->ranks)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint32_t rendezvous_host_of(const struct rendezvous *r, uint32_t rank)
{
    uint32_t hosts = (uint32_t)r->spawn->n_host, likely = rank % hosts;
    if (host_local_rank(r->spawn->host[likely], rank) != UINT32_MAX)
        return likely; /* ranks that go round the hosts */
    uint32_t found = in_a_row(r, rank);
    for (uint32_t i = 0; host_local_rank(r->spawn->host[found], rank) == UINT32_MAX && i < hosts; i++)
        found = i;
    return found;
}
