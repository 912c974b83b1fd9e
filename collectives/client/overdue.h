/* How long a rank waits for the engine's answer. (pure)
 *
 * The engine's loop answers in the turn that reads the question, and beats ten times a second. While the
 * beat moves the answer is on its way, however long a busy machine takes. A beat that stands still means that
 * the engine was stopped. Time is counted in slices that this process has waited itself: a job that was
 * stopped and continued as a whole has waited one slice. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define OVERDUE_QUIET 15  /* slices, of one second, without a beat */
#define OVERDUE_MOST  240 /* slices in all: a driver that begins with all GPUs of a host takes seconds each */

struct overdue {
    uint32_t beat; /* when the question was asked */
    unsigned slices, quiet;
};

/* Called after each slice without an answer. true: the engine has stopped. `blind`: the beat tells nothing,
 * because it is not mapped yet (the session ends an engine that does not begin), or because a thread beside
 * the loop answers. `failed`: the job has failed. */
bool overdue_after(struct overdue *o, uint32_t beat, bool blind, bool failed);
