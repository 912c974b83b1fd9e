/* Operations of a job on several hosts, from "complete on this host" to a run that is settled. */
#pragma once

#include "collectives/backends/scratch.h"
#include "collectives/engine/core.h"

struct run;            /* run/run.h */
struct result;         /* run/results.h */
struct result_segment; /* the same */

struct runs {
    struct scratch scratch;          /* runs borrow of it */
    struct run *spare;               /* the one that ended last, to be used again; or NULL */
    struct result *results;          /* that members may still read */
    struct result_segment *segments; /* their memory */
};

extern const struct engine_part remote_part;

void remote_complete(struct engine *engine, uint32_t slot); /* all of this host have arrived */
/* Sends readiness, runs what is due. true: call again soon. */
bool remote_progress(struct engine *engine);
