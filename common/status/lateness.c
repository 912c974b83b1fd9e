#include "common/status/lateness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_LEAST    10  /* operations before a rank is called late */
#define PERIODS_LEAST 2   /* once is no habit */
#define LATE_PART     4   /* a rank is late that comes after this part of the operation's waiting */
#define ALWAYS_SHARE  0.5 /* of the periods */
#define OFTEN_SHARE   0.1
#define MORE_SHARE    1.5    /* times a rank's part of all waiting, if the waiting were for all alike */
#define WORTH_SHARE   0.005  /* of a rank's time: such waiting is worth a word */
#define FADE          0.98   /* of what is recent, in a second */
#define NOISE_NS      20000u /* nobody is late by less */
#define ONCE_NS       10000000u
#define ONCE_TIMES    20 /* the median */

void lateness_init(struct lateness *l, uint32_t most)
{
    *l = (struct lateness){.most = most};
}

/* false: no memory, or too many. */
static bool grow_to(struct lateness *l, uint32_t size)
{
    if (size <= l->size)
        return true;
    if (size > l->most)
        return false;
    struct lateness_rank *rank = realloc(l->rank, size * sizeof *rank);
    l->rank = rank ? rank : l->rank;
    uint64_t *order = realloc(l->order, size * sizeof *order);
    l->order = order ? order : l->order;
    if (!rank || !order)
        return false;
    memset(&l->rank[l->size], 0, (size - l->size) * sizeof *rank);
    l->size = size;
    return true;
}

void lateness_free(struct lateness *l)
{
    free(l->rank);
    free(l->order);
    *l = (struct lateness){.most = l->most};
}

/* ---- an operation -------------------------------------------------------------------------------------- */

static int compare_times(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Bucket n ends at 2^(n/2) us. */
static uint32_t bucket_of(uint64_t ns)
{
    uint64_t us = ns / 1000 < 1u << 30 ? ns / 1000 : 1u << 30;
    if (us == 0)
        return 0;
    uint32_t doublings = 63 - (uint32_t)__builtin_clzll(us);
    return 1 + 2 * doublings + (us * us >= 2ull << 2 * doublings);
}

/* The middle of the bucket, by factors. */
static uint64_t middle_of_bucket(uint32_t bucket)
{
    double end = 1000.0 * (double)(1ull << bucket / 2) * (bucket % 2 ? 1.41421356 : 1);
    return (uint64_t)(end / 1.18920712);
}

static void count_rank(struct lateness_rank *r, const char *name, uint64_t at, uint64_t late_ns, bool late)
{
    r->seen++;
    r->late += late;
    r->bucket[bucket_of(late_ns)] += late;
    if (late_ns <= r->worst_ns)
        return;
    r->worst_ns = late_ns;
    r->worst_at = at;
    snprintf(r->worst_name, sizeof r->worst_name, "%s", name);
}

static bool is_late(uint64_t late_ns, uint64_t spread, uint64_t doubt)
{
    return late_ns > NOISE_NS && late_ns > doubt && late_ns >= spread / LATE_PART;
}

/* All others have waited for the last one. */
static void count_waiting(struct lateness *l, struct lateness_rank *last, double waited)
{
    last->last++;
    last->caused_ns += waited;
    last->recent += waited;
    last->period_ns += waited;
    l->waited_ns += waited;
    l->recent += waited;
}

void lateness_add(struct lateness *l, const char *name, const uint32_t *rank, const uint64_t *at,
                  uint32_t count, uint64_t doubt)
{
    uint64_t first = UINT64_MAX;
    uint32_t last = 0;
    double waited = 0;
    if (count < 2 || count > l->most)
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (rank[i] >= l->most || !grow_to(l, rank[i] + 1))
            return;
        first = at[i] < first ? at[i] : first;
        last = at[i] > at[last] ? i : last;
    }
    if (count > l->size) /* some rank came twice */
        return;
    for (uint32_t i = 0; i < count; i++) {
        l->order[i] = at[i] - first;
        waited += (double)(at[last] - at[i]);
    }
    qsort(l->order, count, sizeof *l->order, compare_times);
    uint64_t spread = at[last] - first, middle = l->order[(count - 1) / 2];
    bool together = spread <= doubt;
    l->operations++;
    l->arrivals += count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t after = at[i] - first;
        uint64_t late_ns = after > middle && !together ? after - middle : 0;
        count_rank(&l->rank[rank[i]], name, at[i], late_ns, is_late(late_ns, spread, doubt));
    }
    l->period_operations++;
    l->period_waits += count - 1;
    if (!together)
        count_waiting(l, &l->rank[rank[last]], waited);
}

