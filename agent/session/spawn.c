/* Spawn: prepares everything that can fail before the first worker starts, then starts the workers and waits
 * until each has executed its program. Recruit: workers of an elastic job that come while others train. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/worker/oom.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/protocol/host_ranks.h"
#include "common/protocol/spawn_programs.h"

struct session_spawning {
    int report_fd; /* read end: failures between clone and exec. Its end means that all have executed */
    uv_poll_t report_poll;
    bool report_watched;
    struct rlimits limits; /* of the workers */
};

/* ---- the message --------------------------------------------------------------------------------------- */

static int check_spawn(const Hvd__Spawn *p, struct err *e)
{
    if (p->n_worker == 0 || p->n_worker > SESSION_WORKERS_MAX || p->host_index >= p->n_host)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn is not complete");
    const Hvd__HostRanks *here = p->host[p->host_index];
    if (!p->newcomer && hosts_check_ranks(p->host, p->n_host, p->size, e) != 0)
        return err_wrap(e, "the launcher's Spawn");
    if (here->ranks != p->n_worker)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has %zu workers for %u ranks", p->n_worker,
                       here->ranks);
    for (size_t i = 0; i < p->n_worker; i++) {
        const Hvd__Worker *w = p->worker[i];
        if (w->rank != host_rank(here, (uint32_t)i) || w->local_rank != i || w->cross_rank >= w->cross_size)
            return err_set(e, ERR_PROTOCOL,
                           "the launcher's Spawn has a wrong worker %zu: rank %u, local rank %u", i, w->rank,
                           w->local_rank);
    }
    return spawn_programs_check(p, e);
}

