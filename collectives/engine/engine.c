/* The loop.
 *
 * Each turn: what the descriptors brought, what lies in the rings, a piece of pending work, the beat. Work is
 * done in pieces of a fraction of a millisecond, so a death is never noticed late because of a large tensor.
 * The loop sleeps only when nothing is pending; before it does, it says so in the region (engine_sleeping)
 * and looks into the rings once more, so a worker either sees that a kick is needed or is seen. With several
 * hosts it stays awake for a moment after each activity, because a wake-up costs more than a small operation.
 * It yields its processor meanwhile, as long as that pays (collectives/shm/patience.h). */
#include "collectives/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "collectives/engine/counters.h"
#include "collectives/engine/flight.h"
#include "collectives/engine/gpu/gpu.h"
#include "collectives/engine/hosts.h"
#include "collectives/engine/joins.h"
#include "collectives/engine/local.h"
#include "collectives/engine/membership.h"
#include "collectives/engine/names.h"
#include "collectives/engine/peers.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/reinit.h"
#include "collectives/engine/remote.h"
#include "collectives/engine/session.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/stalls/stalls.h"
#include "collectives/engine/timeline.h"
#include "collectives/engine/tuning.h"
#include "collectives/engine/workers.h"
#include "collectives/gpu/fuse.h"
#include "collectives/local/pipeline.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define EVENTS_MAX 64
#define OUT_MAX    (1u << 20) /* to a session that does not read */
#define CONNECT_MS 300000     /* for NCCL: a first start on cold disks takes minutes */
#define STAY_NS    1000000    /* awake after the last activity, on several hosts */

/* Each part uses those behind it. */
static const struct engine_part *const parts[] = {
    &peers_part,  &reinit_part,   &membership_part, &questions_part, &rank_link_part, &local_part,
    &remote_part, &timeline_part, &tuning_part,     &gpus_part,      &stalls_part,    &counters_part,
    &joins_part,  &names_part,    &sets_part,       &workers_part,   &flight_part,    NULL};

/* Watched for edges: each kick is one, so nobody needs to read the counter. */
static void kick_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    (void)engine, (void)watch, (void)events; /* the rings are looked at in this turn of the loop */
}

/* A turn calls these only: it is on the way of every operation between hosts. */
static void list_progress(struct loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; parts[i] && n + 1 < ENGINE_PROGRESS_MAX; i++)
        if (parts[i]->progress)
            loop->progress[n++] = parts[i]->progress;
}

_Static_assert(sizeof parts / sizeof *parts <= ENGINE_PROGRESS_MAX, "every part has room in the list");

struct engine *engine_new(int session_fd, struct err *e)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        err_set(e, ERR_MEMORY, "no memory for the engine");
        return NULL;
    }
    engine->session.watch = (struct watch){session_fd, session_ready};
    engine->parts = parts;
    list_progress(&engine->loop);
    engine->workers.listener = engine->peers.watch = (struct watch){-1, NULL};
    engine->session.passed[0] = engine->session.passed[1] = -1;
    engine->region_fd = engine->flight.fd = -1;
    engine->workers.gone_rank = engine->peers.lost_host = UINT32_MAX;
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++)
        engine->names.segment[i].fd = -1;
    buf_init(&engine->session.in, FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);
    buf_secret(&engine->session.in, true); /* the configuration has the job's key */
    buf_init(&engine->session.out, OUT_MAX);
    engine->stall.warn_ns = 60 * NSEC_PER_SEC;
    engine->options.fusion_bytes = ENGINE_FUSION_BYTES;
    engine->options.stream_least = STREAM_LEAST_FAR;
    engine->options.gpu_fuse = FUSE_ROOM;
    engine->options.gpu_connect_ms = CONNECT_MS;
    engine->options.cache_capacity = UINT32_MAX;
    engine->options.rank_link = true;
    engine->loop.stay_ns = STAY_NS;
    engine->loop.epoll = epoll_create1(EPOLL_CLOEXEC);
    engine->loop.kick = (struct watch){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), kick_ready};
    if (engine->loop.epoll < 0 || engine->loop.kick.fd < 0) {
        err_sys(e, errno, "cannot make the engine's descriptors");
    } else if (fcntl(session_fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(session_fd, F_SETFL, O_NONBLOCK) != 0) {
        err_sys(e, errno, "descriptor %d is not the session's socket", session_fd);
        err_hint(e, "hvd-engine is started by hvdagent");
    } else if (engine_watch(engine, &engine->session.watch, EPOLLIN, e) == 0 &&
               engine_watch(engine, &engine->loop.kick, EPOLLIN | EPOLLET, e) == 0) {
        return engine;
    }
    engine_free(engine);
    return NULL;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->free)
            parts[i]->free(engine);
    region_unmap(&engine->region);
    close_fd(engine->region_fd);
    close_fd(engine->session.passed[0]);
    close_fd(engine->session.passed[1]);
    close_fd(engine->session.watch.fd);
    close_fd(engine->loop.kick.fd);
    close_fd(engine->loop.epoll);
    buf_free(&engine->session.in);
    buf_free(&engine->session.out);
    struct host_table hosts = {0};
    host_table_swap(engine, &hosts);
    host_table_free(&hosts);
    free(engine);
}

