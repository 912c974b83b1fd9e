/* Hello: the session takes over the job's description, finds out what the launcher must know of this host,
 * and answers with Welcome. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "agent/inspect/limits.h"
#include "agent/session/core.h"
#include "agent/session/host_facts.h"
#include "agent/session/parts.h"
#include "agent/session/ports.h"
#include "agent/session/preflight.h"
#include "agent/worker/oom.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/process/module.h"

#define HEARTBEAT_MIN_MS  200
#define HEARTBEAT_MAX_MS  3600000
#define SHARED_MEMORY_FEW (UINT64_C(64) << 20)

/* ---- Welcome ------------------------------------------------------------------------------------------- */

/* The lists of Welcome: too large for a stack. */
struct findings {
    struct limits limits;
    Hvd__Limit limit[LIMITS_MAX], *limit_list[LIMITS_MAX];
    struct preflight preflight;
    Hvd__Problem problem[PREFLIGHT_MAX], *problem_list[PREFLIGHT_MAX];
};

static void list_problems(struct findings *f, Hvd__Welcome *w)
{
    for (size_t i = 0; i < f->preflight.count; i++) {
        const struct preflight_problem *found = &f->preflight.item[i];
        Hvd__Problem *p = f->problem_list[i] = &f->problem[i];
        hvd__problem__init(p);
        p->code = (uint32_t)err_exit_status(&found->why);
        p->what = (char *)(uintptr_t)found->what;
        p->why = (char *)(uintptr_t)found->why.text;
        p->program = (uint32_t)found->program;
        p->fix = (char *)(uintptr_t)found->why.hint;
    }
    w->problem = f->problem_list;
    w->n_problem = f->preflight.count;
}

static void list_limits(struct findings *f, Hvd__Welcome *w)
{
    for (size_t i = 0; i < f->limits.count; i++) {
        struct limit *found = &f->limits.item[i];
        Hvd__Limit *l = f->limit_list[i] = &f->limit[i];
        hvd__limit__init(l);
        l->descriptors = found->descriptors;
        l->limit = found->limit;
        l->used = found->used;
        l->name = found->name;
        l->hint = (char *)(uintptr_t)found->hint;
    }
    w->limit = f->limit_list;
    w->n_limit = f->limits.count;
}

static void send_welcome(struct session *s, const Hvd__Hello *hello, struct findings *f)
{
    char hostname[HOST_NAME_MAX + 1] = "";
    const struct session_job *job = &s->job;
    bool managed = s->guard->lease.slots > 0;
    Hvd__Welcome w = HVD__WELCOME__INIT;
    if (hello->preflight)
        preflight_find(&f->preflight, hello->preflight);
    limits_read(&f->limits, hello->ranks);
    list_problems(f, &w);
    list_limits(f, &w);
    gethostname(hostname, sizeof hostname - 1);
    w.version = (char *)HVD_VERSION;
    w.protocol = PROTOCOL_VERSION;
    w.oldest_protocol = PROTOCOL_OLDEST;
    w.hostname = hostname;
    w.pid = (uint32_t)getpid();
    w.slots = job->slots;
    w.parts = job->units;
    w.address = job->address;
    w.n_address = job->addresses;
    w.managed = managed;
    w.containment = managed ? "systemd unit" : (char *)containment_name(&s->containment);
    w.free_port = job->ports.master;
    w.coordinator_port = job->ports.coordinator;
    w.worker_port = job->ports.worker;
    w.n_worker_port = job->ports.workers;
    w.now = clock_now();
    w.guard_pid = (uint32_t)s->guard->pid;
    CONTROL(m, WELCOME, welcome, &w);
    session_send_control(s, &m);
}

static int answer_hello(struct session *s, const Hvd__Hello *hello, struct err *e)
{
    struct findings *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_MEMORY, "no memory for an answer to the launcher");
    send_welcome(s, hello, f);
    free(f);
    return 0;
}

/* ---- Hello --------------------------------------------------------------------------------------------- */

static int check_hello(const struct session *s, const Hvd__Hello *h, struct err *e)
{
    if (h->key.len != AUTH_KEY_SIZE)
        return err_set(e, ERR_PROTOCOL, "a job's key has %d bytes, not %zu", AUTH_KEY_SIZE, h->key.len);
    if (h->heartbeat_ms < HEARTBEAT_MIN_MS || h->heartbeat_ms > HEARTBEAT_MAX_MS)
        return err_set(e, ERR_PROTOCOL, "a heartbeat of %u ms is not within %u to %u", h->heartbeat_ms,
                       HEARTBEAT_MIN_MS, HEARTBEAT_MAX_MS);
    if (h->log_level > LOG_FATAL)
        return err_set(e, ERR_PROTOCOL, "log level %u", h->log_level);
    return job_dir_check_name(h->job, e);
}

