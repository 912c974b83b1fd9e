/* The history of a job for its report: what ranks used and how long they waited, over time, from the samples
 * of their hosts. A series has a fixed number of points. When they are full, two points become one, and each
 * stands for twice the time. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "launcher/host/host_clock.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define POINTS     120
#define POINT_NS   (2 * NSEC_PER_SEC) /* of the first ones */
#define UNKNOWN    UINT32_MAX
#define LEAD_NS    (60 * NSEC_PER_SEC)
#define TENSORS    64
#define NAME_BYTES 80

struct series {
    uint32_t point[POINTS];
};

/* The sums that a host told last. */
struct rank_sums {
    uint64_t time, cpu_ms, operations, operations_ns;
};

struct rank_history {
    struct series waiting, processor, memory; /* percent, percent of a processor, MiB */
    struct rank_sums before;
};

/* The last operation of a tensor: the time to the next one is a step of the training. */
struct tensor_seen {
    char name[NAME_BYTES];
    uint32_t operation;
    uint64_t at;
};

struct history_state {
    struct rank_history **rank;     /* [room.ranks]; NULL: nothing was told of it */
    struct series operations, step; /* a second; us */
    struct tensor_seen tensor[TENSORS];
    uint64_t point_ns;
    uint32_t points;  /* that something is known of */
    uint32_t lead;    /* index of the host that stands for all in what is alike for all */
    uint64_t lead_at; /* when it told last; 0: none has */
};

struct host_history {
    struct series *sent, *received; /* KiB a second; NULL: nothing was told */
    uint64_t time, sent_before, received_before;
};

static struct history_state *state_of(const struct job *j)
{
    return job_state(j, &part_history);
}

static struct host_history *host_history_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_history, h);
}

/* ---- series -------------------------------------------------------------------------------------------- */

static void empty_series(struct series *s)
{
    memset(s, 0xff, sizeof *s);
}

/* The mean of two points; of one of them, if nothing is known of the other. */
static uint32_t join_points(uint32_t a, uint32_t b)
{
    if (a == UNKNOWN || b == UNKNOWN)
        return a == UNKNOWN ? b : a;
    return (uint32_t)(((uint64_t)a + b + 1) / 2);
}

static void halve_series(struct series *s)
{
    for (uint32_t i = 0; i < POINTS / 2; i++)
        s->point[i] = join_points(s->point[2 * i], s->point[2 * i + 1]);
    for (uint32_t i = POINTS / 2; i < POINTS; i++)
        s->point[i] = UNKNOWN;
}

static void halve_all(struct job *j)
{
    struct history_state *s = state_of(j);
    for (uint32_t i = 0; i < j->room.ranks; i++) {
        if (!s->rank[i])
            continue;
        halve_series(&s->rank[i]->waiting);
        halve_series(&s->rank[i]->processor);
        halve_series(&s->rank[i]->memory);
    }
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host_history *h = host_history_of(j, &j->host[i]);
        if (!h->sent)
            continue;
        halve_series(h->sent);
        halve_series(h->received);
    }
    halve_series(&s->operations);
    halve_series(&s->step);
    s->point_ns *= 2;
    s->points = (s->points + 1) / 2;
}

/* The place of a time, which may make room for itself. */
static uint32_t find_point(struct job *j, uint64_t time)
{
    struct history_state *s = state_of(j);
    uint64_t after = time > j->epoch->began ? time - j->epoch->began : 0;
    while (after / s->point_ns >= POINTS)
        halve_all(j);
    uint32_t point = (uint32_t)(after / s->point_ns);
    s->points = point >= s->points ? point + 1 : s->points;
    return point;
}

/* From one time to another it was so. A point that is known already gets the mean. */
static void set_points(struct series *s, uint32_t first, uint32_t last, double value)
{
    uint32_t v = value < 0 ? 0 : value < UNKNOWN - 1 ? (uint32_t)(value + 0.5) : UNKNOWN - 1;
    for (uint32_t i = first; i <= last; i++)
        s->point[i] = join_points(s->point[i], v);
}

