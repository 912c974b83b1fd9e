/* The arithmetic of plan.h. Everything is linear in hosts plus ranks: cross_rank comes from one counter per
 * local rank, which is, when a host is numbered, the number of hosts before it that have that local rank, and
 * at the end cross_size. */
#include "launcher/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/config.h"
#include "launcher/plan/rankfile.h"

#define NAMED_HOSTS 8 /* in a message */

/* The ranks that a host takes without oversubscription; 0: not known yet. */
static uint32_t exact_room(const struct host_spec *host, const struct plan_want *want)
{
    if (!want->per_part)
        return want->ppr ? want->ppr : host->slots;
    uint64_t room = (uint64_t)want->ppr * host->parts;
    return room < CONFIG_RANKS_MAX ? (uint32_t)room : CONFIG_RANKS_MAX;
}

uint32_t plan_room(const struct host_spec *host, const struct plan_want *want)
{
    uint32_t room = exact_room(host, want);
    if (want->ppr)
        return room ? room : want->ppr; /* each host has one socket at least */
    if (!want->oversubscribe)
        return room ? room : 1;
    return host->max_slots ? host->max_slots : CONFIG_RANKS_MAX;
}

/* ---- before the network -------------------------------------------------------------------------------- */

/* "a 4, b 2 and 3 more hosts" */
static void list_hosts(const struct host_list *hosts, size_t count, const struct plan_want *want, char *text,
                       size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && i < NAMED_HOSTS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.60s %u", i ? ", " : "", hosts->host[i].name,
                                 plan_room(&hosts->host[i], want));
    if (count > NAMED_HOSTS && used < size)
        snprintf(text + used, size - used, " and %zu more hosts", count - NAMED_HOSTS);
}

static int too_little_room(const struct host_list *hosts, size_t count, const struct plan_want *want,
                           uint64_t room, struct err *e)
{
    char named[640];
    unsigned long long ranks = room;
    list_hosts(hosts, count, want, named, sizeof named);
    if (want->ppr) {
        err_set(e, ERR_USAGE, "-np %u asks for more ranks than --ppr %u%s%s allows: %llu (%s)", want->np,
                want->ppr, want->per_part ? ":" : "", want->per_part ? want->per_part : "", ranks, named);
        return err_hint(e, "allow more ranks on each %s, add hosts, or ask for at most %llu ranks",
                        want->per_part ? want->per_part : "host", ranks);
    }
    if (want->oversubscribe) {
        err_set(e, ERR_USAGE, "-np %u asks for more ranks than max_slots allows: %llu (%s)", want->np, ranks,
                named);
        return err_hint(e, "raise max_slots, or ask for at most %llu ranks", ranks);
    }
    err_set(e, ERR_USAGE, "-np %u asks for more ranks than there are slots: %llu (%s)", want->np, ranks,
            named);
    return err_hint(
        e, "give the hosts more slots, add hosts, ask for at most %llu ranks, or use --oversubscribe", ranks);
}

/* --ppr does not put more on a host than it was said to have. */
static int check_ppr(const struct host_list *hosts, size_t count, const struct plan_want *want, struct err *e)
{
    for (size_t i = 0; i < count && want->ppr; i++) {
        const struct host_spec *host = &hosts->host[i];
        uint32_t limit = want->oversubscribe ? host->max_slots : host->bare == 1 ? 0 : host->slots;
        if (limit == 0 || plan_room(host, want) <= limit)
            continue;
        if (want->per_part)
            err_set(e, ERR_USAGE, "--ppr %u:%s asks for %u ranks on host %s, more than its %u %s", want->ppr,
                    want->per_part, plan_room(host, want), host->name, limit,
                    want->oversubscribe ? "max_slots" : "slots");
        else
            err_set(e, ERR_USAGE, "--ppr %u asks for more ranks on host %s than its %u %s", want->ppr,
                    host->name, limit, want->oversubscribe ? "max_slots" : "slots");
        return want->oversubscribe ? -1 : err_hint(e, "give it more slots, or use --oversubscribe");
    }
    return 0;
}