/* Appends a NULL to argv. */
static int end_words(char ***argv, size_t count, struct err *e)
{
    char **more = realloc(*argv, (count + 1) * sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for the command line");
    more[count] = NULL;
    *argv = more;
    return 0;
}

/* Keeps a copy: commands and environments are used until the last worker has started, the hosts by the engine
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
    struct session_secrets *own = s->job.secrets;
    if (getrandom(own->token, sizeof own->token, 0) != sizeof own->token)
        return err_sys(e, errno, "cannot get random bytes");
    for (size_t i = 0; i < sizeof own->token; i++)
        snprintf(own->token_text + 2 * i, 3, "%02x", own->token[i]);
    return 0;
}

/* Without the job's cgroup the next process could not start. So a cgroup that has gone is made again; if that
 * fails, the job goes on as on hosts that allow none. */
static void restore_cgroup(struct session *s)
{
    char path[CONTAINMENT_PATH_MAX];
    if (containment_holds(&s->containment))
        return;
    snprintf(path, sizeof path, "%s", s->containment.path);
    containment_close(&s->containment);
    containment_make(&s->containment);
    oom_open(&s->oom, s->containment.path);
    guard_owns_cgroup(s->guard, s->containment.path);
    session_send_notice(s, LOG_WARNING, "somebody has removed the job's cgroup %s: %s", path,
                        s->containment.fd >= 0 ? "it was made again"
                                               : "the agent alone holds the job together (subreaper)");
}

/* 1: the workers wait for a part. */
static int prepare_parts(struct session *s, struct worker_env_job *env, struct err *e)
{
    int waits = 0;
    EACH_PART(s, p, prepare) {
        if (p->prepare(s, env, e) < 0)
            return -1;
    }
    EACH_PART(s, p, start) {
        int rc = p->start(s, env, e);
        if (rc < 0)
            return -1;
        waits |= rc;
    }
    return waits;
}

/* Finds every fault that can be found before the first clone. 1: the workers wait for a part. */
static int prepare_workers(struct session *s, struct err *e)
{
    struct worker_env_job env = {
        .spawn = s->spawn, .job = s->job.name, .hostname = s->job.host, .token = s->job.secrets->token_text};
    restore_cgroup(s);
    if (make_token(s, e) < 0 || session_make_directory(s, NULL, e) < 0)
        return -1;
    int rc = prepare_parts(s, &env, e);
    secret_wipe_stack();
    return rc;
}

/* ---- the workers --------------------------------------------------------------------------------------- */

static struct worker_start describe_start(struct session *s, const Hvd__Worker *worker, int report_fd)
{
    size_t i = spawn_program_of(s->spawn, worker->rank);
    struct session_program *program = session_program_get(s, i);
    return (struct worker_start){.spawn = s->spawn,
                                 .worker = worker,
                                 .argv = spawn_program_get(s->spawn, i).argv,
                                 .stdio = &s->stdio,
                                 .path = program->path,
                                 .dir = program->wdir,
                                 .env = &program->env,
                                 .cgroup_fd = s->containment.fd,
                                 .limits = &s->spawning->limits,
                                 .share_session = session_workers_are_crowded(s),
                                 .report_fd = report_fd};
}

static void on_capped(void *ctx, const char *name, uint64_t wanted, uint64_t hard)
{
    char text[40] = "none";
    if (wanted != UINT64_MAX)
        snprintf(text, sizeof text, "%llu", (unsigned long long)wanted);
    session_send_notice(ctx, LOG_WARNING,
                        "--propagate-limits: %s is %llu for the workers here, not %s: the hard limit", name,
                        (unsigned long long)hard, text);
}

static int start_workers(struct session *s, struct err *e)
{
    size_t room = s->spawn->elastic ? SESSION_ELASTIC_WORKERS_MAX : 0;
    int report[2], rc = workers_init(&s->workers, s->spawn->n_worker, room, e);
    if (rc < 0)
        return -1;
    s->stdio.max_line = s->spawn->max_line;
    rlimits_take(&s->spawning->limits, s->spawn->limit, s->spawn->n_limit, on_capped, s);
    spawn_raise_descriptor_limit(3 * s->spawn->n_worker + 128);
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    for (size_t i = 0; i < s->workers.count && rc == 0; i++) {
        struct worker_start start = describe_start(s, s->spawn->worker[i], report[1]);
        start.cpus = session_cpus_of(s, i);
        rc = workers_start(&s->workers, i, &start, e);
        session_heartbeat_busy(s);
        if (rc < 0)
            s->refusal.rank = s->spawn->worker[i]->rank;
    }
    secret_wipe_stack();            /* of the token */
    (void)session_programs_base(s); /* an engine starts with it: without any rank's own variables */
    close(report[1]);
    s->spawning->report_fd = report[0];
    return rc;
}

static const Hvd__Worker *worker_spec(const struct session *s, uint32_t rank)
{
    size_t i = 0;
    while (i + 1 < s->spawn->n_worker && s->spawn->worker[i]->rank != rank)
        i++;
    return s->spawn->worker[i];
}

static void close_report(struct session *s)
{
    struct session_spawning *own = s->spawning;
    if (own->report_watched)
        uv_close((uv_handle_t *)&own->report_poll, NULL);
    own->report_watched = false;
    if (own->report_fd >= 0)
        close(own->report_fd);
    own->report_fd = -1;
}

static void on_report(uv_poll_t *poll, int status, int events)
{
    struct session *s = poll->data;
    struct spawn_failure f;
    ssize_t n = read(s->spawning->report_fd, &f, sizeof f);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == (ssize_t)sizeof f && !s->refusal.why.code) {
        struct worker_start start = describe_start(s, worker_spec(s, f.id), -1);
        (void)workers_start_failed(&f, &start, &s->refusal.why);
        s->refusal.rank = f.id;
        fsm_post(&s->fsm, EV_REFUSED);
    }
    if (n > 0)
        return;
    close_report(s);
    if (!s->refusal.why.code)
        fsm_post(&s->fsm, EV_EXECUTED);
}

