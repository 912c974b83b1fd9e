#include "launcher/job/local_address.h"

#include <stdlib.h>
#include <string.h>

#include "common/net/net.h"
#include "launcher/job/job_internal.h"

/* Of a host elsewhere; the first that has one. */
static const char *elsewhere(struct job *j)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        const struct host *h = job_host_of_plan(j, i);
        if (h->ops != &transport_local && h->address)
            return h->address;
    }
    return NULL;
}

void local_address_settle(struct job *j)
{
    const char *there = elsewhere(j);
    union net_address to, source;
    char text[NET_TEXT_MAX];
    if (!there || j->common.interface_count > 0 || net_parse(there, 0, &to, NULL) < 0 ||
        !net_source_for(&to, &source))
        return;
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        char *address = h->ops == &transport_local ? strdup(net_format(&source, text)) : NULL;
        if (!address)
            continue;
        free(h->address);
        h->address = address;
    }
}
