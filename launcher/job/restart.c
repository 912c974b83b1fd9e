/* A job and its restarts: one epoch after the other, each a complete job of its own (new name, key, sessions,
 * engines), until one ends well or no other is worth it (restart_policy.h).
 *
 *   epoch 0 -> failed -> what was lost is swept, or its lease has run out -> back-off -> epoch 1 -> ...
 *
 * An epoch's failure is one line on stderr; the report at the end is about the last one. A signal ends the
 * back-off at once, and so does --timeout, which is for all epochs together. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "launcher/io/log_writer.h"
#include "launcher/job/job.h"
#include "launcher/job/report.h"
#include "launcher/job/restart_policy.h"
#include "launcher/job/signals.h"

#define LIST_SIZE (HOSTS_NAME_MAX + 64) /* of host names in a message: at least one */

struct restart {
    struct config config;  /* num_proc is known once an epoch has run */
    struct host_list *all; /* as the user gave them */
    const char *hostname;
    uint32_t *lost;        /* [all]: 1 + the last epoch that lost the host, or 0 */
    struct host_list used; /* the hosts of this epoch; the names belong to `all` */
    size_t *place;         /* [used]: the index of the host in `all` */
    struct job_epoch epoch;
    struct job_past *past;
    uint32_t delay; /* the last back-off, seconds */
    sigset_t mask;  /* before signals were held */
    uv_loop_t loop; /* of all epochs and of the back-offs between them */
    bool has_loop;
    struct signals signals;
};

/* ---- the back-off -------------------------------------------------------------------------------------- */

struct pause {
    struct restart *restart;
    uv_timer_t timer;
    bool too_late; /* the time limit comes before its end */
    int signal;    /* that ended it, or 0 */
};

static void on_pause_over(uv_timer_t *timer)
{
    struct pause *p = timer->data;
    struct restart *r = p->restart;
    if (p->signal)
        log_say("hvdrun: ended by signal %d (%s) before restart %u\n", p->signal, strsignal(p->signal),
                r->epoch.number + 1);
    else if (p->too_late)
        log_say("hvdrun: the time limit of %.10g s (--timeout) is over, before restart %u\n",
                (double)r->config.timeout_ms / 1e3, r->epoch.number + 1);
    signals_rest(&r->signals);
    uv_close((uv_handle_t *)timer, NULL);
    notes_finish();
}

static void on_signal(void *ctx, int number)
{
    struct pause *p = ctx;
    if (number == SIGTSTP)
        raise(SIGSTOP);
    if (p->signal || (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT))
        return;
    p->signal = number;
    uv_timer_start(&p->timer, on_pause_over, 0, 0);
}

static void run_pause(struct pause *p, uint64_t ms)
{
    struct restart *r = p->restart;
    uv_timer_init(&r->loop, &p->timer);
    p->timer.data = p;
    signals_take(&r->signals, on_signal, p);
    uv_timer_start(&p->timer, on_pause_over, ms, 0);
    uv_run(&r->loop, UV_RUN_DEFAULT);
}

/* ---- between two epochs -------------------------------------------------------------------------------- */

/* The hosts that are lost, or those that were and are used again: "WORDS a, b and 3 more", or nothing. */
static void list_hosts(const struct restart *r, const uint32_t *before, const char *words, char *out,
                       size_t size)
{
    size_t used = 0, more = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->all->count; i++) {
        const char *name = r->all->host[i].name;
        if (before ? !before[i] || r->lost[i] : !r->lost[i])
            continue;
        if (more || used + strlen(name) + strlen(words) > size - sizeof " and 65536 more")
            more++;
        else
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : words, name);
    }
    if (more)
        snprintf(out + used, size - used, " and %zu more", more);
}

/* Keeps the slots of the hosts of this epoch, and which hosts were lost. */
static void learn_hosts(struct restart *r, const struct job *j)
{
    for (size_t i = 0; i < r->used.count; i++) {
        r->all->host[r->place[i]].slots = r->used.host[i].slots;
        r->all->host[r->place[i]].parts = r->used.host[i].parts;
        if (job_lost_host(j, i))
            r->lost[r->place[i]] = r->epoch.number + 1;
    }
}

/* Chooses the hosts of the next epoch and says what comes. */
static int announce_restart(struct restart *r, const struct job *j, const struct job_end *end, struct err *e)
{
    char without[LIST_SIZE], again[LIST_SIZE];
    uint32_t *before = malloc(r->all->count * sizeof *before);
    if (!before)
        return err_set(e, ERR_MEMORY, "no memory for a restart");
    memcpy(before, r->lost, r->all->count * sizeof *before);
    struct plan_want want = placement_want(&r->config);
    restart_choose(r->all, r->lost, &want);
    list_hosts(r, NULL, ", without host ", without, sizeof without);
    list_hosts(r, before, ", again with host ", again, sizeof again);
    free(before);
    job_say_rest(j);
    log_say("hvdrun: %s; restart %u of %lld in %u s%s%s\n", end->cause, r->epoch.number + 1,
            (long long)r->config.max_restarts, r->delay, without, again);
    log_info("epoch %u took %.1f s, its ranks ran for %.1f s; exit status %d", r->epoch.number,
             (double)(end->ended - end->began) / 1e9, (double)end->ran_for / 1e9, end->exit_status);
    return 0;
}

/* From now on signals have their usual effect: nothing of the job runs any more. */
static void release_signals(struct restart *r)
{
    sigprocmask(SIG_SETMASK, &r->mask, NULL);
}

