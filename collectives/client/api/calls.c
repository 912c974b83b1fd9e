/* The calls whose result is as large as what each rank gives. */
#include "collectives/client/names.h"
#include "collectives/client/request.h"
#include "collectives/client/sets.h"

static int make_same_size(struct request *r, uint8_t kind, const void *in, void *out, size_t count,
                          hvd_dtype dtype, hvd_op op, const hvd_options *options)
{
    int status = request_make(r, kind, count, dtype, op, options);
    r->in = in;
    r->out = out;
    r->capacity = tensor_all_bytes(&r->op);
    return status;
}

static int make_shared_request(struct request *r, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                               const hvd_options *options, const void **result)
{
    int status = make_same_size(r, SHM_ALLREDUCE_SHARED, in, NULL, count, dtype, op, options);
    r->result = result;
    if (!status && !result)
        status = fail(HVD_ERR_INVALID, "the place for the result's address is NULL");
    return status;
}

static int make_broadcast(struct request *r, void *buffer, size_t count, hvd_dtype dtype, int root,
                          const hvd_options *options)
{
    int status = make_same_size(r, SHM_BROADCAST, buffer, buffer, count, dtype, (hvd_op)0, options);
    r->op.root = (uint32_t)root;
    return status;
}

int hvd_allreduce_async(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                        const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_same_size(&r, SHM_ALLREDUCE, in, out, count, dtype, op, options);
    return request_async(name, &r, status, handle);
}

int hvd_allreduce(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                  const hvd_options *options)
{
    struct request r;
    int status = make_same_size(&r, SHM_ALLREDUCE, in, out, count, dtype, op, options);
    return request_and_wait(name, &r, status);
}

int hvd_allreduce_shared_async(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                               const hvd_options *options, const void **result, hvd_handle *handle)
{
    struct request r;
    int status = make_shared_request(&r, in, count, dtype, op, options, result);
    return request_async(name, &r, status, handle);
}

int hvd_allreduce_shared(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                         const hvd_options *options, const void **result)
{
    struct request r;
    int status = make_shared_request(&r, in, count, dtype, op, options, result);
    return request_and_wait(name, &r, status);
}

int hvd_broadcast_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                        const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_broadcast(&r, buffer, count, dtype, root, options);
    return request_async(name, &r, status, handle);
}

int hvd_broadcast(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                  const hvd_options *options)
{
    struct request r;
    int status = make_broadcast(&r, buffer, count, dtype, root, options);
    return request_and_wait(name, &r, status);
}

int hvd_barrier_async(const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = request_make(&r, SHM_BARRIER, 0, 0, 0, options);
    if (!status && !handle)
        status = fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    if (handle)
        *handle = 0;
    if (status)
        return status;
    struct tensor *t = tensor_barrier(r.team);
    if (!t)
        return last_failure();
    status = operation_submit(t, &r, false);
    if (status == HVD_SUCCESS)
        *handle = tensor_handle(t);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_barrier(const hvd_options *options)
{
    struct request r;
    int status = request_make(&r, SHM_BARRIER, 0, 0, 0, options);
    return status ? status : operation_run_fixed(tensor_barrier(r.team), SHM_BARRIER);
}

/* ---- two ranks ----------------------------------------------------------------------------------------- */

/* A broadcast in the team of the two, from the one that sends. */
static int make_transfer(struct request *r, void *buffer, size_t count, hvd_dtype dtype, int peer, bool sends,
                         const hvd_options *options)
{
    int status = make_broadcast(r, buffer, count, dtype, 0, options);
    const char *who = sends ? "to" : "from";
    if (status)
        return status;
    if (peer < 0 || (uint32_t)peer >= r->team->size)
        return fail(HVD_ERR_INVALID, "%s: %d is not a rank below %u", who, peer, r->team->size);
    uint32_t other = r->team->rank[peer];
    if (other == (uint32_t)client.rank)
        return fail(HVD_ERR_INVALID, "%s: rank %d is this one", who, peer);
    if (client.size > (int)TEAM_PAIR_RANKS)
        return fail(HVD_ERR_INVALID, "%d ranks are too many for send and receive: at most %u can",
                    client.size, TEAM_PAIR_RANKS);
    r->team = pair_find(other);
    if (!r->team)
        return HVD_ERR_MEMORY;
    r->op.set = r->team->id;
    r->op.root = team_index(r->team, sends ? (uint32_t)client.rank : other);
    return HVD_SUCCESS;
}

int hvd_send_async(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
                   const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_transfer(&r, (void *)(uintptr_t)buffer, count, dtype, to, true, options);
    return request_async(name, &r, status, handle);
}

int hvd_send(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
             const hvd_options *options)
{
    struct request r;
    int status = make_transfer(&r, (void *)(uintptr_t)buffer, count, dtype, to, true, options);
    return request_and_wait(name, &r, status);
}

int hvd_recv_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
                   const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_transfer(&r, buffer, count, dtype, from, false, options);
    return request_async(name, &r, status, handle);
}

int hvd_recv(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
             const hvd_options *options)
{
    struct request r;
    int status = make_transfer(&r, buffer, count, dtype, from, false, options);
    return request_and_wait(name, &r, status);
}
