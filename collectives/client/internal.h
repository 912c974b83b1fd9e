/* What the files of libhvd share: one client per process.
 *
 *   init.c    environment, joining, leaving            names.c   a tensor's name to its slot
 *   submit.c  arguments, staging, publishing           arena.c   hvd_alloc, segments, addresses
 *   wait.c    progress of one operation, waiting       rpc.c     questions to the engine
 *   query.c   numbers, errors, names of codes
 *
 * Locks, in the order they may be taken: a tensor's own lock, then names_lock, then arena_lock, then
 * rpc_lock. A tensor's lock is held by whoever submits, polls or waits for its operation, so the operation
 * itself needs no other protection. */
#ifndef HVD_CLIENT_INTERNAL_H
#define HVD_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "collectives/hvd.h"
#include "collectives/shm/region.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/tensor.h"
#include "collectives/shm/worker_socket.h"

#define NAME_BUCKETS SHM_SLOTS

enum client_state { CLIENT_NONE, CLIENT_READY, CLIENT_FORKED };

enum phase {
    PHASE_IDLE,   /* no operation */
    PHASE_ARRIVE, /* published; other members of this host are missing */
    PHASE_WORK,   /* all agree; chunks are being done */
    PHASE_REMOTE, /* more than one host: the engine will settle it */
    PHASE_ENDED   /* `status` holds; waits to be waited for */
};

/* One tensor name and its operation. Made on first use, lives until hvd_shutdown. */
struct tensor {
    struct tensor *next;  /* in its bucket */
    struct tensor *older; /* of all */
    char *name;
    uint32_t hash, slot;
    pthread_mutex_t lock;
    uint32_t sequence;   /* operations so far, all ranks count alike */
    uint32_t generation; /* handles so far */
    enum phase phase;
    unsigned polls;
    struct tensor_view view;
    struct tensor_op op;
    void *out;     /* the user's buffer that wants the result; NULL when the result lands there by itself */
    void *staging; /* arena memory standing in for private buffers, or NULL */
    int status;
    char text[SHM_TEXT_MAX]; /* why status is not 0 */
};

struct client {
    _Atomic int state; /* enum client_state */
    int rank, size, local_rank, local_size, cross_rank, cross_size;
    bool solo;    /* a job of one rank without an engine */
    bool crowded; /* more ranks on this host than processors */
    struct region region;
    struct shm_mailbox *mailbox;
    int socket, kick;
    pthread_mutex_t rpc_lock, names_lock, arena_lock, ring_lock;
    bool rpc_broken;
    struct tensor *bucket[NAME_BUCKETS];
    struct tensor *newest;
    struct tensor *_Atomic by_slot[SHM_SLOTS];
    uint32_t solo_slots;
};

extern struct client client;

/* query.c: remembers the sentence for hvd_last_error; returns `status`. */
int fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* HVD_SUCCESS when calls are possible; else the status, with its sentence. */
int client_check(void);
/* The job has failed: the region's status and sentence. */
int fail_poisoned(void);

/* rpc.c: one question; the answer replaces *m. fd_out: the descriptors of the answer (*fds_out of them at
 * most, set to their number; the caller's). Returns HVD_SUCCESS, HVD_ERR_ENGINE, or the engine's status with
 * its sentence. */
int rpc(struct worker_message *m, int fd_in, int *fd_out, unsigned *fds_out);
int rpc_simple(uint32_t type);

/* names.c: the tensor of this name, asking the engine when it is new. */
int tensor_find(const char *name, struct tensor **found);
/* One of the two fixed slots; NULL after fail(). */
struct tensor *tensor_fixed(uint32_t slot);
struct tensor *tensor_by_handle(hvd_handle handle);
void tensors_free(void);

/* arena.c */
void *arena_alloc(size_t bytes, bool zeroed);
void arena_free(void *memory);
/* Where memory of the caller lies in a segment of this process; false: it is private. */
bool arena_address(const void *memory, size_t bytes, uint64_t *address);
void *arena_resolve(void *ctx, uint64_t address, uint64_t bytes);
void arena_close(void);

/* submit.c: publishes an operation on a tensor whose lock is held. */
int submit_locked(struct tensor *t, const struct tensor_op *op, const void *in, void *out, bool will_wait);
/* A barrier or a shutdown, from beginning to end. */
int run_fixed(uint32_t slot, uint8_t kind);

/* wait.c: the tensor's lock is held. Ends with the operation's status and frees it. */
int wait_locked(struct tensor *t);

#endif
