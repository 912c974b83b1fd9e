/* The lateness of ranks, from samples of the job's operations. Each host tells when its ranks came to a few
 * operations of each second, the same on all hosts (common/status/arrivals.h). Here the ranks of all hosts
 * are compared.
 *
 * An operation is complete when all ranks of the job have been told. Those that never are, because hosts
 * chose differently, make room for newer ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/status/lateness.h"
#include "common/status/why_judge.h"
#include "launcher/host/host_clock.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define WINDOW_MS  1000
#define FLAT_HOSTS 100  /* with more of them each tells less often: so many messages a window */
#define OPERATIONS 2048 /* of all hosts in a window */
#define EACH_LEAST 4
#define EACH_MOST  64
#define ROWS       3 /* windows whose operations may wait for hosts */
#define SENTENCES  8 /* of a report */
#define PERIOD_NS  (2 * NSEC_PER_SEC)

/* An operation that some hosts have told of. */
struct row {
    uint64_t id; /* 0: free */
    uint64_t came, doubt;
    uint32_t count, room;
    uint32_t *rank;  /* [room] */
    uint64_t *began; /* [room] */
    char name[LATENESS_NAME];
};

/* The use of a rank, as its session told it last. */
struct rank_use {
    uint64_t time, cpu_ms, delay_ms, throttled_ms, read_kib, resent, operations, heats, hot_ms;
    double lost;                  /* segments a second that its host has sent again */
    char reason[WHY_REASON + 40]; /* words for its state between the last two messages */
};

struct samples_state {
    struct lateness lateness;
    struct row *row;
    uint32_t rows, each, window_ms;
    uint64_t period;      /* the beginning of the present one */
    double rate;          /* operations of a rank in a second, as far as it is known */
    Hvd__Lateness *lent;  /* [ranks] */
    struct rank_use *use; /* [ranks] */
};

struct host_samples {
    bool told;
    uint32_t members;
    uint64_t seen; /* when the last of its ranks came to the newest operation; 0: to none */
    char seen_in[LATENESS_NAME];
};

static struct samples_state *state_of(const struct job *j)
{
    return job_state(j, &part_samples);
}

static struct host_samples *host_samples_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_samples, h);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static void free_samples(struct job *j)
{
    struct samples_state *s = state_of(j);
    for (uint32_t i = 0; i < s->rows; i++) {
        free(s->row[i].rank);
        free(s->row[i].began);
    }
    free(s->row);
    free(s->lent);
    free(s->use);
    lateness_free(&s->lateness);
    *s = (struct samples_state){.rows = 0};
}

static bool make_rows(struct job *j, struct samples_state *s)
{
    uint32_t ranks = j->room.ranks;
    s->lent = calloc(ranks, sizeof *s->lent);
    s->row = calloc((size_t)ROWS * s->each, sizeof *s->row);
    s->use = calloc(ranks, sizeof *s->use);
    lateness_init(&s->lateness, ranks);
    if (!s->lent || !s->use || !s->row)
        return false;
    s->rows = ROWS * s->each;
    return true;
}

static bool grow_row(struct row *r, size_t more)
{
    size_t room = r->count + more;
    if (room <= r->room)
        return true;
    uint32_t *rank = realloc(r->rank, room * sizeof *rank);
    r->rank = rank ? rank : r->rank;
    uint64_t *began = realloc(r->began, room * sizeof *began);
    r->began = began ? began : r->began;
    if (!rank || !began)
        return false;
    r->room = (uint32_t)room;
    return true;
}

/* The row of the operation, or the one that has waited longest. */
static struct row *find_row(struct samples_state *s, const Hvd__Arrival *a)
{
    struct row *oldest = &s->row[0];
    for (uint32_t i = 0; i < s->rows; i++) {
        struct row *r = &s->row[i];
        if (r->id == a->id)
            return r;
        if (r->id == 0 || r->came < oldest->came)
            oldest = r;
        if (r->id == 0)
            r->came = 0;
    }
    oldest->id = a->id;
    oldest->came = clock_now();
    oldest->count = 0;
    oldest->doubt = 0;
    snprintf(oldest->name, sizeof oldest->name, "%s", a->tensor);
    return oldest;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Of all hosts; 0: a host has not told yet. */
static uint32_t count_members(const struct job *j)
{
    uint32_t members = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        const struct host *h = &j->host[i];
        const struct host_samples *mine = host_samples_of(j, h);
        if (!h->planned || host_state(h) != HOST_RUNNING)
            continue;
        if (!mine->told)
            return 0;
        members += mine->members;
    }
    return members;
}

static void note_seen(struct host_samples *mine, const struct host *h, const Hvd__Arrival *a)
{
    uint64_t last = 0;
    for (size_t i = 0; i < a->n_began; i++)
        last = a->began[i] > last ? a->began[i] : last;
    last = last ? host_clock_ours(&h->beat.clock, last) : 0;
    if (last <= mine->seen)
        return;
    mine->seen = last;
    snprintf(mine->seen_in, sizeof mine->seen_in, "%s", a->tensor);
    log_printable(mine->seen_in);
}

