/* hvdctl why JOB: the reason why a job does not go on. Two looks at all its hosts, INTERVAL_MS apart; the
 * second one with what ranks wait in and with their stacks. The judgement is common/status/why.h's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/status/where_text.h"
#include "common/status/why.h"

#define CONFIRMS    2 /* further looks after a guess */
#define CONFIRM_MS  300
#define INTERVAL_MS 1000
#define LINES_MAX   60
#define SHOWN       8 /* operations */

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

static void print_operations(const struct why_look *l)
{
    char in[200], not_in[200];
    for (size_t i = 0; i < l->job.operations && i < SHOWN; i++) {
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
static void print_places(const struct why_look *l)
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

/* Of the first host that NCCL has told of it: each tells of the whole job. NULL: none has. */
static const Hvd__JobStatus *find_nccl(const struct why_look *l)
{
    for (size_t i = 0; i < l->now.count; i++)
        if (l->now.host[i]->n_nccl > 0)
            return l->now.host[i];
    return NULL;
}

static void print_nccl(const struct why_look *l)
{
    const Hvd__JobStatus *s = find_nccl(l);
    if (!s)
        return;
    printf("\nNCCL's own word, of its RAS service in process %u on %s:\n", s->nccl_pid, s->host);
    for (size_t i = 0; i < s->n_nccl && i < LINES_MAX; i++)
        printf("  %s\n", s->nccl[i]);
}

/* Stacks of Python have no functions of Python without its own tool. */
static bool lacks_python(const struct why_look *l)
{
    for (size_t i = 0; i < l->now.count; i++) {
        const Hvd__JobStatus *s = l->now.host[i];
        for (size_t k = 0; !strstr(s->tool, "py-spy") && k < s->n_where; k++)
            if (s->where[k]->n_process > 0 && strncmp(s->where[k]->process[0]->name, "python", 6) == 0)
                return true;
    }
    return false;
}

static void print_why(const struct why_look *l)
{
    printf("%s%s\n", l->why.guess ? "a guess, from outside: " : "", l->why.sentence);
    if (l->why.remedy[0])
        printf("%s\n", l->why.remedy);
    print_operations(l);
    print_places(l);
    print_nccl(l);
    if (lacks_python(l))
        printf("\nwith py-spy on the hosts, the stacks name functions of Python too\n");
}

/* ---- for programs -------------------------------------------------------------------------------------- */

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
    if (p && p->holder)
        json_unsigned(j, "holder_pid", p->holder);
    if (p && p->swapped_kib)
        json_unsigned(j, "swapped_bytes", p->swapped_kib * 1024);
    if (p && p->connections) {
        json_unsigned(j, "connections", p->connections);
        json_real(j, "quiet_seconds", (double)where_quiet_ms(p) / 1e3);
    }
    json_filled_text(j, "stack", p ? p->stack : "");
    json_filled_text(j, "no_stack", p ? p->no_stack : "");
    json_real(j, "computing", r->use.computes);
    json_real(j, "without_processor", r->use.delayed);
    json_real(j, "held_back", r->use.throttled);
    json_real(j, "in_operations", r->in_operations);
    json_end(j);
}

static void print_json(const struct why_look *l)
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
    json_array(&j, "nccl");
    for (size_t i = 0; find_nccl(l) && i < find_nccl(l)->n_nccl; i++)
        json_text(&j, NULL, find_nccl(l)->nccl[i]);
    json_end(&j);
    json_array(&j, "ranks");
    for (uint32_t i = 0; i < l->job.size; i++)
        rank_json(&j, &l->job.rank[i]);
    json_end(&j);
    json_end(&j);
}

/* ---- the looks ----------------------------------------------------------------------------------------- */

/* In *hosts, whose list is the caller's to free. -1 with *e. */
static int look_at(const struct ctl_job *job, bool why, struct ctl_answers *all, struct why_hosts *hosts,
                   struct err *e)
{
    if (ctl_ask_status(job, why ? HVD__INQUIRY__KIND__WHY : HVD__INQUIRY__KIND__STATUS, CTL_ANSWER_MS, all,
                       e) < 0)
        return -1;
    Hvd__JobStatus **list = calloc(all->count, sizeof(Hvd__JobStatus *));
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for %zu hosts", all->count);
    for (size_t i = 0; i < all->count; i++) {
        list[i] = all->item[i]->status;
        why_printable(list[i]);
    }
    *hosts = (struct why_hosts){list, all->count, clock_now()};
    return 0;
}

static bool is_same_guess(const struct why_look *a, const struct why_look *b)
{
    return a->why.guess && b->why.guess && a->why.verdict == b->why.verdict && a->job.size == b->job.size &&
           memcmp(a->why.culprit, b->why.culprit, a->job.size) == 0;
}

/* Stacks show a moment. A guess that another moment does not repeat is none: the ranks go on. */
static int confirm_guess(const struct ctl_job *job, struct why_look *l, struct err *e)
{
    const struct timespec pause = {0, CONFIRM_MS * 1000000};
    for (int i = 0; l->why.guess && i < CONFIRMS; i++) {
        struct why_look again = {.before = l->before, .now = {NULL, 0, 0}};
        struct ctl_answers answers = {NULL, 0};
        nanosleep(&pause, NULL);
        int rc = look_at(job, true, &answers, &again.now, e) < 0 ? -1 : why_find(&again, e);
        if (rc == 0 && !is_same_guess(l, &again)) {
            memset(l->why.culprit, 0, l->job.size);
            l->why.culprits = 0;
            l->why.guess = false;
            l->why.verdict = WHY_HEALTHY;
            snprintf(l->why.sentence, sizeof l->why.sentence,
                     "the ranks seem to go on: at another moment they are in other calls");
        }
        why_free(&again);
        free((void *)(uintptr_t)again.now.host);
        ctl_answers_free(&answers);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int look_twice(const struct ctl_job *job, struct ctl_answers answers[2], struct why_look *l,
                      struct err *e)
{
    const struct timespec interval = {INTERVAL_MS / 1000, INTERVAL_MS % 1000 * 1000000};
    if (look_at(job, false, &answers[0], &l->before, e) < 0)
        return -1;
    nanosleep(&interval, NULL);
    if (look_at(job, true, &answers[1], &l->now, e) < 0 || why_find(l, e) < 0)
        return -1;
    return confirm_guess(job, l, e);
}

int ctl_why(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    struct why_look l = {.now = {NULL, 0, 0}};
    struct ctl_answers answers[2] = {{NULL, 0}, {NULL, 0}};
    int rc = look_twice(job, answers, &l, e);
    if (rc == 0 && c->json)
        print_json(&l);
    else if (rc == 0)
        print_why(&l);
    why_free(&l);
    free((void *)(uintptr_t)l.before.host);
    free((void *)(uintptr_t)l.now.host);
    ctl_answers_free(&answers[0]);
    ctl_answers_free(&answers[1]);
    return rc == 0 ? 0 : EXIT_REFUSED;
}
