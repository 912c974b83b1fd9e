#include "agent/daemon/gpu/gpu_watch.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/daemon/core.h"
#include "agent/gpu/gpu_scan.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define FRESH_MS 2000
#define REAP_MS  20 /* a process that has said all ends at once */

#define WATCH_STATES(X) X(IDLE, "idle") X(ASKING, "asking") X(CLOSING, "closing")
#define WATCH_EVENTS(X) X(DUE, "due") X(SAID, "said") X(LATE, "late") X(CLOSED, "closed")

#define WATCH_STATE(name, text) WATCH_##name,
#define WATCH_EVENT(name, text) EV_##name,
#define TEXT_OF(name, text)     text,
enum watch_state { WATCH_STATES(WATCH_STATE) };
enum watch_event { WATCH_EVENTS(WATCH_EVENT) };

static void ask_gpus(void *owner);
static void take_answer(void *owner);
static void give_up(void *owner);
static void wait_for_next(void *owner);

static const char *const state_names[] = {WATCH_STATES(TEXT_OF)};
static const char *const event_names[] = {WATCH_EVENTS(TEXT_OF)};

static const struct fsm_row rows[] = {
    {WATCH_IDLE, EV_DUE, WATCH_ASKING, ask_gpus},
    {WATCH_ASKING, EV_SAID, WATCH_CLOSING, take_answer},
    {WATCH_ASKING, EV_LATE, WATCH_CLOSING, give_up},
    {WATCH_CLOSING, EV_CLOSED, WATCH_IDLE, wait_for_next},
};

static const struct fsm_table table = {"gpu watch", state_names, event_names, rows,
                                       sizeof rows / sizeof *rows};

static struct gpu_rules rules_of(const struct daemon *d)
{
    return (struct gpu_rules){.checks = d->config.gpu_check_set,
                              .max_temperature = (uint32_t)d->config.gpu_max_temperature,
                              .max_ecc = d->config.gpu_max_ecc,
                              .xids = d->config.gpu_xids};
}

/* ---- the state of the GPUs ----------------------------------------------------------------------------- */

static void see_xid(void *ctx, const struct xid *x)
{
    struct gpu_watch *w = ctx;
    struct gpu_rules rules = rules_of(w->daemon);
    if (x->us > w->health.accepted_us)
        log_warning("the kernel's log: Xid %" PRIu32 " of the GPU on %s: %s", x->number, x->bus, x->text);
    w->unsaved = gpu_health_xid(&w->health, &rules, x) || w->unsaved;
}

static void save_health(struct gpu_watch *w)
{
    struct err e = ERR_INIT;
    w->unsaved = false;
    if (gpu_health_save(&w->health, w->daemon->config.directory, &e) < 0)
        log_error("%s", e.text);
}

static void judge_health(struct gpu_watch *w)
{
    struct gpu_rules rules = rules_of(w->daemon);
    char before[2 * GPU_FAULT_TEXT], now[2 * GPU_FAULT_TEXT];
    gpu_health_text(&w->health, before, sizeof before);
    kernel_log_read(&w->log, see_xid, w);
    if (w->unsaved)
        save_health(w);
    gpu_health_judge(&w->health, &rules, w->last, w->last ? NULL : w->failure);
    gpu_health_text(&w->health, now, sizeof now);
    if (strcmp(before, now) == 0)
        return;
    if (now[0])
        log_warning("no new jobs: %s", now);
    else
        log_info("all GPUs are well: new jobs are taken again");
    daemon_queue_changed(w->daemon);
}

static bool are_leased(const struct daemon *d)
{
    for (size_t i = 0; i < d->leases.count; i++)
        if (d->leases.item[i].gpus)
            return true;
    return false;
}

/* Leases hold these numbers: they change only while there is no lease. */
static void number_gpus(struct gpu_watch *w)
{
    gpu_health_number(&w->health, w->last, w->last ? gpu_slots(w->last) : gpu_scan_files(&gpu_places));
    save_health(w);
}

