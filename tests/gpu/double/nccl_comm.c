/* Communicators: made, asked, ended.
 *
 * joining -> ready -> finalized; failed and aborted from anywhere. A communicator is joining until all ranks
 * are in its shared memory; then each compares the devices of all, and two ranks on one device of one host
 * are refused, which NCCL_HOSTID avoids, and from 2.30 on NCCL_MULTI_RANK_GPU_ENABLE. Nobody waits here but
 * in a blocking call: a non-blocking communicator goes on when it is asked for its state, and its first
 * answer is always "in progress". The shared memory is given back when the handle is gone and no stream holds
 * an operation any more. */
#include "tests/gpu/double/nccl_double.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 22809 };

static _Thread_local char last_error[200];

ncclResult_t nccl_say(ncclResult_t result, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return result;
}

ncclResult_t nccl_enter(const char *function)
{
    int code = double_fault(function);
    return !code ? ncclSuccess : code < 0 ? ncclSystemError : (ncclResult_t)code;
}

struct comm *nccl_comm(ncclComm_t handle)
{
    return double_handle_get(HANDLE_COMMUNICATOR, handle);
}

void nccl_ring(struct area *area, int rank)
{
    area->member[rank].bell++;
    double_futex_wake(&area->member[rank].bell);
}

/* ---- coming together ---- */
static uint64_t host_number(void)
{
    char name[256] = "";
    uint64_t number = 1469598103934665603u;

    if (getenv("NCCL_HOSTID"))
        snprintf(name, sizeof name, "%s", getenv("NCCL_HOSTID"));
    else
        gethostname(name, sizeof name - 1);
    for (const char *c = name; *c; c++)
        number = (number ^ (unsigned char)*c) * 1099511628211u;
    return number;
}

static struct comm *new_comm(const ncclConfig_t *config, int device)
{
    struct comm *comm = calloc(1, sizeof *comm);

    if (!comm)
        abort();
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->running, NULL);
    pthread_cond_init(&comm->idle, NULL);
    comm->device = device;
    comm->blocking = !config || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
    comm->handle = double_handle_new(HANDLE_COMMUNICATOR, comm);
    return comm;
}

static ncclResult_t join(struct comm *comm, const struct segment_name *name, int size, int rank)
{
    struct member *me;
    uint32_t none = 0;

    if (!double_segment_open(&comm->segment, name, nccl_area_size(size)))
        return nccl_say(ncclSystemError, "the maker of the unique id (process %d) cannot be reached",
                        name->pid);
    comm->area = comm->segment.at;
    comm->size = size;
    comm->rank = rank;
    if (!atomic_compare_exchange_strong(&comm->area->size, &none, (uint32_t)size) && none != (uint32_t)size) {
        double_misuse("rank %d joins a communicator of %d ranks, others one of %u", rank, size, none);
        return nccl_say(ncclInvalidArgument, "ranks disagree about the size");
    }
    me = &comm->area->member[rank];
    me->host = host_number();
    me->device = comm->device;
    me->pid = getpid();
    double_device_uuid(comm->device, me->uuid);
    if (atomic_exchange(&me->joined, 1)) {
        double_misuse("two processes join a communicator as rank %d", rank);
        return nccl_say(ncclInvalidUsage, "rank %d is there twice", rank);
    }
    comm->state = COMM_JOINING;
    if (double_is_slow())
        comm->ready_at = double_now_ns() + REAL_CONNECT * UINT64_C(1000000);
    for (int i = 0; i < size; i++)
        nccl_ring(comm->area, i);
    return ncclSuccess;
}

int nccl_version(void)
{
    return (int)double_setting("HVD_DOUBLE_NCCL", VERSION);
}

/* Only from 2.30 on. */
static bool takes_ranks_on_one_device(void)
{
    return nccl_version() >= 23000 && double_setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) != 0;
}

static bool has_gone(int pid)
{
    char path[64], state = 'Z';
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    if (f)
        fclose(f);
    return state == 'Z';
}

