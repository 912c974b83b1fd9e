/* Fibers and virtual time. The scheduler picks one of those that can go on, by chance; when none can, time
 * jumps to the next thing that will happen. */
#undef _FORTIFY_SOURCE /* takes a jump to another stack for a fault */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/sim/sim.h"

#define STACK_BYTES (256u << 10)
#define GUARD_BYTES (16u << 10) /* at its end */

uint64_t sim_now;
struct fiber *sim_current;
struct chance sim_timing;
bool sim_verbose, sim_steady;

/* A fiber is entered as a context, which asks the kernel; after that, jumps between stacks do. */
struct place {
    ucontext_t first;
    jmp_buf now;
    bool entered;
};

static ucontext_t base;
static jmp_buf scheduler;
static uint64_t pace = 100, countdown = 100;

void sim_say(const char *fmt, ...)
{
    va_list args;

    if (!sim_verbose)
        return;
    fprintf(stderr, "%10.3f ms ", (double)sim_now / MSEC);
    if (sim_current)
        fprintf(stderr, "%s %u: ", sim_current->role == ROLE_ENGINE ? "engine" : "rank", sim_current->index);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

static void enter(void)
{
    struct fiber *f = sim_current;

    f->run(f->arg);
    f->state = FIBER_ENDED;
    _longjmp(scheduler, 1);
}

void fiber_start(struct fiber *f, void (*run)(void *arg), void *arg)
{
    struct place *p;

    f->run = run;
    f->arg = arg;
    if (!f->stack) {
        f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (f->stack != MAP_FAILED)
            mprotect(f->stack, GUARD_BYTES, PROT_NONE);
        f->context = calloc(1, sizeof *p);
    }
    if (f->stack == MAP_FAILED || !f->context)
        abort();
    p = f->context;
    p->entered = false;
    getcontext(&p->first);
    p->first.uc_stack.ss_sp = f->stack;
    p->first.uc_stack.ss_size = STACK_BYTES;
    p->first.uc_link = NULL;
    makecontext(&p->first, enter, 0);
    f->state = FIBER_READY;
    f->wake_at = f->points = f->futex = 0;
    f->poked = false;
}

void fiber_free(struct fiber *f)
{
    if (f->stack)
        munmap(f->stack, STACK_BYTES);
    free(f->context);
    f->stack = f->context = NULL;
    f->state = FIBER_NONE;
}

static void leave(void)
{
    struct fiber *f = sim_current;
    struct place *p = f->context;

    f->error = errno;
    if (_setjmp(p->now) == 0)
        _longjmp(scheduler, 1);
    errno = f->error;
}

void fiber_yield(void)
{
    sim_current->state = FIBER_READY;
    leave();
}

bool fiber_wait(uint64_t until)
{
    struct fiber *f = sim_current;

    if (!f->poked) {
        f->state = FIBER_WAITING;
        f->wake_at = until;
        leave();
    }
    bool poked = f->poked;
    f->poked = false;
    f->wake_at = 0;
    return poked;
}

void fiber_poke(struct fiber *f)
{
    f->poked = true;
    if (f->state == FIBER_WAITING)
        f->state = FIBER_READY;
}

void sim_pace(uint64_t mean)
{
    pace = mean;
    countdown = 1;
}

void fiber_die(void)
{
    sim_say("dies");
    sim_current->state = FIBER_DEAD;
    leave();
}

void sim_point(void)
{
    struct fiber *f = sim_current;

    if (!f)
        return;
    if (f->role == ROLE_MEMBER && ++f->points == f->die_at)
        fiber_die();
    if (--countdown > 0)
        return;
    countdown = 1 + chance_below(&sim_timing, 2 * pace);
    fiber_yield();
}

static void resume(struct fiber *f)
{
    struct place *p = f->context;

    errno = f->error;
    sim_current = f;
    if (_setjmp(scheduler) == 0) {
        if (p->entered)
            _longjmp(p->now, 1);
        p->entered = true;
        swapcontext(&base, &p->first);
    }
    f = sim_current;
    sim_current = NULL;
    sim_now += sim_steady ? 1 : chance_below(&sim_timing, 2 * USEC);
    if (f->state == FIBER_DEAD)
        job_died(f);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* One that can go on, each as likely; NULL: none, and *next is when there may be one. */
static struct fiber *pick(struct fiber *const *fiber, size_t fibers, uint64_t *next)
{
    struct fiber *ready[SIM_HOSTS + SIM_MEMBERS] = {NULL};
    size_t n = 0;

    for (size_t i = 0; i < fibers; i++) {
        struct fiber *f = fiber[i];
        if (f->state == FIBER_WAITING && f->wake_at && f->wake_at <= sim_now)
            f->state = FIBER_READY;
        if (f->state == FIBER_READY)
            ready[n++] = f;
        else if (f->state == FIBER_WAITING)
            *next = earlier(*next, f->wake_at);
    }
    return n ? ready[chance_below(&sim_timing, n)] : NULL;
}

bool sim_run(struct fiber *const *fiber, size_t fibers, bool (*done)(void), uint64_t limit)
{
    while (!done()) {
        uint64_t next = earlier(net_events(), job_events());
        struct fiber *f = pick(fiber, fibers, &next);
        if (f)
            resume(f);
        else if (next == 0 || next > limit)
            return false;
        else
            sim_now = next > sim_now ? next : sim_now;
        if (sim_now > limit)
            return false;
    }
    return true;
}
