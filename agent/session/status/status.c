/* The session's answers to hvdctl (status_server.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/inspect/stacks_proc.h"
#include "agent/inspect/usage.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/status/flight_message.h"
#include "common/status/status_server.h"

#define LOOK_MS        100
#define REFRESH_MS     500    /* for the engine to count */
#define WHY_MS         3500   /* and for tools to look at all workers */
#define OPERATIONS     3000   /* in one answer: with the longest names they fit into ANSWER_MAX */
#define ALL_OPERATIONS 120000 /* of all hosts, which one client reads */

/* The arrays of an answer, for all ranks of this host. They are kept for the next answer. */
struct answer {
    Hvd__RankStatus *rank;
    Hvd__RankStatus **list;
    Hvd__Handicap *handicap;
    Hvd__Heat heat;
    char (*state)[128];
    struct usage *usage;
    size_t count;    /* of workers */
    uint64_t looked; /* when the usage was found out */
};

struct session_status {
    struct status_server server;
    struct answer *answer; /* NULL: nobody has asked */
    struct samples *samples;
    struct gpu_look *gpus;
    struct ras_ask *ras;
    /* For a status with reasons: the engine, the tools, the GPUs, NCCL have not answered yet. */
    bool counts, looks, asks, listens;
    uint64_t asked; /* when the engine was asked for that */
};

/* ---- the answers --------------------------------------------------------------------------------------- */

static void free_answer(struct session *s)
{
    struct answer *a = s->status->answer;
    if (!a)
        return;
    free(a->rank);
    free(a->list);
    free(a->handicap);
    free(a->state);
    free(a->usage);
    free(a);
    s->status->answer = NULL;
}

static struct answer *make_answer(struct session *s)
{
    size_t n = s->workers.count;
    struct answer *a = s->status->answer;
    if (n == 0 || (a && a->count == n))
        return a;
    free_answer(s); /* workers have come since */
    a = calloc(1, sizeof *a);
    if (a) {
        a->count = n;
        a->rank = calloc(n, sizeof *a->rank);
        a->list = calloc(n, sizeof(Hvd__RankStatus *));
        a->handicap = calloc(n, sizeof *a->handicap);
        a->state = calloc(n, sizeof *a->state);
        a->usage = calloc(n, sizeof *a->usage);
    }
    s->status->answer = a;
    if (a && a->rank && a->list && a->handicap && a->state && a->usage)
        return a;
    free_answer(s);
    return NULL;
}

static uint64_t ms_since(uint64_t began)
{
    uint64_t now = clock_now();
    return began && now > began ? (now - began) / NSEC_PER_MSEC : 0;
}

/* Reading all processes of a job costs more than the rest: one reading serves all clients for LOOK_MS. */
static void read_usage(struct session *s, struct answer *a)
{
    uint64_t now = clock_now();
    if (a->looked && now - a->looked < LOOK_MS * NSEC_PER_MSEC)
        return;
    a->looked = now;
    for (size_t i = 0; i < s->workers.count; i++)
        if (s->workers.item[i].alive)
            a->usage[i] = usage_of(inspect_root(s->workers.item[i].pid, s->workers.item[i].caller));
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
        snprintf(state, size, "%s", inspect_state_word(u->state));
        r->cpu_ms = u->cpu_ms;
        r->memory_kib = u->memory_kib;
        r->delay_ms = u->delay_ms;
        r->throttled_ms = u->throttled_ms;
        r->run_ms = ms_since(w->began);
        return;
    }
    if (!worker_describe_end(w, state, size))
        snprintf(state, size, "exit status 0");
    r->cpu_ms = (w->user_us + w->system_us) / 1000;
    r->memory_kib = w->peak_kib;
    r->run_ms = w->time > w->began ? (w->time - w->began) / NSEC_PER_MSEC : 0;
}

