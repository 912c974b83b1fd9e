/* The engine's lowest services, which every other file of the engine may call: descriptors on the loop,
 * messages to the session, the failure of the job, and the table of parts.
 *
 * A failure is published at once: first the session hears of it, then the region of this host is poisoned, so
 * all pending and later calls of its ranks end. All else is done by the loop, which sees loop.failed at its
 * next turn: it lets every part act (`failed`), and the links tell the other hosts before they are closed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/message.h"

struct engine;
struct engine_regroup;

/* A descriptor on the loop. */
struct watch {
    int fd; /* -1: none */
    void (*ready)(struct engine *engine, struct watch *watch, uint32_t events);
};

/* A turn of the loop, as its parts report it. */
struct turn {
    uint64_t now;
    bool active;  /* something came */
    bool more;    /* there is more to do at once */
    bool helped;  /* a chunk of an operation on this host was pending */
    uint64_t due; /* when a part wants the next turn; 0: there is no such time */
    int timeout;  /* the same in milliseconds from now; -1: no limit */
};

/* A part of the engine, by the occasions in which it takes part; NULL: it does not. The table stands in
 * engine.c. A part uses those behind it in the table, so start and epoch_begin are called from the last part
 * to the first. All else is called from the first part to the last. */
struct engine_part {
    /* The configuration has come. */
    int (*start)(struct engine *engine, const Hvd__EngineConfig *config, struct err *e);
    /* The next epoch: its region is made. */
    int (*epoch_begin)(struct engine *engine, struct err *e);
    /* The epoch is over: its region is still mapped. */
    void (*epoch_end)(struct engine *engine);
    /* The next epoch has other ranks (membership.h): between epoch_end and epoch_begin, in their order. */
    int (*regroup)(struct engine *engine, const struct engine_regroup *g, struct err *e);
    /* A turn of the loop. */
    void (*progress)(struct engine *engine, struct turn *turn);
    /* Every ENGINE_BEAT_MS. */
    void (*beat)(struct engine *engine, uint64_t now);
    /* The job has failed; once. */
    void (*failed)(struct engine *engine);
    /* All ranks of this host have called hvd_shutdown. */
    void (*all_left)(struct engine *engine);
    /* A control frame of another engine, whose first byte is one of these: a bit for each. */
    uint32_t messages;
    int (*message)(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);
    void (*free)(struct engine *engine);
};

/* The places of the former epoch. */
struct engine_regroup {
    const uint32_t *host_was;   /* [hosts] index; UINT32_MAX: the host is new */
    const uint32_t *member_was; /* [members of this host] local rank; UINT32_MAX: the member is new */
    uint32_t members;           /* that this host had */
    bool was_alone;             /* it had no ranks: it begins before the others */
};

#define ENGINE_MESSAGES 32 /* values of a control frame's first byte that belong to parts */

/* First byte of a control frame between engines, besides those of readiness and of the backends. */
enum peer_message {
    PEER_FAILED = 16,
    PEER_STALL = 17,
    PEER_SET = 18,
    PEER_TUNING = 20,
    PEER_JOINED = 21,
    PEER_WANTED = 22,
    PEER_WANTED_AGAIN = 23,
    PEER_FENCE = 24,
    PEER_RANK_LINK = 25
};

int engine_watch(struct engine *engine, struct watch *watch, uint32_t events, struct err *e);
void engine_unwatch(struct engine *engine, struct watch *watch); /* does not close */

/* A message to the session. -1 with *e: it is lost; when the session has gone, the loop ends. */
int engine_send(struct engine *engine, const Hvd__Engine *message, struct err *e);
void engine_notice(struct engine *engine, uint32_t level, const char *text);
/* A warning that ranks have waited for others for too long. */
void engine_notice_stall(struct engine *engine, const char *text);
/* Shows that the engine lives. */
void engine_ping(struct engine *engine);
/* The engine is about to end the job; `text` is the cause. */
void engine_fault(struct engine *engine, const char *text);
/* The same where these workers are the cause, which an elastic job can do without. */
void engine_fault_of(struct engine *engine, const char *text, uint32_t *worker, size_t workers);

/* The job has failed: every pending and later call on this host ends with status and text; other hosts are
 * told at the loop's next turn. The first failure stays. */
void engine_poison(struct engine *engine, int status, const char *text);
/* As engine_poison, because this host's `rank` has ended. */
void engine_poison_by(struct engine *engine, uint32_t rank, int status, const char *text);
/* As engine_poison, because this host's `rank` gave up and said why. */
void engine_gave_up(struct engine *engine, uint32_t rank, const char *why, const char *text);
/* As engine_poison, because this engine has no room for what it would have to keep: `why` says for what. */
void engine_out_of_memory(struct engine *engine, const char *why);
/* An elastic job knows a worker by a number, which is its rank in other jobs. UINT32_MAX: no such rank. */
uint32_t engine_worker_of(const struct engine *engine, uint32_t rank);
/* The rank of the worker in this epoch; UINT32_MAX: it has none. */
uint32_t engine_rank_of(const struct engine *engine, uint32_t worker);
/* The name of the rank's host. */
const char *engine_host_of(const struct engine *engine, uint32_t rank);

int engine_parts_start(struct engine *engine, const Hvd__EngineConfig *config, struct err *e);
int engine_parts_begin(struct engine *engine, struct err *e);
void engine_parts_end(struct engine *engine);
int engine_parts_regroup(struct engine *engine, const struct engine_regroup *g, struct err *e);
void engine_parts_left(struct engine *engine);

/* A part wants a turn at that time; 0: it does not. */
static inline void turn_until(struct turn *turn, uint64_t at)
{
    if (at != 0 && (turn->due == 0 || at < turn->due))
        turn->due = at;
}

/* A part wants a turn within so many milliseconds; -1: it does not. */
static inline void turn_within(struct turn *turn, int ms)
{
    if (ms >= 0 && (turn->timeout < 0 || ms < turn->timeout))
        turn->timeout = ms;
}