/* Returns 0 when it is time for the next epoch, hvdrun's exit status when none follows after all, or -1. */
static int back_off(struct restart *r, const struct job *j, const struct job_end *end, struct err *e)
{
    struct pause p = {.restart = r};
    uint64_t now = clock_now();
    uint64_t left = r->epoch.deadline > now ? (r->epoch.deadline - now) / NSEC_PER_MSEC : 0;
    notes_open(&r->loop); /* a slow reader of log lines delays nothing */
    r->delay = restart_delay(r->delay, end->ran_for);
    uint64_t wait = (uint64_t)r->delay * 1000;
    int rc = announce_restart(r, j, end, e);
    p.too_late = rc == 0 && r->epoch.deadline && left <= wait;
    run_pause(&p, rc < 0 ? 0 : p.too_late ? left : wait);
    if (rc < 0 || (!p.signal && !p.too_late))
        return rc;
    return p.signal ? 128 + p.signal : 124;
}

/* Keeps the epoch for the report, with the hosts that the next epoch does without. */
static int remember_epoch(struct restart *r, const struct job_end *end, struct err *e)
{
    struct job_past *past = realloc(r->past, (r->epoch.number + (size_t)1) * sizeof *past);
    if (!past)
        return err_set(e, ERR_MEMORY, "no memory for a restart");
    r->epoch.past = r->past = past;
    past += r->epoch.number;
    *past = (struct job_past){.began = end->began, .ended = end->ended, .exit_status = end->exit_status};
    past->cause = strdup(end->cause);
    past->left_out = calloc(r->all->count, sizeof *past->left_out);
    r->epoch.number++; /* from here on it is freed */
    if (!past->cause || !past->left_out)
        return err_set(e, ERR_MEMORY, "no memory for a restart");
    for (size_t i = 0; i < r->all->count; i++)
        if (r->lost[i])
            past->left_out[past->left_out_count++] = r->all->host[i].name;
    return 0;
}

/* ---- the epochs ---------------------------------------------------------------------------------------- */

static int set_up(struct restart *r, struct err *e)
{
    size_t count = r->all->count;
    r->lost = calloc(count, sizeof *r->lost);
    r->used.host = calloc(count, sizeof *r->used.host);
    r->place = calloc(count, sizeof *r->place);
    r->epoch.began = clock_now();
    if (r->config.timeout_ms > 0)
        r->epoch.deadline = r->epoch.began + (uint64_t)r->config.timeout_ms * NSEC_PER_MSEC;
    return r->lost && r->used.host && r->place ? 0 : err_set(e, ERR_MEMORY, "no memory for %zu hosts", count);
}

static struct job *begin_epoch(struct restart *r, struct err *e)
{
    r->used.count = 0;
    for (size_t i = 0; i < r->all->count; i++) {
        if (r->lost[i])
            continue;
        r->place[r->used.count] = i;
        r->used.host[r->used.count++] = r->all->host[i];
    }
    if (r->epoch.number > 0)
        log_info("epoch %u begins; hosts that may be used: %zu", r->epoch.number, r->used.count);
    return job_new(&r->config, &r->used, r->hostname, &r->epoch, e);
}

/* The first epoch that can run opens the loop. */
static int open_loop(struct restart *r, struct err *e)
{
    if (r->has_loop)
        return 0;
    if (loop_init(&r->loop, e) < 0)
        return -1;
    if (signals_init(&r->signals, &r->loop, r->config.forwarded) < 0) {
        err_sys(e, errno, "cannot watch signals");
        uv_loop_close(&r->loop);
        return -1;
    }
    r->has_loop = true;
    return 0;
}

static void close_loop(struct restart *r)
{
    if (!r->has_loop)
        return;
    signals_close(&r->signals);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&r->loop) < 0)
        log_warning("a handle of the event loop was not closed");
}

/* One epoch and, when it failed, what is between it and the next: *more says that one follows. */
static int run_epoch(struct restart *r, bool *more, struct err *e)
{
    struct job_end end;
    int rc = 0;
    struct job *j = begin_epoch(r, e);
    *more = false;
    if (!j)
        return -1;
    if (open_loop(r, e) < 0) {
        job_refuse(j, e);
        job_free(j);
        return -1;
    }
    job_run(j, &r->loop, &r->signals, &end);
    learn_hosts(r, j);
    if (restart_is_worth(&end, r->epoch.number, (uint32_t)r->config.max_restarts)) {
        if (end.size)
            r->config.num_proc = end.size;
        rc = back_off(r, j, &end, e);
        if (rc == 0)
            rc = remember_epoch(r, &end, e);
        *more = rc == 0;
        if (rc > 0)
            report_write_json(j, rc);
    } else {
        rc = end.exit_status;
        release_signals(r);
        job_report(j, rc);
    }
    job_free(j);
    return rc;
}

static void tear_down(struct restart *r)
{
    for (uint32_t i = 0; i < r->epoch.number; i++) {
        free(r->past[i].cause);
        free(r->past[i].left_out);
    }
    free(r->past);
    free(r->lost);
    free(r->used.host);
    free(r->place);
}

int restart_run(const struct config *config, struct host_list *hosts, const char *hostname, struct err *e)
{
    struct restart r = {.config = *config, .all = hosts, .hostname = hostname};
    bool more = true;
    int status = set_up(&r, e);
    signals_hold(config->forwarded, &r.mask);
    while (status == 0 && more)
        status = run_epoch(&r, &more, e);
    close_loop(&r);
    release_signals(&r);
    tear_down(&r);
    return status;
}
