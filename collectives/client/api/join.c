/* hvd_join: a rank without more work takes part in the operations of the others, with zeros.
 *
 * To the others a joined rank is a rank like any other: it arrives, it shares the work, and it has results,
 * which are dropped. Only this file and the part of the engine that tells the rank what others have begun
 * (engine/joins.c) know of joined ranks. Its part in an operation is an ordinary operation of the tensor,
 * with shared memory full of zeros as the input and no output. If zeros would change the others' result,
 * the rank arrives with "joined" instead of an operation, and all ranks get a sentence that says so.
 *
 * A name may be in use when others begin its next operation: an operation of this rank has ended there and
 * was not waited for, or a persistent handle has the name. Then this older operation is set aside until the
 * part in the next operation has ended. A thread that polls or waits for it meanwhile finds it there.
 *
 * The thread in the join does all this. Other threads of this rank may wait for operations that were begun
 * before. They hold the tensor's lock, so they see the end of such an operation, and tell the join.
 *
 * The end is an allreduce that every rank enters when all operations that it has begun itself have ended. A
 * rank takes part in the operations of the others until that allreduce is complete. A pending operation has
 * a rank that has begun it, so when all ranks have entered, no operation is pending anywhere. Later words
 * of the engine belong to operations after the join, and are not for this join. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/client/arena.h"
#include "collectives/client/names.h"
#include "collectives/client/rpc.h"
#include "collectives/client/api/join.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"

#define RANK_BITS    22 /* below the milliseconds of the time at which a rank has joined */
#define ZEROS_LEAST  (64u << 10)
#define ZEROS_BLOCKS 48 /* each at least twice as large as the one before */

struct join {
    struct tensor *end; /* the allreduce; locked */
    bool entered;
    bool refuses; /* this rank is in hvd_shutdown: `end` is its shutdown, and others' operations fail */
    uint64_t mine[2], result[2]; /* when and who; process sets so far */
    struct parts parts;
    uint32_t *wanted; /* slots that the engine has named, and that this rank has yet to take part in */
    size_t wants, want_capacity;
    void *zeros[ZEROS_BLOCKS]; /* the last one is the largest; the others may still be read */
    size_t blocks, zeros_bytes;
    const void *nowhere;
};

/* ---- others' operations -------------------------------------------------------------------------------- */

/* Memory of zeros that other ranks can read. */
static const void *get_zeros(struct join *j, size_t bytes)
{
    static const uint8_t few[SHM_INLINE_MAX];
    size_t larger = 2 * j->zeros_bytes > bytes ? 2 * j->zeros_bytes : bytes;
    if (bytes <= sizeof few)
        return few;
    if (bytes <= j->zeros_bytes)
        return j->zeros[j->blocks - 1];
    larger = larger > ZEROS_LEAST ? larger : ZEROS_LEAST;
    void *memory = j->blocks < ZEROS_BLOCKS ? arena_alloc(larger, true) : NULL;
    if (!memory)
        return NULL; /* so many blocks would be more than there can be of memory */
    j->zeros[j->blocks++] = memory;
    j->zeros_bytes = larger;
    return memory;
}

/* Starts an operation that has no handle. */
static int start_part(struct tensor *t, const struct request *r)
{
    int status = operation_prepare(t, r, true);
    if (status != HVD_SUCCESS)
        return status;
    status = operation_start(t, true);
    if (status != HVD_SUCCESS)
        operation_release(t);
    return status;
}

