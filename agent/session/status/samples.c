/* The words that the session says unasked while the workers run: when they came to operations, and how much
 * they use. The moments are those of the host's clock of the day, so that all hosts look at one time. */
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "agent/inspect/stacks_proc.h"
#include "agent/inspect/usage.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/status/arrivals.h"

#define LOOK_MS  100 /* while operations begin: the rings keep the last ones only */
#define USE_FEW  2   /* windows between two words about the workers' use, while they are young */
#define USE_MANY 10  /* and later */
#define YOUNG_MS 120000

struct samples {
    uv_timer_t timer;
    struct arrivals *arrivals; /* NULL: the launcher wants none */
    uint64_t window;           /* the number of the present one, from 1970 on */
    uint64_t used;             /* the window after which the use was told last */
    uint64_t began;
    bool due; /* the use is told when the engine has counted */
};

static struct session *session_of(const struct samples *m)
{
    return m->timer.data;
}

static uint64_t time_of_day_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NSEC_PER_MSEC;
}

/* ---- arrivals ------------------------------------------------------------------------------------------ */

static bool is_member(const struct worker *w)
{
    return w->alive && w->initialized && !w->shut_down;
}

static uint32_t count_members(const struct session *s)
{
    uint32_t members = 0;
    for (size_t i = 0; i < s->workers.count; i++)
        members += is_member(&s->workers.item[i]);
    return members;
}

/* Of a worker, or of the process that has called hvd_init for it: a script's, or a container's. */
static bool find_rank(const struct session *s, uint32_t pid, uint32_t *rank)
{
    for (size_t i = 0; i < s->workers.count; i++) {
        const struct worker *w = &s->workers.item[i];
        if (w->alive && ((uint32_t)w->pid == pid || (uint32_t)w->caller == pid)) {
            *rank = w->rank;
            return true;
        }
    }
    return false;
}

/* false: no memory, or it has arrivals of others than workers: a process that a worker has started. */
static bool fill_arrival(const struct session *s, const struct arrival *a, Hvd__Arrival *out)
{
    hvd__arrival__init(out);
    out->rank = calloc(a->count, sizeof *out->rank);
    out->began = calloc(a->count, sizeof *out->began);
    for (; out->rank && out->began && out->n_rank < a->count; out->n_rank++) {
        if (!find_rank(s, a->pid[out->n_rank], &out->rank[out->n_rank]))
            return false;
        out->began[out->n_began++] = a->began[out->n_rank];
    }
    out->id = a->id;
    out->operation = a->operation;
    out->tensor = (char *)(uintptr_t)a->name;
    return out->n_rank == a->count;
}

static void tell_arrivals(struct samples *m)
{
    struct session *s = session_of(m);
    size_t count;
    const struct arrival *chosen = arrivals_chosen(m->arrivals, &count);
    Hvd__Arrival *item = calloc(count ? count : 1, sizeof *item);
    Hvd__Arrival **list = calloc(count ? count : 1, sizeof(Hvd__Arrival *));
    Hvd__Samples told = HVD__SAMPLES__INIT;
    told.members = count_members(s);
    told.arrival = list;
    for (size_t i = 0; item && list && i < count; i++)
        if (fill_arrival(s, &chosen[i], &item[i]))
            list[told.n_arrival++] = &item[i];
    CONTROL(message, SAMPLES, samples, &told);
    if (item && list)
        session_send_control(s, &message);
    for (size_t i = 0; item && i < count; i++) {
        free(item[i].rank);
        free(item[i].began);
    }
    free(item);
    free(list);
    arrivals_clear(m->arrivals);
}

/* ---- the workers' use ---------------------------------------------------------------------------------- */

/* The engine knows the ranks of the present membership. */
static void add_operations(const struct session *s, const Hvd__Counters *counters, Hvd__Usage *u)
{
    uint32_t member = session_member_rank(s, u->rank);
    for (size_t i = 0; counters && i < counters->n_rank; i++)
        if (counters->rank[i]->rank == member) {
            u->operations = counters->rank[i]->operations;
            u->operations_ns = counters->rank[i]->ns;
        }
}

