/* The inside of the test double of NCCL: ranks meet in shared memory, operations run in the threads of their
 * streams and wait there for the other ranks for as long as it takes, or until their communicator is aborted.
 */
#pragma once

#include "tests/gpu/double/double.h"
#include "tests/gpu/double/nccl_api.h"

enum { RANKS_MAX = 64, CHUNK = 128 << 10, MAIL = 16 << 10, WORDS = 160 };

struct member {
    _Atomic uint32_t bell;    /* rung whenever this rank may have to look again */
    _Atomic uint32_t arrived; /* the last meeting it has come to */
    _Atomic uint32_t joined, failed;
    int32_t device, pid;
    unsigned char uuid[16];
    uint64_t host;
    char words[2][WORDS]; /* its latest operations of even and of odd number, as text */
};

struct mail { /* from one rank to another, a piece at a time */
    _Atomic uint32_t written, read;
    uint64_t total;
    uint32_t bytes;
    char data[MAIL];
};

struct area {
    _Atomic uint32_t size; /* ranks, once the first has come */
    struct member member[RANKS_MAX];
};

enum comm_state { COMM_JOINING, COMM_READY, COMM_FINALIZED, COMM_FAILED, COMM_ABORTED };

struct comm {
    ncclComm_t handle;
    pthread_mutex_t lock;
    enum comm_state state;
    bool blocking, asked; /* asked: the first question for its state has been answered with "in progress" */
    int rank, size, device;
    struct segment segment;
    struct area *area;
    _Atomic int error, aborted, pending; /* pending: batches that streams still hold */
    uint32_t step, operations;           /* of the stream's thread that runs its operations */
    pthread_mutex_t running;
    struct batch *late; /* calls that were "in progress"; late_polls: questions since */
    int late_polls;
    bool ended; /* no handle any more */
    uint32_t calls;
    uint64_t ready_at;   /* not before */
    struct stream *last; /* the stream of its last batch */
    pthread_cond_t idle;
    struct known *memory; /* registered; under the lock */
};

enum kind {
    KIND_ALLREDUCE,
    KIND_BROADCAST,
    KIND_REDUCE,
    KIND_ALLGATHER,
    KIND_REDUCESCATTER,
    KIND_SEND,
    KIND_RECV,
    KINDS
};
enum { REDUCE_PREMULSUM = 5 };

union number {
    double f;
    int64_t i;
};

struct op {
    enum kind kind;
    const void *send;
    void *recv;
    size_t count;
    int type, reduce, root; /* root: also the peer of send and recv */
    union number scale;
    uint64_t scale_at; /* in device memory, when not 0 */
    size_t known;      /* 1 + its place in registered memory; 0: it is in none */
};

struct batch { /* the operations of one call or group on one communicator */
    struct batch *next;
    struct comm *comm;
    struct stream *stream, *others[8];
    int n, room, n_others;
    struct op *op;
};

/* ---- nccl_comm.c ---- */
struct comm *nccl_comm(ncclComm_t handle); /* NULL: there is no such one (any more), and said */
ncclResult_t nccl_say(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* for ncclGetLastError; returns result */
ncclResult_t nccl_enter(const char *function);
int nccl_version(void);
ncclResult_t nccl_poll(struct comm *comm); /* goes on with what is in progress; the lock is held */
ncclResult_t nccl_wait_ready(struct comm *comm);
void nccl_done_with(struct comm *comm); /* a batch has ended */
void nccl_ring(struct area *area, int rank);
void nccl_hear_of_deaths(struct comm *comm); /* the lock is held */

/* ---- nccl_calls.c ---- */
bool nccl_in_group(struct comm *comm); /* of this thread: its end will wait for the new communicator */
ncclResult_t nccl_launch(struct batch *batch);

/* ---- nccl_memory.c ---- */
size_t nccl_place_in_known(struct comm *comm, const struct op *op);
void nccl_leave_known(struct comm *comm, const struct op *op);
void nccl_forget_memory(struct comm *comm);

/* ---- nccl_run.c ---- */
void nccl_run_batch(struct context *context, void *argument);
size_t nccl_width(int type);
const char *nccl_kind(enum kind kind);

/* ---- nccl_number.c ---- */
union number nccl_read(int type, const void *at);
void nccl_write(int type, void *at, union number value);
void nccl_combine(const struct op *op, union number *into, union number value);
void nccl_finish(const struct op *op, union number *value, int ranks);
union number nccl_scaled(const struct op *op, union number value);
bool nccl_is_float(int type);

/* ---- nccl_mail.c ---- */
bool nccl_exchange_mail(struct comm *comm, const struct op *op,
                        int n); /* all sends and receives among them */
struct mail *nccl_mail(struct comm *comm, int from, int to);
size_t nccl_area_size(int ranks);
char *nccl_slot(struct comm *comm, int rank);
