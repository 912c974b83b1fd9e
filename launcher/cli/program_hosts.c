#include "launcher/cli/program_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COMMAND_SHOWN 60

bool program_hosts_any(const struct programs *p)
{
    for (size_t i = 1; i < p->count; i++)
        if (p->item[i].hosts)
            return true;
    return false;
}

/* Its index; hosts->count: it is none of them. `guess` is tried first. */
static size_t find_host(const struct host_list *hosts, const char *name, size_t guess)
{
    size_t i = guess < hosts->count ? guess : 0;
    for (size_t tried = 0; tried < hosts->count; tried++, i = i + 1 < hosts->count ? i + 1 : 0)
        if (strcasecmp(hosts->host[i].name, name) == 0)
            return i;
    return hosts->count;
}

/* The host moves into the list. */
static int append_host(struct host_list *hosts, struct host_spec *own, struct err *e)
{
    struct host_spec *more = reallocarray(hosts->host, hosts->count + 1, sizeof *more);
    if (!more || hosts->count >= HOSTS_MAX) {
        hosts->host = more ? more : hosts->host;
        return more ? err_set(e, ERR_USAGE, "the programs have more than %d hosts", HOSTS_MAX)
                    : err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    hosts->host = more;
    more[hosts->count] = *own;
    hosts->count++;
    own->name = own->user = NULL;
    return 0;
}

/* Two programs name one host: the larger number of slots wins, and a number wins over none. */
static void merge_host(struct host_spec *host, const struct host_spec *own)
{
    if (own->slots > host->slots) {
        host->slots = own->slots;
        host->bare = own->bare;
    }
    if (own->line < host->line)
        host->line = own->line;
}

static int join_host(struct host_list *hosts, struct host_spec *own, size_t *at, bool all, const char *from,
                     struct err *e)
{
    *at = find_host(hosts, own->name, *at);
    if (*at == hosts->count && all) {
        err_set(e, ERR_USAGE, "%s: %s is none of the job's hosts", from, own->name);
        return err_hint(e, "name it in the hostfile, or ask the batch system for it");
    }
    if (*at == hosts->count)
        return append_host(hosts, own, e);
    struct host_spec *host = &hosts->host[*at];
    if (own->user && (!host->user || strcmp(own->user, host->user) != 0))
        return err_set(e, ERR_USAGE, "%s: %s@%s was named before with another user", from, own->user,
                       own->name);
    if (!all)
        merge_host(host, own);
    return 0;
}

/* The hosts of one program, in the order of its -H. */
static int join_program(struct plan_part *part, const struct program *p, size_t number,
                        struct host_list *hosts, bool all, struct err *e)
{
    char from[COMMAND_SHOWN + 64];
    struct host_list own;
    size_t at = 0;
    snprintf(from, sizeof from, "-H of program %zu (%.*s)", number, COMMAND_SHOWN, p->command[0]);
    if (hosts_parse(&own, p->hosts, from, e))
        return -1;
    part->place = calloc(own.count, sizeof *part->place);
    int rc = part->place ? 0 : err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    for (size_t i = 0; rc == 0 && i < own.count; i++) {
        uint32_t slots = own.host[i].slots;
        rc = join_host(hosts, &own.host[i], &at, all, from, e);
        part->place[part->count++] = (struct plan_place){(uint32_t)at, slots};
        at++;
    }
    hosts_free(&own);
    return rc;
}

int program_hosts_join(struct config *config, struct host_list *hosts, bool all, struct err *e)
{
    struct programs *p = &config->programs;
    if (!program_hosts_any(p))
        return 0;
    if (config->rankfile)
        return err_set(e, ERR_USAGE, "--rankfile says where each rank goes: -H of a program excludes it");
    p->part = calloc(p->count, sizeof *p->part);
    if (!p->part)
        return err_set(e, ERR_MEMORY, "no memory for %zu programs", p->count);
    for (size_t i = 0; i < p->count; i++) {
        p->part[i].ranks = p->item[i].ranks;
        if (p->item[i].hosts && join_program(&p->part[i], &p->item[i], i + 1, hosts, all, e))
            return -1;
    }
    return 0;
}
