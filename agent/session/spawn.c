#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/session/host_facts.h"
#include "agent/guard/job_record.h"
#include "agent/session/preflight.h"
#include "agent/session/session.h"
#include "agent/inspect/limits.h"
#include "agent/gpu/gpu.h"
#include "common/base/clock.h"
#include "common/protocol/host_ranks.h"
#include "common/base/log.h"
#include "common/process/module.h"
#include "common/base/secret.h"
#include "common/protocol/spawn_programs.h"

#define HEARTBEAT_MIN_MS 200
#define HEARTBEAT_MAX_MS 3600000
#define WORKERS_MAX      65536

/* ---- Hello --------------------------------------------------------------------------------------------- */

static void send_welcome(struct session *s, const Hvd__Hello *hello)
{
    char hostname[HOST_NAME_MAX + 1] = "";
    static struct limits limits; /* one session a process */
    Hvd__Limit item[LIMITS_MAX], *list[LIMITS_MAX];
    static struct preflight preflight;
    Hvd__Problem problem[PREFLIGHT_MAX], *problems[PREFLIGHT_MAX];
    if (hello->preflight)
        preflight_find(&preflight, hello->preflight);
    for (size_t i = 0; i < preflight.count; i++) {
        hvd__problem__init(problems[i] = &problem[i]);
        problem[i].code = (uint32_t)err_exit_status(&preflight.item[i].why);
        problem[i].what = (char *)(uintptr_t)preflight.item[i].what;
        problem[i].why = preflight.item[i].why.text;
        problem[i].program = (uint32_t)preflight.item[i].program;
        problem[i].fix = preflight.item[i].why.hint;
    }
    limits_read(&limits, hello->ranks);
    for (size_t i = 0; i < limits.count; i++) {
        struct limit *l = &limits.item[i];
        hvd__limit__init(list[i] = &item[i]);
        item[i].descriptors = l->descriptors;
        item[i].limit = l->limit;
        item[i].used = l->used;
        item[i].name = l->name;
        item[i].hint = (char *)(uintptr_t)l->hint;
    }
    gethostname(hostname, sizeof hostname - 1);
    Hvd__Welcome w = HVD__WELCOME__INIT;
    w.version = (char *)HVD_VERSION;
    w.protocol = PROTOCOL_VERSION;
    w.hostname = hostname;
    w.pid = (uint32_t)getpid();
    w.slots = s->slots;
    w.parts = s->parts;
    w.address = s->address;
    w.n_address = s->address_count;
    w.managed = s->guard->lease.slots > 0;
    w.containment = s->guard->lease.slots ? "systemd unit" : (char *)containment_name(&s->containment);
    w.free_port = s->ports.master;
    w.coordinator_port = s->ports.coordinator;
    w.worker_port = s->ports.worker;
    w.n_worker_port = s->ports.workers;
    w.now = clock_now();
    w.limit = list;
    w.n_limit = limits.count;
    w.problem = problems;
    w.n_problem = preflight.count;
    w.guard_pid = (uint32_t)s->guard->pid;
    CONTROL(m, WELCOME, welcome, &w);
    session_send(s, &m);
}

static int check_hello(const struct session *s, const Hvd__Hello *h, struct err *e)
{
    if (h->key.len != sizeof s->secrets->key)
        return err_set(e, ERR_PROTOCOL, "a job's key has %zu bytes, not %zu", sizeof s->secrets->key,
                       h->key.len);
    if (h->heartbeat_ms < HEARTBEAT_MIN_MS || h->heartbeat_ms > HEARTBEAT_MAX_MS)
        return err_set(e, ERR_PROTOCOL, "a heartbeat of %u ms is not within %u to %u", h->heartbeat_ms,
                       HEARTBEAT_MIN_MS, HEARTBEAT_MAX_MS);
    if (h->log_level > LOG_FATAL)
        return err_set(e, ERR_PROTOCOL, "log level %u", h->log_level);
    return job_dir_check_name(h->job, e);
}

/* How many workers may come here. */
static uint32_t ranks_at_most(const struct session *s, const Hvd__Hello *h)
{
    uint64_t placed = h->per_part ? (uint64_t)h->per_part * s->parts : s->slots;
    return h->ranks ? h->ranks : placed < WORKERS_MAX ? (uint32_t)placed : WORKERS_MAX;
}

