/* A thread of libhvd that runs operations on GPUs while no thread of the program is in a call. It begins
 * operations whose turn has come. When the job has failed it aborts NCCL's kernels: a program that waits
 * for its own stream would never notice the failure. The thread exists from the first operation on a GPU
 * until hvd_shutdown, and gets no signals.
 *
 * The thread sleeps on this rank's alarm. While an agreement or a staging slot is pending, it sleeps on the
 * bell, which every end of an operation rings. While NCCL connects, which rings nothing, it looks each
 * millisecond. */
#include "collectives/client/gpu/gpu_progress.h"

#include <signal.h>
#include <string.h>

#include "collectives/shm/doorbell.h"

#define POLL_MS 1

static struct {
    bool exists;
    _Atomic bool stop;
    enum gpu_need need; /* that it has seen, and sleeps by; under the lock */
    pthread_t thread;
    struct watchdog watchdog;
} own;

/* The lock is held. So is it when this returns; between, it is not. */
static void sleep_until(enum gpu_need need, uint32_t seen)
{
    struct shm_mailbox *m = client.mailbox;
    bool bell = need == GPU_BELL;
    uint32_t prepared = bell ? doorbell_prepare(m) : 0;
    if (bell && (gpu_progress() != GPU_BELL || atomic_load(&own.stop))) {
        doorbell_cancel(m); /* it has changed before the bell was watched */
        return;
    }
    own.need = need;
    gpu_unlock();
    if (bell)
        doorbell_sleep(m, prepared, ENGINE_SLICE_MS);
    else
        alarm_sleep(m, seen, need == GPU_POLL ? POLL_MS : ENGINE_SLICE_MS);
    gpu_lock();
}

/* Once a slice. */
static void look_around(uint64_t *at)
{
    uint64_t now = clock_now();
    if (now - *at < ENGINE_SLICE_MS * NSEC_PER_MSEC)
        return;
    *at = now;
    gpu_watch();
    if (!region_poisoned(&client.region) && !atomic_load(&client.mailbox->left) &&
        engine_has_stopped(&own.watchdog))
        engine_lose();
}

static void *run_thread(void *unused)
{
    uint64_t at = clock_now();
    (void)unused;
    gpu_lock();
    while (!atomic_load(&own.stop)) {
        uint32_t seen = atomic_load(&client.mailbox->alarm);
        enum gpu_need need = gpu_progress();
        look_around(&at);
        if (!atomic_load(&own.stop))
            sleep_until(need, seen);
    }
    gpu_unlock();
    return NULL;
}

int gpu_thread_start(void)
{
    if (own.exists)
        return HVD_SUCCESS;
    atomic_store(&own.stop, false);
    own.watchdog = (struct watchdog){0};
    sigset_t all;
    sigfillset(&all);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&own.thread, NULL, run_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fail(HVD_ERR_SYSTEM, "cannot make a thread for devices: %s", strerror(error));
    own.exists = true;
    return HVD_SUCCESS;
}

void gpu_thread_stop(void)
{
    if (!own.exists)
        return;
    atomic_store(&own.stop, true);
    alarm_ring(client.mailbox);
    doorbell_ring(client.mailbox);
    pthread_join(own.thread, NULL);
    own.exists = false;
}

void gpu_thread_wake(enum gpu_need need)
{
    if (!own.exists || need < GPU_BELL || need <= own.need)
        return;
    if (own.need == GPU_BELL)
        doorbell_ring(client.mailbox);
    own.need = need; /* once */
    alarm_ring(client.mailbox);
}