/* The room on the first `count` hosts, and whether one of them is auto. */
static uint64_t sum_room(const struct host_list *hosts, size_t count, const struct plan_want *want,
                         bool *has_auto)
{
    uint64_t sum = 0;
    *has_auto = false;
    for (size_t i = 0; i < count; i++) {
        sum += plan_room(&hosts->host[i], want);
        *has_auto |= exact_room(&hosts->host[i], want) == 0;
    }
    return sum;
}

bool plan_is_known(const struct host_list *hosts, size_t count, const struct plan_want *want)
{
    bool has_auto;
    (void)sum_room(hosts, count, want, &has_auto);
    return !has_auto;
}

/* Without -np. */
static int check_size(const struct host_list *hosts, size_t count, const struct plan_want *want,
                      struct err *e)
{
    struct plan_want exact = *want;
    bool has_auto;
    exact.oversubscribe = false;
    uint64_t sum = sum_room(hosts, count, &exact, &has_auto);
    if (sum <= CONFIG_RANKS_MAX)
        return 0;
    return err_set(e, ERR_USAGE,
                   "the hosts have %llu slots, and a job at most %d ranks; say how many with -np",
                   (unsigned long long)sum, CONFIG_RANKS_MAX);
}

/* The host that the rankfile names for a rank; hosts->count: none. `guess` is tried first. */
static size_t host_of_rank(const struct host_list *hosts, const struct rankfile_rank *rank, size_t guess)
{
    if (!rank->host)
        return rank->number < hosts->count ? rank->number : hosts->count;
    if (guess < hosts->count && strcmp(hosts->host[guess].name, rank->host) == 0)
        return guess;
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->host[i].name, rank->host) == 0)
            return i;
    return hosts->count;
}

static uint32_t rankfile_size(const struct plan_want *want)
{
    return want->np ? want->np : want->rankfile->count;
}

static int check_rank(const struct host_list *hosts, const struct plan_want *want, uint32_t rank,
                      uint32_t *ranks, size_t *host, struct err *e)
{
    const struct rankfile *f = want->rankfile;
    *host = host_of_rank(hosts, &f->rank[rank], *host);
    if (*host == hosts->count) {
        err_set(e, ERR_USAGE, "%s, line %u: rank %u is to run on a host that is none of the job's", f->path,
                f->rank[rank].line, rank);
        return err_hint(e, "name it with -H or in the hostfile");
    }
    const struct host_spec *h = &hosts->host[*host];
    uint32_t limit = want->oversubscribe ? h->max_slots : h->bare == 1 ? 0 : h->slots;
    if (limit == 0 || ++ranks[*host] <= limit)
        return 0;
    err_set(e, ERR_USAGE, "%s, line %u: rank %u is one more on host %s than its %u slots", f->path,
            f->rank[rank].line, rank, h->name, limit);
    return err_hint(e, "give it more slots, or use --oversubscribe");
}

static int check_rankfile(const struct host_list *hosts, const struct plan_want *want, struct err *e)
{
    if (want->np > want->rankfile->count)
        return err_set(e, ERR_USAGE, "-np %u asks for more ranks than %s has: %u", want->np,
                       want->rankfile->path, want->rankfile->count);
    uint32_t *ranks = calloc(hosts->count, sizeof *ranks);
    size_t host = 0;
    int rc = ranks ? 0 : err_set(e, ERR_MEMORY, "no memory for %zu hosts", hosts->count);
    for (uint32_t rank = 0; rc == 0 && rank < rankfile_size(want); rank++)
        rc = check_rank(hosts, want, rank, ranks, &host, e);
    free(ranks);
    return rc;
}

/* Ranks on their way to hosts; the counts are of each host. */
struct placing {
    const struct host_list *hosts;
    size_t count; /* of those on which they may go */
    const struct plan_want *want;
    const struct plan_part *part; /* NULL: all hosts, and as many as these take */
    uint32_t *ranks;              /* placed so far */
    uint32_t *own;                /* those of this part, by place; `ranks` itself when there are no parts */
    uint32_t *host_of;            /* NULL: only tried */
};