static void keep_answer(struct gpu_watch *w, Hvd__Gpus *g, const struct err *e)
{
    message_free(w->last);
    w->last = g;
    w->at = clock_now();
    if (!g)
        snprintf(w->failure, sizeof w->failure, "%.190s", e->text);
    else if (g->n_gpu == 0 && g->problem[0]) { /* it is not the GPUs that are gone */
        snprintf(w->failure, sizeof w->failure, "%.190s", g->problem);
        message_free(g);
        w->last = NULL;
    }
    bool unnamed = w->health.slots > 0 && !w->health.slot[0].uuid[0];
    if (w->last && unnamed && !are_leased(w->daemon)) {
        number_gpus(w);
        w->daemon->events->gpus_changed(w->daemon);
    }
    judge_health(w);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

static void on_due(uv_timer_t *timer)
{
    struct gpu_watch *w = timer->data;
    fsm_post(&w->fsm, EV_DUE);
}

static void on_late(uv_timer_t *timer)
{
    struct gpu_watch *w = timer->data;
    fsm_post(&w->fsm, EV_LATE);
}

static void on_said(uv_poll_t *poll, int status, int events)
{
    struct gpu_watch *w = poll->data;
    struct err e = ERR_INIT;
    (void)events;
    if (status < 0 || gpu_probe_read(&w->probe, &e) != 0)
        fsm_post(&w->fsm, EV_SAID);
}

static void on_closed(uv_handle_t *handle)
{
    struct gpu_watch *w = handle->data;
    fsm_post(&w->fsm, EV_CLOSED);
}

static bool has_ended(struct gpu_watch *w)
{
    if (w->stuck && waitpid(w->stuck, NULL, WNOHANG) != 0)
        w->stuck = 0;
    return w->stuck == 0;
}

static int start_probe(struct gpu_watch *w, struct err *e)
{
    char agent[PATH_MAX];
    if (!has_ended(w))
        return err_set(e, ERR_TIMEOUT, "NVIDIA's driver does not answer: pid %d is stuck in it",
                       (int)w->stuck);
    return gpu_agent_path(agent, sizeof agent, e) < 0 ? -1 : gpu_probe_start(&w->probe, agent, false, e);
}

static void ask_gpus(void *owner)
{
    struct gpu_watch *w = owner;
    struct err e = ERR_INIT;
    w->started = start_probe(w, &e) == 0;
    if (!w->started) {
        keep_answer(w, NULL, &e);
        fsm_post(&w->fsm, EV_LATE);
        return;
    }
    uv_poll_init(&w->daemon->loop, &w->poll, w->probe.fd);
    w->poll.data = w;
    uv_poll_start(&w->poll, UV_READABLE, on_said);
    uv_timer_start(&w->timer, on_late, GPU_PROBE_MS, 0);
}

/* The end of the process is known now, or when the next one is to start. */
static void let_go(struct gpu_watch *w)
{
    struct pollfd f = {.fd = w->probe.child.pidfd, .events = POLLIN};
    uv_timer_stop(&w->timer);
    uv_poll_stop(&w->poll);
    gpu_probe_end(&w->probe);
    (void)poll(&f, 1, REAP_MS);
    close(w->probe.child.pidfd);
    w->stuck = w->probe.child.pid;
    (void)has_ended(w);
    uv_close((uv_handle_t *)&w->poll, on_closed);
}

static void take_answer(void *owner)
{
    struct gpu_watch *w = owner;
    struct err e = ERR_INIT;
    Hvd__Gpus *g = gpu_probe_result(&w->probe, &e);
    let_go(w);
    keep_answer(w, g, &e);
}

static void give_up(void *owner)
{
    struct gpu_watch *w = owner;
    struct err e = ERR_INIT;
    if (!w->started) {
        fsm_post(&w->fsm, EV_CLOSED);
        return;
    }
    let_go(w);
    err_set(&e, ERR_TIMEOUT, "NVIDIA's driver did not answer within %d s", GPU_PROBE_MS / 1000);
    keep_answer(w, NULL, &e);
}

static void wait_for_next(void *owner)
{
    struct gpu_watch *w = owner;
    gpu_watch_follow(w);
    w->daemon->events->gpus_checked(w->daemon);
}

/* ---- for the daemon ------------------------------------------------------------------------------------ */

/* All checks are made where none is named: then a log that cannot be read, as in a container, is no news. */
static void open_log(struct gpu_watch *w)
{
    const struct daemon_config *c = &w->daemon->config;
    struct err e = ERR_INIT;
    if (kernel_log_open(&w->log, c->kernel_log, &e) < 0 && c->gpu_check_set & GPU_CHECK_XID)
        log_at(c->gpu_checks.count ? LOG_WARNING : LOG_INFO,
               "%s: Xid faults of GPUs are not seen; the agent needs CAP_SYSLOG, or gpu_checks without xid",
               e.text);
}

void gpu_watch_open(struct gpu_watch *w, struct daemon *d)
{
    struct err e = ERR_INIT;
    w->daemon = d;
    w->open = true;
    w->log.fd = -1;
    uv_timer_init(&d->loop, &w->timer);
    w->timer.data = w;
    fsm_init(&w->fsm, &table, w, "gpus", WATCH_IDLE);
    gpu_health_load(&w->health, d->config.directory);
    bool leased = are_leased(d) && w->health.slots > 0;
    if (!gpu_may_be_here() && !leased) {
        w->health.slots = 0;
        return;
    }
    open_log(w);
    Hvd__Gpus *g = gpu_ask(GPU_PROBE_MS, &e);
    if (!leased) {
        w->last = g;
        number_gpus(w);
    }
    w->last = NULL;
    keep_answer(w, g, &e);
    const char *wrong = w->last ? w->last->problem : w->failure;
    if (wrong[0])
        log_warning("%s", wrong);
    gpu_watch_follow(w);
}

void gpu_watch_close(struct gpu_watch *w)
{
    if (!w->open)
        return;
    if (w->fsm.state == WATCH_ASKING)
        let_go(w);
    uv_close((uv_handle_t *)&w->timer, NULL);
    kernel_log_close(&w->log);
    message_free(w->last);
    w->last = NULL;
}

void gpu_watch_follow(struct gpu_watch *w)
{
    if (w->fsm.state != WATCH_IDLE || w->health.slots == 0)
        return;
    judge_health(w);
    if (w->daemon->config.gpu_check_set)
        uv_timer_start(&w->timer, on_due, (uint64_t)w->daemon->config.gpu_interval_ms, 0);
    else
        uv_timer_stop(&w->timer);
}

uint32_t gpu_watch_slots(const struct gpu_watch *w)
{
    return w->health.slots;
}

bool gpu_watch_fresh(struct gpu_watch *w)
{
    if (w->health.slots == 0 || clock_now() - w->at < FRESH_MS * NSEC_PER_MSEC)
        return true;
    if (w->fsm.state == WATCH_IDLE)
        uv_timer_start(&w->timer, on_due, 0, 0);
    return false;
}

const char *gpu_watch_refuses(struct gpu_watch *w, char *text, size_t size)
{
    if (w->log.fd >= 0)
        judge_health(w);
    return gpu_health_text(&w->health, text, size);
}

void gpu_watch_accept(struct gpu_watch *w)
{
    gpu_health_accept(&w->health, w->last);
    if (w->last && !are_leased(w->daemon)) {
        gpu_health_number(&w->health, w->last, gpu_slots(w->last));
        w->daemon->events->gpus_changed(w->daemon);
    }
    save_health(w);
    judge_health(w);
    log_info("root has accepted the GPUs");
}

/* ---- replies ------------------------------------------------------------------------------------------- */

static char *borrow_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void tell_slot(const struct gpu_watch *w, uint32_t i, uid_t uid, Hvd__Gpu *row)
{
    const struct gpu_slot *slot = &w->health.slot[i];
    const Hvd__Gpu *gpu = gpu_health_find(slot, w->last);
    const struct leases *l = &w->daemon->leases;
    hvd__gpu__init(row);
    row->numa = row->utilisation = -1;
    row->ecc_corrected = row->ecc_uncorrected = row->slowed = -1;
    if (gpu)
        *row = *gpu;
    row->uuid = borrow_text(slot->uuid);
    row->bus = borrow_text(slot->bus);
    row->device = slot->device;
    row->instance = strncmp(slot->uuid, "MIG-", 4) == 0;
    row->unhealthy = borrow_text(slot->why);
    row->xids = slot->xids;
    row->last_xid = slot->last_xid;
    for (size_t k = 0; k < l->count; k++) {
        if (!(l->item[k].gpus >> i & 1))
            continue;
        bool his = uid == 0 || uid == l->item[k].uid;
        row->taken = true;
        row->user = his ? borrow_text(l->item[k].user) : row->user;
        row->job = his ? borrow_text(l->item[k].job) : row->job;
    }
}

const Hvd__Gpus *gpu_watch_tell(struct gpu_watch *w, uid_t uid)
{
    static Hvd__Gpu row[GPU_SET_MAX], *list[GPU_SET_MAX];
    static Hvd__Gpus g;
    static char why[2 * GPU_FAULT_TEXT];
    hvd__gpus__init(&g);
    if (w->last) {
        g.driver = w->last->driver;
        g.cuda = w->last->cuda;
        g.nvml = w->last->nvml;
        g.undivided = w->last->undivided;
        g.problem = w->last->problem;
    } else {
        g.problem = w->failure;
    }
    g.gpu = list;
    g.n_gpu = w->health.slots;
    for (uint32_t i = 0; i < w->health.slots; i++) {
        list[i] = &row[i];
        tell_slot(w, i, uid, &row[i]);
    }
    g.unhealthy = borrow_text(gpu_health_text(&w->health, why, sizeof why));
    g.unchecked = !w->daemon->config.gpu_check_set;
    g.age_ms = w->at ? (clock_now() - w->at) / NSEC_PER_MSEC : 0;
    return &g;
}

void gpu_watch_lease(const struct gpu_watch *w, const struct lease *lease, char text[GPU_LEASE_TEXT])
{
    Hvd__Gpu row[GPU_SET_MAX], *list[GPU_SET_MAX];
    Hvd__Gpus g = HVD__GPUS__INIT;
    char numbers[GPU_SET_TEXT];
    g.gpu = list;
    g.n_gpu = w->health.slots;
    for (uint32_t i = 0; i < w->health.slots; i++) {
        list[i] = &row[i];
        tell_slot(w, i, 0, &row[i]);
    }
    char *names = gpu_identities(&g, lease->gpus);
    snprintf(text, GPU_LEASE_TEXT, "%u%s%s", lease->slots, lease->gpus ? ":" : "",
             names ? names : gpu_set_text(lease->gpus, numbers));
    free(names);
}