static int take_part(struct join *j, struct tensor *t, const struct tensor_op *op)
{
    struct request r = {.team = t->view.team, .op = *op};
    struct part *p = parts_add(&j->parts, t, false);
    if (!p)
        return HVD_ERR_MEMORY;
    part_defer(p);
    char wrong[SHM_TEXT_MAX];
    if (j->refuses)
        r.op = (struct tensor_op){.kind = SHM_SHUTDOWN, .set = r.team->id, .prescale = 1, .postscale = 1};
    else if (!op_takes_zeros(op) || op_wrong(op, r.team->size, wrong, sizeof wrong))
        r.op = (struct tensor_op){.kind = SHM_JOIN, .set = r.team->id, .prescale = 1, .postscale = 1};
    r.capacity = tensor_bytes(&r.op);
    r.in = get_zeros(j, r.capacity);
    if (r.op.kind == SHM_ALLREDUCE_SHARED)
        r.result = &j->nowhere;
    int status = r.in ? start_part(t, &r) : last_failure();
    if (status == HVD_SUCCESS)
        return status;
    part_restore(p);
    parts_drop(&j->parts, j->parts.number - 1);
    return status;
}

static bool is_over(struct join *j)
{
    return j->entered && (j->end->phase == PHASE_ENDED || operation_progress(j->end));
}

/* An operation of libhvd itself for GPUs. This rank takes part in it like all ranks of the team, when the
 * turn of its own operation comes. */
static bool is_of_gpus(const struct tensor *t)
{
    return strncmp(t->name, SHM_DEVICE_NAME, sizeof SHM_DEVICE_NAME - 1) == 0;
}

/* The last operation that this rank has arrived at. */
static uint32_t latest_of(uint32_t slot)
{
    uint32_t me = (uint32_t)client.local_rank;
    uint32_t a = atomic_load(&region_entry(&client.region, slot, me, 0)->sequence);
    uint32_t b = atomic_load(&region_entry(&client.region, slot, me, 1)->sequence);

    return (int32_t)(a - b) > 0 ? a : b;
}

/* Takes part in an operation that the engine has named. The operation is pending, or another rank has left
 * the join already, which shows here. 1: done; 0: not yet, because this rank's own operation of the name has
 * not ended. */
static int take_wanted(struct join *j, uint32_t slot)
{
    struct shm_slot *s = region_slot(&client.region, slot);
    uint32_t operation = atomic_load(&s->wanted);
    struct tensor_op op = s->wanted_op;
    struct tensor *t;
    int status;

    if ((int32_t)(operation - latest_of(slot)) <= 0)
        return 1; /* this rank had begun it itself or took part; the slot may be another name's now */
    status = tensor_of_slot(slot, &t);
    if (status != HVD_SUCCESS)
        return status;
    if (!t || is_over(j))
        return 1;
    if (!part_lock(t))
        return 0;
    if (!tensor_has_slot(t, slot))
        status = 0; /* another thread has forgotten it just now */
    else if (is_of_gpus(t))
        status = 1;
    else if (t->phase != PHASE_IDLE && t->phase != PHASE_ENDED)
        status = 0;
    else
        status = t->sequence + 1 == operation && (status = take_part(j, t, &op)) != HVD_SUCCESS ? status : 1;
    part_unlock(t);
    return status;
}

/* Takes part in all operations that the engine has named. 1: something has moved; 0: nothing new; else a
 * status. */
static int collect_wanted(struct join *j)
{
    bool moved = false;
    uint32_t slot;
    int rc;
    while ((rc = ring_take(&client.mailbox->wanted, &slot)) == 1) {
        if (!grow_array((void **)&j->wanted, &j->want_capacity, j->wants, sizeof *j->wanted))
            return parts_no_memory();
        j->wanted[j->wants++] = slot;
    }
    if (rc < 0)
        return fail(HVD_ERR_ENGINE, "hvd_join: this host's engine names a tensor that does not exist");
    for (size_t i = j->wants; i-- > 0;) {
        rc = take_wanted(j, j->wanted[i]);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        j->wanted[i] = j->wanted[--j->wants];
        moved = true;
    }
    return moved;
}

/* ---- the join ------------------------------------------------------------------------------------------ */

