/* Any bytes as a hostfile: no read beyond them, one line of error with path and line, or a list within the
 * limits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plan/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host_list hosts;
    struct err e = ERR_INIT;
    if (hosts_parse_file(&hosts, (const char *)data, size, "hosts.txt", &e)) {
        if (e.code != ERR_USAGE || strncmp(e.text, "hosts.txt:", 10) != 0 || strchr(e.text, '\n') ||
            hosts.host)
            abort();
        return 0;
    }
    if (!hosts.count || hosts.count > HOSTS_MAX)
        abort();
    for (size_t i = 0; i < hosts.count; i++) {
        struct host_spec *h = &hosts.host[i];
        if (!h->name[0] || h->name[0] == '-' || !h->line || (h->max_slots && h->slots > h->max_slots))
            abort();
    }
    hosts_free(&hosts);
    return 0;
}