static void tell_usage(struct samples *m)
{
    struct session *s = session_of(m);
    size_t workers = s->workers.count;
    Hvd__Usage *item = calloc(workers, sizeof *item), **list = calloc(workers, sizeof(Hvd__Usage *));
    Hvd__Handicap *handicap = calloc(workers, sizeof *handicap);
    Hvd__Samples told = HVD__SAMPLES__INIT;
    Hvd__Heat heat;
    m->due = false;
    uint64_t at;
    const Hvd__Counters *counters = session_engine_counters(s, &at);
    told.members = count_members(s);
    told.usage = list;
    told.time = clock_now();
    told.sent = counters ? counters->sent : 0;
    told.received = counters ? counters->received : 0;
    told.resent = counters ? counters->resent : 0;
    told.heat = heat_tell(&heat);
    for (size_t i = 0; item && list && handicap && i < workers; i++) {
        const struct worker *w = &s->workers.item[i];
        if (!w->alive)
            continue;
        struct usage use = usage_of(inspect_root(w->pid, w->caller));
        Hvd__Usage *u = list[told.n_usage++] = &item[i];
        hvd__usage__init(u);
        u->rank = w->rank;
        u->cpu_ms = use.cpu_ms;
        u->delay_ms = use.delay_ms;
        u->memory_kib = use.memory_kib;
        u->read_kib = use.read_kib;
        u->throttled_ms = use.throttled_ms;
        u->handicap = handicap_tell(&use, &handicap[i]);
        add_operations(s, counters, u);
    }
    CONTROL(message, SAMPLES, samples, &told);
    if (told.n_usage > 0)
        session_send_control(s, &message);
    free(handicap);
    free(item);
    free(list);
}

void samples_counted(struct samples *m)
{
    if (m->due)
        tell_usage(m);
}

/* ---- moments ------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

/* At the end of the window, or before, when the rings fill. */
static void wait_for_next(struct samples *m, bool soon)
{
    uint64_t step = session_of(m)->spawn->samples_ms;
    step = soon && step > LOOK_MS ? LOOK_MS : step;
    uv_timer_start(&m->timer, on_timer, step - time_of_day_ms() % step, 0);
}

static uint64_t use_windows(const struct samples *m)
{
    return clock_now() - m->began < YOUNG_MS * NSEC_PER_MSEC ? USE_FEW : USE_MANY;
}

static void on_timer(uv_timer_t *timer)
{
    struct session *s = timer->data;
    struct samples *m = (struct samples *)((char *)timer - offsetof(struct samples, timer));
    const struct flight *f = session_flight(s);
    uint64_t window = time_of_day_ms() / s->spawn->samples_ms;
    bool some = f->memory && arrivals_look(m->arrivals, f, count_members(s));
    if (window != m->window)
        tell_arrivals(m);
    m->window = window;
    if (window % use_windows(m) == 0 && window != m->used) {
        m->used = window;
        m->due = true;
        if (!session_engine_count(s, false))
            tell_usage(m);
    }
    wait_for_next(m, some);
}

struct samples *samples_open(struct session *s)
{
    struct samples *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    uv_timer_init(&s->loop, &m->timer);
    m->timer.data = s;
    return m;
}

void samples_start(struct samples *m)
{
    struct session *s = session_of(m);
    if (!s->spawn->samples_ms || m->arrivals)
        return;
    m->arrivals = arrivals_new(s->spawn->samples);
    m->window = time_of_day_ms() / s->spawn->samples_ms;
    m->used = m->window;
    m->began = clock_now();
    if (m->arrivals)
        wait_for_next(m, true);
}

void samples_close(struct samples *m)
{
    if (m)
        uv_close((uv_handle_t *)&m->timer, NULL);
}

void samples_free(struct samples *m)
{
    if (m)
        arrivals_free(m->arrivals);
    free(m);
}
