/* Hosts that were lost while they ran workers: when everything else has ended, each is reached again by the
 * same transport and `hvdagent sweep JOB` runs there.
 *
 * A host that cannot be reached is tried again until its session's lease has surely run out: heartbeat
 * time-out + grace + 1 s after we stopped sending to it (not after it was last heard: while only one
 * direction is cut, the session still hears our pings). Then it is named in the report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"
#include "launcher/transport/agent_command.h"

#define LOOK_MS  100
#define AGAIN_MS 500 /* between two attempts at a host */
/* The time of an attempt for each step: a new SYN is better than a wait for a lost one. An ssh program
 * does not tell its step. */
#define CONNECT_MS 2000
#define LOGIN_MS   5000
/* hvdagent itself gives up 6 s after the grace of the workers, which its session may still use. */
#define AGENT_MS   9000
#define CARRIER_MS 11000
#define SAID_CUT   100 /* bytes of what was said that make room for others */

enum sweep_result { SWEEP_OPEN, SWEEP_DONE, SWEEP_LEFT, SWEEP_UNREACHED };

struct sweep_run { /* one lost host */
    struct sweep_state *owner;
    const struct host *host;
    struct transport_target target;
    struct transport *transport; /* of the attempt under way */
    enum transport_phase phase;
    uint64_t limit;    /* of its present step */
    uint64_t next;     /* not before this the next one begins */
    uint64_t deadline; /* none begins after this */
    unsigned attempts;
    bool now;    /* the workers get no grace any more */
    bool closed; /* the transport has closed and waits to be freed */
    int exit_status;
    enum sweep_result result;
    char said[400]; /* by hvdagent, on stderr: the end of it */
    size_t said_len;
};

struct sweep_state {
    struct job *job;
    struct sweep_run *run;
    uint32_t count;
    char *arguments[2][4]; /* of hvdagent; the second with no grace */
    char command[2][16384];
};

static struct sweep_state *state_of(const struct job *j)
{
    return job_state(j, &part_sweep);
}

/* ---- one attempt --------------------------------------------------------------------------------------- */

static bool has_carrier(const struct sweep_run *r)
{
    return r->host->ops == &transport_exec;
}

static uint64_t grace_of(const struct sweep_run *r)
{
    return r->now ? 0 : r->owner->job->config->grace_ms;
}

static void on_phase(void *ctx, enum transport_phase phase)
{
    struct sweep_run *r = ctx;
    uint64_t ms = phase <= TRANSPORT_CONNECT      ? CONNECT_MS
                  : phase < TRANSPORT_AGENT_START ? LOGIN_MS
                                                  : AGENT_MS + grace_of(r);
    r->phase = phase;
    if (!has_carrier(r))
        r->limit = clock_now() + ms * NSEC_PER_MSEC;
}

static void on_opened(void *ctx)
{
    (void)ctx;
}

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    (void)ctx, (void)bytes, (void)len;
}

static void on_noise(void *ctx, const uint8_t *bytes, size_t len)
{
    struct sweep_run *r = ctx;
    for (size_t i = 0; i < len; i++) {
        if (r->said_len == sizeof r->said - 1) { /* the agent's word comes behind a banner */
            r->said_len -= SAID_CUT;
            memmove(r->said, r->said + SAID_CUT, r->said_len);
            memset(r->said + r->said_len, 0, SAID_CUT);
        }
        r->said[r->said_len++] = bytes[i] == '\n' ? ' ' : (char)bytes[i];
    }
}

static void on_writable(void *ctx)
{
    (void)ctx;
}

static void on_closed(void *ctx, const struct transport_end *end)
{
    struct sweep_run *r = ctx;
    r->closed = true;
    r->exit_status = end->err || end->term_signal ? -1 : end->exit_status;
}

static const struct transport_events events = {on_phase,    on_opened, on_received, on_noise,
                                               on_writable, on_closed, NULL};