void samples_last_seen(const struct job *j, const struct host *h, char *text, size_t size)
{
    const struct host_samples *mine = host_samples_of(j, h);
    text[0] = '\0';
    if (mine->seen && mine->seen < h->lost_at)
        snprintf(text, size, "the ranks of %.64s were last seen in \"%s\", %.1f s before it was lost",
                 h->label, mine->seen_in, (double)(h->lost_at - mine->seen) / 1e9);
}

static void add_arrival(struct job *j, const struct host *h, const Hvd__Arrival *a, uint32_t members)
{
    struct samples_state *s = state_of(j);
    struct row *r = find_row(s, a);
    uint64_t doubt = 2 * host_clock_error(&h->beat.clock);
    r->doubt = doubt > r->doubt ? doubt : r->doubt;
    if (r->count + a->n_rank > j->room.ranks || !grow_row(r, a->n_rank))
        return;
    for (size_t i = 0; i < a->n_rank; i++) {
        r->rank[r->count] = a->rank[i];
        r->began[r->count++] = host_clock_ours(&h->beat.clock, a->began[i]);
    }
    if (r->count < members || members == 0)
        return;
    lateness_add(&s->lateness, r->name, r->rank, r->began, r->count, r->doubt);
    r->id = 0;
}

static void end_period(struct samples_state *s)
{
    uint64_t now = clock_now();
    if (now - s->period < PERIOD_NS)
        return;
    double seconds = (double)(now - s->period) / 1e9;
    lateness_end_period(&s->lateness, seconds, seconds * s->rate);
    s->period = now;
}

/* A sum that has fallen says nothing: a process below the rank has ended, and nobody has waited for it. */
static double growth_of(uint64_t now, uint64_t before)
{
    return now > before ? (double)(now - before) : 0;
}

/* Of another host, as it was told last. */
static double lost_elsewhere(const struct job *j, const struct host *h)
{
    const struct samples_state *s = state_of(j);
    double most = 0;
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (s->use[i].lost > most && j->plan.rank[i].host != h->plan_index)
            most = s->use[i].lost;
    return most;
}

/* Since the word before, or since the start of the rank. */
static void note_use(const struct job *j, const struct host *h, const Hvd__Usage *u, const Hvd__Samples *told,
                     double lost_to)
{
    struct samples_state *s = state_of(j);
    struct rank_use *before = &s->use[u->rank];
    uint64_t now = host_clock_ours(&h->beat.clock, told->time);
    uint64_t since = before->time ? before->time : j->rank[u->rank].started;
    double ms = now > since ? (double)(now - since) / 1e6 : 0;
    uint64_t heats = told->heat ? told->heat->events : 0, hot_ms = told->heat ? told->heat->ms : 0;
    if (ms >= 1) {
        char reads[40] = "";
        double mib = growth_of(u->read_kib, before->read_kib) / 1024 * 1e3 / ms;
        struct why_use use = {.computes = growth_of(u->cpu_ms, before->cpu_ms) / ms,
                              .delayed = growth_of(u->delay_ms, before->delay_ms) / ms,
                              .throttled = growth_of(u->throttled_ms, before->throttled_ms) / ms,
                              .resent = growth_of(told->resent, before->resent) * 1e3 / ms,
                              .lost_to = lost_to,
                              .hot = growth_of(hot_ms, before->hot_ms) / ms,
                              .heats = growth_of(heats, before->heats) * 1e3 / ms};
        before->lost = use.resent;
        why_add_handicap(&use, u->handicap);
        why_explain_slowness(&use, before->reason, sizeof before->reason);
        if (mib >= 1)
            snprintf(reads, sizeof reads, ", and reads %.0f MiB a second", mib);
        size_t len = strlen(before->reason);
        snprintf(before->reason + len, sizeof before->reason - len, "%s", reads);
    }
    if (ms >= 1 && u->operations > before->operations)
        s->rate = growth_of(u->operations, before->operations) * 1e3 / ms;
    before->time = now;
    before->operations = u->operations;
    before->cpu_ms = u->cpu_ms;
    before->delay_ms = u->delay_ms;
    before->read_kib = u->read_kib;
    before->throttled_ms = u->throttled_ms;
    before->resent = told->resent;
    before->heats = heats;
    before->hot_ms = hot_ms;
}

static const char *on_samples(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct samples_state *s = state_of(j);
    struct host_samples *mine = host_samples_of(j, h);
    const Hvd__Samples *told = m->samples;
    if (told->members > j->room.ranks || told->n_usage > j->room.ranks || told->n_arrival > s->each)
        return "it tells of more samples than were asked for";
    for (size_t i = 0; i < told->n_arrival; i++) {
        const Hvd__Arrival *a = told->arrival[i];
        if (a->n_rank != a->n_began)
            return "its samples have not one time for each rank";
        for (size_t k = 0; k < a->n_rank; k++)
            if (!job_rank_of_host(j, h, a->rank[k]))
                return "it tells of ranks that it does not run";
    }
    for (size_t i = 0; i < told->n_usage; i++)
        if (!job_rank_of_host(j, h, told->usage[i]->rank))
            return "it tells of ranks that it does not run";
    mine->told = true;
    mine->members = told->members;
    end_period(s);
    uint32_t members = s->row ? count_members(j) : 0;
    for (size_t i = 0; s->row && i < told->n_arrival; i++) {
        note_seen(mine, h, told->arrival[i]);
        add_arrival(j, h, told->arrival[i], members);
    }
    double lost_to = s->row && told->n_usage > 0 ? lost_elsewhere(j, h) : 0;
    for (size_t i = 0; s->row && i < told->n_usage; i++)
        note_use(j, h, told->usage[i], told, lost_to);
    history_note(j, h, told);
    return NULL;
}

