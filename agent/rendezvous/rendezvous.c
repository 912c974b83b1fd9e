#include "agent/rendezvous/rendezvous.h"

#include <stdlib.h>
#include <string.h>

static const struct rendezvous_method *const contracts[RENDEZVOUS_METHODS] = {
    &rendezvous_pmix, &rendezvous_pmi1, &rendezvous_gloo};

int rendezvous_open(struct rendezvous *r, struct err *e)
{
    memset(r->state, 0, sizeof r->state);
    r->end = calloc(r->spawn->size, sizeof *r->end);
    if (!r->end)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", r->spawn->size);
    for (size_t i = 0; i < RENDEZVOUS_METHODS; i++) {
        if (!contracts[i] || !(r->spawn->contracts & contracts[i]->bit))
            continue;
        r->state[i] = contracts[i]->open(r, e);
        if (!r->state[i])
            return -1;
    }
    return 0;
}

void rendezvous_rank_ended(struct rendezvous *r, uint32_t rank, const char *how)
{
    if (!r->end || rank >= r->spawn->size || r->end[rank])
        return;
    r->end[rank] = strdup(how);
    for (size_t i = 0; i < RENDEZVOUS_METHODS && r->end[rank]; i++)
        if (r->state[i])
            contracts[i]->rank_ended(r->state[i], rank);
}

void rendezvous_close(struct rendezvous *r)
{
    for (size_t i = 0; i < RENDEZVOUS_METHODS; i++) {
        if (r->state[i])
            contracts[i]->close(r->state[i]);
        r->state[i] = NULL;
    }
    for (uint32_t i = 0; r->end && i < r->spawn->size; i++)
        free(r->end[i]);
    free(r->end);
    r->end = NULL;
}