/* ---- samples ------------------------------------------------------------------------------------------- */

static bool make_series(struct job *j)
{
    struct history_state *s = state_of(j);
    s->rank = calloc(j->room.ranks, sizeof(struct rank_history *));
    s->point_ns = POINT_NS;
    empty_series(&s->operations);
    empty_series(&s->step);
    return s->rank != NULL;
}

/* NULL: no memory. */
static struct rank_history *find_rank(struct history_state *s, uint32_t rank)
{
    if (s->rank[rank])
        return s->rank[rank];
    struct rank_history *r = s->rank[rank] = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    empty_series(&r->waiting);
    empty_series(&r->processor);
    empty_series(&r->memory);
    return r;
}

static void note_rank(struct job *j, const Hvd__Usage *u, bool leads, uint64_t now)
{
    struct history_state *s = state_of(j);
    struct rank_history *r = find_rank(s, u->rank);
    if (!r)
        return;
    uint64_t since = r->before.time ? r->before.time : j->rank[u->rank].started;
    double ms = now > since ? (double)(now - since) / 1e6 : 0;
    if (ms < 1)
        return;
    uint32_t last = find_point(j, now), first = find_point(j, since); /* in this order: the last may halve */
    if (u->cpu_ms >= r->before.cpu_ms)
        set_points(&r->processor, first, last, (double)(u->cpu_ms - r->before.cpu_ms) / ms * 100);
    set_points(&r->memory, first, last, (double)u->memory_kib / 1024);
    bool grows = u->operations_ns >= r->before.operations_ns && u->operations >= r->before.operations;
    if (u->operations > 0 && grows)
        set_points(&r->waiting, first, last, (double)(u->operations_ns - r->before.operations_ns) / ms / 1e4);
    if (u->operations > 0 && grows && leads)
        set_points(&s->operations, first, last, (double)(u->operations - r->before.operations) / ms * 1e3);
    r->before = (struct rank_sums){now, u->cpu_ms, u->operations, u->operations_ns};
}

static void note_traffic(struct job *j, struct host *h, const Hvd__Samples *told, uint64_t now)
{
    struct host_history *mine = host_history_of(j, h);
    double seconds = mine->time && now > mine->time ? (double)(now - mine->time) / 1e9 : 0;
    if (!mine->sent && told->sent + told->received > 0) {
        mine->sent = malloc(2 * sizeof *mine->sent);
        if (!mine->sent)
            return;
        mine->received = mine->sent + 1;
        empty_series(mine->sent);
        empty_series(mine->received);
    }
    bool grows = told->sent >= mine->sent_before && told->received >= mine->received_before;
    if (mine->sent && seconds > 0.001 && grows) {
        uint32_t last = find_point(j, now), first = find_point(j, mine->time);
        set_points(mine->sent, first, last, (double)(told->sent - mine->sent_before) / 1024 / seconds);
        set_points(mine->received, first, last,
                   (double)(told->received - mine->received_before) / 1024 / seconds);
    }
    mine->time = now;
    mine->sent_before = told->sent;
    mine->received_before = told->received;
}

/* The place of the tensor, which another one may have to leave. */
static struct tensor_seen *find_tensor(struct history_state *s, const char *name)
{
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (uint8_t)*c;
    struct tensor_seen *t = &s->tensor[hash % TENSORS];
    if (strncmp(t->name, name, NAME_BYTES - 1) != 0) {
        *t = (struct tensor_seen){.operation = 0};
        snprintf(t->name, sizeof t->name, "%s", name);
    }
    return t;
}

static void note_step(struct job *j, const Hvd__Arrival *a, uint64_t now)
{
    struct history_state *s = state_of(j);
    struct tensor_seen *t = find_tensor(s, a->tensor);
    uint32_t steps = a->operation - t->operation;
    if (t->at && now > t->at && steps > 0 && a->operation > t->operation) {
        uint32_t last = find_point(j, now), first = find_point(j, t->at);
        set_points(&s->step, first, last, (double)(now - t->at) / 1e3 / steps);
    }
    t->operation = a->operation;
    t->at = now;
}

