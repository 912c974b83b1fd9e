#include "launcher/job/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"

/* ---- faults -------------------------------------------------------------------------------------------- */

void job_failed(struct job *j)
{
    bool running = j->fsm.state == JOB_RUNNING || j->fsm.state == JOB_PARTING;
    fsm_post(&j->fsm, running && j->has_engines ? JOB_EV_PEER_LOST : JOB_EV_FAILED);
}

void job_fault(struct job *j, uint64_t time, int exit_status, const char *hint, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX + 400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    outcome_fault(&j->outcome, time, exit_status, text, hint);
    job_failed(j);
}

void job_fault_err(struct job *j, const struct err *e)
{
    job_fault(j, clock_now(), err_exit_status(e), e->hint, "%s", e->text);
}

void job_stop(struct job *j, int exit_status, const char *text)
{
    bool going = j->config->on_failure != CONFIG_ON_FAILURE_KILL && j->fsm.state <= JOB_PARTING;
    j->stop.final = true;
    outcome_stop(&j->outcome, clock_now(), exit_status, text, going, exit_status == STATUS_LIMIT);
}

/* ---- hosts and ranks ----------------------------------------------------------------------------------- */

struct host *job_host_of_plan(struct job *j, uint32_t plan_index)
{
    return &j->host[j->plan.host[plan_index].index];
}

struct host *job_host_of_rank(struct job *j, uint32_t rank)
{
    return job_host_of_plan(j, j->plan.rank[rank].host);
}

struct rank_state *job_rank_of_host(struct job *j, const struct host *h, uint32_t rank)
{
    if (!j->planned || !h->planned || rank >= j->plan.size || j->plan.rank[rank].host != h->plan_index)
        return NULL;
    return &j->rank[rank];
}

/* Hosts that were started and are not READY. Those that wait for their turn at a lease do not count. */
static uint32_t count_on_their_way(const struct job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->tally.next_to_start; i++)
        n += host_state(&j->host[i]) < HOST_READY && !j->host[i].lease.held;
    return n;
}

void job_start_hosts(struct job *j)
{
    struct job_tally *t = &j->tally;
    uint32_t on_their_way = count_on_their_way(j);
    while (t->next_to_start < j->host_count && on_their_way < FANOUT_MAX) {
        on_their_way++;
        host_start(&j->host[t->next_to_start++]);
    }
}

void job_send_all(struct job *j, const Hvd__Control *m)
{
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        host_send(job_host_of_plan(j, i), m);
}

void job_signal_workers(struct job *j, int number, bool ours)
{
    Hvd__Signal s = HVD__SIGNAL__INIT;
    s.number = number;
    s.ours = ours;
    CONTROL(m, SIGNAL, signal, &s);
    for (uint32_t i = 0; i < j->host_count; i++)
        if (host_state(&j->host[i]) == HOST_READY || host_state(&j->host[i]) == HOST_RUNNING)
            host_send(&j->host[i], &m);
}

bool job_gets_stdin(const struct job *j, uint32_t rank)
{
    return j->has_input && rank >= j->input.first && rank - j->input.first < j->input.count;
}

/* ---- timers -------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *uv)
{
    struct job_timer_slot *slot = uv->data;
    slot->over(slot->job);
}

void job_timers_init(struct job *j)
{
    for (int i = 0; i < JOB_TIMERS; i++) {
        j->timer[i].job = j;
        uv_timer_init(j->loop, &j->timer[i].uv);
        j->timer[i].uv.data = &j->timer[i];
    }
}

void job_timer_start(struct job *j, enum job_timer which, uint64_t ms, void (*over)(struct job *j))
{
    j->timer[which].over = over;
    uv_timer_start(&j->timer[which].uv, on_timer, ms, 0);
}

void job_timer_stop(struct job *j, enum job_timer which)
{
    uv_timer_stop(&j->timer[which].uv);
}

bool job_timer_runs(const struct job *j, enum job_timer which)
{
    return uv_is_active((const uv_handle_t *)&j->timer[which].uv);
}

void job_timers_end(struct job *j)
{
    for (int i = 0; i < JOB_TIMER_HEARTBEAT; i++)
        job_timer_stop(j, i);
}

void job_timers_close(struct job *j)
{
    for (int i = 0; i < JOB_TIMERS; i++)
        uv_close((uv_handle_t *)&j->timer[i].uv, NULL);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

const char job_not_mine[] = "no part of the job takes it";

static size_t count_parts(const struct job_part *const *table)
{
    size_t count = 0;
    while (table[count])
        count++;
    return count;
}

static size_t place_of(const struct job *j, const struct job_part *part)
{
    size_t place = 0;
    while (j->parts.part[place] != part)
        place++;
    return place;
}

int job_parts_init(struct job *j, const struct job_part *const *table)
{
    size_t count = count_parts(table);
    j->parts.state = calloc(count, sizeof *j->parts.state);
    j->parts.host_state = calloc(count, sizeof *j->parts.host_state);
    if (!j->parts.state || !j->parts.host_state)
        return -1;
    j->parts.part = table;
    for (size_t i = 0; i < count; i++) {
        j->parts.state[i] = calloc(1, table[i]->state_size + 1);
        if (!j->parts.state[i])
            return -1;
    }
    return 0;
}

int job_parts_open(struct job *j, struct err *e)
{
    for (size_t i = 0; j->parts.part[i]; i++) {
        j->parts.host_state[i] = calloc(j->room.hosts + 1, j->parts.part[i]->host_state_size + 1);
        if (!j->parts.host_state[i])
            return err_set(e, ERR_MEMORY, "no memory for %u hosts", j->host_count);
    }
    return JOB_PARTS_TRY(j, open, j, e);
}

void *job_state(const struct job *j, const struct job_part *part)
{
    return j->parts.state[place_of(j, part)];
}

void *job_host_state(const struct job *j, const struct job_part *part, const struct host *h)
{
    return (char *)j->parts.host_state[place_of(j, part)] + h->index * part->host_state_size;
}

void job_parts_free(struct job *j)
{
    for (size_t i = 0; j->parts.part && j->parts.part[i]; i++) {
        if (j->parts.part[i]->free && j->parts.state[i] && j->parts.host_state[i])
            j->parts.part[i]->free(j);
        free(j->parts.state[i]);
        free(j->parts.host_state[i]);
    }
    free(j->parts.state);
    free(j->parts.host_state);
}

void job_prepare(struct job *j)
{
    j->parts.preparing = 1;
    for (const struct job_part *const *p = j->parts.part; *p; p++)
        if ((*p)->prepare && (*p)->prepare(j)) {
            j->parts.prepares = true;
            j->parts.preparing++;
        }
    job_prepared(j);
}

void job_prepared(struct job *j)
{
    if (--j->parts.preparing == 0)
        fsm_post(&j->fsm, JOB_EV_PREPARED);
}

bool job_is_preparing(const struct job *j, const struct host *h)
{
    for (size_t i = 0; j->parts.part[i]; i++)
        if (j->parts.part[i]->waits_for && j->parts.part[i]->waits_for(j, h))
            return true;
    return false;
}