/* Takes over what Hello says. */
static int accept_hello(struct session *s, const Hvd__Hello *h, struct err *e)
{
    char name[128], path[PATH_MAX];
    log_init("hvdagent", (enum log_level)h->log_level);
    snprintf(s->job, sizeof s->job, "%s", h->job);
    s->secrets = secret_new(sizeof *s->secrets);
    if (!s->secrets)
        return err_set(e, ERR_MEMORY, "no memory");
    secret_copy(s->secrets->key, h->key.data, sizeof s->secrets->key);
    explicit_bzero(h->key.data, h->key.len);
    session_journal_open(s);
    s->grace_ms = h->grace_ms;
    s->chosen = h->n_interface > 0;
    s->encrypt = h->encrypt && h->hosts != 1;
    /* Opened by the first who has a link to make; told now, before there is a worker. */
    if (s->encrypt && module_path("tls.so", path, sizeof path, e) < 0)
        return -1;
    s->host = strdup(h->host);
    if (!s->host)
        return err_set(e, ERR_MEMORY, "no memory");
    /* Asking the kernel takes longer than starting a worker: not for a job of one host, unless a choice is to
     * be checked. */
    if ((h->hosts != 1 || h->n_interface > 0) &&
        host_addresses((const char *const *)h->interface, h->n_interface, &s->address, &s->address_count, e) <
            0)
        return -1;
    s->reached_at = strdup(h->reached_at);
    gpu_wait_at_most(h->heartbeat_ms / 2);
    s->slots = s->guard->lease.slots ? s->guard->lease.slots
               : h->count_slots      ? host_slots(getenv("CUDA_VISIBLE_DEVICES"))
                                     : 1;
    if (session_count_parts(s, h, e) < 0 || session_ports_choose(&s->ports, h, ranks_at_most(s, h), e) < 0)
        return -1;
    snprintf(name, sizeof name, "%s-%u", s->job, s->channel.session);
    containment_sweep(NULL, false);
    containment_find(&s->containment, name);
    guard_owns_cgroup(s->guard, s->containment.path);
    containment_make(&s->containment);
    oom_open(&s->oom, s->containment.path);
    guard_owns_cgroup(s->guard, s->containment.path);
    return 0;
}

void session_hello(struct session *s, const Hvd__Hello *h)
{
    struct err e = ERR_INIT;
    if (s->fsm.state != SESSION_HELLO)
        return;
    if (h->protocol != PROTOCOL_VERSION || strcmp(h->version, HVD_VERSION) != 0) {
        send_welcome(s, h); /* both versions stand in the launcher's message */
        fsm_post(&s->fsm, EV_STRANGER);
        return;
    }
    if (check_hello(s, h, &e) < 0) {
        session_lose(s, true, "the launcher's Hello: %s", e.text);
        return;
    }
    session_heartbeat_start(s, h->heartbeat_ms);
    if (accept_hello(s, h, &e) < 0) {
        session_lose(s, false, "%s", e.text);
        return;
    }
    send_welcome(s, h);
    fsm_post(&s->fsm, EV_HELLO);
}

/* ---- Spawn --------------------------------------------------------------------------------------------- */

static int check_spawn(const Hvd__Spawn *p, struct err *e)
{
    if (p->n_worker == 0 || p->n_worker > WORKERS_MAX || p->host_index >= p->n_host)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn is not complete");
    const Hvd__HostRanks *here = p->host[p->host_index];
    if (hosts_check_ranks(p->host, p->n_host, p->size, e) != 0)
        return err_wrap(e, "the launcher's Spawn");
    if (here->ranks != p->n_worker)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has %zu workers for %u ranks", p->n_worker,
                       here->ranks);
    for (size_t i = 0; i < p->n_worker; i++) {
        const Hvd__Worker *w = p->worker[i];
        if (w->rank != host_rank(here, (uint32_t)i) || w->local_rank != i || w->cross_rank >= w->cross_size)
            return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has rank %u, local rank %u, in place %zu",
                           w->rank, w->local_rank, i);
    }
    return spawn_programs_check(p, e);
}

