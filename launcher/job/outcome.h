/* How a job went: which fault came first, the exit status, and the sentences for the user. Pure: no I/O,
 * times are arguments.
 *
 * Faults arrive in any order and from hosts whose clocks differ; each carries its time on the launcher's
 * clock. The earliest one is the cause. A rank that hvdrun ended is never the cause, only counted. A rank
 * that failed because it was told HVD_ERR_PEER is the cause only when no other fault is known. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a worker ended; see Exited in control.proto. */
struct rank_end {
    uint32_t rank;
    uint32_t pid;
    uint32_t status;
    uint32_t signal;
    bool core_dumped;
    bool by_us;
    bool not_shut_down;
    bool told_peer;
    bool oom;
    bool aborted; /* asked for the job's end, with abort_code */
    uint32_t abort_code;
    const char *gave_up; /* its sentence in hvd_abort, which its owner keeps; NULL: it did not give up */
};

struct outcome {
    bool failed;
    bool first_is_rank;
    bool first_is_told;  /* a rank that was told HVD_ERR_PEER: gives way to any other fault */
    uint64_t time;       /* of the first fault, launcher's clock */
    int exit_status;     /* of hvdrun because of it */
    struct rank_end end; /* of the first fault when it is a rank's */
    char text[1024];     /* the cause in one line */
    char hint[384];      /* the remedy, or empty */
    uint32_t ended;      /* ranks that were ended because of it */
    uint32_t faults;     /* ranks that failed by themselves */
    bool unread;         /* the fault is that nobody reads the output any more, as after | head */
    bool decided;        /* the exit status is that of what follows */
    char ended_by[256];  /* the limit or signal that ended a job which goes on after faults, or empty */
};

#define RANK_SENTENCE_MAX 320 /* of a rank that gave up */
#define RANK_END_TEXT     512 /* room for any end in words */

/* True for an end that is a fault: not by us, and a status, a signal, or no hvd_shutdown. The end of a rank
 * that gave up is one, however that rank ended. */
bool rank_end_failed(const struct rank_end *end);
/* "exit status 3", "killed by signal 9 (Killed)", ... */
void rank_end_describe(const struct rank_end *end, char *out, size_t size);

/* How long a worker has run; 0, too, when its end came before word of its start (`started` is 0 then). */
double outcome_seconds_after(uint64_t started, uint64_t time);
/* Records a worker's end. `started` and `time` on the launcher's clock. `program`: what it ran, in a job of
 * several; else NULL. */
void outcome_rank_ended(struct outcome *o, const struct rank_end *end, const char *host, const char *program,
                        uint64_t started, uint64_t time);
/* Records another fault: a lost host, a refused command, a limit, a signal to hvdrun. */
void outcome_fault(struct outcome *o, uint64_t time, int exit_status, const char *text, const char *hint);
/* Records a limit or a signal. `going`: the job goes on when a rank fails, so that this is what ends it, and
 * is said even when another fault was the first; `decides`: the exit status is this one's then as well. */
void outcome_stop(struct outcome *o, uint64_t time, int exit_status, const char *text, bool going,
                  bool decides);
/* The limit or signal that ended the job after a first fault; else NULL. */
const char *outcome_ended_by(const struct outcome *o);
