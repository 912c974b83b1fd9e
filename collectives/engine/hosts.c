#include "collectives/engine/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "common/protocol/host_ranks.h"

static int copy_workers(struct host *h, const Hvd__HostRanks *from)
{
    if (from->n_worker != h->ranks || h->ranks == 0)
        return 0;
    h->worker = malloc(h->ranks * sizeof *h->worker);
    if (!h->worker)
        return -1;
    memcpy(h->worker, from->worker, h->ranks * sizeof *h->worker);
    return 0;
}

static int copy_host(struct host_table *t, uint32_t i, const Hvd__HostRanks *from)
{
    struct host *h = &t->host[i];
    h->name = strdup(from->name);
    h->ranks = from->ranks;
    h->id = from->n_worker ? from->id : i;
    h->link.fd = -1;
    h->rank = calloc(h->ranks, sizeof *h->rank);
    for (uint32_t k = 0; h->rank && k < h->ranks; k++) {
        h->rank[k] = host_rank(from, k);
        t->place[h->rank[k]] = (struct rank_place){i, k};
    }
    return h->name && h->rank ? copy_workers(h, from) : -1;
}

int host_table_make(struct host_table *t, Hvd__HostRanks *const *host, uint32_t hosts, uint32_t self,
                    uint32_t size, struct err *e)
{
    *t = (struct host_table){.hosts = hosts, .self = self, .size = size};
    t->host = calloc(hosts, sizeof *t->host);
    t->place = calloc(size, sizeof *t->place);
    bool good = t->host && t->place;
    for (uint32_t i = 0; good && i < hosts; i++)
        good = copy_host(t, i, host[i]) == 0;
    if (good)
        return 0;
    host_table_free(t);
    return err_set(e, ERR_MEMORY, "no memory for %u hosts", hosts);
}

int host_table_alone(struct host_table *t, const char *name, uint32_t id, struct err *e)
{
    Hvd__HostRanks here = HVD__HOST_RANKS__INIT, *list = &here;
    uint32_t nobody = UINT32_MAX;
    here.name = (char *)(uintptr_t)name;
    here.id = id;
    here.ranks = 1;
    here.worker = &nobody;
    here.n_worker = 1;
    return host_table_make(t, &list, 1, 0, 1, e);
}

void host_table_free(struct host_table *t)
{
    for (uint32_t i = 0; t->host && i < t->hosts; i++) {
        free(t->host[i].name);
        free(t->host[i].rank);
        free(t->host[i].worker);
    }
    free(t->host);
    free(t->place);
    *t = (struct host_table){0};
}

void host_table_swap(struct engine *engine, struct host_table *t)
{
    struct host_table old = {engine->host, engine->place, engine->hosts, engine->self, engine->size};
    engine->host = t->host;
    engine->place = t->place;
    engine->hosts = t->hosts;
    engine->self = t->self;
    engine->size = t->size;
    *t = old;
}
