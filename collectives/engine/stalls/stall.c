#include "collectives/engine/stalls/stall.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"

uint64_t stall_period(const struct stall *s)
{
    uint64_t shorter =
        s->warn_ns == 0 || (s->give_up_ns && s->give_up_ns < s->warn_ns) ? s->give_up_ns : s->warn_ns;
    uint64_t period = shorter / 4;
    if (shorter == 0)
        return 0;
    return period < NSEC_PER_SEC / 10 ? NSEC_PER_SEC / 10 : period > NSEC_PER_SEC ? NSEC_PER_SEC : period;
}

enum stall_news stall_seen(struct stall *s, uint32_t slot, uint32_t operation, bool together, uint64_t now)
{
    if (together) {
        s->slot[slot].since = 0;
        return STALL_NONE;
    }
    if (s->slot[slot].since == 0 || s->slot[slot].operation != operation) {
        s->slot[slot].since = now;
        s->slot[slot].operation = operation;
        s->slot[slot].warned = s->slot[slot].given_up = false;
        return STALL_NONE;
    }
    uint64_t waited = now - s->slot[slot].since;
    if (s->give_up_ns && !s->slot[slot].given_up && waited >= s->give_up_ns) {
        s->slot[slot].given_up = s->slot[slot].warned = true;
        return STALL_GIVE_UP;
    }
    if (s->warn_ns == 0 || s->slot[slot].warned || waited < s->warn_ns)
        return STALL_NONE;
    s->slot[slot].warned = true;
    return STALL_WARN;
}

/* ---- missing ranks ------------------------------------------------------------------------------------- */

static bool is_missing(const uint8_t *missing, uint32_t i)
{
    return missing[i / 8] >> (i % 8) & 1;
}

/* "4 to 7, 9" */
static size_t list_ranks(char *text, size_t size, const uint32_t *rank, uint32_t ranks,
                         const uint8_t *missing)
{
    size_t n = 0;
    for (uint32_t i = 0; i < ranks && n < size; i++) {
        uint32_t last = i;
        if (!is_missing(missing, i))
            continue;
        while (last + 1 < ranks && is_missing(missing, last + 1) && rank[last + 1] == rank[last] + 1)
            last++;
        const char *between = n ? ", " : "";
        if (last == i)
            n += (size_t)snprintf(text + n, size - n, "%s%u", between, rank[i]);
        else
            n += (size_t)snprintf(text + n, size - n, "%s%u %s %u", between, rank[i],
                                  last == i + 1 ? "and" : "to", rank[last]);
        i = last;
    }
    return n;
}

void stall_ranks_add(struct stall_ranks *r, const char *host, const uint32_t *rank, uint32_t ranks,
                     const uint8_t *missing, const char *remark)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ranks; i++)
        count += is_missing(missing, i);
    if (count == 0)
        return;
    char list[120], which[140];
    if (list_ranks(list, sizeof list, rank, ranks, missing) < sizeof list)
        snprintf(which, sizeof which, "%s %s", count > 1 ? "ranks" : "rank", list);
    else
        snprintf(which, sizeof which, "%u of the ranks %u to %u", count, rank[0], rank[ranks - 1]);
    char entry[256];
    int n = snprintf(entry, sizeof entry, "%s%s on %.64s%s", r->hosts ? ", " : "", which, host, remark);
    r->hosts++;
    /* Room is kept for the number of those that did not fit. */
    if (r->cut || r->length + (size_t)n + 32 > sizeof r->text) {
        r->cut += count;
        return;
    }
    memcpy(r->text + r->length, entry, (size_t)n + 1);
    r->length += (size_t)n;
}

const char *stall_ranks_end(struct stall_ranks *r)
{
    if (r->cut)
        snprintf(r->text + r->length, sizeof r->text - r->length, " and %u more ranks", r->cut);
    return r->text;
}