/* The share of a rank if all waiting were for all ranks alike: one of those that came to an operation, in the
 * mean. */
static double fair_share(const struct lateness *l)
{
    return l->arrivals > 0 ? (double)l->operations / (double)l->arrivals : 1;
}

/* The rank for which the others have waited above all; size: there is none. */
static uint32_t find_worst(const struct lateness *l, double waited)
{
    uint32_t worst = 0;
    for (uint32_t i = 0; i < l->size; i++)
        worst = l->rank[i].period_ns > l->rank[worst].period_ns ? i : worst;
    return l->rank[worst].period_ns > MORE_SHARE * fair_share(l) * waited ? worst : l->size;
}

/* Counts the period if a rank has waited for others for a part of the time that is worth a word. */
static void judge_period(struct lateness *l, double seconds, double operations)
{
    double waited = 0, sampled = (double)l->period_operations;
    for (uint32_t i = 0; i < l->size; i++)
        waited += l->rank[i].period_ns;
    double each = l->period_waits > 0 ? waited / (double)l->period_waits : 0;
    double share = each * (operations > sampled ? operations : sampled) / (seconds * 1e9);
    l->periods += l->period_operations > 0;
    if (share < WORTH_SHARE)
        return;
    uint32_t worst = find_worst(l, waited);
    if (worst < l->size)
        l->rank[worst].periods++;
}

void lateness_end_period(struct lateness *l, double seconds, double operations)
{
    double factor = 1;
    judge_period(l, seconds, operations);
    for (; seconds >= 1 && factor > 1e-6; seconds--)
        factor *= FADE;
    l->recent *= factor;
    l->period_operations = l->period_waits = 0;
    for (uint32_t i = 0; i < l->size; i++) {
        l->rank[i].recent *= factor;
        l->rank[i].period_ns = 0;
    }
}

/* ---- the sums ------------------------------------------------------------------------------------------ */

double lateness_share(const struct lateness *l, uint32_t rank)
{
    return l->waited_ns > 0 ? l->rank[rank].caused_ns / l->waited_ns : 0;
}

double lateness_recent_share(const struct lateness *l, uint32_t rank)
{
    return l->recent > 1 ? l->rank[rank].recent / l->recent : 0;
}

uint64_t lateness_median(const struct lateness *l, uint32_t rank)
{
    const struct lateness_rank *r = &l->rank[rank];
    uint64_t below = 0;
    for (uint32_t i = 0; i < LATENESS_BUCKETS; i++) {
        below += r->bucket[i];
        if (r->late > 0 && 2 * below >= r->late)
            return middle_of_bucket(i) < r->worst_ns ? middle_of_bucket(i) : r->worst_ns;
    }
    return 0;
}

enum lateness_kind lateness_kind_of(const struct lateness *l, uint32_t rank)
{
    const struct lateness_rank *r = &l->rank[rank];
    bool again = r->seen >= SEEN_LEAST && r->periods >= PERIODS_LEAST;
    double periods = again ? (double)r->periods / (double)l->periods : 0;
    bool costs = lateness_share(l, rank) > MORE_SHARE * fair_share(l);
    if (costs && periods >= ALWAYS_SHARE)
        return LATENESS_ALWAYS;
    if (costs && periods >= OFTEN_SHARE)
        return LATENESS_OFTEN;
    return r->worst_ns >= ONCE_NS && r->worst_ns >= ONCE_TIMES * lateness_median(l, rank) ? LATENESS_ONCE
                                                                                          : LATENESS_NONE;
}