static void fill_status(struct session *s, Hvd__JobStatus *out)
{
    struct answer *a = make_answer(s);
    pid_t engine = session_engine_pid(s);
    uint64_t counted_at;
    Hvd__Counters *counters = session_engine_counters(s, &counted_at);
    out->job = s->job.name;
    out->host = s->job.host;
    out->phase = (char *)(uintptr_t)fsm_state_name(&s->fsm);
    out->containment = (char *)(uintptr_t)containment_name(&s->containment);
    out->session_pid = (uint32_t)getpid();
    out->guard_pid = (uint32_t)s->guard->pid;
    out->engine_pid = engine > 0 ? (uint32_t)engine : 0;
    out->gpus = s->job.gpus ? (char *)(uintptr_t)s->job.gpus : out->gpus;
    out->leased = s->guard->lease.gpus != NULL;
    out->counters = counters;
    out->counters_ms = counters ? ms_since(counted_at) : 0;
    if (!s->spawn || !a)
        return;
    out->host_index = s->spawn->host_index;
    out->hosts = (uint32_t)s->spawn->n_host;
    out->size = s->spawn->size;
    out->epoch = s->spawn->epoch;
    out->argv = s->spawn->argv;
    out->n_argv = s->spawn->n_argv;
    session_tell_memberships(s, out);
    read_usage(s, a);
    out->heat = heat_tell(&a->heat);
    for (size_t i = 0; i < s->workers.count; i++) {
        fill_rank(&s->workers.item[i], &a->usage[i], &a->rank[i], a->state[i], sizeof a->state[i]);
        a->rank[i].member = session_member_rank(s, a->rank[i].rank);
        a->rank[i].handicap = s->workers.item[i].alive ? handicap_tell(&a->usage[i], &a->handicap[i]) : NULL;
        a->list[i] = &a->rank[i];
        out->cpu_ms += a->rank[i].cpu_ms;
        out->memory_kib += a->rank[i].ended ? 0 : a->rank[i].memory_kib;
        out->run_ms = a->rank[i].run_ms > out->run_ms ? a->rank[i].run_ms : out->run_ms;
    }
    out->rank = a->list;
    out->n_rank = s->workers.count;
}

/* The engine's answer to the last question for pending operations. Others may have asked for counters
 * since. */
static void tell_pending(struct session *s, Hvd__JobStatus *out)
{
    uint64_t at;
    Hvd__Counters *looked = session_engine_looked(s, &at);
    bool fresh = looked && at >= s->status->asked;
    out->looked = fresh || out->engine_pid == 0;
    if (!fresh)
        return;
    out->counters = looked;
    out->counters_ms = ms_since(at);
}

static void tell_speeds(struct session *s, Hvd__JobStatus *out)
{
    const struct answer *a = s->status->answer;
    for (size_t i = 0; i < out->n_rank; i++)
        if (!out->rank[i]->ended)
            out->rank[i]->handicap = handicap_tell_speed(
                &a->usage[i], gpu_look_slowed(s->status->gpus, out->rank[i]->rank), &a->handicap[i]);
}

/* Calls `tell` with a status that is valid during the call. */
static void tell_status(struct session *s, enum status_depth depth,
                        void (*tell)(void *ctx, Hvd__JobStatus *status), void *ctx)
{
    Hvd__JobStatus status = HVD__JOB_STATUS__INIT;
    struct flight_messages all = {NULL, 0};
    fill_status(s, &status);
    if (depth == STATUS_WHY) {
        tell_pending(s, &status);
        tell_speeds(s, &status);
        session_stacks_tell(s, &status);
        ras_ask_tell(s->status->ras, &status);
    }
    if (depth == STATUS_FLIGHT) {
        size_t most = ALL_OPERATIONS / (s->spawn && s->spawn->n_host > 0 ? s->spawn->n_host : 1);
        most = most < OPERATIONS ? most : OPERATIONS;
        flight_messages_make(&all, session_flight(s), most / (s->workers.count + 1) + 1);
        status.recorded = true;
        status.flight = all.list;
        status.n_flight = all.count;
    }
    tell(ctx, &status);
    flight_messages_free(&all);
}

static void tell_client(void *ctx, Hvd__JobStatus *status)
{
    status_server_tell(ctx, status);
}

static void on_status(void *ctx, struct status_client *to)
{
    tell_status(ctx, status_server_depth(to), tell_client, to);
}

static const char *on_resize(void *ctx, uid_t uid, uint32_t ranks)
{
    return session_ask_resize(ctx, ranks, status_name_asker(uid));
}

static const char *on_leave(void *ctx, uid_t uid, const char *reason)
{
    char why[400];
    snprintf(why, sizeof why, "%s asked for that with hvdctl%s%.300s", status_name_asker(uid),
             *reason ? ": " : "", reason);
    return session_ask_leave(ctx, why);
}

static void on_end(void *ctx, uid_t uid)
{
    session_set_cause(ctx, HVD__CAUSE__CAUSE_CANCELLED);
    session_abort_job(ctx, false, "%s ended the job with hvdctl", status_name_asker(uid));
}

static void end_if_known(struct session *s)
{
    if (!s->status->counts && !s->status->looks && !s->status->asks && !s->status->listens)
        status_server_refreshed(&s->status->server, STATUS_WHY);
}

