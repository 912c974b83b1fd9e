/* How often this host has joined the operations of each name: a number that tells them apart, and from which
 * another host learns whether a rank that has died had come to one of them.
 *
 * A name is kept while it may come again: a set of participants for the whole job, a group until its end. */
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"

static struct joined **find(const char *id)
{
    struct joined **at = &pmix_server.joined;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

struct joined *pmix_joined_of(const char *id)
{
    struct joined *j = *find(id);
    if (j)
        return j;
    j = malloc(sizeof *j + strlen(id) + 1);
    if (!j)
        return NULL;
    j->next = pmix_server.joined;
    j->count = j->refused = 0;
    memcpy(j->id, id, strlen(id) + 1);
    return pmix_server.joined = j;
}

void pmix_joined_forget(const char *id)
{
    struct joined **at = find(id), *j = *at;
    if (!j)
        return;
    *at = j->next;
    exchange_forget(pmix_server.r->exchange, EXCHANGE_PMIX, id, strlen(id));
    free(j);
}
