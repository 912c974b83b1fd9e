/* The workers of this host: their connections, their processes' ends.
 *
 * A member's process is watched through its pidfd. The member is dead when that process or the process that
 * the session started has ended, whichever is first. After hvd_shutdown an end is no death. The pidfd is
 * usually first and knows no cause, so the session's word is waited for during ENGINE_CAUSE_WAIT_MS. A socket
 * that closes while the process lives is only a worker without answers. */
#include "collectives/engine/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"

/* ---- deaths -------------------------------------------------------------------------------------------- */

/* Its end is none of a rank that the job needs. */
static bool has_left(const struct engine *engine, const struct member *m)
{
    return m->shut_down && m->epoch == engine->epoch;
}

bool workers_have_left(const struct engine *engine)
{
    for (uint32_t m = 0; m < engine->workers.members; m++)
        if (!has_left(engine, &engine->workers.member[m]))
            return false;
    return true;
}

/* cause NULL: nobody has told. */
static void member_is_dead(struct engine *engine, uint32_t member, const char *cause, bool failed)
{
    struct member *m = &engine->workers.member[member];
    uint32_t rank = engine->region.rank[member];
    m->dead_at = 0;
    if (has_left(engine, m))
        return;
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u on %.100s (pid %u) ended%s%.200s%s", rank,
             engine->host[engine->self].name, m->pid, cause ? ": " : "", cause ? cause : "",
             failed ? "" : " without hvd_shutdown");
    engine_poison_by(engine, rank, HVD_ERR_PEER, text);
}

static void pidfd_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    struct member *m = (struct member *)watch;
    (void)events;
    engine_unwatch(engine, watch);
    close(watch->fd);
    watch->fd = -1;
    engine->workers.gone_rank = engine->region.rank[m - engine->workers.member];
    if (!has_left(engine, m))
        m->dead_at = clock_now() + ENGINE_CAUSE_WAIT_MS * NSEC_PER_MSEC;
}

void workers_rank_ended(struct engine *engine, const Hvd__RankEnded *ended)
{
    uint32_t rank = engine_rank_of(engine, ended->rank);
    const char *cause = *ended->cause ? ended->cause : "for an unknown reason";
    if (rank == UINT32_MAX)
        return;
    uint32_t member = region_member(&engine->region, rank);
    engine->workers.gone_rank = rank;
    if (member < engine->workers.members) {
        struct member *m = &engine->workers.member[member];
        if (ended->pid)
            m->pid = ended->pid;
        if (m->joined || ended->failed) {
            member_is_dead(engine, member, cause, ended->failed);
            return;
        }
    } else if (!ended->failed && engine->started) {
        return; /* it was here at hvd_init, so a clean end follows its hvd_shutdown */
    } else if (engine->finished) {
        return;
    }
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u on %.100s (pid %u) ended%s: %.200s", rank,
             *ended->host ? ended->host : engine_host_of(engine, rank), ended->pid,
             engine->started || ended->failed ? "" : " before hvd_init", cause);
    engine_poison_by(engine, rank, HVD_ERR_PEER, text);
}

int workers_watch_process(struct engine *engine, struct member *m, int pidfd, uint32_t pid, struct err *e)
{
    if (m->pidfd.fd >= 0) {
        engine_unwatch(engine, &m->pidfd);
        close(m->pidfd.fd);
    }
    m->pidfd = (struct watch){pidfd, pidfd_ready};
    m->pid = pid;
    return pidfd < 0 ? -1 : engine_watch(engine, &m->pidfd, EPOLLIN, e);
}

/* ---- connections --------------------------------------------------------------------------------------- */

void workers_drop(struct engine *engine, struct worker *w)
{
    if (w->member != WORKER_STRANGER && engine->workers.member[w->member].worker == w)
        engine->workers.member[w->member].worker = NULL;
    engine_unwatch(engine, &w->watch);
    worker_reader_reset(&w->reader);
    close(w->watch.fd);
    w->watch.fd = -1;
}

void workers_answer_later(struct engine *engine, uint32_t member, const struct worker_message *a)
{
    struct worker *w = engine->workers.member[member].worker;
    struct err e = ERR_INIT;
    if (w && worker_send(w->watch.fd, a, NULL, 0, &e) != 0)
        workers_drop(engine, w);
}