/* Operations of this rank that have not ended. */
static int find_own(struct join *j)
{
    int status = HVD_SUCCESS;
    pthread_mutex_lock(&client.names_lock);
    for (struct tensor *t = client.tensors.newest; t && status == HVD_SUCCESS; t = t->older) {
        atomic_store(&t->is_over, false);
        bool held = pthread_mutex_trylock(&t->lock) != 0;
        bool pending = t != j->end && (held || (t->phase != PHASE_IDLE && t->phase != PHASE_ENDED));
        if (!held)
            pthread_mutex_unlock(&t->lock);
        if (pending && !parts_add(&j->parts, t, true))
            status = HVD_ERR_MEMORY;
    }
    pthread_mutex_unlock(&client.names_lock);
    return status;
}

/* All that this rank has begun itself has ended. */
static int enter_end(struct join *j)
{
    struct request r = {.team = j->end->view.team,
                        .op = {.kind = SHM_ALLREDUCE,
                               .dtype = HVD_UINT64,
                               .op = HVD_MAX,
                               .count = sizeof j->mine / sizeof *j->mine,
                               .set = HVD_WORLD,
                               .prescale = 1,
                               .postscale = 1},
                        .in = j->mine,
                        .out = j->result,
                        .capacity = sizeof j->result};
    j->entered = true;
    return start_part(j->end, &r);
}

/* One turn. 1: something moved; 0: nothing; else a status. */
static int do_turn(struct join *j)
{
    bool ended = parts_progress(&j->parts), enters = !j->entered && j->parts.own == 0;
    int status = collect_wanted(j);

    if (forget_is_wanted())
        forget_idle();
    ended = pending_move_left() || ended;
    if (status >= 0 && enters)
        status = enter_end(j) == HVD_SUCCESS ? 1 : last_failure();
    return status < 0 ? status : status > 0 || ended;
}

static bool has_ended(struct join *j)
{
    return j->parts.number == 0 && (is_over(j) || region_poisoned(&client.region));
}

static int run_join(struct join *j)
{
    struct watchdog w = {0};
    int status;
    for (;;) {
        while ((status = do_turn(j)) > 0)
            ;
        if (status < 0 || has_ended(j))
            return status == HVD_SUCCESS && !is_over(j) ? fail_poisoned() : status;
        rank_link_drain();
        uint32_t prepared = doorbell_prepare(client.mailbox);
        status = do_turn(j);
        if (status != 0 || has_ended(j)) {
            doorbell_cancel(client.mailbox);
            if (status < 0)
                return status;
        } else if (!engine_sleep(prepared, pending_slice_ms(), &w)) {
            engine_lose();
            return fail(HVD_ERR_ENGINE, "hvd_join: this host's engine has gone or does not move");
        }
    }
}

/* This rank cannot go on, whatever the others wait for it with. Returns `status`, with its sentence. */
static int give_up(struct join *j, int status)
{
    char why[SHM_TEXT_MAX];
    snprintf(why, sizeof why, "%s", hvd_last_error());
    if (status != HVD_ERR_ENGINE && !region_poisoned(&client.region))
        rpc_failed(why);
    parts_abandon(&j->parts);
    if (j->entered && j->end->phase != PHASE_ENDED)
        operation_lose_engine(j->end);
    j->end->phase = PHASE_IDLE;
    return fail(status, "%s", why);
}

static int tell_engine(enum worker_join how)
{
    struct worker_message m = {.type = WORKER_JOIN, .id = how};
    return rpc(&m, -1, NULL, NULL);
}

/* Operations that were named for an earlier join. The engine names again what this rank still lacks. */
static void empty_ring(void)
{
    uint32_t slot;
    while (ring_take(&client.mailbox->wanted, &slot) == 1)
        ;
}

