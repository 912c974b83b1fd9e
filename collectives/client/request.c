/* The checks that all calls share, and the way of a checked request.
 *
 * A request that this rank alone can see to be wrong is refused here, with one sentence, before anything
 * begins. Faults that only all ranks together can see are found when all have arrived (local/agree.c). */
#include "collectives/client/request.h"

#include <stdio.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/client/group.h"
#include "collectives/client/names.h"
#include "collectives/client/sets.h"

_Atomic bool path_gpu_seen;

/* Numbers outside a byte become a number that no table has. */
static uint8_t narrow_number(int value)
{
    return value >= 0 && value < UINT8_MAX ? (uint8_t)value : UINT8_MAX;
}

/* Members that a later version may have and this one does not. */
static bool options_known(const hvd_options *options)
{
    for (size_t i = 0; i < sizeof options->reserved / sizeof *options->reserved; i++)
        if (options->reserved[i] != 0)
            return false;
    return true;
}

int request_make(struct request *r, uint8_t kind, uint64_t count, int dtype, int op,
                 const hvd_options *options)
{
    int status = client_may_begin();
    *r = (struct request){.op = {.kind = kind,
                                 .dtype = narrow_number(dtype),
                                 .op = narrow_number(op),
                                 .count = count,
                                 .prescale = 1,
                                 .postscale = 1}};
    if (status)
        return status;
    if (options && !options_known(options))
        return fail(HVD_ERR_INVALID,
                    "hvd_options.reserved is not all zeros: begin with hvd_options x = {0}; a program made "
                    "for a later hvd.h needs a later libhvd than %s",
                    HVD_VERSION);
    if (options && options->will_wait > WAITS_NEXT)
        return fail(HVD_ERR_INVALID, "hvd_options.will_wait is 0, 1 or 2, not %u", options->will_wait);
    r->team = options ? set_find(options->set) : client.set[HVD_WORLD];
    if (!r->team)
        return HVD_ERR_SET_UNKNOWN;
    r->op.set = r->team->id;
    if (team_own_index(r->team) == UINT32_MAX)
        return fail(HVD_ERR_SET_FOREIGN, "rank %d is not in process set %d", client.rank, r->team->id);
    if (options) {
        r->op.prescale = options->prescale != 0 ? options->prescale : 1;
        r->op.postscale = options->postscale != 0 ? options->postscale : 1;
        r->op.compression = (unsigned)options->compression < 15 ? (unsigned)options->compression & 15 : 15;
        r->stream = options->stream;
        r->will_wait = (uint8_t)options->will_wait;
        if (kind == SHM_BROADCAST)
            r->op.row = options->shape;
        else
            r->op.root = options->shape;
        if (!op_reduces(kind) && (r->op.prescale != 1 || r->op.postscale != 1))
            return fail(HVD_ERR_INVALID, "%s combines nothing, so it cannot be scaled", op_kind_name(kind));
    }
    return HVD_SUCCESS;
}

static bool is_reserved(const char *name)
{
    return strcmp(name, SHM_BARRIER_NAME) == 0 || strcmp(name, SHM_SHUTDOWN_NAME) == 0 ||
           strcmp(name, SHM_SETS_NAME) == 0 || strcmp(name, SHM_JOIN_NAME) == 0 ||
           strncmp(name, SHM_DEVICE_NAME, sizeof SHM_DEVICE_NAME - 1) == 0;
}

static int check_name(const char *name)
{
    size_t len = name ? strnlen(name, SHM_NAME_MAX + 1) : 0;
    if (len == 0 || len > SHM_NAME_MAX)
        return fail(HVD_ERR_INVALID, "a tensor's name must have 1 to %u bytes", SHM_NAME_MAX);
    if (name[0] == 'h' && is_reserved(name))
        return fail(HVD_ERR_INVALID, "this name is reserved");
    return HVD_SUCCESS;
}

int request_check_buffers(const void *in, uint64_t in_bytes, const void *out, uint64_t out_bytes,
                          bool may_be_same)
{
    const char *a = in, *b = out;
    if ((in_bytes > 0 && !in) || (out_bytes > 0 && !out))
        return fail(HVD_ERR_INVALID, "a buffer is NULL");
    if (in_bytes == 0 || out_bytes == 0 || (in == out && may_be_same) || a >= b + out_bytes ||
        b >= a + in_bytes)
        return HVD_SUCCESS;
    return fail(HVD_ERR_INVALID, "input and output overlap%s", may_be_same ? " without being the same" : "");
}

