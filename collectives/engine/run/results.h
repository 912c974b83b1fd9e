/* Results of sized operations between hosts: in segments of the engine, which the members map. A result stays
 * until all members of this host have read it. */
#ifndef HVD_COLLECTIVES_ENGINE_RUN_RESULTS_H
#define HVD_COLLECTIVES_ENGINE_RUN_RESULTS_H

#include <stdbool.h>

struct engine;
struct run;

/* The sizes are known: makes the place of each member's result, and tells the members where it is. false: no
 * memory. */
bool results_place(struct run *run);
/* The epoch has ended. */
void results_free(struct engine *engine);

#endif