static void begin_attempt(struct sweep_run *r)
{
    struct err e = ERR_INIT;
    r->attempts++;
    r->said_len = 0;
    memset(r->said, 0, sizeof r->said);
    r->closed = false;
    r->phase = TRANSPORT_RESOLVE;
    r->limit = clock_now() + (has_carrier(r) ? CARRIER_MS + grace_of(r) : CONNECT_MS) * NSEC_PER_MSEC;
    log_debug("%s: sweeping, attempt %u", r->host->label, r->attempts);
    r->transport = r->host->ops->start(r->owner->job->common.loop, &r->target, &events, r, &e);
    if (!r->transport)
        r->next = clock_now() + AGAIN_MS * NSEC_PER_MSEC;
}

/* kubectl and srun end with 1 as well, when they do not reach the host. */
static bool has_agent_spoken(const struct sweep_run *r)
{
    return !has_carrier(r) || strstr(r->said, "hvdagent: ") != NULL;
}

static void settle_attempt(struct sweep_run *r, uint64_t now)
{
    r->host->ops->destroy(r->transport);
    r->transport = NULL;
    r->next = r->attempts > 0 ? now + AGAIN_MS * NSEC_PER_MSEC : now;
    if (r->exit_status == 0)
        r->result = SWEEP_DONE;
    else if (r->exit_status == 1 && has_agent_spoken(r))
        r->result = SWEEP_LEFT;
    log_debug("%s: sweep ended in phase %s with status %d", r->host->label, transport_phase_name(r->phase),
              r->exit_status);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void look_at(struct sweep_run *r, uint64_t now, uint32_t *active)
{
    bool over = now >= r->deadline && r->attempts > 0;
    if (r->transport && r->closed)
        settle_attempt(r, now);
    if (r->result != SWEEP_OPEN)
        return;
    if (r->transport) {
        /* At the deadline of the lease an attempt that has got through may end what it does. */
        bool outside = r->phase <= TRANSPORT_CONNECT && !has_carrier(r) && r->attempts > 1;
        ++*active;
        if (now >= r->limit || (over && outside))
            r->host->ops->close(r->transport);
    } else if (over) {
        r->result = SWEEP_UNREACHED;
    } else if (now >= r->next && *active < FANOUT_MAX) {
        ++*active;
        begin_attempt(r);
    }
}

static void look_at_all(struct job *j)
{
    struct sweep_state *s = state_of(j);
    uint64_t now = clock_now();
    uint32_t active = 0, open = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        look_at(&s->run[i], now, &active);
        open += s->run[i].result == SWEEP_OPEN;
    }
    if (open > 0)
        job_timer_start(j, JOB_TIMER_SWEEP, LOOK_MS, look_at_all);
    else
        fsm_post(&j->fsm, JOB_EV_SWEPT);
}

static void choose_grace(struct sweep_run *r, bool now)
{
    r->now = now;
    r->target.command = r->owner->command[now];
    r->target.arguments = r->owner->arguments[now];
}

static int make_commands(struct sweep_state *s, struct err *e)
{
    const struct job *j = s->job;
    for (int now = 0; now < 2; now++) {
        char **argument = s->arguments[now];
        *argument++ = (char *)"sweep";
        if (now)
            *argument++ = (char *)"--now";
        *argument++ = s->job->name;
        struct sent_agent_want want = {.way = j->config->send_agent,
                                       .job = j->name,
                                       .program_dir = j->agent.program_dir,
                                       .agent_path = j->config->agent_path};
        if (want.way != SEND_AGENT_NO &&
            sent_agent_sweep_command(&want, now, s->command[now], sizeof s->command[now], e) < 0)
            return -1;
        if (want.way == SEND_AGENT_NO &&
            agent_command(j->common.program_dir, j->config->agent_path, s->arguments[now], s->command[now],
                          sizeof s->command[now], e) < 0)
            return -1;
    }
    return 0;
}

