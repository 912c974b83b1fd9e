/* The engine process: what its files share. One per job and host, one thread, one epoll loop, no global state
 * but this struct.
 *
 *   main.c     fd 3, configuration, exit status      local.c    rings, helping with chunks on one host
 *   engine.c   the loop, the beat, the poison        agree/     readiness, the execution list
 *   session.c  frames to and from the session        run/       one entry of that list, between hosts
 *   workers.c  the worker socket, pidfds             remote.c   what hosts tell of tensors
 *   names.c    tensor names to slots, segments       peers.c    links to the other engines, deaths told there
 *   stall.c    which tensors wait for whom (pure)    stalls.c   asks the other hosts and tells of it
 *   sets.c     the world, process sets, pairs        reinit.c   the next epoch of the job
 *   autotune.c which values are best (pure)          tuning.c   measures, and tells all hosts
 *   joins.c    what ranks in hvd_join take part in   counters.c what the engine reports when it is asked
 *   gpu/       the ranks' operations on GPUs, where NCCL runs here
 *
 * On one host the ranks finish synchronous and small operations among themselves; the engine names slots,
 * passes segments on, watches over the processes, and takes chunks of large asynchronous operations. With
 * more hosts every operation comes here when it is complete on this host, and is settled here. */
#ifndef HVD_COLLECTIVES_ENGINE_ENGINE_H
#define HVD_COLLECTIVES_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/backends/backend.h"
#include "collectives/backends/scratch.h"
#include "common/net/links.h"
#include "collectives/engine/spin_policy.h"
#include "collectives/engine/agree/readiness.h"
#include "collectives/engine/stall.h"
#include "collectives/shm/region.h"
#include "collectives/shm/segment.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/worker_socket.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

#define ENGINE_SEGMENTS_MAX  4096u
#define ENGINE_STRANGERS_MAX 64u /* connections beyond one for each rank of this host */
#define ENGINE_NAME_BUCKETS  SHM_SLOTS
#define ENGINE_SET_BUCKETS   4096u
#define ENGINE_PAIRS_MAX     SHM_SLOTS /* each needs a name of its own, so no more can be used */
#define ENGINE_CAUSE_WAIT_MS 20        /* how long a dead process's cause is waited for */
#define ENGINE_BEAT_MS       100
#define ENGINE_DATA_BYTES    4096       /* of a tensor that travels with its readiness */
#define ENGINE_FUSION_BYTES  (1u << 20) /* of tensors that travel between hosts as one */
#define ENGINE_CONNECT_MS    300000     /* for NCCL: a first start on cold disks takes minutes */
#define ENGINE_SPIN_NS       50000      /* after the last activity, on several hosts */
#define ENGINE_LINKS_MS      30000      /* from knowing where all engines listen to being connected to all */

struct engine;

/* A descriptor on the loop. */
struct watch {
    int fd; /* -1: none */
    void (*ready)(struct engine *engine, struct watch *watch, uint32_t events);
};

/* A connection on the worker socket; after its hello it is a member's. */
struct worker {
    struct watch watch; /* first: the loop's pointer is ours */
    struct worker_reader reader;
    uint32_t member; /* UINT32_MAX: a stranger */
};

/* A rank of this host, by local rank. */
struct member {
    struct watch pidfd; /* first */
    struct worker *worker;
    uint32_t pid;
    bool joined, shut_down;
    bool joining;     /* it is in hvd_join */
    uint32_t epoch;   /* that it has joined last */
    uint64_t dead_at; /* its process has ended; poison then, or when the session tells the cause; 0: alive */
};

/* The engine's side of a tensor name. */
struct name {
    char *text;          /* NULL: the slot is free */
    uint32_t hash, next; /* next slot in the bucket; 0: none */
    struct set *set;
    bool has_view, announced;
    bool running; /* a run uses the view: whatever the ranks write, nothing new begins before it is settled */
    struct tensor_view view;
    uint32_t wanted; /* the operation that this host's joined ranks were told of last */
    uint32_t asked;  /* the one that other hosts have told of last, for those ranks */
    int status;      /* of opening it */
    char error[SHM_TEXT_MAX];
};

struct owned_segment {
    int fd; /* -1: free */
    uint32_t member;
    struct segment map; /* when the engine needed it */
};

struct host {
    struct watch link; /* first; once it is ready */
    char *name;
    uint32_t ranks;
    uint32_t *rank; /* [ranks], ascending */
};

struct rank_place { /* of a rank */
    uint32_t host, local;
};

struct run; /* run.h */

/* Ranks that do operations among themselves: the world, a process set, two that send and receive. Each with
 * its own readiness, list and queue of runs, so that none holds another one up. */