/* argv gets a NULL at its end. */
static int end_words(char ***argv, size_t count, struct err *e)
{
    char **more = realloc(*argv, (count + 1) * sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for the command line");
    more[count] = NULL;
    *argv = more;
    return 0;
}

/* Our own copy: commands and environments are used until the last worker has started, the hosts by the engine
 * later. */
static int keep_spawn(struct session *s, const Hvd__Spawn *spawn, struct err *e)
{
    size_t size = hvd__spawn__get_packed_size(spawn);
    uint8_t *bytes = malloc(size);
    if (bytes) {
        hvd__spawn__pack(spawn, bytes);
        s->spawn = hvd__spawn__unpack(NULL, size, bytes);
    }
    free(bytes);
    if (!s->spawn)
        return err_set(e, ERR_MEMORY, "no memory for the command line");
    int rc = end_words(&s->spawn->argv, s->spawn->n_argv, e);
    for (size_t i = 0; i < s->spawn->n_program && rc == 0; i++)
        rc = end_words(&s->spawn->program[i]->argv, s->spawn->program[i]->n_argv, e);
    return rc;
}

static int make_token(struct session *s, struct err *e)
{
    struct session_secrets *own = s->secrets;
    if (getrandom(own->token, sizeof own->token, 0) != sizeof own->token)
        return err_sys(e, errno, "cannot get random bytes");
    for (size_t i = 0; i < sizeof own->token; i++)
        snprintf(own->token_text + 2 * i, 3, "%02x", own->token[i]);
    return 0;
}

int session_directory(struct session *s, const struct job_dir_need *need, struct err *e)
{
    char name[128];
    snprintf(name, sizeof name, "%s-%u", s->job, s->channel.session);
    if (job_dir_create(&s->dir, name, need, e) < 0)
        return -1;
    guard_owns_directory(s->guard, s->dir.path);
    if (job_note_write(s->dir.fd, s->guard->pid, s->grace_ms, e) < 0)
        return -1;
    return session_inquiry_open(s, e);
}

/* Without the job's cgroup the next process could not start. So a cgroup that has gone is made again; if that
 * fails, the job goes on as on hosts that allow none. */
static void hold_together(struct session *s)
{
    char path[CONTAINMENT_PATH_MAX];
    if (containment_holds(&s->containment))
        return;
    snprintf(path, sizeof path, "%s", s->containment.path);
    containment_close(&s->containment);
    containment_make(&s->containment);
    oom_open(&s->oom, s->containment.path);
    guard_owns_cgroup(s->guard, s->containment.path);
    session_notice(s, LOG_WARNING, "somebody has removed the job's cgroup %s: %s", path,
                   s->containment.fd >= 0 ? "it was made again"
                                          : "the agent alone holds the job together (subreaper)");
}

/* Everything that can be found out before the first clone. */
static int prepare(struct session *s, struct err *e)
{
    char socket[JOB_DIR_MAX + sizeof "/" ENGINE_SOCKET_NAME];
    hold_together(s);
    if (session_programs_open(s, e) < 0 || make_token(s, e) < 0 ||
        (s->dir.fd < 0 && session_directory(s, NULL, e) < 0) || /* else there are files in it */
        session_bind(s, e) < 0)
        return -1;
    snprintf(socket, sizeof socket, "%s/%s", s->dir.path, ENGINE_SOCKET_NAME);
    if (session_rendezvous_open(s, e) < 0)
        return -1;
    struct worker_env_job job = {.spawn = s->spawn,
                                 .job = s->job,
                                 .hostname = s->host,
                                 .socket = socket,
                                 .token = s->secrets->token_text,
                                 .rendezvous = &s->rendezvous.values,
                                 .preload_dir = s->preload.path};
    session_gpus(s, &job);
    if (session_mps_choose(s, &job, e) < 0 || session_programs_find(s, &job, e) < 0)
        return -1;
    int rc = session_engine_listen(s, e);
    secret_wipe_stack();
    return rc;
}

static struct worker_start start_of(struct session *s, uint32_t rank, int report_fd)
{
    size_t i = spawn_program_of(s->spawn, rank);
    return (struct worker_start){.spawn = s->spawn,
                                 .argv = spawn_program_get(s->spawn, i).argv,
                                 .stdio = &s->stdio,
                                 .path = s->program[i].path,
                                 .dir = s->program[i].wdir,
                                 .env = &s->program[i].env,
                                 .cgroup_fd = s->containment.fd,
                                 .limits = &s->limits,
                                 .share_session = s->rendezvous.values.crowded,
                                 .report_fd = report_fd};
}

static void on_capped(void *ctx, const char *name, uint64_t wanted, uint64_t hard)
{
    char text[40] = "none";
    if (wanted != UINT64_MAX)
        snprintf(text, sizeof text, "%llu", (unsigned long long)wanted);
    session_notice(ctx, LOG_WARNING,
                   "--propagate-limits: %s is %llu for the workers here, not %s: the hard limit", name,
                   (unsigned long long)hard, text);
}

static int start_workers(struct session *s, struct err *e)
{
    int report[2], rc = workers_init(&s->workers, s->spawn->n_worker, e);
    if (rc < 0)
        return -1;
    s->stdio.max_line = s->spawn->max_line;
    rlimits_take(&s->limits, s->spawn->limit, s->spawn->n_limit, on_capped, s);
    spawn_raise_descriptor_limit(3 * s->spawn->n_worker + 128);
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    for (size_t i = 0; i < s->workers.count && rc == 0; i++) {
        struct worker_start start = start_of(s, s->spawn->worker[i]->rank, report[1]);
        start.cpus = session_cpus_of(s, i);
        rc = workers_start(&s->workers, i, &start, e);
        session_heartbeat_busy(s);
        if (rc < 0)
            s->refused_rank = s->spawn->worker[i]->rank;
    }
    secret_wipe_stack();            /* of the token */
    (void)session_programs_base(s); /* what an engine will start with: no rank's own variables */
    close(report[1]);
    s->report_fd = report[0];
    return rc;
}

static void on_report(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    struct spawn_failure f;
    ssize_t n = read(s->report_fd, &f, sizeof f);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == (ssize_t)sizeof f && !s->refusal.code) {
        struct worker_start start = start_of(s, f.id, -1);
        (void)workers_start_failed(&f, &start, &s->refusal);
        s->refused_rank = f.id;
        fsm_post(&s->fsm, EV_REFUSED);
    }
    if (n > 0)
        return;
    session_spawn_close_report(s);
    if (!s->refusal.code)
        fsm_post(&s->fsm, EV_EXECUTED);
}

