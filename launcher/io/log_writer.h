/* Lines of hvdrun itself while a job runs: the log, lines of hosts, progress. Writing them never blocks the
 * loop, because a stopped terminal or a full pipe must not stop the heartbeats. While this is open,
 * every log line of the process comes here (log_to); a line is written whole or waits. Over NOTES_MAX waiting
 * bytes a line is dropped and counted, and the count is said when there is room again. */
#pragma once

#include <uv.h>

#define NOTES_MAX (64u << 10)
/* How long notes_finish waits for a reader. */
#define NOTES_PATIENCE_MS 1000

void notes_open(uv_loop_t *loop);
/* The loop ends when what waits was written, or nobody read it for NOTES_PATIENCE_MS. Lines that come from
 * now on are written at once, as without notes. */
void notes_finish(void);
