/* Answers hvdctl where hvdrun runs: the state of all hosts, and the last output of all ranks.
 *
 * The sessions are asked when somebody asks hvdrun. A host that is not ready yet is told with the phase that
 * it is in. A host that does not answer in time is told with the answer before. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "common/status/status_server.h"
#include "common/status/why.h"
#include "launcher/elastic/elastic.h"
#include "launcher/job/core.h"
#include "launcher/job/report.h"
#include "launcher/parts/parts.h"

#define REFRESH_MS 2000
#define WHY_MS     4200

/* Ranks that wait for too long are told for each tensor; the reason is looked for once in a while. */
#define WHY_AGAIN_NS (60 * NSEC_PER_SEC)
#define KEPT_MAX     ((size_t)4 << 20) /* bytes of memory of the answer of one host */

struct status_state {
    struct status_server server;
    bool open;
    uint32_t asked[STATUS_DEPTHS]; /* hosts that have yet to answer */
    char why[120];
    uint64_t looked; /* why ranks wait; 0: never */
    uint32_t told;
};

struct host_status {
    Hvd__JobStatus *last[STATUS_DEPTHS]; /* NULL: none */
    bool asked[STATUS_DEPTHS];
};

static struct status_state *state_of(const struct job *j)
{
    return job_state(j, &part_status);
}

static struct host_status *host_status_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_status, h);
}

/* ---- the hosts' answers -------------------------------------------------------------------------------- */

static void drop_answers(struct job *j, enum status_depth depth)
{
    for (uint32_t i = 0; j->host && i < j->host_count; i++) { /* a part may have failed to open: no hosts */
        message_free(host_status_of(j, &j->host[i])->last[depth]);
        host_status_of(j, &j->host[i])->last[depth] = NULL;
    }
}

static void settle_answer(struct job *j, struct host *h, enum status_depth depth)
{
    struct status_state *s = state_of(j);
    struct host_status *own = host_status_of(j, h);
    if (!own->asked[depth])
        return;
    own->asked[depth] = false;
    if (--s->asked[depth] > 0)
        return;
    status_server_refreshed(&s->server, depth);
    if (depth == STATUS_FLIGHT)
        drop_answers(j, STATUS_FLIGHT); /* they are large, and never wanted twice */
}

static void settle_host(struct job *j, struct host *h)
{
    settle_answer(j, h, STATUS_PLAIN);
    settle_answer(j, h, STATUS_WHY);
    settle_answer(j, h, STATUS_FLIGHT);
}

static const char *on_host_status(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct host_status *own = host_status_of(j, h);
    enum status_depth depth = m->status->recorded ? STATUS_FLIGHT
                              : m->status->why    ? STATUS_WHY
                                                  : STATUS_PLAIN;
    size_t room = KEPT_MAX;
    if (!own->asked[depth])
        return "nobody has asked for it";
    for (size_t i = 0; i < m->status->n_rank; i++)
        if (!job_rank_of_host(j, h, m->status->rank[i]->rank))
            return "it tells of ranks that it does not run";
    for (size_t i = 0; i < m->status->n_rank; i++)
        if (m->status->rank[i]->lateness)
            return "it tells how late ranks are, which no host knows";
    if (m->status->n_rank > j->plan.size || m->status->n_where > m->status->n_rank ||
        m->status->n_flight > j->room.ranks + 1)
        return "it tells of more ranks than there are";
    for (size_t i = 0; i < m->status->n_where; i++)
        if (!job_rank_of_host(j, h, m->status->where[i]->rank))
            return "it tells where ranks are that it does not run";
    message_free(own->last[depth]);
    own->last[depth] = message_copy(&m->status->base, &room);
    settle_answer(j, h, depth);
    return NULL;
}

static bool on_refresh(void *ctx, enum status_depth depth)
{
    struct job *j = ctx;
    struct status_state *s = state_of(j);
    Hvd__StatusWanted wanted = HVD__STATUS_WANTED__INIT;
    wanted.why = depth == STATUS_WHY;
    wanted.flight = depth == STATUS_FLIGHT;
    CONTROL(m, STATUS_WANTED, status_wanted, &wanted);
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host_status *own = host_status_of(j, &j->host[i]);
        enum host_state state = host_state(&j->host[i]);
        if (own->asked[depth] || (state != HOST_READY && state != HOST_RUNNING))
            continue;
        own->asked[depth] = true;
        s->asked[depth]++;
        host_send(&j->host[i], &m);
    }
    return s->asked[depth] > 0;
}