/* An upper limit for the workers of this host. */
static uint32_t ranks_at_most(const struct session_job *job, const Hvd__Hello *h)
{
    uint64_t placed = h->per_part ? (uint64_t)h->per_part * job->units : job->slots;
    return h->ranks ? h->ranks : placed < SESSION_WORKERS_MAX ? (uint32_t)placed : SESSION_WORKERS_MAX;
}

static int take_description(struct session *s, const Hvd__Hello *h, struct err *e)
{
    struct session_job *job = &s->job;
    snprintf(job->name, sizeof job->name, "%s", h->job);
    job->host = strdup(h->host);
    job->secrets = secret_new(sizeof *job->secrets);
    if (!job->secrets || !job->host)
        return err_set(e, ERR_MEMORY, "no memory");
    secret_copy(job->secrets->key, h->key.data, sizeof job->secrets->key);
    explicit_bzero(h->key.data, h->key.len);
    job->grace_ms = h->grace_ms;
    job->interfaces_chosen = h->n_interface > 0;
    job->encrypt = h->encrypt && h->hosts != 1;
    return 0;
}

static int find_facts(struct session *s, const Hvd__Hello *h, struct err *e)
{
    struct session_job *job = &s->job;
    char path[PATH_MAX];
    /* TLS is loaded with the first link. A missing module is told now, before there is a worker. */
    if (job->encrypt && module_path("tls.so", path, sizeof path, e) < 0)
        return -1;
    /* The kernel's answer takes longer than the start of a worker. So a job of one host asks only when a
     * choice of interfaces is to be checked. */
    bool asks = h->hosts != 1 || h->n_interface > 0;
    if (asks && host_addresses((const char *const *)h->interface, h->n_interface, &job->address,
                               &job->addresses, e) < 0)
        return -1;
    job->reached_at = strdup(h->reached_at);
    gpu_wait_at_most(h->heartbeat_ms / 2);
    job->slots = s->guard->lease.slots ? s->guard->lease.slots
                 : h->count_slots      ? host_slots(getenv("CUDA_VISIBLE_DEVICES"))
                                       : 1;
    if (session_count_units(s, h, e) < 0)
        return -1;
    return session_ports_choose(&job->ports, h, ranks_at_most(&s->job, h), e);
}

/* The guard gets the path before the cgroup is made, and once more after that: then the path is empty if no
 * cgroup could be made. */
static void contain_job(struct session *s)
{
    char name[128];
    snprintf(name, sizeof name, "%s-%u", s->job.name, s->launcher.channel.session);
    containment_sweep(NULL, false);
    containment_find(&s->containment, name);
    guard_owns_cgroup(s->guard, s->containment.path);
    containment_make(&s->containment);
    oom_open(&s->oom, s->containment.path);
    guard_owns_cgroup(s->guard, s->containment.path);
}

static int accept_hello(struct session *s, const Hvd__Hello *h, struct err *e)
{
    log_init("hvdagent", (enum log_level)h->log_level);
    if (take_description(s, h, e) < 0)
        return -1;
    EACH_PART(s, p, accepted)
        p->accepted(s);
    if (find_facts(s, h, e) < 0)
        return -1;
    contain_job(s);
    return 0;
}

/* Containers begin with 64 MiB of it, and programs that find it full are killed by SIGBUS, without a word. */
static void note_shared_memory(struct session *s, uint32_t ranks)
{
    uint64_t bytes = ranks > 1 ? host_shared_memory() : UINT64_MAX;
    if (bytes <= SHARED_MEMORY_FEW)
        session_send_notice(
            s, LOG_WARNING,
            "/dev/shm has %llu MiB: MPI, NCCL and data loaders of PyTorch may find it full (a container "
            "gets more with --shm-size 8g, a pod with an emptyDir of medium Memory there)",
            (unsigned long long)(bytes >> 20));
}

const char *session_hello(struct session *s, const Hvd__Control *m)
{
    const Hvd__Hello *h = m->hello;
    struct err e = ERR_INIT;
    if (s->fsm.state != SESSION_HELLO)
        return NULL;
    if (!protocol_fits(h->protocol, h->oldest_protocol)) {
        (void)answer_hello(s, h, &e); /* the launcher's message shows both versions */
        fsm_post(&s->fsm, EV_OTHER_VERSION);
        return NULL;
    }
    if (check_hello(s, h, &e) < 0) {
        session_abort_job(s, true, "the launcher's Hello: %s", e.text);
        return NULL;
    }
    session_heartbeat_start(s, h->heartbeat_ms);
    if (accept_hello(s, h, &e) < 0 || answer_hello(s, h, &e) < 0) {
        session_abort_job(s, false, "%s", e.text);
        return NULL;
    }
    note_shared_memory(s, ranks_at_most(&s->job, h));
    fsm_post(&s->fsm, EV_HELLO);
    return NULL;
}

void session_free_job(struct session *s)
{
    host_addresses_free(s->job.address, s->job.addresses);
    session_ports_close(&s->job.ports);
    free(s->job.reached_at);
    free(s->job.host);
    secret_free(s->job.secrets, sizeof *s->job.secrets);
}