/* As the proxies of a real one, soon; the double does only when it is to be slow. */
void nccl_hear_of_deaths(struct comm *comm)
{
    if (!double_is_slow())
        return;
    usleep(20000);
    for (int i = 0; i < comm->size && !comm->error; i++)
        if (has_gone(comm->area->member[i].pid))
            comm->error = (int)nccl_say(ncclRemoteError, "rank %d has gone", i);
}

static ncclResult_t compare_devices(const struct comm *comm)
{
    const struct member *member = comm->area->member;

    if (takes_ranks_on_one_device())
        return ncclSuccess;
    for (int i = 0; i < comm->size; i++)
        for (int k = 0; k < i; k++)
            if (member[i].host == member[k].host &&
                memcmp(member[i].uuid, member[k].uuid, sizeof member[i].uuid) == 0)
                return nccl_say(ncclInvalidUsage,
                                nccl_version() < 23000
                                    ? "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x"
                                    : "Multiple Ranks are using the same GPU/Partition: %d and %d on %x",
                                i, k, (member[i].uuid[15] + 1) << 12);
    return ncclSuccess;
}

static ncclResult_t joined(struct comm *comm)
{
    ncclResult_t result;

    for (int i = 0; i < comm->size; i++)
        if (!comm->area->member[i].joined)
            return ncclInProgress;
    if (double_now_ns() < comm->ready_at)
        return ncclInProgress;
    result = double_capture_minds_threads()
                 ? nccl_say(ncclUnhandledCudaError,
                            "Cuda failure 'operation not permitted when stream is capturing'")
                 : compare_devices(comm);
    comm->state = result ? COMM_FAILED : COMM_READY;
    comm->error = (int)result;
    return result;
}

/* The second question brings what was "in progress" into the streams. */
static ncclResult_t launch_late(struct comm *comm)
{
    ncclResult_t result = ncclSuccess;

    if (comm->late && comm->late_polls++ == 0)
        return ncclInProgress;
    while (comm->late) {
        struct batch *b = comm->late;

        comm->late = b->next;
        result = nccl_launch(b);
    }
    return result;
}

ncclResult_t nccl_poll(struct comm *comm)
{
    if (comm->error)
        return (ncclResult_t)comm->error;
    if (!comm->blocking && !comm->asked) {
        comm->asked = true;
        return ncclInProgress;
    }
    switch (comm->state) {
    case COMM_JOINING:
        return joined(comm);
    case COMM_READY:
        return launch_late(comm);
    case COMM_FINALIZED:
        return comm->pending ? ncclInProgress : ncclSuccess;
    default:
        return ncclInvalidUsage;
    }
}

/* Waits until the communicator is ready or has failed. Each rank that changes its state rings the bell. */
ncclResult_t nccl_wait_ready(struct comm *comm)
{
    for (;;) {
        _Atomic uint32_t *bell = &comm->area->member[comm->rank].bell;
        uint32_t seen = *bell;
        ncclResult_t result;

        pthread_mutex_lock(&comm->lock);
        result = nccl_poll(comm);
        pthread_mutex_unlock(&comm->lock);
        if (result != ncclInProgress)
            return result;
        if (double_now_ns() < comm->ready_at)
            double_take(REAL_SLICE); /* nobody rings at the end of that time */
        else
            double_futex_wait(bell, seen);
    }
}

static ncclResult_t begun(struct comm *comm)
{
    if (nccl_in_group(comm))
        return ncclSuccess;
    return comm->blocking ? nccl_wait_ready(comm) : ncclInProgress;
}

/* ---- the end ---- */
static void close_if_over(struct comm *comm)
{
    if (comm->ended && !comm->pending && comm->area) {
        double_segment_close(&comm->segment);
        comm->area = NULL;
    }
}

void nccl_done_with(struct comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->pending--;
    pthread_cond_broadcast(&comm->idle);
    close_if_over(comm);
    pthread_mutex_unlock(&comm->lock);
}

static void end(struct comm *comm)
{
    nccl_forget_memory(comm);
    double_handle_drop(HANDLE_COMMUNICATOR, comm->handle);
    comm->ended = true;
    while (comm->late) {
        struct batch *b = comm->late;

        comm->late = b->next;
        free(b->op);
        free(b);
    }
    close_if_over(comm);
}

