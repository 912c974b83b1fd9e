/* A kernel's threads, block after block, in the thread of the stream.
 *
 * The threads of a block run one after another on one fibre for as long as they end. One that comes to
 * __syncthreads stays there, with the fibre, and the next threads get another. When all have begun, those
 * that wait go on, each until its end or the next __syncthreads. That some have ended while others wait is a
 * misuse: a barrier is for all threads of a block. */
#include "tests/gpu/emulate/emulate.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)128 << 10)
#define GUARD_BYTES ((size_t)16 << 10) /* at its end */

enum { BLOCK_THREADS = 1024, GRID_SIDE = 65535, SHARED_BYTES = 48 << 10 };

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

struct fibre {
    struct fibre *next;
    ucontext_t context;
    uint3 thread; /* that waits on it */
};

/* The launch that this thread of the host runs, and the block that it has come to. */
static _Thread_local struct {
    struct context *context;
    const struct emulated_launch *launch;
    bool broken, backwards;
    unsigned threads, begun, ended;
    struct fibre *idle, *waiting, *running;
    ucontext_t scheduler;
} now;

static uint3 place(unsigned long long index, unsigned long long of, dim3 shape)
{
    if (now.backwards)
        index = of - 1 - index;
    return (uint3){(unsigned)(index % shape.x), (unsigned)(index / shape.x % shape.y),
                   (unsigned)(index / shape.x / shape.y)};
}

static void leave(struct fibre **list)
{
    struct fibre *self = now.running;

    self->next = *list;
    *list = self;
    swapcontext(&self->context, &now.scheduler);
}

/* A fibre: the threads that nobody has begun, and again in the next block. */
static void serve(void)
{
    for (;;) {
        while (now.begun < now.threads) {
            threadIdx = place(now.begun++, now.threads, blockDim);
            now.launch->thread(now.launch->call);
            now.ended++;
        }
        leave(&now.idle);
    }
}

/* It lies at the top of its stack, and both stay until the process ends. */
static struct fibre *new_fibre(void)
{
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fibre *f = (struct fibre *)(void *)(stack + STACK_BYTES - sizeof(struct fibre) / 64 * 64 - 64);

    if (stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0)
        abort();
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = stack;
    f->context.uc_stack.ss_size = (size_t)((char *)f - stack);
    makecontext(&f->context, serve, 0);
    return f;
}

static void go_on(struct fibre *fibre)
{
    now.running = fibre;
    swapcontext(&now.scheduler, &fibre->context);
}

void __syncthreads(void)
{
    struct fibre *self = now.running;

    self->thread = threadIdx;
    leave(&now.waiting);
    threadIdx = self->thread;
}

static void run_block(void)
{
    now.begun = now.ended = 0;
    while (now.begun < now.threads) {
        struct fibre *f = now.idle;

        if (f != NULL)
            now.idle = f->next;
        go_on(f != NULL ? f : new_fibre());
    }
    while (now.waiting != NULL) {
        struct fibre *waiting = now.waiting;

        if (now.ended > 0)
            double_misuse("%s: %u of a block's threads have ended, others are in __syncthreads",
                          now.launch->name, now.ended);
        now.waiting = NULL;
        while (waiting != NULL) {
            struct fibre *f = waiting;

            waiting = f->next;
            go_on(f);
        }
    }
}

void *emulate_address(const void *pointer)
{
    void *at =
        pointer == NULL ? NULL : double_reach_or_break(now.context, (uintptr_t)pointer, 1, now.launch->name);

    if (at == NULL && pointer != NULL)
        now.broken = true;
    return at;
}

static void run(struct context *context, void *argument)
{
    static _Atomic unsigned launches;
    struct emulated_launch *l = argument;
    unsigned long long blocks = (unsigned long long)l->grid.x * l->grid.y * l->grid.z;

    now.context = context;
    now.launch = l;
    now.broken = context->error != 0;
    /* Half of them, and half of those of each kernel, whatever the turn in which kernels come. */
    now.backwards = (launches++ + (unsigned)double_setting("HVD_DOUBLE_SEED", 1)) * 2654435761u >> 31;
    now.threads = l->block.x * l->block.y * l->block.z;
    if (!now.broken)
        l->reach(l->call);
    gridDim = l->grid;
    blockDim = l->block;
    for (unsigned long long i = 0; i < blocks && !now.broken; i++) {
        blockIdx = place(i, blocks, l->grid);
        run_block();
    }
    free(l->call);
    free(l);
}

static bool fits(const struct emulated_launch *l, size_t shared)
{
    return l->grid.x > 0 && l->grid.y > 0 && l->grid.z > 0 && l->grid.x <= INT32_MAX &&
           l->grid.y <= GRID_SIDE && l->grid.z <= GRID_SIDE && l->block.x > 0 && l->block.y > 0 &&
           l->block.z > 0 && l->block.z <= 64 &&
           (unsigned long long)l->block.x * l->block.y * l->block.z <= BLOCK_THREADS &&
           shared <= SHARED_BYTES;
}

void emulate_launch(const struct emulated_launch *launch, size_t shared, cudaStream_t stream)
{
    cudaError_t error = emulate_enter("cudaLaunchKernel");
    struct emulated_launch *l = malloc(sizeof *l);

    if (l == NULL)
        abort();
    *l = *launch;
    if (error == cudaSuccess && !fits(l, shared))
        error = emulate_ended(cudaErrorInvalidConfiguration);
    if (error == cudaSuccess)
        error = emulate_push(stream, run, l);
    if (error != cudaSuccess) {
        free(l->call);
        free(l);
    }
}
