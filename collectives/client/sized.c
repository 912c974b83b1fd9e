/* hvd_allgather_alloc, hvd_alltoall_alloc: the caller allocates the result when the sizes of all are known.
 *
 * Only the thread that waits can call the caller's function. So an operation that could go on counts as ended
 * for all who only look (`due`), and the wait does the rest. Ranks must not wait for each other's waits, or
 * two waits in different orders would block each other. So every rank copies its own result, from elements
 * that lie in the library's memory. They stay there until the last rank of the host has read them, also when
 * the call that gave them has ended long ago.
 *
 *   one host, all block    by pieces through the places of the ranks (local/pipeline_copy.h)
 *   one host, else         each rank reads the elements of all
 *   several hosts          the engine receives the result into memory of its own, and each rank reads there
 *   alone                  a copy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/client/arena.h"
#include "collectives/client/operation.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/dtype.h"

/* ---- elements that others may still read --------------------------------------------------------------- */

struct kept {
    struct kept *next;
    void *memory;
    const struct team *team;
    uint32_t slot, sequence, me;
};

static struct kept *kept; /* under kept_lock, the newest first */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_read_by_all(const struct kept *k)
{
    for (uint32_t i = 0; i < k->team->members; i++)
        if (i != k->me && !tensor_is_read(&client.region, k->slot, k->team->local[i], k->sequence))
            return false;
    return true;
}

void sized_reap(void)
{
    pthread_mutex_lock(&kept_lock);
    for (struct kept **at = &kept; *at;) {
        struct kept *k = *at;
        if (!is_read_by_all(k)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        arena_free(k->memory);
        free(k);
    }
    pthread_mutex_unlock(&kept_lock);
}

void sized_forget(void)
{
    while (kept) {
        struct kept *k = kept;
        kept = k->next;
        free(k);
    }
}

/* The staged elements belong to the operation no more. Without memory for the note they are never freed. */
static void keep_staging(struct tensor *t)
{
    struct kept *k = t->op.staging ? malloc(sizeof *k) : NULL;
    if (k) {
        pthread_mutex_lock(&kept_lock);
        *k = (struct kept){kept, t->op.staging, t->view.team, t->slot, t->sequence, t->view.me};
        kept = k;
        pthread_mutex_unlock(&kept_lock);
    }
    t->op.staging = NULL;
}

/* ---- the caller's memory ------------------------------------------------------------------------------- */

static int ask_caller(const struct operation *o, size_t rows, const char *name, void **memory, char *text,
                      size_t size)
{
    *memory = o->sized.allocator.allocate(o->sized.allocator.context, rows);
    if (*memory || rows == 0)
        return HVD_SUCCESS;
    snprintf(text, size, "tensor \"%s\": the caller's function found no memory for %zu rows of %llu %s", name,
             rows, (unsigned long long)o->what.row, dtype_name(o->what.dtype));
    return HVD_ERR_MEMORY;
}

/* Memory for `count` elements. A status. */
static int allocate_result(struct tensor *t, uint64_t count, void **memory)
{
    t->op.sized.rows = count / t->op.what.row;
    return ask_caller(&t->op, t->op.sized.rows, t->name, memory, t->text, sizeof t->text);
}

/* ---- the steps ----------------------------------------------------------------------------------------- */

bool sized_put_off(struct tensor *t)
{
    if (t->op.sized.is_taken)
        return false;
    t->op.sized.due = t->phase;
    t->phase = PHASE_ENDED;
    return true;
}

void sized_claim(struct tensor *t)
{
    t->op.sized.is_taken = true;
    if (t->op.sized.due)
        t->phase = t->op.sized.due;
    t->op.sized.due = PHASE_IDLE;
}

int sized_take(struct tensor *t)
{
    struct tensor_view *v = &t->view;
    void *memory;
    int status;
    if (region_poisoned(&client.region))
        return region_poison_read(&client.region, t->text, sizeof t->text);
    status = allocate_result(t, v->get[v->me], &memory);
    if (v->streamed) {
        v->own.out = memory;
        t->op.sized.status = status;
        return status;
    }
    tensor_compute(v, memory);
    tensor_has_read(v);
    keep_staging(t);
    return status;
}

/* The result, in the place that the engine has written down. */
static const void *find_settled(const struct tensor *t, uint64_t bytes)
{
    if (bytes <= SHM_INLINE_MAX)
        return tensor_scratch(&t->view, t->view.me);
    return arena_resolve(NULL, t->op.recv_counts[t->view.team->size], bytes);
}

static int find_failed(struct tensor *t)
{
    if (region_poisoned(&client.region))
        return region_poison_read(&client.region, t->text, sizeof t->text);
    snprintf(t->text, sizeof t->text,
             "tensor \"%s\": its result is out of reach: this host's engine has gone", t->name);
    return HVD_ERR_ENGINE;
}

int sized_take_settled(struct tensor *t)
{
    uint64_t count = 0, bytes;
    const void *from;
    void *memory;
    int status;
    for (uint32_t i = 0; i < t->view.team->size; i++)
        count += t->op.recv_counts[i];
    bytes = count * dtype_size(t->op.what.dtype);
    from = find_settled(t, bytes);
    status = from ? allocate_result(t, count, &memory) : find_failed(t);
    if (status == HVD_SUCCESS && bytes > 0)
        copy_bytes(memory, from, bytes);
    tensor_has_read(&t->view);
    if (status == HVD_SUCCESS)
        for (uint32_t i = 0; t->op.rows && i < t->view.team->size; i++)
            t->op.rows[i] = t->op.recv_counts[i] / t->op.what.row;
    return status;
}

int sized_run_alone(struct tensor *t)
{
    uint64_t count = t->op.where.table ? t->op.where.table[0] : t->op.what.count;
    void *memory;
    int status = allocate_result(t, count, &memory);
    if (status == HVD_SUCCESS && count > 0)
        copy_bytes(memory, t->op.in, count * dtype_size(t->op.what.dtype));
    if (t->op.rows)
        t->op.rows[0] = count / t->op.what.row;
    return status;
}

/* ---- results that wait for their caller ---------------------------------------------------------------- */

static void *allocate_held(void *context, size_t rows)
{
    struct tensor *t = context;
    return t->op.sized.held = arena_alloc(rows * t->op.what.row * dtype_size(t->op.what.dtype), false);
}

void sized_hold(struct tensor *t)
{
    struct allocator theirs = t->op.sized.allocator;
    t->op.sized.allocator = (struct allocator){allocate_held, t};
    sized_claim(t);
    operation_finish(t);
    t->op.sized.allocator = theirs;
    t->op.sized.is_held = true;
}

int sized_hand_over(struct operation *o, const char *name, char *text, size_t size)
{
    void *memory;
    int status = o->status;
    if (status == HVD_SUCCESS)
        status = ask_caller(o, o->sized.rows, name, &memory, text, size);
    if (status == HVD_SUCCESS && o->sized.rows > 0)
        copy_bytes(memory, o->sized.held, o->sized.rows * o->what.row * dtype_size(o->what.dtype));
    if (o->sized.held)
        arena_free(o->sized.held);
    o->sized.is_held = false;
    return status;
}