/* The k-th host on which they may go. */
static size_t host_at(const struct placing *p, size_t k)
{
    return p->part && p->part->place ? p->part->place[k].host : k;
}

/* How many more ranks of this part go there; `full`: with oversubscription. */
static uint32_t room_left(const struct placing *p, size_t k, bool full)
{
    size_t i = host_at(p, k);
    const struct host_spec *host = &p->hosts->host[i];
    uint32_t room = full ? plan_room(host, p->want) : exact_room(host, p->want);
    room = p->ranks[i] < room ? room - p->ranks[i] : 0;
    uint32_t slots = p->part && p->part->place ? p->part->place[k].slots : 0;
    if (full || !slots)
        return room;
    uint32_t left = p->own[k] < slots ? slots - p->own[k] : 0;
    return left < room ? left : room;
}

static void assign_ranks(const struct placing *p, size_t k, uint32_t ranks)
{
    p->ranks[host_at(p, k)] += ranks;
    if (p->own != p->ranks)
        p->own[k] += ranks;
}

/* Puts one more rank at a time on each host that has room, round and round; with `name`, notes the host of
 * each. Returns how many were placed by then. */
static uint32_t go_round(const struct placing *p, bool full, bool name, uint32_t placed, uint32_t np)
{
    bool moved = true;
    while (placed < np && moved) {
        moved = false;
        for (size_t k = 0; k < p->count && placed < np; k++) {
            if (room_left(p, k, full) == 0)
                continue;
            assign_ranks(p, k, 1);
            if (name && p->host_of)
                p->host_of[placed] = (uint32_t)host_at(p, k);
            placed++;
            moved = true;
        }
    }
    return placed;
}

/* Places the ranks of one part; returns for how many there was room. p->host_of is that of its first. */
static uint32_t place_part(const struct placing *p, uint32_t np)
{
    uint32_t placed = 0, rank = 0;
    if (p->want->by_node) {
        placed = go_round(p, false, true, 0, np);
        return p->want->oversubscribe ? go_round(p, true, true, placed, np) : placed;
    }
    for (size_t k = 0; k < p->count; k++) {
        uint32_t room = room_left(p, k, false);
        uint32_t ranks = room < np - placed ? room : np - placed;
        assign_ranks(p, k, ranks);
        placed += ranks;
    }
    if (p->want->oversubscribe)
        placed = go_round(p, true, false, placed, np);
    for (size_t k = 0; p->host_of && k < p->count; k++)
        for (uint32_t n = 0; n < p->own[k]; n++)
            p->host_of[rank++] = (uint32_t)host_at(p, k);
    return placed;
}

/* Each program's ranks behind those of the one before. The counts are zero. Returns the program for
 * which there is too little room, and for how many of its ranks there is; want->parts: all are placed. */
static size_t place_parts(struct placing *p, uint32_t *placed)
{
    const size_t all = p->count;
    for (size_t i = 0; i < p->want->parts; i++) {
        p->part = &p->want->part[i];
        p->count = p->part->place ? p->part->count : all;
        memset(p->own, 0, p->count * sizeof *p->own);
        *placed = place_part(p, p->part->ranks);
        if (*placed < p->part->ranks)
            return i;
        p->host_of += p->host_of ? p->part->ranks : 0;
    }
    return p->want->parts;
}

static int check_parts(const struct host_list *hosts, size_t count, const struct plan_want *want,
                       struct err *e)
{
    uint32_t *counts = calloc(2 * count, sizeof *counts), placed = 0;
    struct placing p = {hosts, count, want, NULL, counts, counts + count, NULL};
    if (!counts)
        return err_set(e, ERR_MEMORY, "no memory for %zu hosts", count);
    size_t failed = place_parts(&p, &placed);
    free(counts);
    if (failed == want->parts)
        return 0;
    err_set(e, ERR_USAGE, "-np %u of program %zu asks for more ranks than its hosts have slots left: %u",
            want->part[failed].ranks, failed + 1, placed);
    return err_hint(e, "give the hosts in its -H more slots, or use --oversubscribe");
}