static int watch_report(struct session *s, struct err *e)
{
    int rc = uv_poll_init(&s->loop, &s->spawning->report_poll, s->spawning->report_fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch a pipe: %s", uv_strerror(rc));
    s->spawning->report_poll.data = s;
    s->spawning->report_watched = true;
    uv_poll_start(&s->spawning->report_poll, UV_READABLE, on_report);
    return 0;
}

static void refuse_spawn(struct session *s)
{
    if (s->workers.alive == 0)
        s->refusal.rank = s->spawn ? s->spawn->worker[0]->rank : 0;
    fsm_post(&s->fsm, EV_REFUSED);
}

void session_start_workers(struct session *s)
{
    if (start_workers(s, &s->refusal.why) < 0)
        refuse_spawn(s);
    else if (watch_report(s, &s->refusal.why) < 0)
        fsm_post(&s->fsm, EV_REFUSED);
}

const char *session_spawn(struct session *s, const Hvd__Control *m)
{
    const Hvd__Spawn *spawn = m->spawn;
    struct err *e = &s->refusal.why;
    if (s->fsm.state != SESSION_READY)
        return NULL;
    int waits = check_spawn(spawn, e) < 0 || keep_spawn(s, spawn, e) < 0 ? -1 : prepare_workers(s, e);
    if (waits < 0)
        refuse_spawn(s);
    else
        fsm_post(&s->fsm, waits ? EV_WAIT : EV_SPAWN);
    return NULL;
}

void session_send_spawned(struct session *s, size_t first)
{
    for (size_t i = first; i < s->workers.count; i++) {
        Hvd__Spawned told = HVD__SPAWNED__INIT;
        char cpus[256];
        told.rank = s->workers.item[i].rank;
        told.pid = (uint32_t)s->workers.item[i].pid;
        told.time = s->workers.item[i].began;
        session_bound(s, i, &told, cpus, sizeof cpus);
        CONTROL(m, SPAWNED, spawned, &told);
        session_send_control(s, &m);
    }
}

/* ---- workers that come later (elastic jobs) ------------------------------------------------------------ */

/* A worker that cannot be started has ended, as far as the launcher is concerned. */
static void refuse_worker(struct session *s, const Hvd__Worker *worker, const struct err *e)
{
    Hvd__Exited x = HVD__EXITED__INIT;
    x.rank = worker->rank;
    x.status = (uint32_t)err_exit_status(e);
    session_send_notice(s, LOG_WARNING, "worker %u cannot be started: %s", worker->rank, e->text);
    CONTROL(m, EXITED, exited, &x);
    session_send_control(s, &m);
}

static void start_worker(struct session *s, const Hvd__Worker *worker)
{
    struct err e = ERR_INIT;
    struct worker_start start = describe_start(s, worker, -1);
    size_t i = workers_add(&s->workers);
    if (i == s->workers.room) {
        err_set(&e, ERR_MEMORY, "more than %zu workers were started on this host", s->workers.room);
        refuse_worker(s, worker, &e);
        return;
    }
    if (workers_start(&s->workers, i, &start, &e) < 0) { /* its place stays taken: its pipes may be watched */
        refuse_worker(s, worker, &e);
        return;
    }
    session_send_spawned(s, i);
}

const char *session_recruit(struct session *s, const Hvd__Control *m)
{
    if (!s->spawn->elastic)
        return "the job is not elastic";
    restore_cgroup(s);
    for (size_t i = 0; i < m->recruit->n_worker; i++)
        start_worker(s, m->recruit->worker[i]);
    session_schedule_check(s);
    return NULL;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static int open_spawning(struct session *s, struct err *e)
{
    s->spawning->report_fd = -1;
    return 0;
}

static void free_spawn(struct session *s)
{
    if (s->spawn)
        hvd__spawn__free_unpacked(s->spawn, NULL);
    s->spawn = NULL;
}

const struct session_part session_part_spawning = {
    .name = "spawning",
    .state = SESSION_STATE(spawning),
    .open = open_spawning,
    .close = close_report,
    .free = free_spawn,
};
