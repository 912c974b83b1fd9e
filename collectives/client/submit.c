/* From an API call to a published operation.
 *
 * Up to SHM_INLINE_MAX bytes the elements are copied into my entry of the control region. Above, the other
 * ranks read and write my buffer where it is, if it lies in a segment; a private buffer is copied to a
 * staging block first and the result copied back by the wait. The member that arrives last wakes those that
 * sleep and, if the engine has something to do, tells it. */
#include <string.h>
#include <unistd.h>

#include "collectives/algorithms/dtype.h"
#include "collectives/client/internal.h"
#include "collectives/shm/doorbell.h"
#include "collectives/shm/ring.h"

static int check_name(const char *name)
{
    size_t len = name ? strnlen(name, SHM_NAME_MAX + 1) : 0;

    if (len == 0 || len > SHM_NAME_MAX)
        return fail(HVD_ERR_INVALID, "a tensor's name must have 1 to %u bytes", SHM_NAME_MAX);
    if (strcmp(name, SHM_BARRIER_NAME) == 0 || strcmp(name, SHM_SHUTDOWN_NAME) == 0)
        return fail(HVD_ERR_INVALID, "the name \"%s\" is reserved", name);
    return HVD_SUCCESS;
}

static int check_arguments(const char *name, const struct tensor_op *op, const void *in, const void *out)
{
    uint64_t bytes = tensor_bytes(op);
    int status = check_name(name);
    char wrong[128];

    if (status)
        return status;
    if (op_wrong(op, (uint32_t)client.size, wrong, sizeof wrong))
        return fail(HVD_ERR_INVALID, "tensor \"%s\": %s", name, wrong);
    if (bytes > 0 && (!in || !out))
        return fail(HVD_ERR_INVALID, "tensor \"%s\": a buffer is NULL", name);
    if (in != out && bytes > 0 && (const char *)in < (const char *)out + bytes &&
        (const char *)out < (const char *)in + bytes)
        return fail(HVD_ERR_INVALID, "tensor \"%s\": input and output overlap without being the same", name);
    return HVD_SUCCESS;
}

/* What this rank gives or wants of a broadcast. */
static bool is_root(const struct tensor_op *op)
{
    return op->kind == SHM_BROADCAST && op->root == (uint32_t)client.rank;
}

static bool shared(const void *memory, const struct tensor_op *op, uint64_t bytes, uint64_t *address)
{
    return (uintptr_t)memory % dtype_size(op->dtype) == 0 && arena_address(memory, bytes, address);
}

/* Finds or makes shared places for the elements. */
static int place(struct tensor *t, const struct tensor_op *op, uint64_t bytes, const void *in, void *out,
                 uint64_t *from, uint64_t *to)
{
    bool in_shared = shared(in, op, bytes, from);
    bool out_shared = in == out ? in_shared : shared(out, op, bytes, to);
    void *stand_in = out;

    if (in == out)
        *to = *from;
    if (in_shared && out_shared)
        return HVD_SUCCESS;
    if (!out_shared) {
        stand_in = t->staging = arena_alloc(bytes, false);
        if (!t->staging)
            return HVD_ERR_MEMORY;
        if (!arena_address(t->staging, bytes, to))
            return fail(HVD_ERR_MEMORY, "tensor \"%s\": staging memory is nowhere", t->name);
        t->out = is_root(op) ? NULL : out;
    }
    if (!in_shared) {
        if (op->kind != SHM_BROADCAST || is_root(op))
            memcpy(stand_in, in, bytes);
        *from = *to;
    }
    return HVD_SUCCESS;
}

/* A job of one rank: every result is this rank's own input. */
static void finish_solo(struct tensor *t, uint64_t bytes, const void *in, void *out)
{
    if (bytes > 0 && in != out)
        memcpy(out, in, bytes);
    t->status = HVD_SUCCESS;
    t->phase = PHASE_ENDED;
}

static void kick_engine(void)
{
    uint64_t one = 1;

    if (atomic_load(&client.region.header->engine_sleeping) && write(client.kick, &one, sizeof one) < 0)
        return; /* its counter is full: it is awake, or its beat will tell */
}

/* I am the last: let the sleepers see it, and the engine, when it has a part in it. */
static void announce(struct tensor *t, uint64_t bytes, bool will_wait)
{
    bool for_engine = client.region.hosts > 1 || (bytes > SHM_INLINE_MAX && !will_wait);

    if (for_engine) {
        tensor_offer(&t->view);
        pthread_mutex_lock(&client.ring_lock);
        bool put = ring_put(client.mailbox, t->slot);
        pthread_mutex_unlock(&client.ring_lock);
        if (put)
            kick_engine();
    }
    if (client.region.hosts == 1)
        doorbell_ring_sleepers(&client.region, UINT32_MAX);
}

