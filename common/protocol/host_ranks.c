#include "common/protocol/host_ranks.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/ranks.h"

uint32_t host_local_rank(const Hvd__HostRanks *host, uint32_t rank)
{
    if (host->n_rank)
        return ranks_find(host->rank, (uint32_t)host->n_rank, rank);
    return rank - host->first_rank < host->ranks ? rank - host->first_rank : UINT32_MAX;
}

static bool mark_rank(const Hvd__HostRanks *host, uint8_t *seen, uint32_t size)
{
    for (uint32_t i = 0; i < host->ranks; i++) {
        uint32_t rank = host_rank(host, i);
        if (rank >= size || seen[rank] || (i > 0 && rank <= host_rank(host, i - 1)))
            return false;
        seen[rank] = 1;
    }
    return true;
}

int hosts_check_ranks(Hvd__HostRanks *const *host, size_t hosts, uint32_t size, struct err *e)
{
    uint8_t *seen = calloc(size ? size : 1, 1);
    uint64_t total = 0;
    bool good = true;
    if (!seen)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", size);
    for (size_t i = 0; good && i < hosts; i++) {
        total += host[i]->ranks;
        good = host[i]->ranks > 0 && (!host[i]->n_rank || host[i]->n_rank == host[i]->ranks) &&
               mark_rank(host[i], seen, size);
    }
    free(seen);
    return good && total == size
               ? 0
               : err_set(e, ERR_PROTOCOL, "%zu hosts that do not have each of %u ranks once", hosts, size);
}