/* Shows that we live, and makes up for a kick that was lost with its sender. */
static void beat_if_due(struct engine *engine, uint64_t now)
{
    struct loop *loop = &engine->loop;
    if (now < loop->beat_at)
        return;
    atomic_fetch_add(&engine->region.header->beat, 1);
    loop->beat_at = now + ENGINE_BEAT_MS * NSEC_PER_MSEC;
    if (loop->ping_ns && now >= loop->ping_at) {
        engine_ping(engine);
        loop->ping_at = now + loop->ping_ns;
    }
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->beat)
            parts[i]->beat(engine, now);
}

static bool rings_empty(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->workers.members; i++)
        if (!ring_empty(&region_mailbox(&engine->region, i)->ready))
            return false;
    return !engine_gpus_waiting(engine);
}

/* Waits for descriptors; not at all when there is something to do. Returns the number of events. */
static int wait_for_events(struct engine *engine, struct epoll_event *events, int timeout)
{
    _Atomic uint32_t *sleeping = engine->configured ? &engine->region.header->engine_sleeping : NULL;
    if (timeout != 0 && sleeping) {
        atomic_store(sleeping, 1);
        if (!rings_empty(engine))
            timeout = 0;
    }
    int n = epoll_wait(engine->loop.epoll, events, EVENTS_MAX, timeout);
    if (timeout != 0 && sleeping)
        atomic_store(sleeping, 0);
    return n;
}

/* The job has failed since the last turn: every part acts. */
static void spread_failure(struct engine *engine)
{
    engine->loop.failed = false;
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->failed)
            parts[i]->failed(engine);
}

static int timeout_of(const struct turn *turn)
{
    int timeout = turn->timeout;
    uint64_t left = turn->due > turn->now ? turn->due - turn->now : 0;
    int ms = (int)((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
    return turn->due && (timeout < 0 || ms < timeout) ? ms : timeout;
}

/* Gives its processor to the process whose answer it may wait for. false: it is time to sleep. */
static bool stays_awake(struct loop *loop, uint64_t now)
{
    if (now >= loop->stay_until || !patience_has(&loop->patience, now))
        return false;
    now = clock_now();
    doorbell_relax(true);
    uint64_t after = clock_now();
    patience_learn(&loop->patience, after, after - now);
    return true;
}

/* A rank on the same processor sleeps, so that this process runs at once. */
static void show_processor(struct engine *engine)
{
    _Atomic int32_t *shown = &engine->region.header->engine_processor;
    int32_t here = sched_getcpu();
    if (here != atomic_load_explicit(shown, memory_order_relaxed))
        atomic_store_explicit(shown, here, memory_order_relaxed);
}

/* One turn. Returns the milliseconds until the next one must come. */
static int take_turn(struct engine *engine)
{
    struct loop *loop = &engine->loop;
    struct turn turn = {.now = clock_now(), .timeout = -1};
    if (!engine->configured)
        return -1;
    show_processor(engine);
    if (__builtin_expect(loop->failed, 0))
        spread_failure(engine);
    for (size_t i = 0; loop->progress[i] && !loop->ended; i++)
        loop->progress[i](engine, &turn);
    if (loop->ended)
        return 0; /* perhaps without a region */
    beat_if_due(engine, turn.now);
    if (turn.active && engine->hosts > 1)
        loop->stay_until = turn.now + loop->stay_ns;
    if (turn.more || loop->failed || stays_awake(loop, turn.now))
        return 0;
    turn_until(&turn, loop->beat_at);
    return timeout_of(&turn);
}

int engine_loop(struct engine *engine, struct err *e)
{
    struct epoll_event events[EVENTS_MAX];
    while (!engine->loop.ended) {
        int timeout = take_turn(engine);
        int n = wait_for_events(engine, events, timeout);
        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "cannot wait for events");
        for (int i = 0; i < n && !engine->loop.ended; i++) {
            struct watch *w = events[i].data.ptr;
            if (w->fd >= 0)
                w->ready(engine, w, events[i].events);
        }
    }
    if (engine->loop.failed)
        spread_failure(engine);
    return 0;
}
