#include "launcher/job/job_ending.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/job_internal.h"
#include "launcher/parts/mpir.h"

/* In a word, for who counts them. */
static Hvd__Cause cause_of_end(const struct job *j)
{
    const struct outcome *o = &j->outcome;
    if (!o->failed)
        return HVD__CAUSE__CAUSE_NONE;
    if (j->signal)
        return HVD__CAUSE__CAUSE_CANCELLED;
    if (o->first_is_rank)
        return HVD__CAUSE__CAUSE_OTHER_RANK;
    if (j->lost_workers)
        return HVD__CAUSE__CAUSE_HOST_LOST;
    return o->exit_status == STATUS_LIMIT ? HVD__CAUSE__CAUSE_TIMEOUT : HVD__CAUSE__CAUSE_FAULT;
}

static void on_end_limit(uv_timer_t *timer);

/* Until the next look. */
static bool has_time(struct job *j)
{
    uint64_t left = end_limit_left(&j->end, clock_now());
    if (left > 0)
        uv_timer_start(&j->end_limit, on_end_limit, left, 0);
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
            log_warning("host %s: %s; it is visited again to end what is left", h->label, e.text);
        host_give_up(h, &e);
    }
}

static void on_end_limit(uv_timer_t *timer)
{
    struct job *j = timer->data;
    if (has_time(j))
        return;
    /* The workers' last output waits in the sessions for its turn: the reader may take his time, unless the
     * user does not. One round more when the reader has caught up, for bytes that are still on their way. */
    bool waits = j->output && !output_is_idle(j->output);
    if (!j->insisted && (waits || j->output_waited)) {
        j->output_waited = waits;
        end_limit_progress(&j->end, clock_now());
        (void)has_time(j);
        return;
    }
    give_up_rest(j);
}

void job_ending_progress(struct job *j)
{
    if (j->fsm.state == JOB_ENDING)
        end_limit_progress(&j->end, clock_now());
}

void job_ending_begin(struct job *j)
{
    bool patient = j->outcome.failed && !j->grace_is_over && j->finished < j->plan.size;
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    teardown.grace_ms = patient ? (uint32_t)j->config->grace_ms : 0;
    teardown.reason = j->outcome.failed ? j->outcome.text : teardown.reason;
    teardown.cause = cause_of_end(j);
    if (!j->phases.ending)
        j->phases.ending = clock_now();
    if (j->outcome.failed)
        mpir_abort(j->outcome.text);
    progress_stop(&j->progress);
    uv_timer_stop(&j->start_limit);
    uv_timer_stop(&j->wait_limit);
    uv_timer_stop(&j->settling);
    uv_timer_stop(&j->gathering);
    uv_timer_stop(&j->time_limit);
    end_limit_begin(&j->end, clock_now(), teardown.grace_ms, j->host_count - j->closed, !j->outcome.failed);
    (void)has_time(j);
    for (uint32_t i = 0; i < j->host_count; i++)
        host_teardown(&j->host[i], &teardown);
    if (j->closed == j->host_count)
        fsm_post(&j->fsm, JOB_EV_GONE);
}