static int check_room(const struct host_list *hosts, size_t count, const struct plan_want *want,
                      bool *has_auto, struct err *e)
{
    *has_auto = false;
    if (want->rankfile)
        return check_rankfile(&(struct host_list){hosts->host, count}, want, e);
    uint64_t sum = sum_room(hosts, count, want, has_auto);
    if (check_ppr(hosts, count, want, e) < 0)
        return -1;
    if (want->parts && !*has_auto && check_ppr(hosts, count, want, e) == 0)
        return check_parts(hosts, count, want, e);
    if (want->np > sum && (!*has_auto || (want->oversubscribe && !want->ppr)))
        return too_little_room(hosts, count, want, sum, e);
    return want->np ? 0 : check_size(hosts, count, want, e);
}

int plan_check(const struct host_list *hosts, const struct plan_want *want, struct err *e)
{
    bool has_auto;
    return check_room(hosts, hosts->count, want, &has_auto, e);
}

size_t plan_hosts(const struct host_list *hosts, const struct plan_want *want)
{
    uint64_t sum = 0;
    if (want->rankfile || want->parts)
        return hosts->count; /* those without ranks end when all have answered */
    if (want->np && want->by_node)
        return want->np < hosts->count ? want->np : hosts->count;
    for (size_t i = 0; i < hosts->count; i++) {
        uint32_t room = exact_room(&hosts->host[i], want);
        sum += room ? room : 1;
        if (want->np && sum >= want->np)
            return i + 1;
    }
    return hosts->count;
}

/* ---- hosts of ranks ------------------------------------------------------------------------------------ */

/* The host of each rank. `ranks` and `own` are zero for each host. */
static void place_ranks(const struct host_list *hosts, size_t count, const struct plan_want *want,
                        uint32_t np, uint32_t *ranks, uint32_t *own, uint32_t *host_of)
{
    if (want->rankfile) {
        size_t host = 0;
        for (uint32_t rank = 0; rank < np; rank++) {
            host = host_of_rank(hosts, &want->rankfile->rank[rank], host);
            host_of[rank] = (uint32_t)host;
            ranks[host]++;
        }
        return;
    }
    struct placing p = {hosts, count, want, NULL, ranks, want->parts ? own : ranks, host_of};
    uint32_t placed;
    if (want->parts)
        (void)place_parts(&p, &placed); /* there is room: it was tried */
    else
        (void)place_part(&p, np);
}

/* ---- lists and numbers --------------------------------------------------------------------------------- */

/* The hosts that have ranks, and their lists. plan_host_of: of each in the list of all. */
static void list_ranks(struct plan *plan, size_t count, const uint32_t *ranks, const uint32_t *host_of,
                       uint32_t *plan_host_of)
{
    uint32_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] == 0)
            continue;
        plan_host_of[i] = plan->host_count;
        plan->host[plan->host_count++] = (struct plan_host){.index = (uint32_t)i, .rank = plan->by_host + at};
        at += ranks[i];
    }
    for (uint32_t r = 0; r < plan->size; r++) {
        uint32_t h = plan_host_of[host_of[r]];
        struct plan_host *host = &plan->host[h];
        plan->by_host[host->rank - plan->by_host + host->ranks] = r;
        plan->rank[r] = (struct plan_rank){.host = h, .local_rank = host->ranks++};
    }
}

/* `hosts_with` has a zero for every possible local rank. */
static void number_hosts(struct plan *plan, uint32_t *hosts_with)
{
    for (uint32_t h = 0; h < plan->host_count; h++)
        for (uint32_t local = 0; local < plan->host[h].ranks; local++)
            plan->rank[plan->host[h].rank[local]].cross_rank = hosts_with[local]++;
    for (uint32_t r = 0; r < plan->size; r++)
        plan->rank[r].cross_size = hosts_with[plan->rank[r].local_rank];
}

