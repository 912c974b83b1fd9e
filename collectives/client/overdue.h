/* Has an engine that owes an answer stopped? (pure)
 *
 * Its loop answers in the turn that reads the question, and beats ten times a second. So while the beat moves
 * the answer is on its way, however long that takes on a machine with other work; a beat that stands still is
 * an engine that was stopped. Time is counted in slices that this process has waited itself: if the job as a
 * whole was stopped and continued, that is one. */
#ifndef HVD_COLLECTIVES_CLIENT_OVERDUE_H
#define HVD_COLLECTIVES_CLIENT_OVERDUE_H

#include <stdbool.h>
#include <stdint.h>

#define OVERDUE_QUIET 15 /* slices, of one second, without a beat */
#define OVERDUE_MOST                                                                                         \
    240 /* in all: a driver that has to begin with all GPUs of a host takes seconds for each */

struct overdue {
    uint32_t beat; /* when the question was asked */
    unsigned slices, quiet;
};

/* To be called after each slice without an answer. `blind`: the beat tells nothing, as it is not mapped yet
 * (the session ends an engine that does not begin), or a thread beside the loop answers. `failed`: the job
 * has failed. */
bool overdue_after(struct overdue *o, uint32_t beat, bool blind, bool failed);

#endif
