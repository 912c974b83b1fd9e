/* Where the plan puts a rank. */
#include "agent/rendezvous/rendezvous.h"

uint32_t rendezvous_host_of(const struct rendezvous *r, uint32_t rank)
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