__attribute__((cold, noinline)) static bool look_for_gpu(void)
{
    return client.gpu->look();
}

/* A GPU is worth a look at the buffers. */
static inline bool is_gpu_likely(const struct request *r)
{
    if (__builtin_expect(atomic_load_explicit(&path_gpu_seen, memory_order_relaxed), 0))
        return true;
    return __builtin_expect(r->stream != NULL || r->op.dtype >= HVD_FLOAT8_E4M3, 0) && look_for_gpu();
}

__attribute__((cold, noinline)) static int claim_for_gpu(struct request *r)
{
    return client.gpu->claim(r);
}

static int check_request(const char *name, struct request *r)
{
    int status = check_name(name);
    if (!status && is_gpu_likely(r))
        status = claim_for_gpu(r);
    if (status)
        return status;
    if (r->allocator.allocate && r->op.device == 1)
        return fail(HVD_ERR_INVALID, "rows in memory of a device need a place for the result: %s",
                    r->op.kind == SHM_ALLGATHER ? "hvd_allgather" : "hvd_alltoall");
    if (r->allocator.allocate)
        r->op.device = 0;
    char wrong[128];
    if (op_wrong(&r->op, r->team->size, wrong, sizeof wrong))
        return fail(HVD_ERR_INVALID, "%s", wrong);
    if (r->group || r->result)
        return r->group ? HVD_SUCCESS
                        : request_check_buffers(r->in, tensor_all_bytes(&r->op), NULL, 0, false);
    return request_check_buffers(r->in, tensor_all_bytes(&r->op), r->out, r->capacity,
                                 !op_scatters(r->op.kind));
}

int request_name_tensor(const char *name, int status)
{
    if (status != HVD_ERR_INVALID || !name || !*name || strnlen(name, SHM_NAME_MAX + 1) > SHM_NAME_MAX)
        return status;
    char wrong[SHM_TEXT_MAX];
    snprintf(wrong, sizeof wrong, "%s", hvd_last_error());
    return fail(status, "tensor \"%s\": %s", name, wrong);
}

#define LOOK_LEAST 32768u /* bytes, or elements: what looking costs does not show there */

/* Whether this call is the first that may be on a GPU. With few bytes only new and nearly new names are
 * asked. */
static bool meets_gpu(const struct request *r, const struct tensor *t)
{
    if (__builtin_expect((t->sequence & (t->sequence - 1)) != 0 && (r->capacity | r->op.count) < LOOK_LEAST,
                         1))
        return false;
    return !atomic_load_explicit(&path_gpu_seen, memory_order_relaxed) && look_for_gpu();
}

__attribute__((cold, noinline)) static int check_again(const char *name, struct request *r, struct tensor **t)
{
    int status = request_name_tensor(name, check_request(name, r));
    if (status != HVD_SUCCESS)
        pthread_mutex_unlock(&(*t)->lock);
    return status;
}

static inline int check_and_begin(const char *name, struct request *r, struct tensor **t)
{
    int status = request_name_tensor(name, check_request(name, r));
    if (status == HVD_SUCCESS)
        status = tensor_acquire(r->team, name, t);
    return status == HVD_SUCCESS && __builtin_expect(meets_gpu(r, *t), 0) ? check_again(name, r, t) : status;
}

int request_begin(const char *name, struct request *r, struct tensor **t)
{
    return check_and_begin(name, r, t);
}

/* `status` is that of making the request. */
static int submit_request(const char *name, struct request *r, int status, hvd_handle *handle, bool blocks)
{
    struct tensor *t;
    status = status ? request_name_tensor(name, status) : check_and_begin(name, r, &t);
    if (status) {
        group_free(r->group);
        return status;
    }
    status = operation_submit(t, r, blocks || r->will_wait);
    if (status == HVD_SUCCESS && blocks)
        status = operation_wait(t);
    else if (status == HVD_SUCCESS)
        *handle = tensor_handle(t);
    if (__builtin_expect(!blocks && t->phase == PHASE_LINK, 0) && !t->op.waits_later)
        pending_leave(t);
    pthread_mutex_unlock(&t->lock);
    if (!blocks && !r->will_wait)
        pending_progress();
    return status;
}

int request_async(const char *name, struct request *r, int status, hvd_handle *handle)
{
    if (!status && !handle)
        status = fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    if (handle)
        *handle = 0;
    return submit_request(name, r, status, handle, false);
}

int request_and_wait(const char *name, struct request *r, int status)
{
    r->will_wait = 0; /* of handles alone */
    return submit_request(name, r, status, NULL, true);
}
