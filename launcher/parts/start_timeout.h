/* --start-timeout: how long the start of the workers may take. Each step that shows progress (a lease that is asked
 * for, bytes of --preload) begins the time anew. */
#ifndef HVD_LAUNCHER_PARTS_START_TIMEOUT_H
#define HVD_LAUNCHER_PARTS_START_TIMEOUT_H

#include <stddef.h>

struct job;

/* --start-timeout counts from now. */
void start_timeout_restart(struct job *j);
/* Names the hosts that the start of the workers still waits for, and their phases, after a comma; empty: none. */
void start_timeout_describe(const struct job *j, char *out, size_t size);

#endif
