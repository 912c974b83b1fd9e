/* hvdctl why JOB: the reason why a job does not go on. Two looks at all its hosts, INTERVAL_MS apart; the
 * second one with what ranks wait in and with their stacks. The judgement is why_judge.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "agent/ctl/why_judge.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "common/status/where_text.h"

#define INTERVAL_MS 1000
#define LINES_MAX   60
#define RANKS_MAX   (1u << 20) /* ranks of a job */
#define OPERATIONS  64

struct looks {
    struct ctl_answers before, now;
    struct why_job job;
    struct why_operation operation[OPERATIONS];
    struct why why;
};

/* ---- ranks --------------------------------------------------------------------------------------------- */

static uint32_t number_of(const Hvd__JobStatus *s, const Hvd__RankStatus *r)
{
    return s->elastic ? r->member : r->rank;
}

static const Hvd__Where *where_of(const Hvd__JobStatus *s, uint32_t worker)
{
    for (size_t i = 0; i < s->n_where; i++)
        if (s->where[i]->rank == worker)
            return s->where[i];
    return NULL;
}

static const Hvd__RankStatus *rank_before(const struct looks *l, const Hvd__JobStatus *s,
                                          const Hvd__RankStatus *r)
{
    for (size_t i = 0; i < l->before.count; i++) {
        const Hvd__JobStatus *b = l->before.item[i]->status;
        for (size_t k = 0; b->host_index == s->host_index && k < b->n_rank; k++)
            if (b->rank[k]->rank == r->rank)
                return b->rank[k];
    }
    return NULL;
}

static void add_ranks(struct looks *l, const Hvd__JobStatus *s)
{
    for (size_t i = 0; i < s->n_rank; i++) {
        const Hvd__RankStatus *r = s->rank[i], *before = rank_before(l, s, r);
        uint32_t number = number_of(s, r);
        if (number >= l->job.size)
            continue;
        l->job.rank[number] = (struct why_rank){.rank = number,
                                                .host = s->host,
                                                .pid = r->pid,
                                                .state = before && !r->ended ? before->state : r->state,
                                                .ended = r->ended,
                                                .initialized = r->initialized,
                                                .shut_down = r->shut_down,
                                                .where = where_of(s, r->rank)};
        if (before && r->cpu_ms > before->cpu_ms)
            l->job.rank[number].cpu_ms = r->cpu_ms - before->cpu_ms;
    }
}

static void count(const Hvd__JobStatus *s, uint64_t *operations, uint64_t *bytes)
{
    for (size_t i = 0; s->counters && i < s->counters->n_collective; i++)
        *operations += s->counters->collective[i]->operations;
    *bytes += s->counters ? s->counters->sent : 0;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* Of all hosts that tell of it. NULL: there are too many, or no memory. */
static struct why_operation *find_operation(struct looks *l, const Hvd__Pending *p)
{
    struct why_job *j = &l->job;
    for (size_t i = 0; i < j->operations; i++)
        if (l->operation[i].set == p->set && strcmp(l->operation[i].tensor, p->tensor) == 0)
            return &l->operation[i];
    if (j->operations == OPERATIONS)
        return NULL;
    struct why_operation o = {.tensor = p->tensor,
                              .kind = p->kind,
                              .set = p->set,
                              .arrived = calloc(j->size, 1),
                              .missing = calloc(j->size, 1)};
    if (!o.arrived || !o.missing) {
        free(o.arrived);
        free(o.missing);
        return NULL;
    }
    if (p->set == 0)
        memset(o.missing, 1, j->size); /* of hosts, too, on which no rank knows the name */
    l->operation[j->operations] = o;
    return &l->operation[j->operations++];
}

static void mark(uint8_t *ranks, uint32_t size, const uint32_t *list, size_t count, uint8_t value)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] < size)
            ranks[list[i]] = value;
}

