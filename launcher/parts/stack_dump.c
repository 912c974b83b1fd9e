/* The stack of each rank, asked of the sessions when the time limit is over and shown before the job is
 * ended. Hosts have STACK_DUMP_MS to answer; a host that is late is named and not waited for. The answers
 * are kept for --report, up to WHERE_KEPT_MAX bytes of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"
#include "common/status/where_text.h"

/* The time of a session is shorter than the wait of the job, for the way there and back. */
#define SESSION_MS (STACK_DUMP_MS - 700)
#define REASONS_MS 300
#define LINES_MAX  38
#define WHY_TEXT   1400
#define RANK_MAX   ((size_t)256 << 10) /* bytes of memory of one rank: no host takes the room of the others */

enum host_part { NOT_ASKED, ASKED, ANSWERED };

struct stack_dump_state {
    Hvd__Where **rank;    /* NULL: not told */
    enum host_part *host; /* by index in plan.host */
    uint32_t asked, answers;
    bool reasons;               /* the hosts have said what their ranks wait in */
    size_t room;                /* for what they tell, in bytes */
    const struct host *no_tool; /* the first of them */
    uint32_t no_tools;
    bool said;
};

static struct stack_dump_state *state_of(const struct job *j)
{
    return job_state(j, &part_stack_dump);
}

static void end_look(struct job *j)
{
    if (j->fsm.state == JOB_INSPECTING)
        fsm_post(&j->fsm, JOB_EV_INSPECTED);
}

/* Hosts that have told where their ranks are tell the reasons soon, or not at all. */
static void check_answers(struct job *j)
{
    const struct stack_dump_state *w = state_of(j);
    if (w->answers == w->asked && w->reasons)
        end_look(j);
    else if (w->answers == w->asked && j->fsm.state == JOB_INSPECTING)
        job_timer_start(j, JOB_TIMER_MOMENT, REASONS_MS, end_look);
}

static void take_reasons(void *ctx)
{
    struct job *j = ctx;
    state_of(j)->reasons = true;
    check_answers(j);
}

void stack_dump_start(struct job *j)
{
    struct stack_dump_state *w = state_of(j);
    Hvd__Inspect inspect = HVD__INSPECT__INIT;
    inspect.limit_ms = SESSION_MS;
    CONTROL(m, INSPECT, inspect, &inspect);
    w->room = WHERE_KEPT_MAX;
    w->rank = calloc(j->plan.size, sizeof(Hvd__Where *));
    w->host = calloc(j->plan.host_count, sizeof *w->host);
    for (uint32_t i = 0; w->rank && w->host && i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        if (host_state(h) != HOST_RUNNING || host_is_silent(h, clock_now()))
            continue;
        w->asked++;
        w->host[i] = ASKED;
        host_send(h, &m);
        host_expect(h);
    }
    status_ask_why(j, take_reasons);
}

/* Was it asked, and has it not said that this is all? */
static bool is_expected(const struct stack_dump_state *w, const struct host *h)
{
    return w->rank && w->host && w->host[h->plan_index] == ASKED;
}

/* A copy is kept, because the message belongs to the channel. */
static const char *on_where(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct stack_dump_state *w = state_of(j);
    const Hvd__Where *where = m->where;
    if (!job_rank_of_host(j, h, where->rank))
        return "that rank is not there";
    if (!is_expected(w, h))
        return "nobody has asked for it";
    if (w->rank[where->rank])
        return "of that rank there was one before";
    size_t before = w->room < RANK_MAX ? w->room : RANK_MAX, left = before;
    Hvd__Where *mine = w->rank[where->rank] = message_copy(&where->base, &left);
    w->room -= before - left;
    if (mine)
        where_printable(mine);
    return NULL;
}

static const char *on_inspected(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct stack_dump_state *w = state_of(j);
    if (!is_expected(w, h))
        return "nobody has asked for it";
    w->host[h->plan_index] = ANSWERED;
    if (!m->inspected->tool[0] && w->no_tools++ == 0)
        w->no_tool = h;
    w->answers++;
    check_answers(j);
    return NULL;
}

static void say_line(void *ctx, const char *text)
{
    (void)ctx;
    log_say("hvdrun: %s\n", text);
}

void stack_dump_say(struct job *j)
{
    struct stack_dump_state *w = state_of(j);
    struct where_rank *ranks = w->rank && !w->said ? calloc(j->plan.size, sizeof *ranks) : NULL;
    size_t count = 0;
    if (!ranks)
        return;
    w->said = true;
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (!j->rank[i].exited)
            ranks[count++] = (struct where_rank){i, j->host_names[j->plan.rank[i].host], w->rank[i]};
    if (count > 0) {
        char why[WHY_TEXT];
        if (status_why(j, w->rank, why, sizeof why))
            log_say("hvdrun: %s\n", why);
        log_say("hvdrun: %s; where the ranks are:\n", j->outcome.text);
        where_text(ranks, count, LINES_MAX, say_line, NULL);
    }
    if (w->no_tools > 0 && count > 0)
        log_say("hvdrun: no stacks: neither eu-stack (elfutils) nor gdb was found on %s%s\n",
                w->no_tool->label, w->no_tools > 1 ? " and other hosts" : "");
    free(ranks);
}

static void report_rank(const struct job *j, uint32_t rank, struct json *w)
{
    const struct stack_dump_state *s = state_of(j);
    const Hvd__Where *where = s->rank ? s->rank[rank] : NULL;
    if (!where) {
        json_null(w, "where");
        return;
    }
    json_array(w, "where");
    for (size_t i = 0; i < where->n_process; i++) {
        const Hvd__WhereProcess *p = where->process[i];
        json_object(w, NULL);
        json_unsigned(w, "pid", p->pid);
        json_text(w, "name", p->name);
        json_text(w, "state", p->state);
        json_filled_text(w, "waits", p->waits);
        json_real(w, "cpu_time", (double)p->cpu_ms / 1e3);
        json_filled_text(w, "stack", p->stack);
        json_filled_text(w, "no_stack", p->no_stack);
        json_end(w);
    }
    json_end(w);
}

static void free_answers(struct job *j)
{
    struct stack_dump_state *w = state_of(j);
    for (uint32_t i = 0; w->rank && i < j->plan.size; i++)
        message_free(w->rank[i]);
    free(w->rank);
    free(w->host);
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_WHERE, true, on_where},
    {HVD__CONTROL__BODY_INSPECTED, true, on_inspected},
    {0, false, NULL},
};

const struct job_part part_stack_dump = {
    .state_size = sizeof(struct stack_dump_state),
    .message = messages,
    .report_rank = report_rank,
    .free = free_answers,
};