struct set {
    struct set *next, *next_in_bucket, *next_active;
    bool active; /* remote_progress has something to do for it, or looks whether it has */
    struct team *team;
    bool removed;
    uint32_t hosts, self;    /* the hosts that have ranks of it, and the number of this one among them */
    uint32_t *host;          /* [hosts], in the job, ascending */
    uint32_t *first, *ranks; /* [hosts]: the host's ranks in `order` */
    struct partial_shape shape;
    uint32_t *order;             /* [ranks of the team], in the team, by host; NULL: 0, 1, ... */
    struct readiness *readiness; /* NULL: all are on this host, or none */
    uint64_t gathers_since;      /* when the first came that others could join; 0: there is none */
    bool gathers;                /* and it waits for them */
    struct run *run_first, *run_last;
    uint64_t operations; /* of the backend, that its runs have started */
};

struct stalls; /* stalls.c */
struct early;  /* reinit.c */
struct timeline;
struct tuning;  /* tuning.c */
struct devices; /* gpu.h */

/* First byte of a control frame between engines, besides those of readiness and of the backends. */
enum peer_message {
    PEER_FAILED = 16,
    PEER_STALL = 17,
    PEER_SET = 18,
    PEER_TUNING = 20,
    PEER_JOINED = 21,
    PEER_WANTED = 22
};

struct engine {
    int epoll;
    bool ended;    /* the session has gone: leave the loop */
    bool has_sent; /* messages about tensors, in this turn */
    struct watch session, listener, kick, links_watch;
    struct buf in, out; /* of the session's socket */
    uint32_t in_sequence, out_sequence;
    int passed_fd; /* came beside a frame; -1: none */

    bool configured;
    char *job;
    uint32_t epoch, size, self, hosts;
    struct host *host;
    struct rank_place *place; /* [size], of each rank */
    uint8_t *token;           /* WORKER_TOKEN_SIZE secret bytes */

    struct region region;
    int region_fd;
    uint64_t beat_at;          /* next */
    uint64_t ping_at, ping_ns; /* the same, to the session */
    uint64_t spin_until;
    struct calm calm;
    int delay_fd; /* the kernel's count of time without a processor; -1: there is none */
    bool flat;    /* reductions between hosts do not begin within them (run_unreduced.c) */
    bool worked;  /* since the last beat */
    bool may_spin;
    uint64_t fusion_bytes;      /* what hvdrun's options say, or the standard */
    uint32_t device_fuse;       /* likewise: of small tensors on devices, at once */
    uint32_t device_connect_ms; /* likewise: how long NCCL may take to connect */
    bool device_requires;       /* likewise: NCCL */
    uint64_t cycle_ns;
    uint32_t cache_capacity; /* of each set; UINT32_MAX: nothing is said */
    uint32_t members;
    struct member *member;
    struct worker *worker; /* [workers]: members and strangers */
    uint32_t workers;

    struct name name[SHM_SLOTS];
    uint32_t bucket[ENGINE_NAME_BUCKETS], names;
    struct owned_segment segment[ENGINE_SEGMENTS_MAX];

    uint32_t help[SHM_SLOTS]; /* slots with chunks for us, oldest first */
    uint32_t help_first, help_count;
    struct stall stall;
    struct stalls *stalls;
    struct timeline *timeline; /* NULL: none is written */
    struct tuning *tuning;     /* NULL: nothing is tuned */
    struct devices *devices;   /* NULL: the workers run NCCL themselves */

    struct links *links;
    bool links_up,
        started;     /* every link is ready; the first operation (the barrier of hvd_init) was settled */
    bool finished;   /* the shutdown was settled: links and ranks may go */
    bool links_down; /* given up after a failure */
    struct backend *backend;
    struct set *sets, *world, *active;
    struct set *set_bucket[ENGINE_SET_BUCKETS]; /* by id */
    uint32_t pairs;
    struct scratch scratch; /* runs borrow of it */
    struct run *spare_run;  /* the one that ended last, to be used again; or NULL */
    struct early *early;    /* messages of the next epoch */
    uint32_t joining;       /* members that are in hvd_join */
    uint32_t join_slot;     /* of SHM_JOIN_NAME; SHM_SLOTS: it has none yet */
    uint32_t *join_of; /* [size]; the last join that other hosts' ranks are known to have come to; 0: none */
    uint32_t join_heard; /* the last of those */
    uint32_t earlies;
    struct counted
        *counted;       /* [members * SHM_KINDS], of epochs that have ended; NULL: none has; counters.c */
    uint32_t gone_rank; /* one that has ended, in whatever way; UINT32_MAX: none */
    uint32_t lost_host; /* when this epoch had no need of it any more; UINT32_MAX: none */
};

