#include "launcher/job/job_ending.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/job/end_limit.h"

/* In a word, for counters. */
static Hvd__Cause cause_of_end(const struct job *j)
{
    const struct outcome *o = &j->outcome;
    if (!o->failed)
        return HVD__CAUSE__CAUSE_NONE;
    if (j->stop.signal)
        return HVD__CAUSE__CAUSE_CANCELLED;
    if (o->first_is_rank)
        return HVD__CAUSE__CAUSE_OTHER_RANK;
    if (j->stop.lost_workers)
        return HVD__CAUSE__CAUSE_HOST_LOST;
    return o->exit_status == STATUS_LIMIT ? HVD__CAUSE__CAUSE_TIMEOUT : HVD__CAUSE__CAUSE_FAULT;
}

static void on_end_limit(struct job *j);

/* Until the next look. */
static bool has_time(struct job *j)
{
    uint64_t left = end_limit_left(&j->stop.limit, clock_now());
    if (left > 0)
        job_timer_start(j, JOB_TIMER_MOMENT, left, on_end_limit);
    return left > 0;
}

static void give_up_rest(struct job *j)
{
    struct err e = ERR_INIT;
    bool well = !j->outcome.failed;
    err_set(&e, ERR_TIMEOUT, well ? "its agent did not end in time" : "it did not end its workers in time");
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        if (host_state(h) == HOST_CLOSED)
            continue;
        h->slow = well;
        if (well)
            log_warning("host %s: %s; hvdrun connects again to end the rest of the job there", h->label,
                        e.text);
        host_give_up(h, &e);
    }
}

static void on_end_limit(struct job *j)
{
    if (has_time(j))
        return;
    /* The workers' last output waits in the sessions for its turn. The reader may take its time, unless
     * the user insists. Once the reader has caught up, one round more is for bytes that are still on their
     * way. */
    bool waits = j->output && !output_is_idle(j->output);
    if (!j->stop.insisted && (waits || j->stop.output_waited)) {
        j->stop.output_waited = waits;
        end_limit_progress(&j->stop.limit, clock_now());
        (void)has_time(j);
        return;
    }
    give_up_rest(j);
}

void job_ending_progress(struct job *j)
{
    if (j->fsm.state == JOB_ENDING)
        end_limit_progress(&j->stop.limit, clock_now());
}

void job_ending_begin(struct job *j)
{
    bool patient = j->outcome.failed && !j->stop.grace_is_over && j->tally.ranks_finished < j->plan.size;
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    teardown.grace_ms = patient ? (uint32_t)j->config->grace_ms : 0;
    teardown.reason = j->outcome.failed ? j->outcome.text : teardown.reason;
    teardown.cause = cause_of_end(j);
    if (!j->phases.ending)
        j->phases.ending = clock_now();
    JOB_PARTS_CALL(j, ending, j);
    job_timers_end(j);
    end_limit_begin(&j->stop.limit, clock_now(), teardown.grace_ms, j->host_count - j->tally.closed,
                    !j->outcome.failed);
    (void)has_time(j);
    /* A second Teardown says that the user does not wait for what a host still sends. */
    bool again = j->stop.grace_is_over || j->stop.insisted;
    for (uint32_t i = 0; i < j->host_count; i++)
        if (again || host_state(&j->host[i]) != HOST_ENDING)
            host_teardown(&j->host[i], &teardown);
    if (j->tally.closed == j->host_count)
        fsm_post(&j->fsm, JOB_EV_GONE);
}
