#include "launcher/parts/stack_dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/job/job_internal.h"
#include "launcher/parts/stack_dump_text.h"

/* What a session gets: less than we wait, for the way there and back. */
#define SESSION_MS (JOB_WHERE_MS - 700)
#define LINES_MAX  38
#define RANK_MAX   ((size_t)256 << 10) /* bytes of memory of one rank: no host takes the room of the others */

enum host_part { NOT_ASKED, ASKED, ANSWERED };

struct job_where {
    Hvd__Where **rank;    /* NULL: not told */
    enum host_part *host; /* by index in plan.host */
    uint32_t asked, answers;
    size_t room;                /* for what they tell, in bytes */
    const struct host *no_tool; /* the first of them */
    uint32_t no_tools;
    bool said;
};

void job_where_start(struct job *j)
{
    struct job_where *w = calloc(1, sizeof *w);
    Hvd__Inspect inspect = HVD__INSPECT__INIT;
    inspect.limit_ms = SESSION_MS;
    CONTROL(m, INSPECT, inspect, &inspect);
    j->where = w;
    if (w) {
        w->room = WHERE_KEPT_MAX;
        w->rank = calloc(j->plan.size, sizeof(Hvd__Where *));
        w->host = calloc(j->plan.host_count, sizeof *w->host);
    }
    for (uint32_t i = 0; w && w->rank && w->host && i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        if (host_state(h) != HOST_RUNNING || host_is_silent(h, clock_now()))
            continue;
        w->asked++;
        w->host[i] = ASKED;
        host_send(h, &m);
        host_expect(h);
    }
    if (!w || w->asked == 0)
        fsm_post(&j->fsm, JOB_EV_INSPECTED);
}

/* Was it asked, and has it not said that this is all? */
static bool is_expected(const struct job_where *w, const struct host *h)
{
    return w && w->rank && w->host && w->host[h->plan_index] == ASKED;
}

/* It is decoded anew, because what came is the channel's. */
const char *job_where_found(struct job *j, const struct host *h, const Hvd__Where *where)
{
    struct job_where *w = j->where;
    if (!is_expected(w, h))
        return "nobody has asked for it";
    if (w->rank[where->rank])
        return "of that rank there was one before";
    size_t before = w->room < RANK_MAX ? w->room : RANK_MAX, left = before;
    Hvd__Where *mine = w->rank[where->rank] = message_copy(&where->base, &left);
    w->room -= before - left;
    for (size_t i = 0; mine && i < mine->n_process; i++) {
        Hvd__WhereProcess *p = mine->process[i];
        log_printable(p->name);
        log_printable(p->state);
        log_printable(p->waits);
        log_printable(p->no_stack);
        for (char *line = p->stack; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
            char *end = strchr(line, '\n');
            if (end)
                *end = '\0';
            log_printable(line);
            if (end)
                *end = '\n';
        }
    }
    return NULL;
}

const char *job_where_done(struct job *j, const struct host *h, const Hvd__Inspected *inspected)
{
    struct job_where *w = j->where;
    if (!is_expected(w, h))
        return "nobody has asked for it";
    w->host[h->plan_index] = ANSWERED;
    if (!inspected->tool[0] && w->no_tools++ == 0)
        w->no_tool = h;
    if (++w->answers == w->asked)
        fsm_post(&j->fsm, JOB_EV_INSPECTED);
    return NULL;
}

static void say_line(void *ctx, const char *text)
{
    (void)ctx;
    log_say("hvdrun: %s\n", text);
}

void job_where_say(struct job *j)
{
    struct job_where *w = j->where;
    struct where_rank *ranks = w && w->rank && !w->said ? calloc(j->plan.size, sizeof *ranks) : NULL;
    size_t count = 0;
    if (!ranks)
        return;
    w->said = true;
    for (uint32_t i = 0; i < j->plan.size; i++)
        if (!j->rank[i].exited)
            ranks[count++] = (struct where_rank){i, j->host_names[j->plan.rank[i].host], w->rank[i]};
    if (count > 0) {
        log_say("hvdrun: %s; where the ranks are:\n", j->outcome.text);
        where_text(ranks, count, LINES_MAX, say_line, NULL);
    }
    if (w->no_tools > 0 && count > 0)
        log_say("hvdrun: no stacks: neither eu-stack (elfutils) nor gdb was found on %s%s\n",
                w->no_tool->label, w->no_tools > 1 ? " and other hosts" : "");
    free(ranks);
}

const Hvd__Where *job_where_of(const struct job *j, uint32_t rank)
{
    return j->where && j->where->rank ? j->where->rank[rank] : NULL;
}

void job_where_free(struct job *j)
{
    struct job_where *w = j->where;
    for (uint32_t i = 0; w && w->rank && i < j->plan.size; i++)
        message_free(w->rank[i]);
    if (w) {
        free(w->rank);
        free(w->host);
    }
    free(w);
    j->where = NULL;
}