/* ---- our answers --------------------------------------------------------------------------------------- */

static uint32_t count_open_hosts(const struct job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->host_count; i++)
        n += host_state(&j->host[i]) != HOST_CLOSED;
    return n;
}

/* The session's words, and what we know better. */
static void fill_status(const struct job *j, const struct host *h, enum status_depth depth,
                        Hvd__JobStatus *out)
{
    const struct host_status *own = host_status_of(j, h);
    const Hvd__JobStatus *last = own->last[depth];
    const struct program *first = &j->config->programs.item[0];
    if (last)
        *out = *last;
    if (!last || own->asked[depth])
        out->phase = own->asked[depth] ? "no answer" : (char *)(uintptr_t)host_phase(h);
    out->job = (char *)(uintptr_t)j->name;
    out->host = (char *)(uintptr_t)h->label;
    out->host_index = h->planned ? h->plan_index : h->index;
    out->hosts = count_open_hosts(j);
    if (out->size == 0 && j->planned)
        out->size = j->plan.size;
    out->epoch = j->epoch->number;
    out->argv = first->command;
    out->n_argv = 0;
    while (first->command[out->n_argv])
        out->n_argv++;
    uint64_t now = clock_now();
    out->clock_offset = (int64_t)(host_clock_ours(&h->beat.clock, now) - now);
    if (out->session_pid == 0) {
        out->session_pid = h->agent.session_pid;
        out->guard_pid = h->agent.guard_pid;
    }
}

static void on_status(void *ctx, struct status_client *to)
{
    const struct job *j = ctx;
    for (uint32_t i = 0; i < j->host_count; i++) {
        Hvd__JobStatus status = HVD__JOB_STATUS__INIT;
        if (host_state(&j->host[i]) == HOST_CLOSED)
            continue;
        fill_status(j, &j->host[i], status_server_depth(to), &status);
        samples_lend(j, &status);
        status_server_tell(to, &status);
        samples_take_back(&status);
    }
}

static const char *on_resize(void *ctx, uid_t uid, uint32_t ranks)
{
    struct status_state *s = state_of(ctx);
    return elastic_ask_resize(ctx, ranks, status_name_asker(uid), s->why, sizeof s->why);
}

static const char *on_leave(void *ctx, uid_t uid, const char *reason)
{
    (void)ctx, (void)uid, (void)reason;
    return "the ranks of one host leave: ask on that host";
}

static void on_report(void *ctx, struct status_client *to)
{
    size_t size;
    char *json = report_now(ctx, &size);
    status_server_tell_report(to, json ? json : "", json ? size : 0);
    free(json);
}

static void on_end(void *ctx, uid_t uid)
{
    struct job *j = ctx;
    j->stop.final = true;
    job_fault(j, clock_now(), 125, NULL, "%s ended the job with hvdctl", status_name_asker(uid));
}

static const struct status_server_events events = {
    {REFRESH_MS, WHY_MS, REFRESH_MS}, on_refresh, on_status, on_resize, on_leave, on_report, on_end};

void status_keep_output(struct job *j, const struct frame *f)
{
    struct status_state *s = state_of(j);
    if (s->open && f->length > 0)
        status_server_output(&s->server, f->rank, f->stream, f->payload, f->length);
}

/* ---- why ranks wait ------------------------------------------------------------------------------------ */

/* Stacks that the status lacks, by number of the worker, into the `room` places of `list`. Returns how many.
 */
static size_t add_stacks(const struct job *j, Hvd__JobStatus *status, Hvd__Where *const *where,
                         Hvd__Where **list, size_t room)
{
    if (!where || status->n_where > 0)
        return 0;
    status->where = list;
    for (size_t i = 0; i < status->n_rank && status->n_where < room; i++) {
        uint32_t worker = status->rank[i]->rank;
        if (worker < j->plan.size && where[worker])
            list[status->n_where++] = where[worker];
    }
    return status->n_where;
}

