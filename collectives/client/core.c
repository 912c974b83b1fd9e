/* Errors, state, locks, and the life of the engine. */
#include "collectives/client/core.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"

#define WATCHDOG_MS 10000

struct client client = {
    .socket = -1,
    .kick = -1,
    .worker = -1,
    .rpc_lock = PTHREAD_MUTEX_INITIALIZER,
    .names_lock = PTHREAD_MUTEX_INITIALIZER,
    .arena_lock = PTHREAD_MUTEX_INITIALIZER,
    .ring_lock = PTHREAD_MUTEX_INITIALIZER,
    .sets_lock = PTHREAD_MUTEX_INITIALIZER,
};

/* ---- errors -------------------------------------------------------------------------------------------- */

static _Thread_local char last_error[SHM_TEXT_MAX];
static _Thread_local int last_status;

int fail(int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(last_error, sizeof last_error, fmt, args);
    va_end(args);
    return last_status = status;
}

int last_failure(void)
{
    return last_status;
}

const char *hvd_last_error(void)
{
    return last_error;
}

int client_check(void)
{
    switch (atomic_load_explicit(&client.state, memory_order_acquire)) {
    case CLIENT_READY:
    case CLIENT_JOINING:
    case CLIENT_GAVE_UP:
    case CLIENT_STRANDED:
        return HVD_SUCCESS;
    case CLIENT_FORKED:
        return fail(HVD_ERR_FORKED,
                    "this process was made by fork() after hvd_init: call hvd in the parent, or exec a "
                    "program of its own");
    default:
        return fail(HVD_ERR_NOT_INITIALIZED, "hvd_init was not called, or hvd_shutdown was");
    }
}

int client_may_begin(void)
{
    int state = atomic_load_explicit(&client.state, memory_order_acquire);
    if (state == CLIENT_READY)
        return HVD_SUCCESS;
    if (state == CLIENT_STRANDED)
        return fail(HVD_ERR_ENGINE, "this host's engine has gone or does not move: nothing can begin");
    if (state == CLIENT_GAVE_UP)
        return fail(HVD_ERR_PEER, "%s", client.gave_up);
    return state == CLIENT_JOINING
               ? fail(HVD_ERR_IN_PROGRESS, "this rank is in hvd_join, which has not ended: nothing can begin")
               : client_check();
}

int fail_poisoned(void)
{
    char text[SHM_TEXT_MAX];
    int status = region_poison_read(&client.region, text, sizeof text);
    return fail(status, "%s", text);
}

/* ---- locks --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lookers = PTHREAD_MUTEX_INITIALIZER;

void lookers_lock(void)
{
    pthread_mutex_lock(&lookers);
}

bool lookers_trylock(void)
{
    return pthread_mutex_trylock(&lookers) == 0;
}

void lookers_unlock(void)
{
    pthread_mutex_unlock(&lookers);
}

bool lock_unless_waited(pthread_mutex_t *lock)
{
    bool locked = pthread_mutex_trylock(lock) == 0;
    if (locked)
        return true;
    lookers_lock(); /* from now on no thread only looks */
    locked = pthread_mutex_trylock(lock) == 0;
    lookers_unlock();
    return locked;
}

bool grow_array(void **array, size_t *capacity, size_t have, size_t each)
{
    size_t more = *capacity ? 2 * *capacity : 64;
    void *larger = have < *capacity ? *array : realloc(*array, more * each);
    if (!larger)
        return false;
    if (have == *capacity)
        *capacity = more;
    *array = larger;
    return true;
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

void engine_wake(void)
{
    uint64_t one = 1;
    if (atomic_load(&client.region.header->engine_sleeping) && write(client.kick, &one, sizeof one) < 0)
        return; /* its counter is full: the engine is awake, or its beat will show that it is not */
}

/* The ring has space for all slots, and each slot is in it at most once. */
void engine_tell(uint32_t slot, uint32_t *notified)
{
    pthread_mutex_lock(&client.ring_lock);
    bool put = ring_put_once(&client.mailbox->ready, slot, notified);
    pthread_mutex_unlock(&client.ring_lock);
    if (put)
        engine_wake();
}

static bool has_engine_hung_up(void)
{
    struct pollfd p = {.fd = client.socket, .events = 0};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

bool engine_has_stopped(struct watchdog *w)
{
    uint32_t beat = atomic_load(&client.region.header->beat);
    if (has_engine_hung_up())
        return true;
    w->quiet_ms = beat == w->beat ? w->quiet_ms + ENGINE_SLICE_MS : 0;
    w->beat = beat;
    return w->quiet_ms >= WATCHDOG_MS;
}

bool engine_has_stopped_polling(struct watchdog *w)
{
    uint64_t now = clock_now();
    if (now - w->at < ENGINE_SLICE_MS * NSEC_PER_MSEC)
        return false;
    w->at = now;
    return engine_has_stopped(w);
}

bool engine_sleep(uint32_t prepared, unsigned ms, struct watchdog *w)
{
    return doorbell_sleep(client.mailbox, prepared, ms) || !engine_has_stopped_polling(w);
}

void engine_lose(void)
{
    int ready = CLIENT_READY; /* hvd_join says at its end what becomes of it */
    atomic_store(&client.mailbox->left, 1);
    alarm_ring(client.mailbox); /* operations on GPUs must not go on */
    atomic_compare_exchange_strong(&client.state, &ready, CLIENT_STRANDED);
}

/* ---- points of an operation ---------------------------------------------------------------------------- */

_Atomic uint8_t watched;
static watcher_fn *watcher[WATCHERS];

void watch_start(enum watcher which, watcher_fn *hear)
{
    watcher[which] = hear;
    atomic_fetch_or(&watched, (uint8_t)(1u << which));
}

void watch_stop(enum watcher which)
{
    atomic_fetch_and(&watched, (uint8_t) ~(1u << which));
}

void watch_report(struct tensor *t, enum point point, uint64_t since)
{
    uint8_t now = atomic_load(&watched);
    for (unsigned i = 0; i < WATCHERS; i++)
        if (now & 1u << i)
            watcher[i](t, point, since);
}