int submit_locked(struct tensor *t, const struct tensor_op *op, const void *in, void *out, bool will_wait)
{
    uint64_t bytes = tensor_bytes(op), from = 0, to = 0;
    int status;

    if (t->phase != PHASE_IDLE)
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": an operation of this name is pending already",
                    t->name);
    t->op = *op;
    t->staging = NULL;
    t->out = NULL;
    t->generation++;
    if (client.solo) {
        finish_solo(t, bytes, in, out);
        return HVD_SUCCESS;
    }
    if (region_poisoned(&client.region))
        return fail_poisoned();
    if (bytes <= SHM_INLINE_MAX) {
        t->out = is_root(op) ? NULL : out;
    } else if ((status = place(t, op, bytes, in, out, &from, &to)) != HVD_SUCCESS) {
        arena_free(t->staging);
        return status;
    }
    tensor_begin(&t->view, ++t->sequence);
    tensor_publish(&t->view, op, op->kind == SHM_BROADCAST && !is_root(op) ? NULL : in, from, to);
    t->phase = client.region.hosts > 1 ? PHASE_REMOTE : PHASE_ARRIVE;
    if (tensor_arrived(&t->view))
        announce(t, bytes, will_wait);
    return HVD_SUCCESS;
}

static int begin(const char *name, const struct tensor_op *op, const void *in, void *out, struct tensor **t)
{
    int status;

    if ((status = client_check()) || (status = check_arguments(name, op, in, out)) ||
        (status = tensor_find(name, t)))
        return status;
    if (pthread_mutex_trylock(&(*t)->lock) != 0)
        return fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": an operation of this name is pending already", name);
    return HVD_SUCCESS;
}

static int submit_async(const char *name, const struct tensor_op *op, const void *in, void *out,
                        hvd_handle *handle)
{
    struct tensor *t;
    int status;

    if (!handle)
        return client_check() ? client_check() : fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    *handle = 0;
    if ((status = begin(name, op, in, out, &t)) != HVD_SUCCESS)
        return status;
    status = submit_locked(t, op, in, out, false);
    if (status == HVD_SUCCESS)
        *handle = (hvd_handle)t->generation * SHM_SLOTS + t->slot;
    pthread_mutex_unlock(&t->lock);
    return status;
}

static int submit_and_wait(const char *name, const struct tensor_op *op, const void *in, void *out)
{
    struct tensor *t;
    int status;

    if ((status = begin(name, op, in, out, &t)) != HVD_SUCCESS)
        return status;
    if ((status = submit_locked(t, op, in, out, true)) == HVD_SUCCESS)
        status = wait_locked(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* Numbers outside a byte become one that no table knows, not one that it does. */
static uint8_t narrow(int value)
{
    return value >= 0 && value < UINT8_MAX ? (uint8_t)value : UINT8_MAX;
}

/* The operation that the caller describes. */
static int make_op(struct tensor_op *op, uint8_t kind, size_t count, int dtype, const hvd_options *options)
{
    *op = (struct tensor_op){
        .kind = kind, .dtype = narrow(dtype), .count = count, .prescale = 1, .postscale = 1};
    if (!options)
        return HVD_SUCCESS;
    if (options->set != HVD_WORLD)
        return fail(HVD_ERR_INVALID, "there is no process set %d", options->set);
    op->prescale = options->prescale != 0 ? options->prescale : 1;
    op->postscale = options->postscale != 0 ? options->postscale : 1;
    op->compression = narrow((int)options->compression);
    if (op->prescale != 1 || op->postscale != 1)
        return fail(HVD_ERR_INVALID, "prescale and postscale are not built yet");
    if (op->compression != HVD_COMPRESSION_NONE && client.region.hosts > 1)
        return fail(HVD_ERR_INVALID, "compression between hosts is not built yet");
    return HVD_SUCCESS;
}

int hvd_allreduce_async(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                        const hvd_options *options, hvd_handle *handle)
{
    struct tensor_op what;
    int status = make_op(&what, SHM_ALLREDUCE, count, dtype, options);

    what.op = narrow(op);
    return status ? status : submit_async(name, &what, in, out, handle);
}

int hvd_broadcast_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                        const hvd_options *options, hvd_handle *handle)
{
    struct tensor_op what;
    int status = make_op(&what, SHM_BROADCAST, count, dtype, options);

    what.root = (uint32_t)root;
    return status ? status : submit_async(name, &what, buffer, buffer, handle);
}

int hvd_allreduce(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                  const hvd_options *options)
{
    struct tensor_op what;
    int status = make_op(&what, SHM_ALLREDUCE, count, dtype, options);

    what.op = narrow(op);
    return status ? status : submit_and_wait(name, &what, in, out);
}

int hvd_broadcast(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                  const hvd_options *options)
{
    struct tensor_op what;
    int status = make_op(&what, SHM_BROADCAST, count, dtype, options);

    what.root = (uint32_t)root;
    return status ? status : submit_and_wait(name, &what, buffer, buffer);
}

/* Barriers of several threads follow one another: ranks cannot tell them apart, nor need they. */
int run_fixed(uint32_t slot, uint8_t kind)
{
    struct tensor_op what = {.kind = kind, .prescale = 1, .postscale = 1};
    struct tensor *t = tensor_fixed(slot);
    int status;

    if (!t)
        return HVD_ERR_MEMORY;
    pthread_mutex_lock(&t->lock);
    if ((status = submit_locked(t, &what, NULL, NULL, true)) == HVD_SUCCESS)
        status = wait_locked(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_barrier(const hvd_options *options)
{
    struct tensor_op what;
    int status = client_check();

    if (!status)
        status = make_op(&what, SHM_BARRIER, 0, 0, options);
    return status ? status : run_fixed(SHM_SLOT_BARRIER, SHM_BARRIER);
}