static int want_samples(struct job *j, Hvd__Spawn *spawn, struct err *e)
{
    struct samples_state *s = state_of(j);
    if (!s->row) {
        uint32_t hosts = j->plan.host_count ? j->plan.host_count : 1, each = OPERATIONS / hosts;
        s->each = each < EACH_LEAST ? EACH_LEAST : each > EACH_MOST ? EACH_MOST : each;
        s->window_ms = (1 + (hosts - 1) / FLAT_HOSTS) * WINDOW_MS;
        s->period = clock_now();
        if (!make_rows(j, s))
            return err_set(e, ERR_MEMORY, "no memory to compare %u ranks", j->room.ranks);
    }
    spawn->samples_ms = s->window_ms; /* hosts that come later are told the same */
    spawn->samples = s->each;
    return 0;
}

/* ---- answers and report -------------------------------------------------------------------------------- */

static void fill_lateness(struct samples_state *s, uint32_t rank, Hvd__Lateness *out)
{
    lateness_tell(&s->lateness, rank, out);
    out->reason = s->use[rank].reason;
}

void samples_lend(const struct job *j, Hvd__JobStatus *status)
{
    struct samples_state *s = state_of(j);
    if (s->lateness.operations == 0)
        return;
    for (size_t i = 0; i < status->n_rank; i++) {
        uint32_t rank = status->rank[i]->rank;
        if (rank >= s->lateness.size || s->lateness.rank[rank].seen == 0)
            continue;
        fill_lateness(s, rank, &s->lent[rank]);
        status->rank[i]->lateness = &s->lent[rank];
    }
}

void samples_take_back(Hvd__JobStatus *status)
{
    for (size_t i = 0; i < status->n_rank; i++)
        status->rank[i]->lateness = NULL;
}

static int compare_shares(const void *x, const void *y)
{
    const Hvd__Lateness *const *a = x, *const *b = y;
    return ((*a)->share_ppm < (*b)->share_ppm) - ((*a)->share_ppm > (*b)->share_ppm);
}

/* The ranks to name, the worst first. */
static void report_sentences(const struct job *j, struct json *w)
{
    struct samples_state *s = state_of(j);
    const Hvd__Lateness **list = calloc(s->lateness.size ? s->lateness.size : 1, sizeof(Hvd__Lateness *));
    char text[600];
    size_t count = 0;
    for (uint32_t i = 0; list && j->planned && i < s->lateness.size && i < j->plan.size; i++) {
        fill_lateness(s, i, &s->lent[i]);
        if (lateness_is_known(&s->lent[i]))
            list[count++] = &s->lent[i];
    }
    if (count > 0)
        qsort(list, count, sizeof *list, compare_shares);
    json_array(w, "sentences");
    for (size_t i = 0; i < count && i < SENTENCES; i++) {
        uint32_t rank = (uint32_t)(list[i] - s->lent);
        lateness_describe(list[i], rank, j->host_names[j->plan.rank[rank].host], text, sizeof text);
        json_text(w, NULL, text);
    }
    json_end(w);
    free(list);
}

static void report_samples(const struct job *j, struct json *w)
{
    const struct lateness *l = &state_of(j)->lateness;
    json_object(w, "lateness");
    json_unsigned(w, "sampled_operations", l->operations);
    json_real(w, "waited", l->waited_ns / 1e9);
    report_sentences(j, w);
    json_end(w);
}

static void report_rank(const struct job *j, uint32_t rank, struct json *w)
{
    struct samples_state *s = state_of(j);
    Hvd__Lateness of;
    if (rank >= s->lateness.size || s->lateness.rank[rank].seen == 0) {
        json_null(w, "lateness");
        return;
    }
    fill_lateness(s, rank, &of);
    json_object(w, "lateness");
    lateness_put(&of, w);
    json_real(w, "worst_at", ((double)s->lateness.rank[rank].worst_at - (double)j->epoch->began) / 1e9);
    json_end(w);
}

static const struct job_message messages[] = {{HVD__CONTROL__BODY_SAMPLES, true, on_samples},
                                              {0, false, NULL}};

const struct job_part part_samples = {
    .state_size = sizeof(struct samples_state),
    .host_state_size = sizeof(struct host_samples),
    .message = messages,
    .spawn = want_samples,
    .report = report_samples,
    .report_rank = report_rank,
    .free = free_samples,
};