/* engine.c */
struct engine *engine_new(int session_fd, struct err *e);
void engine_free(struct engine *engine);
/* Until the session has gone. -1 with *e when something is broken that ends the job on this host. */
int engine_loop(struct engine *engine, struct err *e);
int engine_watch(struct engine *engine, struct watch *watch, uint32_t events, struct err *e);
void engine_unwatch(struct engine *engine, struct watch *watch); /* does not close */
/* The job has failed: every pending and later call on this host ends with status and text; other hosts are
 * told. The first one stays. */
void engine_poison(struct engine *engine, int status, const char *text);
/* The same, because this host's `rank` has ended. */
void engine_poison_by(struct engine *engine, uint32_t rank, int status, const char *text);
/* The same, because this engine has no room for what it would have to keep: `why` says for what. */
void engine_out_of_memory(struct engine *engine, const char *why);
const char *engine_host_of(const struct engine *engine, uint32_t rank);

/* session.c */
void session_ready(struct engine *engine, struct watch *watch, uint32_t events);
int session_send(struct engine *engine, const Hvd__Engine *message, struct err *e);
void session_notice(struct engine *engine, uint32_t level, const char *text);
/* Shows that we live. */
void session_ping(struct engine *engine);
/* The job has failed, because of this host's `rank` or (UINT32_MAX) not; sent before the workers can see it.
 */
void session_poisoned(struct engine *engine, uint32_t rank);
/* The engine is about to end the job; `text` is the cause. */
void session_fault(struct engine *engine, const char *text);
/* Of the epoch's control region. */
struct region_shape engine_shape(const struct engine *engine);
int session_configure(struct engine *engine, const Hvd__EngineConfig *config, int listener, struct err *e);

/* workers.c */
void workers_accept(struct engine *engine, struct watch *watch, uint32_t events);
/* To a member whose question could not be answered at once. */
void workers_answer_later(struct engine *engine, uint32_t member, const struct worker_message *answer);
/* The session says that a rank (of any host) has ended. */
void workers_rank_ended(struct engine *engine, const Hvd__RankEnded *ended);
/* Poisons for members whose cause did not come in time; returns the next such time, 0 for none. */
uint64_t workers_deaths(struct engine *engine, uint64_t now);
void workers_free(struct engine *engine);

/* names.c */
int names_slot(struct engine *engine, struct set *set, const char *text, uint32_t *slot, char *error,
               size_t error_size);
/* UINT32_MAX: there is none such. */
uint32_t names_find(const struct engine *engine, const struct set *set, const char *text);
int names_fixed(struct engine *engine, struct err *e);
void names_free(struct engine *engine);
/* Takes the descriptor. */
int segments_add(struct engine *engine, uint32_t member, int fd, uint32_t *id, char *error,
                 size_t error_size);
void *segments_resolve(void *engine, uint64_t address, uint64_t bytes);
void segments_free(struct engine *engine);

/* sets.c */
/* The world. */
int sets_start(struct engine *engine, struct err *e);
/* The set, or the team of a pair, which is made when it is first asked for; NULL: there is none, or no more
 * pairs can be. */
struct set *sets_find(struct engine *engine, int32_t id);
/* `fd` holds the ranks and stays the caller's. An hvd_status. */
int sets_add(struct engine *engine, int32_t id, int fd, char *error, size_t error_size);
void sets_remove(struct engine *engine, int32_t id);
/* Its number between hosts. */
uint32_t set_number(const struct set *set);
/* The job's host of an index in the team. */
uint32_t set_host_of(const struct engine *engine, const struct set *set, uint32_t index);
/* A bit for each rank of a host of the job, by local rank, that is in the set. */
void set_mask(const struct engine *engine, const struct set *set, uint32_t host, uint8_t *mask);
void sets_send(struct engine *engine, struct set *set);
/* A message of the world's readiness, or a PEER_SET. */
int sets_receive(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);
void sets_free(struct engine *engine);

/* reinit.c */
/* The next epoch begins. -1 with *e: it cannot yet, or (the engine ends) at all. */
int again_begin(struct engine *engine, struct err *e);
/* A message of the next epoch: kept until that has begun, which again_progress sees to. */
int again_early(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);
/* Something of that host is kept: it has finished this epoch. */
bool again_is_early(const struct engine *engine, uint32_t host);
void again_progress(struct engine *engine);
void again_free(struct engine *engine);

/* local.c */
/* Takes what lies in the rings. true: something did. */
bool local_collect(struct engine *engine);
/* One chunk. true: there may be more. */
bool local_help(struct engine *engine);
struct tensor_view *local_view(struct engine *engine, uint32_t slot);

