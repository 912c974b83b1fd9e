#include "collectives/shm/doorbell.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

/* The set of the calling thread now. */
static cpu_set_t read_set(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    return set;
}

/* The kernel moves a thread that may not run where it is. Then the thread may run on all of `all` again,
 * unless somebody else has chosen for it meanwhile. No handler of a signal sees the smaller set. */
static void move_to(const cpu_set_t *to, const cpu_set_t *all)
{
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    cpu_set_t now = read_set(), kept;
    if (CPU_EQUAL(&now, all) && sched_setaffinity(0, sizeof *to, to) == 0) {
        now = read_set();
        CPU_AND(&kept, &now, to);
        if (CPU_EQUAL(&kept, &now)) /* a processor may have gone, too */
            (void)sched_setaffinity(0, sizeof *all, all);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void doorbell_move(void)
{
    cpu_set_t all, others;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    others = all;
    CPU_CLR((unsigned)here, &others);
    if (CPU_COUNT(&others) > 0)
        move_to(&others, &all);
}

void doorbell_move_to(unsigned processor, const cpu_set_t *all)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    move_to(&one, all);
}
