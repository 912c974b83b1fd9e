/* The batch systems, and the work that is the same for all of them. This file also finds this host among
 * the allocated hosts, because this host must be reached without a network. Batch systems write a short
 * name where the host has a full one, or the other way round. A short name that fits two hosts decides
 * nothing. */
#include "launcher/allocation/allocation.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAMED_HOSTS 8 /* in a message */

static const struct scheduler *const schedulers[] = {&allocation_slurm, &allocation_lsf, &allocation_pbs,
                                                     &allocation_sge};

const char *allocation_variable(char *const envp[], const char *name)
{
    size_t len = strlen(name);
    for (; *envp; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return (*envp)[len + 1] ? *envp + len + 1 : NULL;
    return NULL;
}

const char *allocation_job(char *const envp[])
{
    for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++)
        if (schedulers[i]->inside(envp))
            return allocation_variable(envp, schedulers[i]->job_variable);
    return NULL;
}

int allocation_read_lines(struct host_list *hosts, const char *variable, const char *path, struct err *e)
{
    if (hosts_read_file(hosts, path, e))
        return err_wrap(e, "%s", variable);
    /* A host on one line has one slot there; in a hostfile of the user's it would have what it reports. */
    for (size_t i = 0; i < hosts->count; i++)
        if (!hosts->host[i].slots)
            hosts->host[i].slots = 1;
    return 0;
}

/* The same up to the first dot; addresses have no short form. */
static bool same_short_name(const char *a, const char *b)
{
    size_t len = strcspn(a, ".");
    return len && len == strcspn(b, ".") && strncasecmp(a, b, len) == 0 && !isdigit((unsigned char)a[0]);
}

static void mark_this_host(struct host_list *hosts, const char *hostname)
{
    struct host_spec *found = NULL;
    if (!hostname || !*hostname)
        return;
    for (size_t i = 0; i < hosts->count; i++) {
        if (!same_short_name(hosts->host[i].name, hostname))
            continue;
        if (found)
            return;
        found = &hosts->host[i];
    }
    if (found)
        found->here = true;
}

int allocation_find(struct allocation *a, char *const envp[], uint32_t np, const char *hostname,
                    struct err *e)
{
    *a = (struct allocation){0};
    for (size_t i = 0; i < sizeof schedulers / sizeof *schedulers; i++) {
        const struct scheduler *s = schedulers[i];
        if (!s->inside(envp))
            continue;
        const char *job = allocation_variable(envp, s->job_variable);
        snprintf(a->name, sizeof a->name, "%s job%s%.40s", s->name, job ? " " : "", job ? job : "");
        if (s->read(&a->hosts, envp, np, e)) {
            err_hint(e, "inside a %s job its hosts are taken where -H and --hostfile name none", s->name);
            return -1;
        }
        mark_this_host(&a->hosts, hostname);
        a->rsh = s->rsh ? s->rsh(envp) : NULL;
        return 1;
    }
    return 0;
}

void allocation_describe(const struct host_list *hosts, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < hosts->count && i < NAMED_HOSTS && used < size; i++) {
        char slots[16] = "auto";
        if (hosts->host[i].slots)
            snprintf(slots, sizeof slots, "%u", hosts->host[i].slots);
        used += (size_t)snprintf(text + used, size - used, "%s%.60s:%s", i ? "," : "", hosts->host[i].name,
                                 slots);
    }
    if (hosts->count > NAMED_HOSTS && used < size)
        snprintf(text + used, size - used, " and %zu more hosts", hosts->count - NAMED_HOSTS);
}