/* joins.c */
int joins_start(struct engine *engine, struct err *e);
void joins_again(struct engine *engine); /* the next epoch */
void joins_free(struct engine *engine);
/* A member is in hvd_join now, or is not any more. */
void joins_member(struct engine *engine, uint32_t member, bool joining);
/* A member has arrived there, and others of this host have perhaps not. */
void joins_arrived(struct engine *engine, uint32_t slot);
/* What its view has read was announced to other hosts. */
void joins_announced(struct engine *engine, uint32_t slot);
/* A PEER_JOINED or PEER_WANTED. */
int joins_receive(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);

/* remote.c */
void remote_complete(struct engine *engine, uint32_t slot); /* all of this host have arrived */
/* Sends readiness, runs what is due. true: call again soon. */
bool remote_progress(struct engine *engine);
/* When remote_progress wants to be called; 0: there is no such time. */
uint64_t remote_due(const struct engine *engine);
/* Something has changed for the set's readiness. */
void remote_wake(struct engine *engine, struct set *set);
void remote_free(struct engine *engine);

/* counters.c */
/* Answers the session's question. */
void counters_tell(struct engine *engine);
/* The epoch ends: what its region counted is kept. */
void counters_keep(struct engine *engine);
void counters_free(struct engine *engine);

/* stalls.c */
struct stall_told { /* an operation that ranks of this host are in now */
    uint64_t since;
    uint32_t slot, operation;
    const char *tensor, *kind;
    char missing[sizeof((struct stall_ranks *)0)->text]; /* empty: nobody here, and others were not asked */
};
/* The longest ones, at most `most` of them. Returns how many there are. */
uint32_t stalls_now(const struct engine *engine, uint64_t now, struct stall_told *told, uint32_t most);
/* Looks for stalls, and after those that were found. To be called at every beat. */
void stalls_progress(struct engine *engine, uint64_t now);
/* A PEER_STALL. */
int stalls_receive(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e);
void stalls_free(struct engine *engine);

/* timeline.c */
enum timeline_point {
    TIMELINE_ANNOUNCED,
    TIMELINE_DUE, /* since: when all hosts were known to have it */
    TIMELINE_REDUCE,
    TIMELINE_NETWORK,
    TIMELINE_SPREAD,
    TIMELINE_SETTLED
};
/* Starts the one that hvdrun's options ask for. */
void timeline_start(struct engine *engine, const Hvd__EngineTuning *tuning);
/* Completes the file, if there is one; or does so if all ranks of this host have left. */
void timeline_stop(struct engine *engine);
void timeline_stop_after(struct engine *engine);
/* Only while there is one: */
void timeline_record(struct engine *engine, const struct tensor_view *view, enum timeline_point point,
                     uint64_t since);
void timeline_turn(struct engine *engine, bool executed);

static inline void timeline(struct engine *engine, const struct tensor_view *view, enum timeline_point point,
                            uint64_t since)
{
    if (__builtin_expect(engine->timeline != NULL, 0))
        timeline_record(engine, view, point, since);
}

/* device*.c: while operations on devices are run here */
int devices_start(struct engine *engine, struct err *e);
void devices_forget(struct engine *engine); /* the epoch ends */
void devices_again(struct engine *engine);  /* the next one begins; it has a region */
/* The member has a new connection, where nothing was asked yet. */
void devices_begin(struct engine *engine, uint32_t member);
/* A question WORKER_DEVICE_... of a member's. false: it is answered later. */
bool devices_answer(struct engine *engine, uint32_t member, struct worker_reader *reader,
                    struct worker_message *answer);
/* Takes what lies in the rings `launch`, and does what can be done. Milliseconds until it wants to run again;
 * -1: no time limit. */
int devices_progress(struct engine *engine, uint64_t now);
bool devices_waiting(const struct engine *engine); /* something lies there */
/* What NCCL does ends now, and nothing else begins. */
void devices_abort(struct engine *engine);
void devices_free(struct engine *engine);

/* peers.c */
/* A control frame of another engine. */
void peers_take(struct engine *engine, uint32_t host, const void *data, size_t size);
/* A new backend over the same links. */
int peers_again(struct engine *engine, struct err *e);
int peers_start(struct engine *engine, const Hvd__EngineConfig *config, struct err *e);
void peers_connect(struct engine *engine, const Hvd__Links *links);
void peers_tell_death(struct engine *engine, int status, const char *text);
/* true: something came in. */
bool peers_progress(struct engine *engine, uint64_t now);
/* After what was sent in this turn: has the other one of two hosts sent something meanwhile? Both begin at
 * about the same time, and to look costs less than to let the loop find out. */
bool peers_look(struct engine *engine, uint64_t now);
/* Milliseconds until peers_progress wants to run; -1: no time limit. */
int peers_timeout(const struct engine *engine, uint64_t now);
void peers_free(struct engine *engine);

#endif
