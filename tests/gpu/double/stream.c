/* A stream: a queue, and a thread that takes from it. Before each piece of work the thread lets a random
 * moment go by, so what is not ordered does happen in another order now and then.
 *
 * The legacy default stream, simplified: what is put into it waits for all that the blocking streams of its
 * context hold at that moment, and what is put into one of those waits for what the default stream holds
 * then. (The driver joins them in the same way when work is put in.) A destroyed stream finishes what it has;
 * its thread ends after that. */
#include "tests/gpu/double/double.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct work {
    struct work *next;
    stream_work run;
    void *argument;
};

struct stream {
    CUstream handle;
    struct stream *next; /* of its context */
    struct context *context;
    unsigned flags;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, *last;
    uint64_t queued, finished;
    bool ended;
    uint64_t random;
};

static _Atomic uint64_t streams_made;

static void pause_randomly(struct stream *s)
{
    long most = double_setting("HVD_DOUBLE_DELAY_US", 100);
    struct timespec t = {0, 0};

    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    if (most <= 0)
        return;
    most = (long)(s->random % (uint64_t)most);
    t.tv_sec = most / 1000000;
    t.tv_nsec = most % 1000000 * 1000;
    nanosleep(&t, NULL);
}

/* Ranks of even and of odd numbers have the GPU in turn. */
static void wait_for_turn(void)
{
    const char *rank = getenv("HVD_RANK");
    uint64_t slice = REAL_SLICE * 1000000u, odd = rank ? (uint64_t)strtol(rank, NULL, 10) % 2 : 0;
    uint64_t now = double_now_ns();

    if (double_is_slow() && now / slice % 2 != odd)
        usleep((useconds_t)((slice - now % slice) / 1000 + 1));
}

static void *serve(void *argument)
{
    struct stream *s = argument;
    struct work *w;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->ended)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->first)
            break;
        w = s->first;
        s->first = w->next;
        pthread_mutex_unlock(&s->lock);
        pause_randomly(s);
        wait_for_turn();
        w->run(s->context, w->argument);
        free(w);
        pthread_mutex_lock(&s->lock);
        s->finished++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct stream *new_stream(struct context *context, unsigned flags)
{
    struct stream *s = calloc(1, sizeof *s);
    pthread_t thread;

    if (!s)
        abort();
    s->context = context;
    s->flags = flags;
    s->random =
        88172645463325252u + (uint64_t)double_setting("HVD_DOUBLE_SEED", 1) * 7919 + ++streams_made * 104729;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_mutex_lock(&context->order);
    s->next = context->streams;
    context->streams = s;
    pthread_mutex_unlock(&context->order);
    if (pthread_create(&thread, NULL, serve, s) != 0)
        abort();
    pthread_detach(thread);
    return s;
}

static struct stream *legacy_of(struct context *context)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&making);
    if (!context->legacy)
        context->legacy = new_stream(context, 0);
    pthread_mutex_unlock(&making);
    return context->legacy;
}

struct stream *double_stream_get(CUstream handle, struct context *current)
{
    static _Thread_local struct stream *per_thread[GPUS_MAX];
    uintptr_t number = (uintptr_t)handle;

    if (number > 2)
        return double_handle_get(HANDLE_STREAM, handle);
    if (!current)
        return NULL;
    if (number < 2)
        return legacy_of(current);
    if (!per_thread[current->device] || per_thread[current->device]->context != current)
        per_thread[current->device] = new_stream(current, 0);
    return per_thread[current->device];
}

struct context *double_stream_context(const struct stream *stream)
{
    return stream->context;
}

/* ---- putting work in ---- */
struct waiting {
    struct stream *stream;
    uint64_t until;
};