/* From now on the others need this rank. */
static int begin_join(struct join *j)
{
    rank_link_stop();
    if (region_poisoned(&client.region))
        return fail_poisoned();
    empty_ring();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    j->mine[0] = ((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NSEC_PER_MSEC) << RANK_BITS |
                 (uint64_t)client.rank;
    j->mine[1] = client.sets;
    watch_start(WATCHER_JOIN, join_hear);
    int status = find_own(j);
    if (status == HVD_SUCCESS)
        status = tell_engine(WORKER_JOINS);
    return status;
}

static void free_join(struct join *j)
{
    watch_stop(WATCHER_JOIN);
    for (size_t i = 0; i < j->blocks; i++)
        arena_free(j->zeros[i]);
    parts_free(&j->parts);
    free(j->wanted);
    free(j);
}

int join_tensor(struct tensor **end)
{
    int status = tensor_acquire(client.set[HVD_WORLD], SHM_JOIN_NAME, end);
    if (status != HVD_SUCCESS || (*end)->phase == PHASE_IDLE)
        return status;
    pthread_mutex_unlock(&(*end)->lock);
    return fail(HVD_ERR_IN_PROGRESS, "the handle of hvd_join_async was not waited for");
}

struct join *join_begin(struct tensor **end)
{
    if (join_tensor(end) != HVD_SUCCESS)
        return NULL;
    struct join *j = calloc(1, sizeof *j);
    if (j == NULL) {
        parts_no_memory();
    } else {
        j->end = *end;
        if (begin_join(j) == HVD_SUCCESS)
            return j;
        free_join(j);
    }
    pthread_mutex_unlock(&(*end)->lock);
    return NULL;
}

int join_through(struct join *j, int *last)
{
    int status = run_join(j);
    status = status == HVD_SUCCESS ? operation_wait(j->end) : give_up(j, status);
    if (status == HVD_SUCCESS) {
        client.sets = (uint32_t)j->result[1]; /* ids that the others have tried meanwhile are used */
        status = tell_engine(WORKER_JOINS_NOT);
    }
    *last = (int)(j->result[0] & ((1u << RANK_BITS) - 1));
    free_join(j);
    return status;
}

int join_refuse(struct tensor *shutdown)
{
    struct join *j = calloc(1, sizeof *j);
    if (!j)
        return parts_no_memory();
    j->end = shutdown;
    j->entered = j->refuses = true;
    empty_ring();
    watch_start(WATCHER_JOIN, join_hear);
    int status = tell_engine(WORKER_REFUSES);
    if (status == HVD_SUCCESS)
        status = run_join(j);
    status = status == HVD_SUCCESS ? operation_wait(shutdown) : give_up(j, status);
    if (status == HVD_SUCCESS || status == HVD_ERR_MISMATCH) {
        char why[SHM_TEXT_MAX];
        snprintf(why, sizeof why, "%s", hvd_last_error());
        int told = tell_engine(WORKER_JOINS_NOT);
        status = status == HVD_SUCCESS ? told : fail(status, "%s", why);
    }
    free_join(j);
    return status;
}

int join_claim(void)
{
    int status, ready;
    do {
        ready = CLIENT_READY;
        status = client_may_begin();
    } while (status == HVD_SUCCESS && !atomic_compare_exchange_weak(&client.state, &ready, CLIENT_JOINING));
    return status;
}

void join_release(int status)
{
    /* Another thread may have lost the engine meanwhile. */
    bool stranded = status == HVD_ERR_ENGINE || (client.mailbox && atomic_load(&client.mailbox->left));
    atomic_store_explicit(&client.state, stranded ? CLIENT_STRANDED : CLIENT_READY, memory_order_release);
}

int hvd_join(int *last_rank)
{
    int status = join_claim(), last = 0;
    if (status != HVD_SUCCESS)
        return status;
    if (!client.solo) {
        struct tensor *end;
        struct join *j = join_begin(&end);
        status = j ? join_through(j, &last) : last_failure();
        if (j)
            pthread_mutex_unlock(&end->lock);
    }
    join_release(status);
    if (status == HVD_SUCCESS && last_rank)
        *last_rank = last;
    return status;
}
