/* Persistent handles: name, checks and staging once, then only start and wait.
 *
 * A persistent handle is its tensor's between hvd_allreduce_init and hvd_handle_free: inactive (PHASE_IDLE)
 * or started. Other ranks need not know: they may call the same operation by its name. */
#include "collectives/client/internal.h"

int hvd_allreduce_init(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                       const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    struct tensor *t;
    int status = make_request(&r, SHM_ALLREDUCE, count, dtype, op, options);

    r.in = in;
    r.out = out;
    r.room = tensor_all_bytes(&r.op);
    if (!status && !handle)
        status = fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    if (handle)
        *handle = 0;
    if ((status = status ? name_request(name, status) : begin_request(name, &r, &t)))
        return status;
    if (t->phase != PHASE_IDLE || t->persistent) {
        status = fail(HVD_ERR_IN_PROGRESS, "tensor \"%s\": %s", name,
                      t->persistent ? "a persistent handle has this name already"
                                    : "an operation of this name is pending");
    } else {
        t->generation++;
        if ((status = prepare_locked(t, &r, false)) == HVD_SUCCESS) {
            t->persistent = true;
            *handle = tensor_handle(t);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* The tensor, locked, of a persistent handle that is not started. */
static int lock_inactive(hvd_handle handle, struct tensor **t)
{
    int status = client_may_begin();

    if (status == HVD_SUCCESS)
        status = lock_handle(handle, false, t);

    if (status < 0)
        return status;
    if (status == HVD_SUCCESS && (*t)->persistent && (*t)->phase == PHASE_IDLE)
        return HVD_SUCCESS;
    bool persistent = status > 0 || (*t)->persistent;
    if (status != HANDLE_HELD)
        pthread_mutex_unlock(&(*t)->lock);
    return persistent
               ? fail(HVD_ERR_IN_PROGRESS, "handle %lld was started and not waited for", (long long)handle)
               : fail(HVD_ERR_INVALID, "handle %lld is not persistent", (long long)handle);
}

int hvd_start(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_inactive(handle, &t);

    if (status)
        return status;
    status = start_locked(t, false);
    pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_handle_free(hvd_handle handle)
{
    struct tensor *t;
    int status = lock_inactive(handle, &t);

    if (status)
        return status;
    t->persistent = false;
    release_locked(t);
    pthread_mutex_unlock(&t->lock);
    return HVD_SUCCESS;
}