/* Memory for one plan: of each rank its host, and what counts. */
static int fill_plan(struct plan *plan, const struct host_list *hosts, size_t count,
                     const struct plan_want *want)
{
    uint32_t *numbers = calloc(2 * count + 2 * (size_t)plan->size, sizeof *numbers);
    plan->host = calloc(count, sizeof *plan->host);
    plan->rank = calloc(plan->size, sizeof *plan->rank);
    plan->by_host = calloc(plan->size, sizeof *plan->by_host);
    if (!numbers || !plan->host || !plan->rank || !plan->by_host) {
        free(numbers);
        return -1;
    }
    uint32_t *ranks = numbers, *plan_host_of = ranks + count, *host_of = plan_host_of + count;
    /* plan_host_of is written when the places are known. */
    place_ranks(hosts, count, want, plan->size, ranks, plan_host_of, host_of);
    list_ranks(plan, count, ranks, host_of, plan_host_of);
    number_hosts(plan, host_of + plan->size);
    free(numbers);
    return 0;
}

int plan_make(struct plan *plan, const struct host_list *hosts, size_t count, const struct plan_want *want,
              struct err *e)
{
    struct plan_want exact = *want;
    bool has_auto;
    *plan = (struct plan){0};
    exact.oversubscribe = false;
    if (check_room(hosts, count, want, &has_auto, e) < 0)
        return -1;
    if (has_auto)
        return err_set(e, ERR_SYSTEM, "the number of slots of a host is not known yet");
    plan->size = want->rankfile ? rankfile_size(want)
                 : want->np     ? want->np
                                : (uint32_t)sum_room(hosts, count, &exact, &has_auto);
    if (fill_plan(plan, hosts, count, want) == 0)
        return 0;
    uint32_t size = plan->size;
    plan_free(plan);
    return err_set(e, ERR_MEMORY, "no memory for a plan of %u ranks", size);
}

/* The hosts' lists in `to`, with room for `n` more behind that of `host`. */
static void move_lists(struct plan *plan, uint32_t *to, uint32_t host, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t h = 0; h < plan->host_count; h++) {
        struct plan_host *p = &plan->host[h];
        memcpy(to + at, p->rank, p->ranks * sizeof *to);
        p->rank = to + at;
        at += p->ranks + (h == host ? n : 0);
    }
    free(plan->by_host);
    plan->by_host = to;
}

int plan_add(struct plan *plan, uint32_t host, uint32_t index, const uint32_t *local, uint32_t n,
             struct err *e)
{
    uint32_t *lists = malloc((plan->size + (size_t)n) * sizeof *lists);
    struct plan_rank *rank = realloc(plan->rank, (plan->size + (size_t)n) * sizeof *rank);
    plan->rank = rank ? rank : plan->rank;
    struct plan_host *hosts = realloc(plan->host, (plan->host_count + (size_t)1) * sizeof *hosts);
    plan->host = hosts ? hosts : plan->host;
    if (!lists || !rank || !hosts) {
        free(lists);
        return err_set(e, ERR_MEMORY, "no memory for %u more ranks", n);
    }
    if (host == plan->host_count)
        plan->host[plan->host_count++] = (struct plan_host){.index = index, .rank = plan->by_host};
    move_lists(plan, lists, host, n);
    struct plan_host *p = &plan->host[host];
    for (uint32_t i = 0; i < n; i++) {
        lists[p->rank - lists + p->ranks++] = plan->size;
        plan->rank[plan->size++] = (struct plan_rank){
            .host = host, .local_rank = local[i], .cross_rank = host, .cross_size = plan->host_count};
    }
    return 0;
}

bool plan_is_block(const struct plan_host *host)
{
    return host->rank[host->ranks - 1] - host->rank[0] == host->ranks - 1;
}

void plan_free(struct plan *plan)
{
    free(plan->host);
    free(plan->rank);
    free(plan->by_host);
    *plan = (struct plan){0};
}