static int watch_report(struct session *s, struct err *e)
{
    int rc = uv_poll_init(&s->loop, &s->report_poll, s->report_fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch a pipe: %s", uv_strerror(rc));
    s->report_poll.data = s;
    s->report_watched = true;
    uv_poll_start(&s->report_poll, UV_READABLE, on_report);
    return 0;
}

static void refuse(struct session *s)
{
    if (s->workers.alive == 0)
        s->refused_rank = s->spawn ? s->spawn->worker[0]->rank : 0;
    fsm_post(&s->fsm, EV_REFUSED);
}

void session_spawn_workers(struct session *s)
{
    if (start_workers(s, &s->refusal) < 0)
        refuse(s);
    else
        fsm_post(&s->fsm, watch_report(s, &s->refusal) < 0 ? EV_REFUSED : EV_SPAWN);
}

void session_spawn(struct session *s, const Hvd__Spawn *spawn)
{
    struct err *e = &s->refusal;
    if (s->fsm.state != SESSION_READY)
        return;
    if (check_spawn(spawn, e) < 0 || keep_spawn(s, spawn, e) < 0 || prepare(s, e) < 0) {
        refuse(s);
        return;
    }
    int started = session_mps_start(s, e);
    if (started < 0)
        refuse(s);
    else if (started > 0)
        fsm_post(&s->fsm, EV_WAIT);
    else
        session_spawn_workers(s);
}

void session_spawned(struct session *s)
{
    for (size_t i = 0; i < s->workers.count; i++) {
        Hvd__Spawned told = HVD__SPAWNED__INIT;
        char cpus[256];
        told.rank = s->workers.item[i].rank;
        told.pid = (uint32_t)s->workers.item[i].pid;
        told.time = s->workers.item[i].began;
        session_bound(s, i, &told, cpus, sizeof cpus);
        CONTROL(m, SPAWNED, spawned, &told);
        session_send(s, &m);
    }
}

void session_spawn_close_report(struct session *s)
{
    if (s->report_watched)
        uv_close((uv_handle_t *)&s->report_poll, NULL);
    s->report_watched = false;
    if (s->report_fd >= 0)
        close(s->report_fd);
    s->report_fd = -1;
}

void session_spawn_close(struct session *s)
{
    session_spawn_close_report(s);
    session_programs_close(s);
    preload_close(&s->preload);
    if (s->spawn)
        hvd__spawn__free_unpacked(s->spawn, NULL);
    host_addresses_free(s->address, s->address_count);
    session_ports_close(&s->ports);
    free(s->reached_at);
    free(s->host);
    free(s->cpus);
    secret_free(s->secrets, sizeof *s->secrets);
}
