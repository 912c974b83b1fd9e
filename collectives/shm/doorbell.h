/* Waiting: spin for a moment, then sleep on the member's bell.
 *
 * A thread that is about to sleep says so (doorbell_prepare), looks once more whether there is still nothing
 * for it, and sleeps (doorbell_sleep). A writer stores its change (sequentially consistent) and then
 * rings the sleepers. So either the sleeper sees the change or the ringer sees the sleeper. */
#pragma once

#include <sched.h>

#include "collectives/shm/layout.h"

/* Wakes the member's sleepers, if there are any. */
static inline bool doorbell_has_sleeper(const struct shm_mailbox *m)
{
    return atomic_load(&m->sleeping) != 0;
}
void doorbell_ring(struct shm_mailbox *m);

/* Returns what doorbell_sleep wants. Every prepare is followed by exactly one sleep or cancel. */
uint32_t doorbell_prepare(struct shm_mailbox *m);
void doorbell_cancel(struct shm_mailbox *m);
/* Until the bell was rung after prepare, or timeout_ms have passed. true: it was rung (or woken for nothing).
 */
bool doorbell_sleep(struct shm_mailbox *m, uint32_t prepared, unsigned timeout_ms);

/* A member's thread for devices sleeps on a word of its own, so that it costs those nothing who ring for
 * other things. It is rung when an operation comes to an order (order.h), at a poison, and by its own
 * process. */
void alarm_ring(struct shm_mailbox *m);
/* Until the alarm is another than `seen`, or timeout_ms have passed. */
void alarm_sleep(struct shm_mailbox *m, uint32_t seen, unsigned timeout_ms);

/* Between two looks of a spin: a pause of the processor, or (`yield`) it is given to whoever else wants it.
 */
void doorbell_relax(bool yield);
/* The calling thread goes to another processor of those that it may run on, if there is another. */
void doorbell_move(void);
/* The same, to this one of `all`, which the thread may run on. */
void doorbell_move_to(unsigned processor, const cpu_set_t *all);
