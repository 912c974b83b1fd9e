/* The arithmetic of plan.h. Everything is linear in hosts plus ranks: cross_rank comes from one counter per
 * local rank, which is, when a host is placed, the number of hosts before it that have that local rank, and
 * at the end cross_size. */
#include "launcher/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "launcher/config.h"

#define NAMED_HOSTS 8 /* in a message */

/* What a host is good for at least: an auto host has one slot or more. */
static uint64_t least_slots(const struct host *host)
{
    return host->slots ? host->slots : 1;
}

/* "a 4, b 2 and 3 more hosts" */
static void list_hosts(const struct host_list *hosts, size_t count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && i < NAMED_HOSTS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.60s %u", i ? ", " : "", hosts->host[i].name,
                                 hosts->host[i].slots);
    if (count > NAMED_HOSTS && used < size)
        snprintf(text + used, size - used, " and %zu more hosts", count - NAMED_HOSTS);
}

static int too_few_slots(const struct host_list *hosts, size_t count, uint32_t np, uint64_t slots,
                         struct err *e)
{
    char named[640];
    list_hosts(hosts, count, named, sizeof named);
    err_set(e, ERR_USAGE, "-np %u asks for more ranks than there are slots: %llu (%s)", np,
            (unsigned long long)slots, named);
    return err_hint(e, "give the hosts more slots, add hosts, or ask for at most %llu ranks",
                    (unsigned long long)slots);
}

/* The slots of the first `count` hosts, and whether one of them is auto. */
static uint64_t sum_slots(const struct host_list *hosts, size_t count, int *has_auto)
{
    uint64_t sum = 0;
    *has_auto = 0;
    for (size_t i = 0; i < count; i++) {
        sum += least_slots(&hosts->host[i]);
        *has_auto |= hosts->host[i].slots == 0;
    }
    return sum;
}

int plan_check(const struct host_list *hosts, uint32_t np, struct err *e)
{
    int has_auto;
    uint64_t sum = sum_slots(hosts, hosts->count, &has_auto);
    if (np > sum && !has_auto)
        return too_few_slots(hosts, hosts->count, np, sum, e);
    if (np == 0 && sum > CONFIG_RANKS_MAX)
        return err_set(e, ERR_USAGE,
                       "the hosts have %llu slots, and a job at most %d ranks; say how many with -np",
                       (unsigned long long)sum, CONFIG_RANKS_MAX);
    return 0;
}

size_t plan_hosts(const struct host_list *hosts, uint32_t np)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < hosts->count; i++) {
        sum += least_slots(&hosts->host[i]);
        if (np && sum >= np)
            return i + 1;
    }
    return hosts->count;
}

/* Cuts np ranks into blocks. */
static void place_hosts(struct plan *plan, const struct host_list *hosts, size_t count, uint32_t np)
{
    uint32_t rank = 0;
    for (size_t i = 0; i < count && rank < np; i++) {
        uint32_t slots = hosts->host[i].slots;
        uint32_t ranks = slots < np - rank ? slots : np - rank;
        plan->host[plan->host_count++] =
            (struct plan_host){.index = (uint32_t)i, .first_rank = rank, .ranks = ranks};
        rank += ranks;
    }
    plan->size = rank;
}

/* `hosts_with` has a zero for every possible local rank. */
static void number_ranks(struct plan *plan, uint32_t *hosts_with)
{
    for (uint32_t h = 0; h < plan->host_count; h++)
        for (uint32_t local = 0; local < plan->host[h].ranks; local++)
            plan->rank[plan->host[h].first_rank + local] =
                (struct plan_rank){.host = h, .local_rank = local, .cross_rank = hosts_with[local]++};
    for (uint32_t r = 0; r < plan->size; r++)
        plan->rank[r].cross_size = hosts_with[plan->rank[r].local_rank];
}

int plan_make(struct plan *plan, const struct host_list *hosts, size_t count, uint32_t np, struct err *e)
{
    int has_auto;
    uint64_t sum = sum_slots(hosts, count, &has_auto);
    *plan = (struct plan){0};
    if (has_auto)
        return err_set(e, ERR_SYSTEM, "the number of slots of a host is not known yet");
    if (np > sum)
        return too_few_slots(hosts, count, np, sum, e);
    if (!np && sum > CONFIG_RANKS_MAX)
        return plan_check(hosts, np, e);
    np = np ? np : (uint32_t)sum;
    plan->host = calloc(count, sizeof *plan->host);
    plan->rank = calloc(np, sizeof *plan->rank);
    uint32_t *hosts_with = calloc(np, sizeof *hosts_with);
    if (plan->host && plan->rank && hosts_with) {
        place_hosts(plan, hosts, count, np);
        number_ranks(plan, hosts_with);
        free(hosts_with);
        return 0;
    }
    free(hosts_with);
    plan_free(plan);
    return err_set(e, ERR_MEMORY, "no memory for a plan of %u ranks", np);
}

void plan_free(struct plan *plan)
{
    free(plan->host);
    free(plan->rank);
    *plan = (struct plan){0};
}
