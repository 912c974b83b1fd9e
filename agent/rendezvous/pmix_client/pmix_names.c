/* Names that the PMIx server of a host and its clients must share. */
#include <stdio.h>
#include <string.h>

#include "agent/rendezvous/pmix_client/pmix.h"

void pmix_node_name(const struct rendezvous *r, uint32_t host, char *name, size_t size)
{
    const char *own = r->spawn->host[host]->name;
    size_t plain = strspn(own, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
    if (plain == strlen(own) && plain > 0 && plain < size)
        snprintf(name, size, "%s", own);
    else
        snprintf(name, size, "host-%u", host);
}

void pmix_server_name(const struct rendezvous *r, char *name, size_t size)
{
    snprintf(name, size, "%s-server", r->spawn->namespace_);
}

void pmix_server_directory(const struct rendezvous *r, char *path, size_t size)
{
    snprintf(path, size, "%s/pmix", r->directory);
}
