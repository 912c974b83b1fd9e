/* The workers of this host: one table, how they start, how they end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/worker/cpus.h"
#include "agent/worker/stdio.h"
#include "agent/worker/worker_env.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"
#include "common/process/rlimits.h"
#include "common/process/spawn.h"

struct worker {
    uint32_t rank;
    pid_t pid;
    bool alive;                  /* not reaped yet; its pid is also its process group */
    bool reported;               /* Exited was sent */
    bool ended_by_us;            /* it was alive when the signals of Teardown were sent */
    uint64_t fatal_sent;         /* bit n: signal n was forwarded to it */
    bool initialized, shut_down; /* told by the engine */
    pid_t caller;                /* of hvd_init, as the engine says; 0: there was none */
    uint32_t status, signal;
    bool aborted; /* it asked for the end of the job, or its library did when it had ended */
    bool called_abort;
    uint32_t abort_code, abort_status; /* as it said it; the exit status that is made of it */
    bool core_dumped;
    bool oom;             /* killed by the kernel for lack of memory */
    uint64_t began, time; /* of its start and end, or of its call when it asked for the end of the job */
    uint64_t peak_kib, user_us, system_us;
    struct outlet out, err;
    struct inlet in;
    bool has_stdin;
    bool terminal; /* all three are one; `out` has what it shows */
};

struct workers {
    struct worker *item; /* [room]; they never move */
    size_t room;
    size_t count;
    size_t alive;
    size_t unreported;
};

/* The launcher's soft limits, as far as the hard limits of this host allow. */
struct rlimits {
    struct spawn_limit limit[RLIMITS_COUNT];
    size_t count;
};

/* The start of workers of this host that run the same program. */
struct worker_start {
    const Hvd__Spawn *spawn;
    const Hvd__Worker *worker; /* that is started next */
    struct stdio *stdio;
    char **argv;
    const char *path, *dir;
    struct worker_env *env;
    int cgroup_fd;
    int report_fd;
    const struct rlimits *limits;
    const struct cpus *cpus; /* of the one that is started next; NULL: it is not bound */
    /* The workers do not lead sessions of their own. The kernel may share processors out by session
     * (autogroup); a worker that yields its processor then yields it to workers of its own session only. */
    bool share_session;
};

/* Takes each limit that is known here, once. `capped` is called for each limit that was lowered to the hard
 * limit. */
void rlimits_take(struct rlimits *r, Hvd__ResourceLimit *const *wanted, size_t count,
                  void (*capped)(void *ctx, const char *name, uint64_t wanted, uint64_t hard), void *ctx);
/* The table's memory, nothing started; `room` for more of workers_add. */
int workers_init(struct workers *w, size_t count, size_t room, struct err *e);
/* The index of one more worker; room: there is no place. */
size_t workers_add(struct workers *w);
/* Closes the inlets; the outlets are closed by stdio_close. The memory is freed once the loop has run again.
 */
void workers_close(struct workers *w);
void workers_dispose(struct workers *w);
/* Starts the i-th. -1 with *e: this one was not started; those before it run. */
int workers_start(struct workers *w, size_t i, const struct worker_start *start, struct err *e);
/* The failure between clone and exec, as a sentence. */
int workers_start_failed(const struct spawn_failure *f, const struct worker_start *start, struct err *e);

struct worker *workers_by_pid(struct workers *w, pid_t pid);
struct worker *workers_by_rank(struct workers *w, uint32_t rank);

/* To the process groups of all that are alive. `ours`: a worker that dies of the signal was ended by us, also
 * when the signal does not ask to end. */
void workers_signal(struct workers *w, int number, bool ours);
void worker_signal(struct worker *w, int number, bool ours);
/* From here on the deaths of those that live are ours, unless they have asked for the end themselves. */
void workers_are_ended(struct workers *w);
/* SIGTERM (or `number`) as a part of Teardown, with that. */
void workers_end(struct workers *w, int number);

/* All its output was handed over and it is dead: Exited may be sent. */
bool worker_is_complete(const struct worker *w);
bool worker_was_ended_by_us(const struct worker *w);
/* "exit status 3", "killed by signal 9 (Killed)"; false when it ended as it should. */
bool worker_describe_end(const struct worker *w, char *text, size_t size);
