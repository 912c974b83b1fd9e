#include "collectives/shm/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void doorbell_ring(struct shm_mailbox *m)
{
    atomic_fetch_add(&m->bell, 1);
    syscall(SYS_futex, (uint32_t *)&m->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t doorbell_prepare(struct shm_mailbox *m)
{
    uint32_t bell = atomic_load(&m->bell);
    atomic_fetch_add(&m->sleeping, 1);
    return bell;
}

void doorbell_cancel(struct shm_mailbox *m)
{
    atomic_fetch_sub(&m->sleeping, 1);
}

static bool sleep_on(_Atomic uint32_t *word, uint32_t seen, unsigned timeout_ms)
{
    struct timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    long rc = syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, &limit, NULL, 0);
    return !(rc != 0 && errno == ETIMEDOUT);
}

bool doorbell_sleep(struct shm_mailbox *m, uint32_t prepared, unsigned timeout_ms)
{
    bool rung = sleep_on(&m->bell, prepared, timeout_ms);
    atomic_fetch_sub(&m->sleeping, 1);
    return rung;
}

void alarm_ring(struct shm_mailbox *m)
{
    atomic_fetch_add(&m->alarm, 1);
    syscall(SYS_futex, (uint32_t *)&m->alarm, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void alarm_sleep(struct shm_mailbox *m, uint32_t seen, unsigned timeout_ms)
{
    sleep_on(&m->alarm, seen, timeout_ms);
}

void doorbell_relax(bool yield)
{
    if (yield) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

/* The kernel moves a thread whose processor is taken from it. Then all are given back. */
void doorbell_move(void)
{
    cpu_set_t all, others;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    others = all;
    CPU_CLR((unsigned)here, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
}