/* On our clock, and not in the future. */
static uint64_t our_time(const struct host *h, uint64_t theirs)
{
    uint64_t ours = host_clock_ours(&h->beat.clock, theirs), now = clock_now();
    return ours < now ? ours : now;
}

/* One host stands for all, as long as it tells something. */
static bool is_lead(struct history_state *s, const struct host *h)
{
    uint64_t now = clock_now();
    if (!s->lead_at || now - s->lead_at > LEAD_NS)
        s->lead = h->index;
    if (s->lead != h->index)
        return false;
    s->lead_at = now;
    return true;
}

void history_note(struct job *j, struct host *h, const Hvd__Samples *told)
{
    uint64_t now = our_time(h, told->time);
    if (!state_of(j)->rank && !make_series(j))
        return;
    bool leads = is_lead(state_of(j), h);
    for (size_t i = 0; i < told->n_usage; i++)
        note_rank(j, told->usage[i], leads && i == 0, now);
    if (told->n_usage > 0)
        note_traffic(j, h, told, now);
    for (size_t i = 0; leads && i < told->n_arrival; i++)
        if (told->arrival[i]->n_began > 0)
            note_step(j, told->arrival[i], our_time(h, told->arrival[i]->began[0]));
}

/* ---- the report ---------------------------------------------------------------------------------------- */

/* Numbers with blanks between them, and - for points that nothing is known of: short, for many ranks. */
static void put_series(struct json *w, const char *name, const struct series *s, uint32_t points)
{
    char text[POINTS * 12 + 1];
    size_t n = 0;
    bool known = false;
    for (uint32_t i = 0; i < points; i++) {
        known = known || s->point[i] != UNKNOWN;
        if (s->point[i] == UNKNOWN)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s-", i ? " " : "");
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%u", i ? " " : "", s->point[i]);
    }
    json_text(w, name, known ? text : NULL);
}

static void report_history(const struct job *j, struct json *w)
{
    const struct history_state *s = state_of(j);
    if (!s->rank) {
        json_null(w, "history");
        return;
    }
    json_object(w, "history");
    json_real(w, "interval", (double)s->point_ns / 1e9);
    json_unsigned(w, "points", s->points);
    put_series(w, "operations_per_second", &s->operations, s->points);
    put_series(w, "step_us", &s->step, s->points);
    json_array(w, "hosts");
    for (uint32_t i = 0; i < j->host_count; i++) {
        const struct host_history *h = host_history_of(j, &j->host[i]);
        if (!h->sent)
            continue;
        json_object(w, NULL);
        json_text(w, "host", j->host[i].label);
        put_series(w, "sent_kib_per_second", h->sent, s->points);
        put_series(w, "received_kib_per_second", h->received, s->points);
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

static void report_rank(const struct job *j, uint32_t rank, struct json *w)
{
    const struct history_state *s = state_of(j);
    const struct rank_history *r = s->rank && rank < j->room.ranks ? s->rank[rank] : NULL;
    if (!r)
        return;
    json_object(w, "history");
    put_series(w, "waiting_percent", &r->waiting, s->points);
    put_series(w, "processor_percent", &r->processor, s->points);
    put_series(w, "memory_mib", &r->memory, s->points);
    json_end(w);
}

static void free_history(struct job *j)
{
    struct history_state *s = state_of(j);
    for (uint32_t i = 0; s->rank && i < j->room.ranks; i++)
        free(s->rank[i]);
    free(s->rank);
    s->rank = NULL;
    for (uint32_t i = 0; j->host && i < j->host_count; i++) {
        free(host_history_of(j, &j->host[i])->sent);
        host_history_of(j, &j->host[i])->sent = NULL;
    }
}

const struct job_part part_history = {
    .state_size = sizeof(struct history_state),
    .host_state_size = sizeof(struct host_history),
    .report = report_history,
    .report_rank = report_rank,
    .free = free_history,
};
