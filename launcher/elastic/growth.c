/* The hosts that an elastic job may use, and the workers on their free slots.
 *
 * Hosts come from -H, a hostfile that is read again when it changes, the batch system, or a discovery script.
 * A host has one living session; the session's slots are numbered. A worker has one until its end, so a
 * worker that follows it gets the same local rank, and the same GPU.
 *
 * A managed agent leases a fixed number of slots to a session. More slots there are a lease of their own, and
 * so another session. A lease ends with its session, when no worker of the session is left. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/elastic/blacklist.h"
#include "launcher/elastic/elastic.h"
#include "launcher/elastic/roster.h"
#include "launcher/elastic/state.h"
#include "launcher/job/spawn_message.h"

#define BUSY_PAUSE_MS 5000

static const char *text_of(const char *text)
{
    return text ? text : "";
}

static bool is_same_host(const struct host_spec *a, const struct host_spec *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(text_of(a->user), text_of(b->user)) == 0;
}

/* Strings are copied. -1: no memory. */
static int copy_spec(struct host_spec *to, const struct host_spec *from)
{
    *to = *from;
    to->name = strdup(from->name);
    to->user = from->user ? strdup(from->user) : NULL;
    return to->name && (to->user || !from->user) ? 0 : -1;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static int copy_found(struct elastic *s, const struct host_list *from)
{
    s->found.host = calloc(from->count ? from->count : 1, sizeof *s->found.host);
    for (size_t i = 0; s->found.host && i < from->count; i++) {
        s->found.count++;
        if (copy_spec(&s->found.host[i], &from->host[i]) < 0)
            return -1;
    }
    return s->found.host ? 0 : -1;
}

/* The job's list gets room for sessions that come later. */
int growth_open(struct job *j, struct err *e)
{
    struct elastic *s = elastic_of(j);
    s->list.host = calloc(j->room.hosts, sizeof *s->list.host);
    if (!s->list.host || copy_found(s, j->list) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the hosts of an elastic job");
    memcpy(s->list.host, j->list->host, j->host_count * sizeof *s->list.host);
    s->list.count = s->names = j->host_count;
    j->list = &s->list;
    s->blacklist.low = (uint64_t)j->config->cooldown.low * NSEC_PER_MSEC;
    s->blacklist.high = (uint64_t)j->config->cooldown.high * NSEC_PER_MSEC;
    return 0;
}

void growth_close(struct job *j)
{
    struct elastic *s = elastic_of(j);
    job_timer_stop(j, JOB_TIMER_DISCOVERY);
    if (s->discovers)
        discovery_stop(&s->discovery);
    s->discovers = false;
}

void growth_free(struct job *j)
{
    struct elastic *s = elastic_of(j);
    for (size_t i = s->names; s->list.host && i < s->list.count; i++) {
        free(s->list.host[i].name);
        free(s->list.host[i].user);
    }
    free(s->list.host);
    hosts_free(&s->found);
    blacklist_free(&s->blacklist);
}

/* ---- sessions and slots -------------------------------------------------------------------------------- */

static bool is_usable(const struct job *j, struct host *h)
{
    return host_state(h) <= HOST_RUNNING && !h->err.code && !elastic_host_of(j, h)->dropped &&
           !elastic_host_of(j, h)->released && !elastic_host_of(j, h)->leaves;
}

/* A session was given up or told to end. Until it has closed, its workers may still be on the slots. */
static bool is_ending(const struct job *j, const struct host_spec *spec)
{
    for (uint32_t i = 0; i < j->host_count; i++)
        if (is_same_host(j->host[i].spec, spec) && !is_usable(j, &j->host[i]) &&
            host_state(&j->host[i]) != HOST_CLOSED)
            return true;
    return false;
}

/* Workers that live and stay, and those that sessions under way will bring. */
static uint32_t count_expected(struct job *j)
{
    uint32_t n = roster_living(&elastic_of(j)->roster);
    for (uint32_t i = 0; i < j->host_count; i++)
        if (!j->host[i].planned && is_usable(j, &j->host[i]))
            n += j->host[i].ranks;
    return n;
}

static uint32_t count_wanted(struct job *j)
{
    uint32_t most = elastic_most(j), have = count_expected(j);
    return have < most ? most - have : 0;
}

static uint32_t count_workers(struct job *j, const struct host *h)
{
    const struct roster *r = &elastic_of(j)->roster;
    uint32_t n = 0;
    for (uint32_t i = 0; h->planned && i < r->count; i++)
        n += r->worker[i].phase != ROSTER_GONE && r->worker[i].host == h->plan_index;
    return n;
}

/* New workers of the host in the plan, the roster and the output. *first: the number of the first. */
static int add_workers(struct job *j, struct host *h, const uint32_t *slot, uint32_t n, uint32_t *first,
                       struct err *e)
{
    struct elastic *s = elastic_of(j);
    *first = j->plan.size;
    if (j->plan.size + n > j->room.ranks)
        return err_set(e, ERR_MEMORY, "an elastic job starts at most %u workers more than at first",
                       ELASTIC_WORKERS_MAX);
    if (plan_add(&j->plan, h->plan_index, h->index, slot, n, e) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (roster_add(&s->roster, h->plan_index, slot[i]) == UINT32_MAX ||
            output_add(j->output, *first + i, e) < 0)
            return -1;
    return 0;
}

static uint32_t find_free_slots(struct job *j, const struct host *h, uint32_t slots, uint32_t most,
                                uint32_t free_slot[RECRUITS_MAX])
{
    uint32_t n = 0, leased = elastic_host_of(j, h)->leased;
    if (leased > 0 && leased < slots)
        slots = leased;
    for (uint32_t i = 0; i < slots && n < most && n < RECRUITS_MAX; i++)
        if (!h->planned || !roster_slot_is_taken(&elastic_of(j)->roster, h->plan_index, i))
            free_slot[n++] = i;
    return n;
}

static void recruit_workers(struct job *j, struct host *h, uint32_t slots)
{
    uint32_t slot[RECRUITS_MAX], rank[RECRUITS_MAX], first;
    uint32_t n = find_free_slots(j, h, slots, count_wanted(j), slot);
    struct err e = ERR_INIT;
    if (n == 0)
        return;
    if (add_workers(j, h, slot, n, &first, &e) < 0) {
        log_error("no new workers on %s: %s", h->label, e.text);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        rank[i] = first + i;
    log_info("%s gets %u workers more, from number %u on", h->label, n, first);
    job_recruit(j, h->plan_index, rank, n);
}

/* Hosts that do not answer in time are given up. */
static void on_newcomers_limit(struct job *j)
{
    uint64_t now = clock_now(), limit = (uint64_t)j->config->start_timeout_ms * NSEC_PER_MSEC, next = 0;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        uint64_t taken = elastic_host_of(j, h)->taken;
        struct err e = ERR_INIT;
        if (taken == 0 || host_state(h) >= HOST_READY || *h->lease.waiting)
            continue;
        if (now < taken + limit) {
            next = next == 0 || taken + limit < next ? taken + limit : next;
            continue;
        }
        err_set(&e, ERR_TIMEOUT, "%s: it did not answer within %.10g s (--start-timeout)", host_phase(h),
                (double)j->config->start_timeout_ms / 1e3);
        host_give_up(h, &e);
    }
    if (next)
        job_timer_start(j, JOB_TIMER_NEWCOMERS, (next - now) / NSEC_PER_MSEC + 1, on_newcomers_limit);
}

static void start_session(struct job *j, const struct host_spec *spec, uint32_t ranks)
{
    struct elastic *s = elastic_of(j);
    if (j->host_count == j->room.hosts || copy_spec(&s->list.host[s->list.count], spec) < 0) {
        log_error("no new session on %s: an elastic job starts at most %u more than at first", spec->name,
                  ELASTIC_SESSIONS_MAX);
        return;
    }
    struct host *h = &j->host[j->host_count];
    host_init(h, &j->common, &s->list.host[s->list.count++], j->host_count);
    h->ranks = ranks;
    j->host_count++;
    elastic_host_of(j, h)->taken = clock_now();
    if (!job_timer_runs(j, JOB_TIMER_NEWCOMERS))
        job_timer_start(j, JOB_TIMER_NEWCOMERS, (uint64_t)j->config->start_timeout_ms + 1,
                        on_newcomers_limit);
    log_info("host %s is taken", h->label);
    job_start_hosts(j);
}

/* Workers for the slots of its sessions; a session where there is none, or a further lease. */
static void fill_host(struct job *j, const struct host_spec *spec)
{
    uint32_t slots = spec->slots, taken = 0;
    bool any = false, starts = false, leased = false;
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        if (!is_same_host(h->spec, spec) || !is_usable(j, h))
            continue;
        slots = slots ? slots : h->spec->slots;
        any = true;
        starts = starts || !h->planned;
        leased = leased || elastic_host_of(j, h)->leased > 0;
        if (h->planned && host_state(h) == HOST_RUNNING)
            recruit_workers(j, h, slots);
        taken += count_workers(j, h);
    }
    uint32_t wanted = count_wanted(j), free_slots = slots > taken ? slots - taken : !any;
    if (wanted > 0 && free_slots > 0 && (any ? leased && !starts : !is_ending(j, spec)))
        start_session(j, spec, free_slots < wanted ? free_slots : wanted);
}

void growth_fill(struct job *j)
{
    struct elastic *s = elastic_of(j);
    uint64_t now = clock_now();
    if (!elastic_goes_on(j) || j->fsm.state != JOB_RUNNING)
        return;
    for (size_t i = 0; i < s->found.count && count_wanted(j) > 0; i++)
        if (!blacklist_has(&s->blacklist, s->found.host[i].name, now))
            fill_host(j, &s->found.host[i]);
}

void growth_note_lease(struct job *j, const struct host *h, uint32_t slots)
{
    elastic_host_of(j, h)->leased = h->agent.managed ? slots : 0;
}

/* ---- a session that came later ------------------------------------------------------------------------- */

static void refuse_session(struct job *j, struct host *h, const char *why)
{
    Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
    log_warning("host %s cannot be used: %s", h->label, why);
    growth_blame(j, h);
    elastic_host_of(j, h)->released = true;
    teardown.reason = (char *)(uintptr_t)why;
    host_teardown(h, &teardown);
}

void growth_host_ready(struct job *j, struct host *h, const Hvd__Welcome *w)
{
    uint32_t slot[RECRUITS_MAX], first;
    struct err e = ERR_INIT;
    if (w->n_problem > 0) {
        char why[ERR_TEXT_MAX];
        snprintf(why, sizeof why, "%.200s: %.300s", w->problem[0]->what, w->problem[0]->why);
        log_printable(why);
        refuse_session(j, h, why);
        return;
    }
    growth_note_lease(j, h, h->ranks);
    h->ranks = 0; /* not expected any more, but counted */
    uint32_t n = find_free_slots(j, h, h->spec->slots, count_wanted(j), slot);
    if (n == 0 || !elastic_goes_on(j)) {
        Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
        elastic_host_of(j, h)->released = true;
        teardown.reason = (char *)(uintptr_t) "no worker is needed on this host";
        host_teardown(h, &teardown);
        return;
    }
    h->plan_index = j->plan.host_count;
    j->host_names[h->plan_index] = h->label;
    if (add_workers(j, h, slot, n, &first, &e) == 0) {
        h->planned = true;
        job_spawn_newcomers(j, h->plan_index, &e);
    }
    if (e.code)
        refuse_session(j, h, e.text);
}

/* Its managed agent has no free slots now. */
void growth_pause(struct job *j, const struct host *h)
{
    struct elastic *s = elastic_of(j);
    if (blacklist_pause(&s->blacklist, h->spec->name, clock_now() + BUSY_PAUSE_MS * NSEC_PER_MSEC) == 0)
        log_info("host %s: %s; it is asked again in %d s", h->label, h->err.text, BUSY_PAUSE_MS / 1000);
}

/* ---- hosts that go ------------------------------------------------------------------------------------- */

void growth_blame(struct job *j, const struct host *h)
{
    struct elastic *s = elastic_of(j);
    if (blacklist_add(&s->blacklist, h->spec->name, clock_now(), drand48()) < 0)
        log_warning("host %s may get workers again too soon: no memory", h->label);
}

void growth_let_go(struct job *j, uint32_t worker)
{
    struct roster_worker *w = &elastic_of(j)->roster.worker[worker];
    if (w->leaves || w->phase == ROSTER_GONE)
        return;
    w->leaves = true;
    elastic_happened(j, 0);
    if (w->phase == ROSTER_STARTS || w->phase == ROSTER_READY)
        change_kill(j, worker);
    elastic_note(j);
}

/* Its host has come back before it had to go. */
static void take_back(struct job *j, uint32_t worker)
{
    struct roster *r = &elastic_of(j)->roster;
    struct roster_worker *w = &r->worker[worker];
    if (!w->leaves || w->phase != ROSTER_MEMBER || roster_rank_of(r, worker) == UINT32_MAX)
        return;
    if (elastic_host_of(j, job_host_of_rank(j, worker))->leaves || roster_living(r) >= elastic_most(j))
        return; /* a user wants it to go */
    w->leaves = false;
    elastic_note(j);
}

static const struct host_spec *find_spec(const struct host_list *list, const struct host_spec *like)
{
    for (size_t i = 0; i < list->count; i++)
        if (is_same_host(&list->host[i], like))
            return &list->host[i];
    return NULL;
}

/* Workers on the same host, of all its sessions, that stay and have lower numbers. */
static uint32_t count_before(struct job *j, uint32_t worker)
{
    const struct roster *r = &elastic_of(j)->roster;
    const struct host_spec *spec = job_host_of_rank(j, worker)->spec;
    uint32_t n = 0;
    for (uint32_t i = 0; i < worker; i++)
        n += r->worker[i].phase != ROSTER_GONE && !r->worker[i].leaves &&
             is_same_host(job_host_of_rank(j, i)->spec, spec);
    return n;
}

/* Workers of hosts that are not there any more, or on slots that are not. */
static void mark_leavers(struct job *j)
{
    struct elastic *s = elastic_of(j);
    for (uint32_t i = 0; i < s->roster.count; i++) {
        struct host *h = job_host_of_rank(j, i);
        const struct host_spec *spec = find_spec(&s->found, h->spec);
        elastic_host_of(j, h)->unwanted = !spec;
        if (!spec ||
            (spec->slots && (s->roster.worker[i].slot >= spec->slots || count_before(j, i) >= spec->slots)))
            growth_let_go(j, i);
        else
            take_back(j, i);
    }
}

/* A session without workers is of no use after a resize, and others may have the slots of its lease. */
static bool is_surplus(struct job *j, struct host *h)
{
    bool leased = elastic_host_of(j, h)->leased > 0;
    return h->planned && (leased || (elastic_of(j)->wanted && count_wanted(j) == 0));
}

/* The slots of a lease behind the last worker are given back. */
static void shrink_lease(struct job *j, struct host *h)
{
    const struct roster *r = &elastic_of(j)->roster;
    struct elastic_host *own = elastic_host_of(j, h);
    Hvd__Shrink shrink = HVD__SHRINK__INIT;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->worker[i].phase != ROSTER_GONE && r->worker[i].host == h->plan_index &&
            r->worker[i].slot >= shrink.slots)
            shrink.slots = r->worker[i].slot + 1;
    if (shrink.slots == 0 || shrink.slots >= own->leased)
        return;
    own->leased = shrink.slots;
    CONTROL(m, SHRINK, shrink, &shrink);
    host_send(h, &m);
}

static void shrink_leases(struct job *j)
{
    for (uint32_t i = 0; elastic_of(j)->wanted && count_wanted(j) == 0 && i < j->host_count; i++)
        if (j->host[i].planned && host_state(&j->host[i]) == HOST_RUNNING)
            shrink_lease(j, &j->host[i]);
}

void growth_release(struct job *j)
{
    shrink_leases(j);

    struct elastic *s = elastic_of(j);
    for (uint32_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->host[i];
        struct elastic_host *own = elastic_host_of(j, h);
        bool needless = own->unwanted || own->leaves || s->finishing || is_surplus(j, h);
        Hvd__Teardown teardown = HVD__TEARDOWN__INIT;
        if (!needless || own->released || host_state(h) > HOST_RUNNING || count_workers(j, h) > 0)
            continue;
        own->released = true;
        teardown.reason = (char *)(uintptr_t) "the job does not need this host any more";
        host_teardown(h, &teardown);
    }
}

/* ---- looking for hosts --------------------------------------------------------------------------------- */

static void take_hosts(struct job *j, struct host_list *hosts)
{
    struct elastic *s = elastic_of(j);
    hosts_free(&s->found);
    s->found = *hosts;
    if (!elastic_goes_on(j))
        return;
    mark_leavers(j);
    growth_fill(j);
}

static void on_found(void *ctx, struct host_list *hosts, const struct err *e)
{
    struct job *j = ctx;
    if (!hosts && !elastic_of(j)->told_answer)
        log_warning("%s; the hosts of its last answer stay", e->text);
    elastic_of(j)->told_answer = !hosts;
    if (hosts)
        take_hosts(j, hosts);
}

static void read_hostfile(struct job *j)
{
    struct elastic *s = elastic_of(j);
    struct stat st;
    struct host_list hosts;
    struct err e = ERR_INIT;
    if (stat(j->config->hostfile, &st) < 0)
        return;
    uint64_t time = (uint64_t)st.st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_mtim.tv_nsec;
    if (time == s->file_time)
        return;
    bool first = s->file_time == 0;
    s->file_time = time;
    if (first)
        return;
    if (hosts_read_file(&hosts, j->config->hostfile, &e) < 0) {
        log_warning("%s; its former hosts stay", e.text);
        return;
    }
    for (size_t i = 0; j->config->slots_per_host && i < hosts.count; i++)
        hosts_resolve(&hosts.host[i], (uint32_t)j->config->slots_per_host);
    take_hosts(j, &hosts);
}

static void look_for_hosts(struct job *j)
{
    struct elastic *s = elastic_of(j);
    job_timer_start(j, JOB_TIMER_DISCOVERY, DISCOVERY_PERIOD_MS, look_for_hosts);
    if (s->discovers)
        discovery_start(&s->discovery);
    else if (j->config->hostfile)
        read_hostfile(j);
    growth_fill(j); /* a cool-down may be over */
}

static bool hosts_may_change(const struct job *j)
{
    const struct config *c = j->config;
    return c->host_discovery_script || (c->hostfile && !c->hosts) || c->cooldown.low > 0;
}

void growth_start(struct job *j)
{
    struct elastic *s = elastic_of(j);
    if (j->config->host_discovery_script) {
        discovery_init(&s->discovery, j->loop, j->config->host_discovery_script,
                       (uint32_t)j->config->slots_per_host, on_found, j);
        s->discovers = true;
    }
    if (hosts_may_change(j))
        look_for_hosts(j);
}

bool growth_may_come(const struct job *j)
{
    const struct elastic *s = elastic_of(j);
    const struct roster *r = &s->roster;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->worker[i].phase == ROSTER_STARTS && !r->worker[i].leaves)
            return true;
    for (uint32_t i = 0; i < j->host_count; i++)
        if (!j->host[i].planned && is_usable(j, &j->host[i]))
            return true;
    for (size_t i = 0; i < s->found.count; i++)
        if (is_ending(j, &s->found.host[i]) &&
            !blacklist_has(&s->blacklist, s->found.host[i].name, clock_now()))
            return true;
    return j->config->host_discovery_script || (j->config->hostfile && !j->config->hosts) ||
           blacklist_next(&s->blacklist, clock_now()) != UINT64_MAX;
}
