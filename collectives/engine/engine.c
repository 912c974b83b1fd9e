/* The loop.
 *
 * Each turn: what the descriptors brought, what lies in the rings, a piece of pending work, the beat. Work is
 * done in pieces of a fraction of a millisecond, so a death is never noticed late because of a large tensor.
 * The loop sleeps only when nothing is pending; before it does, it says so in the region (engine_sleeping)
 * and looks into the rings once more, so a worker either sees that a kick is needed or is seen. With several
 * hosts it spins for a moment after each activity, because a wake-up costs more than a small operation, but
 * only while that pays (spin_policy.h). */
#include "collectives/gpu/fuse.h"
#include "collectives/engine/tuning.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"

#define EVENTS_MAX 64
#define OUT_MAX    (1u << 20) /* to a session that does not read */

int engine_watch(struct engine *engine, struct watch *watch, uint32_t events, struct err *e)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (epoll_ctl(engine->epoll, EPOLL_CTL_ADD, watch->fd, &event) == 0)
        return 0;
    if (errno == EEXIST && epoll_ctl(engine->epoll, EPOLL_CTL_MOD, watch->fd, &event) == 0)
        return 0;
    return err_sys(e, errno, "cannot watch a descriptor");
}

void engine_unwatch(struct engine *engine, struct watch *watch)
{
    if (watch->fd >= 0)
        epoll_ctl(engine->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* Watched for edges: each kick is one, so nobody needs to read the counter. */
static void kick_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    (void)engine, (void)watch, (void)events; /* the rings are looked at in this turn of the loop */
}

struct engine *engine_new(int session_fd, struct err *e)
{
    struct engine *engine = calloc(1, sizeof *engine);

    if (!engine) {
        err_set(e, ERR_MEMORY, "no memory for the engine");
        return NULL;
    }
    engine->session = (struct watch){session_fd, session_ready};
    engine->listener = engine->links_watch = (struct watch){-1, NULL};
    engine->passed_fd = engine->region_fd = -1;
    engine->gone_rank = engine->lost_host = UINT32_MAX;
    engine->delay_fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    for (uint32_t i = 0; i < ENGINE_SEGMENTS_MAX; i++)
        engine->segment[i].fd = -1;
    buf_init(&engine->in, FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);
    buf_secret(&engine->in, true); /* the configuration has the job's key */
    buf_init(&engine->out, OUT_MAX);
    engine->stall.warn_ns = 60 * NSEC_PER_SEC;
    engine->fusion_bytes = ENGINE_FUSION_BYTES;
    engine->device_fuse = FUSE_ROOM;
    engine->device_connect_ms = ENGINE_CONNECT_MS;
    engine->cache_capacity = UINT32_MAX;
    engine->epoll = epoll_create1(EPOLL_CLOEXEC);
    engine->kick = (struct watch){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), kick_ready};
    if (engine->epoll < 0 || engine->kick.fd < 0) {
        err_sys(e, errno, "cannot make the engine's descriptors");
    } else if (fcntl(session_fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(session_fd, F_SETFL, O_NONBLOCK) != 0) {
        err_sys(e, errno, "descriptor %d is not the session's socket", session_fd);
        err_hint(e, "hvd-engine is started by hvdagent");
    } else if (engine_watch(engine, &engine->session, EPOLLIN, e) == 0 &&
               engine_watch(engine, &engine->kick, EPOLLIN | EPOLLET, e) == 0) {
        return engine;
    }
    engine_free(engine);
    return NULL;
}

static void close_watch(struct watch *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    devices_free(engine);
    peers_free(engine);
    secret_free(engine->token, WORKER_TOKEN_SIZE);
    remote_free(engine);
    stalls_free(engine);
    counters_free(engine);
    tuning_free(engine);
    timeline_stop(engine);
    workers_free(engine);
    segments_free(engine);
    names_free(engine);
    sets_free(engine);
    again_free(engine);
    joins_free(engine);
    region_unmap(&engine->region);
    if (engine->region_fd >= 0)
        close(engine->region_fd);
    if (engine->passed_fd >= 0)
        close(engine->passed_fd);
    close_watch(&engine->session);
    close_watch(&engine->listener);
    close_watch(&engine->kick);
    if (engine->delay_fd >= 0)
        close(engine->delay_fd);
    if (engine->epoll >= 0)
        close(engine->epoll);
    buf_free(&engine->in);
    buf_free(&engine->out);
    for (uint32_t i = 0; engine->host && i < engine->hosts; i++) {
        free(engine->host[i].name);
        free(engine->host[i].rank);
    }
    free(engine->host);
    free(engine->place);
    free(engine->job);
    free(engine);
}

const char *engine_host_of(const struct engine *engine, uint32_t rank)
{
    return rank < engine->size ? engine->host[engine->place[rank].host].name : "an unknown host";
}

void engine_poison(struct engine *engine, int status, const char *text)
{
    engine_poison_by(engine, UINT32_MAX, status, text);
}

void engine_poison_by(struct engine *engine, uint32_t rank, int status, const char *text)
{
    if (!engine->region.header || region_poisoned(&engine->region))
        return;
    /* First the session: a worker that ends because of what it is about to see must not be taken for the
     * cause. */
    session_poisoned(engine, rank);
    log_info("the job has failed: %s", text);
    region_poison(&engine->region, status, text);
    devices_abort(engine);
    counters_tell(engine);
    peers_tell_death(engine, status, text);
}

void engine_out_of_memory(struct engine *engine, const char *why)
{
    char text[SHM_TEXT_MAX];

    snprintf(text, sizeof text, "the engine of %.100s cannot go on: %.300s", engine->host[engine->self].name,
             why);
    engine_poison(engine, HVD_ERR_ENGINE, text);
}

/* Nanoseconds that this process was ready to run without a processor; UINT64_MAX: not known. */
static uint64_t delay_so_far(const struct engine *engine)
{
    char text[128];
    unsigned long long delay;
    ssize_t n = engine->delay_fd < 0 ? -1 : pread(engine->delay_fd, text, sizeof text - 1, 0);

    if (n <= 0)
        return UINT64_MAX;
    text[n] = '\0';
    return sscanf(text, "%*u %llu", &delay) == 1 ? delay : UINT64_MAX;
}

static void look_whether_calm(struct engine *engine, uint64_t now)
{
    if (!engine->may_spin)
        return;
    calm_look(&engine->calm, now, delay_so_far(engine), engine->worked);
    engine->worked = false;
    atomic_store_explicit(&engine->region.header->calm, engine->calm.spin, memory_order_relaxed);
}

/* Shows that we live, and makes up for a kick that was lost with its sender. */
static void beat(struct engine *engine, uint64_t now)
{
    if (!engine->configured || now < engine->beat_at)
        return;
    atomic_fetch_add(&engine->region.header->beat, 1);
    engine->beat_at = now + ENGINE_BEAT_MS * NSEC_PER_MSEC;
    if (engine->ping_ns && now >= engine->ping_at) {
        session_ping(engine);
        engine->ping_at = now + engine->ping_ns;
    }
    look_whether_calm(engine, now);
    stalls_progress(engine, now);
}

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

static int until(uint64_t at, uint64_t now)
{
    return at == 0 ? -1 : at <= now ? 0 : (int)((at - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
}

static bool rings_empty(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->members; i++)
        if (!ring_empty(&region_mailbox(&engine->region, i)->ready))
            return false;
    return !devices_waiting(engine);
}

/* Waits for descriptors; not at all when there is something to do. Returns the number of events. */
static int wait_for_events(struct engine *engine, struct epoll_event *events, int timeout)
{
    _Atomic uint32_t *sleeping = engine->configured ? &engine->region.header->engine_sleeping : NULL;
    int n;

    if (timeout != 0 && sleeping) {
        atomic_store(sleeping, 1);
        if (!rings_empty(engine))
            timeout = 0;
    }
    n = epoll_wait(engine->epoll, events, EVENTS_MAX, timeout);
    if (timeout != 0 && sleeping)
        atomic_store(sleeping, 0);
    return n;
}

/* One turn. Returns the milliseconds until the next one must come. */
static int turn(struct engine *engine)
{
    uint64_t now = clock_now(), death_at;
    bool more, active;

    if (!engine->configured)
        return -1;
    active = peers_progress(engine, now);
    again_progress(engine);
    death_at = workers_deaths(engine, now);
    active = local_collect(engine) || active;
    bool helps = engine->help_count > 0;
    more = local_help(engine);
    more = remote_progress(engine) || more;
    if (peers_look(engine, now)) {
        active = true;
        more = remote_progress(engine) || more;
    }
    if (__builtin_expect(engine->timeline != NULL, 0))
        timeline_turn(engine, helps);
    int devices_ms = devices_progress(engine, now);
    beat(engine, now);
    engine->worked = engine->worked || active;
    if (active && engine->calm.spin)
        engine->spin_until = now + ENGINE_SPIN_NS;
    if (more || now < engine->spin_until ||
        (region_poisoned(&engine->region) && engine->links && !engine->links_down))
        return 0;
    return sooner(sooner(until(engine->beat_at, now), until(death_at, now)),
                  sooner(sooner(until(remote_due(engine), now), devices_ms), peers_timeout(engine, now)));
}

int engine_loop(struct engine *engine, struct err *e)
{
    struct epoll_event events[EVENTS_MAX];

    while (!engine->ended) {
        int timeout = turn(engine);
        int n = wait_for_events(engine, events, timeout);
        if (n < 0 && errno != EINTR)
            return err_sys(e, errno, "cannot wait for events");
        for (int i = 0; i < n && !engine->ended; i++) {
            struct watch *w = events[i].data.ptr;
            if (w->fd >= 0)
                w->ready(engine, w, events[i].events);
        }
    }
    return 0;
}
