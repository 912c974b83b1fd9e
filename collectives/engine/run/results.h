/* Memory of the engine in segments that the members of this host map: the results of sized operations between
 * hosts, and the buffers of streamed ones. The memory stays until all members have read it. */
#pragma once

#include <stdbool.h>

struct engine;
struct run;
struct tensor_view;

/* The sizes are known: makes the place of each member's result, and tells the members where it is. false: no
 * memory. */
bool results_place(struct run *run);
/* All members stream: makes this host's buffer, and tells the members. false: no memory. */
bool results_make_buffer(struct engine *engine, struct tensor_view *v);
/* The epoch has ended. */
void results_free(struct engine *engine);
