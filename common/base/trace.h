/* A timeline in a file: events of the Trace Event Format (a JSON array), as chrome://tracing and Perfetto
 * read it.
 *
 * Any thread puts events into a bounded buffer, without waiting and without a lock. A writer thread, which
 * exists only while the trace runs, takes them out and writes. An event that finds the
 * buffer full is dropped and counted; the file says so, where it happened ("dropped events").
 *
 * Times are those of the host's wall clock in microseconds, as it was when the trace began, going on with the
 * monotonic clock: files of several hosts fit together as well as their clocks do.
 *
 * The file is a whole array after trace_stop. Without that (the process was killed) it lacks only its closing
 * bracket, and at most the last TRACE_LINGER_MS: no write holds a part of an event, or crosses a page of the
 * file, within which the kernel does not stop for a signal. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define TRACE_EVENTS    32768u       /* in the buffer; a power of two */
#define TRACE_BYTES     (256u << 20) /* of a file: later events are dropped */
#define TRACE_LINGER_MS 50           /* how long events are gathered before they are written */

struct trace;

/* Of an event, as in the format. */
enum trace_phase { TRACE_BEGIN = 'B', TRACE_END = 'E', TRACE_COMPLETE = 'X', TRACE_INSTANT = 'i' };

/* Creates or empties the file. `process` names this process, whose number in the file is `pid`, the first in
 * the order of `pid`. About `most` bytes are written: what comes later is dropped and counted. NULL with
 * *e. */
struct trace *trace_start(const char *path, uint32_t pid, const char *process, uint64_t most, struct err *e);
/* The same, behind the events of a file that trace_stop has completed. A file without the
 * closing bracket is emptied. */
struct trace *trace_continue(const char *path, uint32_t pid, const char *process, uint64_t most,
                             struct err *e);
/* Writes what is left, ends the thread, frees. No other call may be under way. -1 with *e: not everything
 * could be written. */
int trace_stop(struct trace *t, struct err *e);

/* `prefix` and `name` live as long as the trace; together they are the event's name. `at`: clock_now(). */
struct trace_event {
    enum trace_phase phase;
    uint32_t lane;
    const char *prefix, *name;
    uint64_t at, duration; /* duration: of TRACE_COMPLETE */
};
void trace_put(struct trace *t, const struct trace_event *event);
/* Names a lane (a thread of the format). The text is copied. */
void trace_lane(struct trace *t, uint32_t lane, const char *name);

#define TRACE_WHO_MAX 80
/* Of an engine, by its host's name. Returns `who`. */
const char *trace_engine_who(const char *host, char who[TRACE_WHO_MAX]);
/* The file of `who`: %r in the pattern stands for it; otherwise ".WHO" is put before the extension. */
int trace_path(const char *pattern, const char *who, char *path, size_t size, struct err *e);