/* ---- the part ------------------------------------------------------------------------------------------ */

static int start_workers(struct engine *engine, const Hvd__EngineConfig *config, struct err *e)
{
    uint32_t ranks = engine->host[engine->self].ranks;
    uint32_t connections = (config->elastic ? SHM_MEMBERS_MAX : ranks) + ENGINE_STRANGERS_MAX;
    struct workers *w = &engine->workers;
    w->member = calloc(ranks, sizeof *w->member);
    w->connection = calloc(connections, sizeof *w->connection);
    if (!w->member || !w->connection)
        return err_set(e, ERR_MEMORY, "no memory for %u members", ranks);
    w->members = ranks;
    w->connections = connections;
    for (uint32_t i = 0; i < ranks; i++)
        w->member[i].pidfd.fd = -1;
    for (uint32_t i = 0; i < connections; i++)
        w->connection[i].watch.fd = -1;
    return 0;
}

/* A member that stays is watched on, also while it is between two memberships. */
static int move_member(struct engine *engine, struct member *from, struct member *to, struct err *e)
{
    *to = *from;
    from->pidfd.fd = -1;
    to->worker = NULL;
    to->joining = false;
    to->dead_at = 0;
    return to->pidfd.fd < 0 ? 0 : engine_watch(engine, &to->pidfd, EPOLLIN, e);
}

static void drop_members(struct engine *engine, uint32_t members)
{
    for (uint32_t i = 0; i < members; i++) {
        struct member *m = &engine->workers.member[i];
        engine_unwatch(engine, &m->pidfd);
        if (m->pidfd.fd >= 0)
            close(m->pidfd.fd);
    }
    free(engine->workers.member);
}

/* Connections of the former epoch: their workers come again, on others. */
static void retire_connections(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->workers.connections; i++) {
        struct worker *w = &engine->workers.connection[i];
        if (w->watch.fd >= 0 && w->member != WORKER_STRANGER) {
            w->member = WORKER_STRANGER;
            w->former = true;
        }
    }
}

static int regroup_workers(struct engine *engine, const struct engine_regroup *g, struct err *e)
{
    uint32_t ranks = engine->host[engine->self].ranks;
    struct member *member = calloc(ranks, sizeof *member);
    int rc = member ? 0 : err_set(e, ERR_MEMORY, "no memory for %u members", ranks);
    retire_connections(engine);
    for (uint32_t i = 0; member && i < ranks; i++) {
        member[i].pidfd.fd = -1;
        if (g->member_was[i] != UINT32_MAX &&
            move_member(engine, &engine->workers.member[g->member_was[i]], &member[i], e) < 0)
            rc = -1;
    }
    drop_members(engine, g->members);
    engine->workers.member = member;
    engine->workers.members = member ? ranks : 0;
    engine->workers.gone_rank = UINT32_MAX;
    return rc;
}

/* Poisons for members whose cause did not come in time. */
static void settle_deaths(struct engine *engine, struct turn *turn)
{
    for (uint32_t i = 0; i < engine->workers.members; i++) {
        uint64_t at = engine->workers.member[i].dead_at;
        if (__builtin_expect(at == 0, 1))
            continue;
        if (at <= turn->now)
            member_is_dead(engine, i, NULL, false);
        else
            turn_until(turn, at);
    }
}

static void free_workers(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->workers.connections; i++)
        if (engine->workers.connection[i].watch.fd >= 0)
            workers_drop(engine, &engine->workers.connection[i]);
    for (uint32_t i = 0; i < engine->workers.members; i++)
        if (engine->workers.member[i].pidfd.fd >= 0)
            close(engine->workers.member[i].pidfd.fd);
    secret_free(engine->workers.token, WORKER_TOKEN_SIZE);
    if (engine->workers.listener.fd >= 0)
        close(engine->workers.listener.fd);
    free(engine->workers.connection);
    free(engine->workers.member);
}

const struct engine_part workers_part = {
    .start = start_workers, .regroup = regroup_workers, .progress = settle_deaths, .free = free_workers};