static void wait_until(struct stream *s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    while (s->finished < number)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void wait_for_stream(struct context *context, void *argument)
{
    struct waiting *w = argument;

    wait_until(w->stream, w->until);
    free(w);
}

static uint64_t append(struct stream *s, stream_work run, void *argument)
{
    struct work *w = malloc(sizeof *w);
    uint64_t number;

    if (!w)
        abort();
    *w = (struct work){NULL, run, argument};
    pthread_mutex_lock(&s->lock);
    if (s->first)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    number = ++s->queued;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return number;
}

static void after(struct stream *s, struct stream *other)
{
    struct waiting *w;
    uint64_t queued, finished;

    pthread_mutex_lock(&other->lock);
    queued = other->queued;
    finished = other->finished;
    pthread_mutex_unlock(&other->lock);
    if (queued == finished || s == other)
        return;
    w = malloc(sizeof *w);
    if (!w)
        abort();
    *w = (struct waiting){other, queued};
    append(s, wait_for_stream, w);
}

void double_stream_after(struct stream *stream, struct stream *other)
{
    after(stream, other);
}

uint64_t double_stream_push(struct stream *s, stream_work run, void *argument)
{
    struct context *c = s->context;
    uint64_t number;

    pthread_mutex_lock(&c->order);
    if (s == c->legacy) {
        for (struct stream *other = c->streams; other; other = other->next)
            if (!(other->flags & CU_STREAM_NON_BLOCKING))
                after(s, other);
    } else if (c->legacy && !(s->flags & CU_STREAM_NON_BLOCKING)) {
        after(s, c->legacy);
    }
    number = append(s, run, argument);
    pthread_mutex_unlock(&c->order);
    return number;
}

static void drain(struct stream *s)
{
    uint64_t queued;

    pthread_mutex_lock(&s->lock);
    queued = s->queued;
    pthread_mutex_unlock(&s->lock);
    wait_until(s, queued);
}

/* New streams come to the front of the list, none is taken out: it can be walked without the lock. */
void double_streams_drain(struct context *context)
{
    struct stream *first;

    pthread_mutex_lock(&context->order);
    first = context->streams;
    pthread_mutex_unlock(&context->order);
    for (struct stream *s = first; s; s = s->next)
        drain(s);
}

/* ---- the interface ---- */
#define ENTER_STREAM(function, handle, stream)                                                               \
    do {                                                                                                     \
        struct context *current_;                                                                            \
        ENTER(function);                                                                                     \
        double_context_current(&current_);                                                                   \
        (stream) = double_stream_get(handle, current_);                                                      \
        if (!(stream))                                                                                       \
            return (uintptr_t)(handle) > 2 ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;         \
        if ((stream)->context->error)                                                                        \
            return (CUresult)(stream)->context->error;                                                       \
    } while (0)

static CUresult create(struct context *c, CUstream *stream, unsigned flags)
{
    struct stream *s;

    if (flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    legacy_of(c);
    s = new_stream(c, flags);
    s->handle = double_handle_new(HANDLE_STREAM, s);
    *stream = s->handle;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    struct context *c;

    ENTER_CONTEXT("cuStreamCreate", c);
    return create(c, stream, flags);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    struct context *c;

    ENTER_CONTEXT("cuStreamCreateWithPriority", c);
    return create(c, stream, flags);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct context *c;

    ENTER_CONTEXT("cuCtxGetStreamPriorityRange", c);
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct stream *s;

    ENTER("cuStreamDestroy_v2");
    s = double_handle_get(HANDLE_STREAM, stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    double_handle_drop(HANDLE_STREAM, stream);
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct stream *s;

    ENTER_STREAM("cuStreamSynchronize", stream, s);
    double_host_sync("cuStreamSynchronize");
    drain(s);
    return (CUresult)s->context->error;
}

CUresult cuStreamQuery(CUstream stream)
{
    struct stream *s;
    bool idle;

    ENTER_STREAM("cuStreamQuery", stream, s);
    pthread_mutex_lock(&s->lock);
    idle = s->finished == s->queued;
    pthread_mutex_unlock(&s->lock);
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    struct stream *s;

    ENTER_STREAM("cuStreamGetCtx", stream, s);
    *context = s->context->handle;
    return CUDA_SUCCESS;
}

struct host_call {
    CUhostFn function;
    void *data;
};

/* Not after an error in the context, as CUDA's text of cuLaunchHostFunc says. */
static void call_host(struct context *context, void *argument)
{
    struct host_call *call = argument;

    if (!context->error)
        call->function(call->data);
    free(call);
}

static void fault(struct context *context, void *argument)
{
    context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

void double_illegal(CUstream handle)
{
    struct context *current;
    struct stream *s;

    double_context_current(&current);
    if ((s = double_stream_get(handle, current)))
        double_stream_push(s, fault, NULL);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    struct stream *s;
    struct host_call *call;

    ENTER_STREAM("cuLaunchHostFunc", stream, s);
    call = malloc(sizeof *call);
    if (!call || !function) {
        free(call);
        return function ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    *call = (struct host_call){function, data};
    double_stream_push(s, call_host, call);
    return CUDA_SUCCESS;
}
