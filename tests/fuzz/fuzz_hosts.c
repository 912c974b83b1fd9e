/* -H from anywhere: every text is read or refused with one line, and what is read keeps the limits and can be
 * placed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/plan/hosts.h"
#include "launcher/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct host_list hosts;
    struct plan plan;
    struct err e = ERR_INIT;
    char *text = strndup((const char *)data, size);
    if (!text)
        return 0;
    if (hosts_parse(&hosts, text, "-H/--hosts", &e)) {
        if (e.code != ERR_USAGE || !e.text[0] || strchr(e.text, '\n') || hosts.host || hosts.count)
            abort();
        free(text);
        return 0;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < hosts.count; i++) {
        struct host_spec *h = &hosts.host[i];
        if (h->name[0] == '-' || strlen(h->name) > HOSTS_NAME_MAX || strpbrk(h->name, " ;$'\"\\/`&|<>\n"))
            abort();
        if (h->user &&
            (h->user[0] == '-' || strlen(h->user) > HOSTS_USER_MAX || strpbrk(h->user, " ;$'\"\\/`&|<>\n")))
            abort();
        hosts_resolve(h, 2);
        if (!h->slots || h->slots > HOSTS_SLOTS_MAX)
            abort();
        sum += h->slots;
    }
    uint32_t np = sum > 1000 ? 1000 : 0; /* placing a million ranks each time would fuzz nothing but memory */
    if (plan_make(&plan, &hosts, hosts.count, &(struct plan_want){.np = np}, &e) ||
        plan.size != (np ? np : sum))
        abort();
    plan_free(&plan);
    hosts_free(&hosts);
    free(text);
    return 0;
}