static void judge_answers(struct job *j, Hvd__Where *const *where, struct why_look *look)
{
    Hvd__JobStatus *status = calloc(j->host_count, sizeof *status);
    Hvd__JobStatus **list = calloc(j->host_count, sizeof(Hvd__JobStatus *));
    Hvd__Where **stacks = calloc(j->plan.size, sizeof(Hvd__Where *));
    size_t used = 0;
    struct err e = ERR_INIT;
    for (uint32_t i = 0; status && list && stacks && i < j->host_count; i++) {
        if (host_state(&j->host[i]) == HOST_CLOSED)
            continue;
        struct host_status *own = host_status_of(j, &j->host[i]);
        if (own->last[STATUS_WHY])
            why_printable(own->last[STATUS_WHY]);
        hvd__job_status__init(list[look->now.count] = &status[i]);
        fill_status(j, &j->host[i], STATUS_WHY, list[look->now.count++]);
        used += add_stacks(j, &status[i], where, stacks + used, j->plan.size - used);
    }
    look->now.host = list;
    if (look->now.count == 0 || why_find(look, &e) != 0)
        look->why.verdict = WHY_UNKNOWN;
    free(stacks);
    free(list);
    free(status);
}

/* The sentence about what the hosts have answered to a question with `why`; false: there is none worth it. */
static bool find_reason(struct job *j, Hvd__Where *const *where, char *text, size_t size)
{
    struct why_look look = {.now = {NULL, 0, 0}};
    judge_answers(j, where, &look);
    enum why_verdict verdict = look.why.verdict;
    bool found = verdict != WHY_HEALTHY && verdict != WHY_WORKING && verdict != WHY_UNKNOWN;
    if (found)
        snprintf(text, size, "%s%s%s%s", look.why.guess ? "perhaps: " : "", look.why.sentence,
                 look.why.remedy[0] ? "; " : "", look.why.remedy);
    why_free(&look);
    return found;
}

static void explain_stall(void *ctx)
{
    struct job *j = ctx;
    char text[WHY_SENTENCE + 300];
    if (!find_reason(j, NULL, text, sizeof text))
        return; /* the ranks have gone on meanwhile */
    log_warning("%s", text);
    if (state_of(j)->told++ == 0)
        log_warning("hvdctl why %s shows where all ranks are", j->name);
}

void status_ask_why(struct job *j, void (*then)(void *job))
{
    struct status_state *s = state_of(j);
    if (s->open)
        status_server_refresh(&s->server, STATUS_WHY, then, j);
    else
        then(j);
}

bool status_why(struct job *j, Hvd__Where *const *where, char *text, size_t size)
{
    return state_of(j)->open && find_reason(j, where, text, size);
}

void status_say_why(struct job *j)
{
    struct status_state *s = state_of(j);
    uint64_t now = clock_now();
    if (!s->open || (s->looked && now - s->looked < WHY_AGAIN_NS))
        return;
    s->looked = now;
    status_server_refresh(&s->server, STATUS_WHY, explain_stall, j);
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

/* A job goes on without: two jobs may have been given one name. */
static void listen_for_clients(struct job *j)
{
    struct status_state *s = state_of(j);
    struct status_address at;
    struct err e = ERR_INIT;
    status_server_init(&s->server);
    status_address_of(&at, geteuid(), j->name);
    s->open = status_server_open(&s->server, j->loop, &at, &events, j, &e) == 0;
    if (!s->open)
        log_info("hvdctl shows this job on its hosts only: %s", e.text);
}

static void stop_listening(struct job *j)
{
    struct status_state *s = state_of(j);
    if (s->open)
        status_server_close(&s->server);
    s->open = false;
}

static void free_answers(struct job *j)
{
    for (int depth = 0; depth < STATUS_DEPTHS; depth++)
        drop_answers(j, depth);
}

static const struct job_message messages[] = {{HVD__CONTROL__BODY_STATUS, false, on_host_status},
                                              {0, false, NULL}};

const struct job_part part_status = {
    .state_size = sizeof(struct status_state),
    .host_state_size = sizeof(struct host_status),
    .message = messages,
    .start = listen_for_clients,
    .host_closed = settle_host,
    .done = stop_listening,
    .free = free_answers,
};