static void wait_idle(struct comm *comm, const char *function)
{
    if (comm->pending)
        double_host_sync(function);
    while (comm->pending)
        pthread_cond_wait(&comm->idle, &comm->lock);
}

#define ENTER_COMM(function, handle, comm)                                                                   \
    do {                                                                                                     \
        ncclResult_t early_ = nccl_enter(function);                                                          \
        if (early_)                                                                                          \
            return early_;                                                                                   \
        (comm) = nccl_comm(handle);                                                                          \
        if (!(comm))                                                                                         \
            return nccl_say(ncclInvalidArgument, "%s: no communicator (any more)", function);                \
    } while (0)

ncclResult_t ncclCommFinalize(ncclComm_t handle)
{
    struct comm *comm;
    ncclResult_t result;

    ENTER_COMM("ncclCommFinalize", handle, comm);
    pthread_mutex_lock(&comm->lock);
    result = nccl_poll(comm);
    if (!result && comm->state == COMM_READY) {
        comm->state = COMM_FINALIZED;
        if (comm->blocking)
            wait_idle(comm, "ncclCommFinalize");
        result = nccl_poll(comm);
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
    struct comm *comm;

    ENTER_COMM("ncclCommDestroy", handle, comm);
    pthread_mutex_lock(&comm->lock);
    if (comm->state < COMM_READY)
        double_misuse("ncclCommDestroy of a communicator that is not ready (ncclCommAbort ends it)");
    wait_idle(comm, "ncclCommDestroy");
    if (comm->memory)
        double_misuse("ncclCommDestroy of a communicator that has memory registered");
    end(comm);
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle)
{
    struct comm *comm;

    ENTER_COMM("ncclCommAbort", handle, comm);
    pthread_mutex_lock(&comm->lock);
    comm->state = COMM_ABORTED;
    comm->aborted = 1;
    if (comm->area)
        nccl_ring(comm->area, comm->rank);
    end(comm);
    pthread_mutex_unlock(&comm->lock);
    double_take(REAL_ABORT);
    return ncclSuccess;
}

/* ---- beginnings and questions ---- */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct segment segment;
    struct segment_name name;
    ncclResult_t early = nccl_enter("ncclGetUniqueId");

    if (early)
        return early;
    if (!double_segment_new(&segment, sizeof(struct area), true))
        return nccl_say(ncclSystemError, "no shared memory");
    double_segment_tell(&segment, &name);
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &name, sizeof name);
    return ncclSuccess;
}

static void trace_settings(void)
{
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "NCCL_", 5) == 0)
            double_trace("set %s", *entry);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct context *context;
    struct segment_name name;
    struct comm *comm;
    ncclResult_t result = nccl_enter("ncclCommInitRankConfig");

    if (result)
        return result;
    double_context_current(&context);
    if (!context)
        return nccl_say(ncclUnhandledCudaError, "no current context");
    if (size < 1 || size > RANKS_MAX || rank < 0 || rank >= size || (config && config->magic != 0xcafebeef))
        return nccl_say(ncclInvalidArgument, "rank %d of %d, or a configuration that was not initialised",
                        rank, size);
    memcpy(&name, id.internal, sizeof name);
    comm = new_comm(config, context->device);
    trace_settings();
    result = join(comm, &name, size, rank);
    if (!result) {
        *handle = comm->handle;
        return begun(comm);
    }
    double_handle_drop(HANDLE_COMMUNICATOR, comm->handle);
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
    struct comm *comm;

    ENTER_COMM("ncclCommGetAsyncError", handle, comm);
    pthread_mutex_lock(&comm->lock);
    *error = nccl_poll(comm);
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int *count)
{
    struct comm *comm;

    ENTER_COMM("ncclCommCount", handle, comm);
    *count = comm->size;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int *device)
{
    struct comm *comm;

    ENTER_COMM("ncclCommCuDevice", handle, comm);
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int *rank)
{
    struct comm *comm;

    ENTER_COMM("ncclCommUserRank", handle, comm);
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = nccl_version();
    return nccl_enter("ncclGetVersion");
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return last_error;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}