void session_stacks_found(struct session *s)
{
    bool due = s->status->looks;
    s->status->looks = false;
    if (due)
        end_if_known(s);
}

void session_gpus_known(struct session *s)
{
    bool due = s->status->asks;
    s->status->asks = false;
    if (due)
        end_if_known(s);
}

void session_ras_known(struct session *s)
{
    bool due = s->status->listens;
    s->status->listens = false;
    if (due)
        end_if_known(s);
}

/* The tools may be done within the call, and the answer follows then all the same. */
static bool on_refresh(void *ctx, enum status_depth depth)
{
    struct session *s = ctx;
    struct session_status *own = s->status;
    if (depth != STATUS_WHY)
        return session_engine_count(s, false);
    own->asked = clock_now();
    own->counts = session_engine_count(s, true);
    own->looks = false;
    own->asks = gpu_look_ask(own->gpus);
    own->listens = ras_ask_start(own->ras);
    session_stacks_look(s, WHY_MS - REFRESH_MS);
    own->looks = session_stacks_are_looking(s);
    return own->counts || own->looks || own->asks || own->listens;
}

static const struct status_server_events events = {
    {REFRESH_MS, WHY_MS, REFRESH_MS}, on_refresh, on_status, on_resize, on_leave, NULL, on_end};

/* ---- the launcher asks, for hvdctl where hvdrun runs --------------------------------------------------- */

/* The launcher knows the command line itself. */
static void tell_launcher(void *ctx, Hvd__JobStatus *status)
{
    status->n_argv = 0;
    CONTROL(m, STATUS, status, status);
    session_send_control(ctx, &m);
}

static void tell_plain(void *ctx)
{
    tell_status(ctx, STATUS_PLAIN, tell_launcher, ctx);
}

static void tell_why(void *ctx)
{
    tell_status(ctx, STATUS_WHY, tell_launcher, ctx);
}

static void tell_flight(void *ctx)
{
    tell_status(ctx, STATUS_FLIGHT, tell_launcher, ctx);
}

const char *session_tell_status(struct session *s, const Hvd__Control *m)
{
    static void (*const tell[STATUS_DEPTHS])(void *ctx) = {tell_plain, tell_why, tell_flight};
    enum status_depth depth = m->status_wanted->flight ? STATUS_FLIGHT
                              : m->status_wanted->why  ? STATUS_WHY
                                                       : STATUS_PLAIN;
    status_server_refresh(&s->status->server, depth, tell[depth], s);
    return NULL;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

void session_status_output(struct session *s, uint32_t rank, enum frame_stream stream, const uint8_t *bytes,
                           size_t len)
{
    status_server_output(&s->status->server, rank, stream, bytes, len);
}

static int open_status(struct session *s, struct err *e)
{
    status_server_init(&s->status->server);
    s->status->samples = samples_open(s);
    s->status->gpus = gpu_look_open(s);
    s->status->ras = ras_ask_open(s);
    return s->status->samples && s->status->gpus && s->status->ras
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for a session");
}

static int listen_for_clients(struct session *s, struct err *e)
{
    struct status_address at;
    return status_address_in(&at, s->dir.path, e) < 0
               ? -1
               : status_server_open(&s->status->server, &s->loop, &at, &events, s, e);
}

static void begin_samples(struct session *s)
{
    samples_start(s->status->samples);
}

static void answer_clients(struct session *s)
{
    samples_counted(s->status->samples);
    status_server_refreshed(&s->status->server, STATUS_PLAIN);
    status_server_refreshed(&s->status->server, STATUS_FLIGHT);
    uint64_t at;
    if (!s->status->counts || !session_engine_looked(s, &at) || at < s->status->asked)
        return;
    s->status->counts = false;
    end_if_known(s);
}

static bool reap_look(struct session *s, const struct reaped *child)
{
    return gpu_look_reaped(s->status->gpus, child->pid);
}

static void close_status(struct session *s)
{
    status_server_close(&s->status->server);
    samples_close(s->status->samples);
    gpu_look_close(s->status->gpus);
    ras_ask_close(s->status->ras);
}

static void free_status(struct session *s)
{
    free_answer(s);
    samples_free(s->status->samples);
    gpu_look_free(s->status->gpus);
    ras_ask_free(s->status->ras);
}

const struct session_part session_part_status = {
    .name = "status",
    .state = SESSION_STATE(status),
    .open = open_status,
    .directory = listen_for_clients,
    .running = begin_samples,
    .counted = answer_clients,
    .reaped = reap_look,
    .close = close_status,
    .free = free_status,
};
