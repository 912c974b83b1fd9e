/* Events. Each record of an event has a number; `done` is the highest number that a stream has come to. A
 * waiter waits for the number that the event has at that moment. It does not wait when the event was never
 * recorded, as with CUDA. An event between processes has both numbers in memory that both processes map, so
 * both see the other's records. */
#include "tests/gpu/double/double.h"

#include <stdlib.h>
#include <string.h>

struct event_state {
    _Atomic uint32_t recorded, done;
};

struct event {
    struct event_state own, *state;
    struct context *context;
    unsigned flags;
    bool opened; /* somebody else's */
    struct segment segment;
    uint64_t done_ns; /* when it was come to */
};

/* The driver has few of those that processes share. */
static _Atomic long shared_events;

static bool take_shared(void)
{
    bool room = ++shared_events <= double_setting("HVD_DOUBLE_IPC_EVENTS", 64);

    shared_events -= !room;
    return room;
}

struct record {
    struct event *event;
    uint32_t number;
};

static void wait_for(struct event_state *state, uint32_t number)
{
    for (;;) {
        uint32_t done = state->done;

        if ((int32_t)(done - number) >= 0)
            return;
        double_futex_wait(&state->done, done);
    }
}

static void run_record(struct context *context, void *argument)
{
    struct record *r = argument;
    struct event_state *state = r->event->state;
    uint32_t done = state->done;

    r->event->done_ns = double_now_ns();
    while ((int32_t)(r->number - done) > 0 && !atomic_compare_exchange_weak(&state->done, &done, r->number)) {
    }
    double_futex_wake(&state->done);
    free(r);
}

static void run_wait(struct context *context, void *argument)
{
    struct record *r = argument;

    wait_for(r->event->state, r->number);
    free(r);
}

static struct record *new_record(struct event *event, uint32_t number)
{
    struct record *r = malloc(sizeof *r);

    if (!r)
        abort();
    *r = (struct record){event, number};
    return r;
}

static struct stream *stream_of(CUstream handle)
{
    struct context *current;

    double_context_current(&current);
    return double_stream_get(handle, current);
}

/* ---- the interface ---- */
CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    struct context *c;
    struct event *e;

    ENTER_CONTEXT("cuEventCreate", c);
    if (flags > 7 || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    e = calloc(1, sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->context = c;
    e->flags = flags;
    e->state = &e->own;
    if (flags & CU_EVENT_INTERPROCESS) {
        if (!take_shared() || !double_segment_new(&e->segment, 4096, false)) {
            free(e);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        e->state = e->segment.at;
    }
    *event = double_handle_new(HANDLE_EVENT, e);
    return CUDA_SUCCESS;
}

/* Its mapping stays: a stream may still come to it. */
CUresult cuEventDestroy_v2(CUevent event)
{
    struct event *e;

    ENTER("cuEventDestroy_v2");
    e = double_handle_get(HANDLE_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    shared_events -= (e->flags & CU_EVENT_INTERPROCESS) != 0;
    double_handle_drop(HANDLE_EVENT, event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct event *e;
    struct stream *s;

    ENTER("cuEventRecord");
    e = double_handle_get(HANDLE_EVENT, event);
    s = e ? stream_of(stream) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (double_stream_context(s) != e->context) {
        double_misuse(
            "cuEventRecord: the event is one of device %d, the stream one of device %d or of another "
            "context",
            e->context->device, double_stream_context(s)->device);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (e->context->error)
        return (CUresult)e->context->error;
    double_stream_push(s, run_record, new_record(e, atomic_fetch_add(&e->state->recorded, 1) + 1));
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    struct event *e;
    struct stream *s;

    ENTER("cuStreamWaitEvent");
    e = double_handle_get(HANDLE_EVENT, event);
    s = e ? stream_of(stream) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (double_capture_spoil(stream)) /* the event is of before */
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    if (double_stream_context(s)->error)
        return (CUresult)double_stream_context(s)->error;
    double_stream_push(s, run_wait, new_record(e, e->state->recorded));
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    struct event *e;

    ENTER("cuEventQuery");
    e = double_handle_get(HANDLE_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->context->error)
        return (CUresult)e->context->error;
    return (int32_t)(e->state->done - e->state->recorded) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    struct event *e;

    ENTER("cuEventSynchronize");
    e = double_handle_get(HANDLE_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    double_host_sync("cuEventSynchronize");
    wait_for(e->state, e->state->recorded);
    return (CUresult)e->context->error;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    struct event *a, *b;

    ENTER("cuEventElapsedTime");
    a = double_handle_get(HANDLE_EVENT, start);
    b = a ? double_handle_get(HANDLE_EVENT, end) : NULL;
    if (!b || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->state->recorded || !b->state->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if (a->state->done != a->state->recorded || b->state->done != b->state->recorded)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(b->done_ns - a->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime(milliseconds, start, end);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    struct event *e;
    struct segment_name name;

    ENTER("cuIpcGetEventHandle");
    e = double_handle_get(HANDLE_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!(e->flags & CU_EVENT_INTERPROCESS) || e->opened)
        return CUDA_ERROR_INVALID_VALUE;
    double_segment_tell(&e->segment, &name);
    name.device = double_device_physical(e->context->device);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &name, sizeof name);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    struct context *c;
    struct event *e;
    struct segment_name name;

    ENTER_CONTEXT("cuIpcOpenEventHandle", c);
    memcpy(&name, &handle, sizeof name);
    if (name.size != 4096)
        return CUDA_ERROR_INVALID_VALUE;
    e = calloc(1, sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!take_shared() || !double_segment_open(&e->segment, &name, 4096)) {
        free(e);
        return CUDA_ERROR_MAP_FAILED;
    }
    e->context = c;
    e->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    e->opened = true;
    e->state = e->segment.at;
    *event = double_handle_new(HANDLE_EVENT, e);
    return CUDA_SUCCESS;
}