static void prepare_run(struct sweep_state *s, struct sweep_run *r, const struct host *h)
{
    r->owner = s;
    r->host = h;
    r->target = h->target;
    choose_grace(r, s->job->stop.insisted);
    r->deadline = s->job->stop.insisted ? 0 : host_lease_end(h);
}

static int set_up_runs(struct sweep_state *s, uint32_t count, struct err *e)
{
    struct job *j = s->job;
    s->run = calloc(count, sizeof *s->run);
    if (!s->run)
        return err_set(e, ERR_MEMORY, "no memory for %u lost hosts", count);
    if (make_commands(s, e) < 0)
        return -1;
    for (uint32_t i = 0; i < j->host_count; i++)
        if (j->host[i].lost_at)
            prepare_run(s, &s->run[s->count++], &j->host[i]);
    job_timer_start(j, JOB_TIMER_SWEEP, 0, look_at_all);
    return 0;
}

void sweep_start(struct job *j)
{
    struct err e = ERR_INIT;
    uint32_t lost = 0;
    for (uint32_t i = 0; i < j->host_count; i++)
        lost += j->host[i].lost_at != 0;
    if (lost > 0) {
        state_of(j)->job = j;
        if (set_up_runs(state_of(j), lost, &e) == 0)
            return;
        log_error("%s", e.text);
    }
    fsm_post(&j->fsm, JOB_EV_SWEPT);
}

void sweep_skip(struct job *j)
{
    struct sweep_state *s = state_of(j);
    for (uint32_t i = 0; i < s->count; i++) {
        struct sweep_run *r = &s->run[i];
        bool inside = r->transport && !r->now && (has_carrier(r) || r->phase > TRANSPORT_CONNECT);
        r->deadline = r->limit = 0;
        if (inside) { /* perhaps it gives the workers their grace: go there again */
            r->attempts = 0;
            choose_grace(r, true);
        } else {
            r->attempts += r->attempts == 0;
        }
    }
}

static void say_unreached(const struct sweep_run *r, int64_t heartbeat_ms)
{
    char why[sizeof r->said + 4] = "";
    if (has_carrier(r) && r->said[0])
        snprintf(why, sizeof why, " (%s)", r->said);
    log_error(
        "host %s could not be reached again%s; its session ends its workers by itself when it hears nothing "
        "for %.10g s",
        r->host->label, why, (double)heartbeat_ms / 1e3);
}

static void say_missed(const struct job *j)
{
    const struct sweep_state *s = state_of(j);
    for (uint32_t i = 0; i < s->count; i++) {
        struct sweep_run *r = &s->run[i];
        while (r->said_len > 0 && r->said[r->said_len - 1] == ' ')
            r->said[--r->said_len] = '\0';
        log_printable(r->said);
        if (r->result == SWEEP_LEFT)
            log_error("host %s: processes of the job are left: %s", r->host->label, r->said);
        else if (r->result != SWEEP_DONE)
            say_unreached(r, j->config->heartbeat_timeout_ms);
    }
}

/* Hosts that could not be reached again, and what is left on hosts that could. */
static void report_missed(const struct job *j, struct json *w)
{
    const struct sweep_state *s = state_of(j);
    json_array(w, "unreachable");
    for (uint32_t i = 0; i < s->count; i++)
        if (s->run[i].result != SWEEP_DONE && s->run[i].result != SWEEP_LEFT)
            json_text(w, NULL, s->run[i].host->label);
    json_end(w);
    json_array(w, "not_swept");
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->run[i].result != SWEEP_LEFT)
            continue;
        json_object(w, NULL);
        json_text(w, "host", s->run[i].host->label);
        json_text(w, "text", s->run[i].said);
        json_end(w);
    }
    json_end(w);
}

static void free_runs(struct job *j)
{
    free(state_of(j)->run);
}

const struct job_part part_sweep = {
    .state_size = sizeof(struct sweep_state),
    .say = say_missed,
    .report = report_missed,
    .free = free_runs,
};
