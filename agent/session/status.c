/* What a session says of its job to whoever asks (agent/inquiry). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/session/usage.h"
#include "agent/session/session.h"
#include "agent/inspect/stacks_proc.h"
#include "common/base/clock.h"
#include "common/protocol/message.h"

#define COUNTERS_MAX (64u << 10) /* bytes, in memory */
#define LOOK_MS      100

/* The arrays of an answer, for all ranks that are here; kept from the first one on. */
struct session_answer {
    Hvd__RankStatus *rank;
    Hvd__RankStatus **list;
    char (*state)[128];
    struct usage *usage;
    uint64_t looked; /* when it was found out */
};

static void free_answer(struct session *s)
{
    if (!s->answer)
        return;
    free(s->answer->rank);
    free(s->answer->list);
    free(s->answer->state);
    free(s->answer->usage);
    free(s->answer);
    s->answer = NULL;
}

static struct session_answer *answer_of(struct session *s)
{
    size_t n = s->workers.count;
    struct session_answer *a = s->answer;
    if (a || n == 0)
        return a;
    a = calloc(1, sizeof *a);
    if (a) {
        a->rank = calloc(n, sizeof *a->rank);
        a->list = calloc(n, sizeof(Hvd__RankStatus *));
        a->state = calloc(n, sizeof *a->state);
        a->usage = calloc(n, sizeof *a->usage);
    }
    s->answer = a;
    if (a && a->rank && a->list && a->state && a->usage)
        return a;
    free_answer(s);
    return NULL;
}

void session_inquiry_free(struct session *s)
{
    free_answer(s);
    message_free(s->counters);
    s->counters = NULL;
}

void session_counted(void *session, const Hvd__Counters *counters)
{
    struct session *s = session;
    size_t room = COUNTERS_MAX;
    Hvd__Counters *copy = message_copy(&counters->base, &room);
    if (copy) {
        message_free(s->counters);
        s->counters = copy;
        s->counters_at = clock_now();
    }
    session_report_counted(s);
    inquiries_refreshed(&s->inquiries);
}

static uint64_t ms_since(uint64_t began)
{
    uint64_t now = clock_now();
    return began && now > began ? (now - began) / NSEC_PER_MSEC : 0;
}

/* Looking at all processes of a job costs more than the rest: it is done for all who ask within a moment. */
static void look(struct session *s, struct session_answer *a)
{
    uint64_t now = clock_now();
    if (a->looked && now - a->looked < LOOK_MS * NSEC_PER_MSEC)
        return;
    a->looked = now;
    for (size_t i = 0; i < s->workers.count; i++)
        if (s->workers.item[i].alive)
            a->usage[i] = usage_of(s->workers.item[i].pid);
}

static void fill_rank(const struct worker *w, const struct usage *u, Hvd__RankStatus *r, char *state,
                      size_t size)
{
    hvd__rank_status__init(r);
    r->rank = w->rank;
    r->pid = (uint32_t)w->pid;
    r->ended = !w->alive;
    r->initialized = w->initialized;
    r->shut_down = w->shut_down;
    r->state = state;
    if (w->alive) {
        snprintf(state, size, "%s", where_state_word(u->state));
        r->cpu_ms = u->cpu_ms;
        r->memory_kib = u->memory_kib;
        r->run_ms = ms_since(w->began);
        return;
    }
    if (!worker_describe_end(w, state, size))
        snprintf(state, size, "exit status 0");
    r->cpu_ms = (w->user_us + w->system_us) / 1000;
    r->memory_kib = w->peak_kib;
    r->run_ms = w->time > w->began ? (w->time - w->began) / NSEC_PER_MSEC : 0;
}

static void on_status(void *ctx, Hvd__JobStatus *out)
{
    struct session *s = ctx;
    struct session_answer *a = answer_of(s);
    out->job = s->job;
    out->host = s->host;
    out->phase = (char *)(uintptr_t)fsm_state_name(&s->fsm);
    out->containment = (char *)(uintptr_t)containment_name(&s->containment);
    out->session_pid = (uint32_t)getpid();
    out->guard_pid = (uint32_t)s->guard->pid;
    out->engine_pid = s->engine.child.pid > 0 ? (uint32_t)s->engine.child.pid : 0;
    out->gpus = s->gpus ? (char *)(uintptr_t)s->gpus : out->gpus;
    out->leased = s->guard->lease.gpus != NULL;
    out->counters = s->counters;
    out->counters_ms = s->counters ? ms_since(s->counters_at) : 0;
    if (!s->spawn || !a)
        return;
    out->host_index = s->spawn->host_index;
    out->hosts = (uint32_t)s->spawn->n_host;
    out->size = s->spawn->size;
    out->epoch = s->spawn->epoch;
    out->argv = s->spawn->argv;
    out->n_argv = s->spawn->n_argv;
    look(s, a);
    for (size_t i = 0; i < s->workers.count; i++) {
        fill_rank(&s->workers.item[i], &a->usage[i], &a->rank[i], a->state[i], sizeof a->state[i]);
        a->list[i] = &a->rank[i];
        out->cpu_ms += a->rank[i].cpu_ms;
        out->memory_kib += a->rank[i].ended ? 0 : a->rank[i].memory_kib;
        out->run_ms = a->rank[i].run_ms > out->run_ms ? a->rank[i].run_ms : out->run_ms;
    }
    out->rank = a->list;
    out->n_rank = s->workers.count;
}

static void on_end(void *ctx, uid_t uid)
{
    session_blame(ctx, HVD__CAUSE__CAUSE_CANCELLED);
    session_lose(ctx, false, "%s ended the job with hvdctl",
                 uid == 0 && geteuid() != 0 ? "root" : "its user");
}

static bool on_refresh(void *ctx)
{
    struct session *s = ctx;
    return engine_host_count(&s->engine);
}

static const struct inquiries_events events = {on_refresh, on_status, on_end};

int session_inquiry_open(struct session *s, struct err *e)
{
    return inquiries_open(&s->inquiries, &s->loop, s->dir.path, &events, s, e);
}