static void add_operations(struct looks *l, const Hvd__JobStatus *s)
{
    for (size_t i = 0; s->counters && i < s->counters->n_pending; i++) {
        const Hvd__Pending *p = s->counters->pending[i];
        struct why_operation *o = find_operation(l, p);
        if (!o)
            continue;
        o->ms = p->ms > o->ms ? p->ms : o->ms;
        if (o->here == 0)
            mark(o->missing, l->job.size, p->member, p->n_member, 1);
        mark(o->arrived, l->job.size, p->arrived, p->n_arrived, 1);
        o->here += (uint32_t)p->n_arrived;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct why_operation *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void settle_operations(struct looks *l)
{
    for (size_t i = 0; i < l->job.operations; i++) {
        struct why_operation *o = &l->operation[i];
        o->here = o->expected = 0;
        for (uint32_t r = 0; r < l->job.size; r++) {
            o->missing[r] = o->missing[r] && !o->arrived[r];
            o->here += o->arrived[r];
            o->expected += o->arrived[r] || o->missing[r];
        }
    }
    qsort(l->operation, l->job.operations, sizeof *l->operation, by_time);
    l->job.operation = l->operation;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static bool is_silent(const Hvd__JobStatus *s)
{
    return strcmp(s->phase, "no answer") == 0;
}

static int fill_job(struct looks *l, struct err *e)
{
    struct why_job *j = &l->job;
    uint64_t operations = 0, bytes = 0;
    for (size_t i = 0; i < l->now.count; i++)
        j->size = l->now.item[i]->status->size > j->size ? l->now.item[i]->status->size : j->size;
    if (j->size > RANKS_MAX)
        return err_set(e, ERR_PROTOCOL, "the job says that it has %u ranks", j->size);
    j->rank = calloc(j->size ? j->size : 1, sizeof *j->rank);
    j->silent = calloc(l->now.count, sizeof *j->silent);
    l->why.culprit = calloc(j->size ? j->size : 1, 1);
    if (!j->rank || !j->silent || !l->why.culprit)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", j->size);
    for (uint32_t i = 0; i < j->size; i++)
        j->rank[i] = (struct why_rank){.rank = i, .state = "unknown"};
    for (size_t i = 0; i < l->now.count; i++) {
        const Hvd__JobStatus *s = l->now.item[i]->status;
        add_ranks(l, s);
        add_operations(l, s);
        count(s, &j->ended, &j->bytes);
        j->counted = j->counted || s->counters;
        j->has_stacks = j->has_stacks || s->tool[0];
        if (is_silent(s))
            j->silent[j->silents++] = s->host;
    }
    for (size_t i = 0; i < l->before.count; i++)
        count(l->before.item[i]->status, &operations, &bytes);
    j->ended = j->ended > operations ? j->ended - operations : 0;
    j->bytes = j->bytes > bytes ? j->bytes - bytes : 0;
    j->interval_ms = INTERVAL_MS;
    settle_operations(l);
    return 0;
}

/* A stack has lines, which message_printable would join. */
static void make_printable(Hvd__JobStatus *s)
{
    size_t n = s->n_where;
    for (size_t i = 0; i < n; i++)
        where_printable(s->where[i]);
    s->n_where = 0;
    message_printable(&s->base);
    s->n_where = n;
}

static int look_twice(const struct ctl_job *job, struct looks *l, struct err *e)
{
    const struct timespec interval = {INTERVAL_MS / 1000, INTERVAL_MS % 1000 * 1000000};
    if (ctl_ask_status(job, false, CTL_ANSWER_MS, &l->before, e) < 0)
        return -1;
    nanosleep(&interval, NULL);
    if (ctl_ask_status(job, true, CTL_ANSWER_MS, &l->now, e) < 0)
        return -1;
    for (size_t i = 0; i < l->now.count; i++)
        make_printable(l->now.item[i]->status);
    for (size_t i = 0; i < l->before.count; i++)
        make_printable(l->before.item[i]->status);
    return fill_job(l, e);
}

static void free_looks(struct looks *l)
{
    for (size_t i = 0; i < l->job.operations; i++) {
        free(l->operation[i].arrived);
        free(l->operation[i].missing);
    }
    free(l->job.rank);
    free(l->job.silent);
    free(l->why.culprit);
    ctl_answers_free(&l->before);
    ctl_answers_free(&l->now);
}

/* ---- the text ------------------------------------------------------------------------------------------ */

static void ranges_of(const uint8_t *which, uint32_t size, char *text, size_t room)
{
    uint32_t *list = calloc(size ? size : 1, sizeof *list), n = 0;
    for (uint32_t i = 0; list && i < size; i++)
        if (which[i])
            list[n++] = i;
    where_ranges(list, list ? n : 0, text, room);
    free(list);
}

static void print_line(void *ctx, const char *text)
{
    fprintf(ctx, "  %s\n", text);
}

static void print_operations(const struct looks *l)
{
    char in[200], not_in[200];
    for (size_t i = 0; i < l->job.operations && i < 8; i++) {
        const struct why_operation *o = &l->operation[i];
        ranges_of(o->arrived, l->job.size, in, sizeof in);
        ranges_of(o->missing, l->job.size, not_in, sizeof not_in);
        printf("%s%s \"%s\"", i ? "" : "\nranks wait in:\n", o->kind, o->tensor);
        if (o->set)
            printf(" of process set %d", o->set);
        if (o->ms)
            printf(", %.1f s", (double)o->ms / 1e3);
        printf(": %s in it%s%s%s\n", in, not_in[0] ? ", not " : "", not_in, not_in[0] ? "" : ", all of them");
    }
}

/* The accused first; of the others a place for each group. */
static void print_places(const struct looks *l)
{
    struct where_rank *ranks = calloc(l->job.size ? l->job.size : 1, sizeof *ranks);
    for (int others = 0; ranks && others <= 1; others++) {
        size_t n = 0;
        for (uint32_t i = 0; i < l->job.size; i++)
            if (l->job.rank[i].host && !l->job.rank[i].ended && (l->why.culprit[i] == 0) == (others == 1))
                ranks[n++] = (struct where_rank){i, l->job.rank[i].host, l->job.rank[i].where};
        if (n == 0)
            continue;
        printf("\n%s:\n", l->why.culprits == 0 ? "where the ranks are"
                          : others             ? "the others"
                                               : "where they are");
        where_text(ranks, n, LINES_MAX, print_line, stdout);
    }
    free(ranks);
}

/* Stacks of Python have no functions of Python without its own tool. */
static bool lacks_python(const struct looks *l)
{
    for (size_t i = 0; i < l->now.count; i++) {
        const Hvd__JobStatus *s = l->now.item[i]->status;
        for (size_t k = 0; !strstr(s->tool, "py-spy") && k < s->n_where; k++)
            if (s->where[k]->n_process > 0 && strncmp(s->where[k]->process[0]->name, "python", 6) == 0)
                return true;
    }
    return false;
}

static void print_why(const struct looks *l)
{
    printf("%s%s\n", l->why.guess ? "a guess, from stacks: " : "", l->why.sentence);
    if (l->why.remedy[0])
        printf("%s\n", l->why.remedy);
    print_operations(l);
    print_places(l);
    if (lacks_python(l))
        printf("\nwith py-spy on the hosts, the stacks name functions of Python too\n");
}

static void ranks_json(struct json *j, const char *name, const uint8_t *which, uint32_t size)
{
    json_array(j, name);
    for (uint32_t i = 0; i < size; i++)
        if (which[i])
            json_unsigned(j, NULL, i);
    json_end(j);
}

static void rank_json(struct json *j, const struct why_rank *r)
{
    const Hvd__WhereProcess *p = r->where && r->where->n_process ? r->where->process[0] : NULL;
    json_object(j, NULL);
    json_unsigned(j, "rank", r->rank);
    json_filled_text(j, "host", r->host ? r->host : "");
    json_unsigned(j, "pid", p ? p->pid : r->pid);
    json_text(j, "state", p ? p->state : r->state);
    json_filled_text(j, "waits", p ? p->waits : "");
    json_filled_text(j, "stack", p ? p->stack : "");
    json_filled_text(j, "no_stack", p ? p->no_stack : "");
    json_real(j, "cpu_seconds", (double)r->cpu_ms / 1e3);
    json_end(j);
}

static void print_json(const struct looks *l)
{
    struct json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "verdict", why_word(l->why.verdict));
    json_bool(&j, "guess", l->why.guess);
    json_text(&j, "sentence", l->why.sentence);
    json_filled_text(&j, "remedy", l->why.remedy);
    ranks_json(&j, "culprits", l->why.culprit, l->job.size);
    json_real(&j, "interval_seconds", (double)l->job.interval_ms / 1e3);
    json_unsigned(&j, "operations_ended", l->job.ended);
    json_unsigned(&j, "link_bytes_sent", l->job.bytes);
    json_array(&j, "operations");
    for (size_t i = 0; i < l->job.operations; i++) {
        json_object(&j, NULL);
        json_text(&j, "tensor", l->operation[i].tensor);
        json_text(&j, "kind", l->operation[i].kind);
        json_unsigned(&j, "process_set", (uint64_t)l->operation[i].set);
        json_real(&j, "seconds", (double)l->operation[i].ms / 1e3);
        ranks_json(&j, "arrived", l->operation[i].arrived, l->job.size);
        ranks_json(&j, "missing", l->operation[i].missing, l->job.size);
        json_end(&j);
    }
    json_end(&j);
    json_array(&j, "ranks");
    for (uint32_t i = 0; i < l->job.size; i++)
        rank_json(&j, &l->job.rank[i]);
    json_end(&j);
    json_end(&j);
}

int ctl_why(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    struct looks *l = calloc(1, sizeof *l);
    if (!l)
        err_set(e, ERR_MEMORY, "no memory for a look");
    int rc = l ? look_twice(job, l, e) : -1;
    if (rc == 0) {
        why_judge(&l->job, &l->why);
        if (c->json)
            print_json(l);
        else
            print_why(l);
    }
    if (l)
        free_looks(l);
    free(l);
    return rc == 0 ? 0 : EXIT_REFUSED;
}
