/* The judgement why a job does not go on, from what the sessions have told. Pure.
 *
 * Evidence in the order of its weight: a host that does not answer; operations of libhvd that ranks wait in,
 * with the ranks that are not in them; ranks that are stopped or wait in the kernel; and, for programs
 * without libhvd, the stacks. A reason that only the stacks show is a guess, and is called so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"

/* Shares of a rank's time. */
struct why_use {
    double computes;  /* of a processor, with the processes below it */
    double delayed;   /* ready, without a processor */
    double throttled; /* held back by a limit of its cgroups; of several processors the sum */
    double resent;    /* segments a second that its host sends to others again */
    double lost_to;   /* the most that another host of the job sends again; it may be to this host */
    double hot;       /* its host's processors were slower because of heat */
    double heats;     /* a second: so often that began */
    int nice;
    unsigned policy;     /* as in sched(7) */
    unsigned weight;     /* of its cgroups, in percent of the usual one; 0: no less than that, or not known */
    unsigned frequency;  /* of its processor, in percent of the highest one; 0: not known */
    uint64_t gpu_slowed; /* the reasons of its GPU (gpu_slow.h); 0: nothing slows it, or it is not known */
};

struct why_rank {
    uint32_t rank;
    const char *host; /* NULL: no host has told of it */
    uint32_t pid;
    const char *state; /* in words; how it ended */
    bool ended, initialized, shut_down;
    struct why_use use;            /* between two looks */
    double in_operations;          /* of libhvd: mostly for others that are late; negative: not known */
    const Hvd__Lateness *lateness; /* NULL: not known */
    bool is_unknown;               /* the engine of its host has not said what it waits in */
    const Hvd__Where *where;
};

/* An operation that some ranks are in and others are not, put together from all hosts. */
struct why_operation {
    const char *tensor, *kind;
    int32_t set;
    uint64_t ms;             /* 0: not known */
    uint8_t *arrived;        /* [size]: the rank is in it */
    uint8_t *missing;        /* [size]: it should be */
    uint32_t here, expected; /* how many */
};

struct why_job {
    uint32_t size;
    struct why_rank *rank; /* [size] */
    const char **silent;   /* hosts without an answer */
    size_t silents;
    const char *deaf;                /* a host whose engine does not answer; NULL: all do */
    struct why_operation *operation; /* the longest first */
    size_t operations;
    bool counted;          /* an engine has told its counters */
    uint64_t interval_ms;  /* between two looks */
    uint64_t ended, bytes; /* operations of libhvd that ended meanwhile; bytes that went between hosts */
    bool has_stacks;
};

enum why_verdict {
    WHY_HEALTHY,
    WHY_SILENT_HOST,
    WHY_DEAF_ENGINE, /* of a host */
    WHY_ORDER,       /* ranks are in different operations */
    WHY_MISSING,     /* ranks have not come to an operation */
    WHY_MOVING,      /* all ranks are in one: it is under way */
    WHY_STOPPED,
    WHY_KERNEL,
    WHY_ELSEWHERE, /* by stacks */
    WHY_ENDED,     /* ranks have ended, and others not */
    WHY_STARTING,  /* before hvd_init */
    WHY_WORKING,   /* nobody waits */
    WHY_UNKNOWN
};

#define WHY_SENTENCE 1024

struct why {
    enum why_verdict verdict;
    bool guess;
    uint8_t *culprit; /* [size] */
    uint32_t culprits;
    char sentence[WHY_SENTENCE]; /* the culprit and the evidence */
    char remedy[256];            /* may be empty */
};

/* A word for programs: "stopped", "missing". */
const char *why_word(enum why_verdict verdict);
/* out->culprit has room for job->size, all zeros. */
void why_judge(const struct why_job *job, struct why *out);

#define WHY_REASON 200

/* ---- slow ranks (why_slow.c) --------------------------------------------------------------------------- */

/* Adds what is known of a rank at its last look; `h` may be NULL. */
void why_add_handicap(struct why_use *use, const Hvd__Handicap *h);
/* Words for what a slow rank does: it is held back, it has no processor, it computes, or it waits. */
void why_explain_slowness(const struct why_use *use, char *text, size_t size);

/* The function in which a stack waits for other ranks (MPI_Allreduce, ncclAllReduce, gloo::...); empty: the
 * stack does not say that it waits. For tests. */
void why_call_of(const char *stack, char *out, size_t size);