const char *lateness_word(enum lateness_kind kind)
{
    static const char *const word[] = {[LATENESS_NONE] = "no",
                                       [LATENESS_ONCE] = "once",
                                       [LATENESS_OFTEN] = "often",
                                       [LATENESS_ALWAYS] = "always"};
    return word[kind];
}

/* ---- as a message, and in words ------------------------------------------------------------------------ */

void lateness_tell(const struct lateness *l, uint32_t rank, Hvd__Lateness *out)
{
    struct lateness_rank *r = &l->rank[rank];
    hvd__lateness__init(out);
    out->operations = r->seen;
    out->late = r->late;
    out->last = r->last;
    out->share_ppm = (uint32_t)(1e6 * lateness_share(l, rank) + 0.5);
    out->recent_share_ppm = (uint32_t)(1e6 * lateness_recent_share(l, rank) + 0.5);
    out->caused_ns = r->caused_ns < 1e18 ? (uint64_t)r->caused_ns : (uint64_t)1e18;
    out->median_ns = lateness_median(l, rank);
    out->worst_ns = r->worst_ns;
    out->worst_tensor = r->worst_name;
    out->word = (char *)(uintptr_t)lateness_word(lateness_kind_of(l, rank));
}

double lateness_sum_shares(Hvd__RankStatus *const *rank, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += rank[i]->lateness ? rank[i]->lateness->share_ppm / 1e6 : 0;
    return sum;
}

bool lateness_is_known(const Hvd__Lateness *l)
{
    return l && strcmp(l->word, lateness_word(LATENESS_NONE)) != 0;
}

/* "3.1 ms" */
static const char *format_time(uint64_t ns, char *text, size_t size)
{
    if (ns < 1000000)
        snprintf(text, size, "%.0f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(text, size, "%.1f ms", (double)ns / 1e6);
    else
        snprintf(text, size, "%.1f s", (double)ns / 1e9);
    return text;
}

/* Nothing while it is as before. */
static const char *describe_trend(const Hvd__Lateness *l)
{
    if (l->recent_share_ppm > 1.3 * l->share_ppm)
        return ", and more of late";
    return l->recent_share_ppm < 0.7 * l->share_ppm ? ", and less of late" : "";
}

void lateness_describe(const Hvd__Lateness *l, uint32_t rank, const char *host, char *text, size_t size)
{
    char median[24], worst[24];
    format_time(l->median_ns, median, sizeof median);
    format_time(l->worst_ns, worst, sizeof worst);
    if (strcmp(l->word, lateness_word(LATENESS_ONCE)) == 0) {
        snprintf(text, size, "rank %u on %.64s was late once by %s, at \"%.80s\"", rank, host, worst,
                 l->worst_tensor);
        return;
    }
    snprintf(text, size,
             "rank %u on %.64s is %.10s late: %.0f %% of all waiting for others is for it%s; by %s in the "
             "median, by %s at \"%.80s\"%s%.200s",
             rank, host, l->word, l->share_ppm / 1e4, describe_trend(l), median, worst, l->worst_tensor,
             *l->reason ? "; " : "", l->reason);
}

void lateness_put(const Hvd__Lateness *l, struct json *w)
{
    json_text(w, "late", l->word);
    json_filled_text(w, "reason", lateness_is_known(l) ? l->reason : "");
    json_unsigned(w, "sampled_operations", l->operations);
    json_unsigned(w, "late_in", l->late);
    json_unsigned(w, "last_in", l->last);
    json_real(w, "share_of_waiting", l->share_ppm / 1e6);
    json_real(w, "recent_share_of_waiting", l->recent_share_ppm / 1e6);
    json_real(w, "median", (double)l->median_ns / 1e9);
    json_real(w, "worst", (double)l->worst_ns / 1e9);
    json_filled_text(w, "worst_tensor", l->worst_tensor);
}
