/* The parts of a job, in the order in which the job calls their hooks (launcher/job/part.h), and the few
 * functions that the job or another part calls by name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/protocol/frame.h"
#include "launcher/job/part.h"

/* clang-format off */
#define JOB_PARTS(X)   \
    X(preflight)       \
    X(preload)         \
    X(endpoints)       \
    X(dns_wait)        \
    X(lease_order)     \
    X(start_timeout)   \
    X(progress)        \
    X(pty)             \
    X(links)           \
    X(rank_ends)       \
    X(elastic)         \
    X(stack_dump)      \
    X(debugger)        \
    X(sweep)           \
    X(leftovers)       \
    X(status)          \
    X(timeline_parts)  \
    X(last_waits)      \
    X(flight)          \
    X(samples)         \
    X(history)
/* clang-format on */

#define AS_DECLARATION(name) extern const struct job_part part_##name;
JOB_PARTS(AS_DECLARATION)
#undef AS_DECLARATION

/* ---- preload.c ----------------------------------------------------------------------------------------- */

/* The path on this host of the file that the first word of a command means, or NULL when that word means no
 * file of --preload. */
const char *preload_local_path(const struct job *j, const char *command);

/* ---- preflight.c --------------------------------------------------------------------------------------- */

/* A host has failed, or has answered after another had: ends the job once all hosts have answered, or
 * soon. */
void preflight_settle(struct job *j);
/* Says what is known; -1 when there is a fault, which is then in the outcome. */
int preflight_conclude(struct job *j);
/* Has a session named a problem of its host? */
bool preflight_has_problem(const struct job *j);

/* ---- links.c ------------------------------------------------------------------------------------------- */

/* The addresses at which the engine of a host listens; NULL: it does not listen yet. */
const Hvd__Link *links_of_engine(const struct job *j, uint32_t plan_host);

/* ---- dns_wait.c ---------------------------------------------------------------------------------------- */

#define UNRESOLVED_HINT "check the spelling, DNS and /etc/hosts"

/* h->name.why is set now. */
void dns_wait_add(struct job *j, struct host *h);

/* ---- lease_order.c ------------------------------------------------------------------------------------- */

/* h->lease.waiting says where the job stands in the host's queue. */
void lease_order_waiting(struct job *j, struct host *h);
/* h->lease.node is known now. */
void lease_order_held(struct job *j, struct host *h);

/* ---- start_timeout.c ----------------------------------------------------------------------------------- */

/* --start-timeout counts from now. */
void start_timeout_restart(struct job *j);
/* Names the hosts that the start of the workers still waits for, and their phases, after a comma; empty:
 * none. */
void start_timeout_describe(const struct job *j, char *out, size_t size);

/* ---- links.c ------------------------------------------------------------------------------------------- */

/* A session needs links to the others: all sessions are told to listen, once. */
void links_order(struct job *j);
/* Were the sessions told to listen? */
bool links_are_ordered(const struct job *j);

/* ---- pty.c --------------------------------------------------------------------------------------------- */

/* After SIGCONT: the worker's terminal is raw again. */
void pty_resume(struct job *j);
/* Tells the worker the size of the user's terminal, if that worker runs. */
void pty_tell_window(struct job *j);

/* ---- stack_dump.c -------------------------------------------------------------------------------------- */

#define STACK_DUMP_MS  5000
#define WHERE_KEPT_MAX ((size_t)16 << 20)

/* Asks. Posts JOB_EV_INSPECTED when all hosts have answered. */
void stack_dump_start(struct job *j);
/* Shows the answers that have come, once. */
void stack_dump_say(struct job *j);

/* ---- sweep.c ------------------------------------------------------------------------------------------- */

/* Posts JOB_EV_SWEPT when every lost host is swept or given up; at once when none was lost. A user who has
 * insisted before gets one attempt a host and no waiting. */
void sweep_start(struct job *j);
/* Ends the waiting: attempts under way are dropped. A host that was reached gets one more attempt, in which
 * leftovers get no grace; called again, that attempt is dropped too. */
void sweep_skip(struct job *j);

/* ---- leftovers.c --------------------------------------------------------------------------------------- */

/* Has a host named any? */
bool leftovers_exist(const struct job *j);

/* ---- status.c ------------------------------------------------------------------------------------------ */

/* Keeps what a rank wrote, for hvdctl logs. */
void status_keep_output(struct job *j, const struct frame *f);
/* Asks all hosts what their ranks wait in, and calls `then` with the job when they have answered, or late.
 * status_why tells the reason that follows from the answers and from `where` (by rank), in a sentence; false:
 * none is seen. */
void status_ask_why(struct job *j, void (*then)(void *job));
bool status_why(struct job *j, Hvd__Where *const *where, char *text, size_t size);
/* Ranks have waited for others for too long: all hosts are asked, and the reason is said when it is known. */
void status_say_why(struct job *j);

/* ---- samples.c ----------------------------------------------------------------------------------------- */

/* Points each rank of the status to what is known of its lateness. The status must not be freed before
 * samples_take_back. */
void samples_lend(const struct job *j, Hvd__JobStatus *status);
void samples_take_back(Hvd__JobStatus *status);
/* "the ranks of b were last seen in "grad.6", 12.9 s before it was lost", of a host that was lost. Empty:
 * they were seen in none. */
void samples_last_seen(const struct job *j, const struct host *h, char *text, size_t size);

/* ---- history.c ----------------------------------------------------------------------------------------- */

/* Keeps what a host tells of its ranks, all of which are its own. */
void history_note(struct job *j, struct host *h, const Hvd__Samples *told);

/* ---- timeline_parts.c ---------------------------------------------------------------------------------- */

/* The path of the one file that --timeline-filename asks for. 0, or an errno: EINVAL when it wants none. */
int timeline_path(const struct job *j, char *path, size_t size);
/* `number` as in TimelinePart, of a process whose file hvdrun does not have. NOWHERE: it has written none, as
 * far as hvdrun can know. */
enum timeline_place { TIMELINE_NOWHERE, TIMELINE_ON_HOST, TIMELINE_UNKNOWN };
enum timeline_place timeline_part_place(const struct job *j, const struct host *h, uint32_t number);
/* Takes bytes of a part. -1 with *e: the host broke the protocol. */
int timeline_parts_data(struct job *j, struct host *h, const struct frame *f, struct err *e);
