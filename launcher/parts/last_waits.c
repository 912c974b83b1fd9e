/* The waits of the other ranks when a host was lost: one line behind the cause, from the flight records that
 * the other hosts tell before they end, and from the last samples of the lost one. Nothing is asked for it.
 *
 * The record of a rank has the operation that it is in, or that has ended because of the loss. A job that
 * records nothing gets no line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/status/lateness.h"
#include "common/status/where_text.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define STATUS_PEER  (-4) /* of hvd.h: another rank was lost */
#define WORTH_SAYING (200 * NSEC_PER_MSEC)

/* An operation that a rank was in, on our clock. */
struct last_wait {
    char name[LATENESS_NAME + 24];
    uint64_t began, ended; /* 0: it was in none */
};

struct last_waits_state {
    struct last_wait *rank; /* [ranks]; NULL: nothing is known */
};

static struct last_waits_state *state_of(const struct job *j)
{
    return job_state(j, &part_last_waits);
}

/* A rank may be in several at once: the first of them counts. */
static void note_wait(struct last_wait *w, const struct host *h, const Hvd__FlightOperation *o)
{
    uint64_t began = host_clock_ours(&h->beat.clock, o->began);
    if ((o->status <= 0 && o->status != STATUS_PEER) || (w->ended && w->began <= began))
        return;
    w->began = began;
    w->ended = o->status > 0 ? clock_now() : host_clock_ours(&h->beat.clock, o->ended);
    snprintf(w->name, sizeof w->name, "%.20s \"%.*s\"", o->kind, LATENESS_NAME, o->tensor);
    log_printable(w->name);
}

/* The flight recorder takes the message after that, and judges it. */
static const char *on_flight(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct last_waits_state *s = state_of(j);
    const Hvd__Flight *f = m->flight;
    if (j->config->elastic || !job_rank_of_host(j, h, f->rank))
        return job_not_mine;
    if (!s->rank)
        s->rank = calloc(j->room.ranks, sizeof *s->rank);
    for (size_t i = 0; s->rank && i < f->n_operation; i++)
        note_wait(&s->rank[f->rank], h, f->operation[i]);
    return job_not_mine;
}

static const struct host *find_lost(const struct job *j)
{
    for (uint32_t i = 0; i < j->host_count; i++)
        if (j->host[i].lost_at)
            return &j->host[i];
    return NULL;
}

/* Of the operation that ranks were in first; NULL: of none for long. */
static const struct last_wait *find_first(const struct job *j, const struct last_waits_state *s)
{
    const struct last_wait *first = NULL;
    for (uint32_t i = 0; s->rank && i < j->plan.size; i++) {
        const struct last_wait *w = &s->rank[i];
        if (w->ended > w->began + WORTH_SAYING && (!first || w->began < first->began))
            first = w;
    }
    return first;
}

static void say_waits(const struct job *j)
{
    const struct last_waits_state *s = state_of(j);
    const struct last_wait *first = find_first(j, s);
    const struct host *lost = j->outcome.first_is_rank ? NULL : find_lost(j);
    uint32_t *ranks = first && lost ? calloc(j->plan.size, sizeof *ranks) : NULL, count = 0;
    char names[200], seen[300];
    for (uint32_t i = 0; ranks && i < j->plan.size; i++)
        if (s->rank[i].ended && strcmp(s->rank[i].name, first->name) == 0)
            ranks[count++] = i;
    if (count > 0) {
        where_ranges(ranks, count, names, sizeof names);
        samples_last_seen(j, lost, seen, sizeof seen);
        log_say("hvdrun: rank%s %s had waited in %s for %.1f s%s%s\n", count == 1 ? "" : "s", names,
                first->name, (double)(first->ended - first->began) / 1e9, *seen ? "; " : "", seen);
    }
    free(ranks);
}

static void free_waits(struct job *j)
{
    free(state_of(j)->rank);
}

static const struct job_message messages[] = {{HVD__CONTROL__BODY_FLIGHT, true, on_flight}, {0, false, NULL}};

const struct job_part part_last_waits = {
    .state_size = sizeof(struct last_waits_state),
    .message = messages,
    .say = say_waits,
    .free = free_waits,
};
