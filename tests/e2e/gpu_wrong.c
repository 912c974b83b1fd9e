/* Programs that misuse CUDA, or whose GPU has a fault, or that mean another stream than they name. The first
 * argument of a worker says which:
 *
 *   askew           elements that lie across their size: prints what is said of each kind of operation
 *   fault BITS      a kernel of the last rank goes to an address that is not there, before elements of that
 *                   many bits; 0: another process's kernel does
 *   foreign MEMORY STREAM  which of the two the last rank has in a context of its own: 1, or 0
 *   thread STREAM   the thread's default stream has work; the call is given NULL or that one
 *   staged ROUNDS   sums, and the end */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM /* as nvcc --default-stream per-thread defines it */
#include "hvd.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/gpu/driver.h"
#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

static int rank, size;
static hvd_options options;

static void say(const char *what, int status)
{
    printf("%s/%d %s %s\n", what, rank, hvd_status_name(status), status ? hvd_last_error() : "");
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static void *driver_symbol(const char *name)
{
    void *library = dlopen(DRIVER_LIBRARY, RTLD_LAZY), *symbol = library ? dlsym(library, name) : NULL;

    if (!symbol)
        wrong("the driver has no %s", name);
    return symbol;
}

/* ---- askew --------------------------------------------------------------------------------------------- */

static void askew(void)
{
    char *gpu = gpu_alloc(400), *other = gpu_alloc(400);
    const void *in[2] = {gpu, gpu + 101};
    void *out[2] = {other, other + 100};
    size_t count[2] = {4, 4}, rows[2] = {8, 8}, row[2] = {1, 1};
    hvd_handle handle;

    say("in", hvd_allreduce("a", gpu + 1, other, 4, HVD_INT32, HVD_SUM, &options));
    say("out", hvd_allreduce("a", gpu, other + 2, 4, HVD_FLOAT32, HVD_SUM, &options));
    say("begun", hvd_allreduce_async("a", gpu + 4, gpu + 4, 4, HVD_FLOAT64, HVD_SUM, &options, &handle));
    say("kept", hvd_allreduce_init("a", gpu + 1, gpu + 1, 4, HVD_FLOAT16, HVD_SUM, &options, &handle));
    say("group", hvd_grouped_allreduce("g", 2, in, out, count, HVD_INT32, HVD_SUM, &options));
    in[1] = gpu + 100;
    out[1] = other + 102;
    say("scatters", hvd_grouped_reducescatter("s", 2, in, rows, row, HVD_INT32, HVD_SUM, out, &options));
    say("scatter", hvd_reducescatter("r", gpu + 2, 8, 1, HVD_INT32, HVD_SUM, other, &options));
    say("small", hvd_allreduce("a", gpu + 1, other + 1, 4, HVD_INT8, HVD_SUM, &options));
    say("moved", hvd_broadcast("b", gpu + 1, 4, HVD_INT32, 0, &options));
    say("none", hvd_allreduce("a", gpu + 1, gpu + 1, 0, HVD_INT32, HVD_SUM, &options));
    say("after", hvd_allreduce("a", gpu, gpu, 4, HVD_INT32, HVD_SUM, &options));
}

/* ---- faults -------------------------------------------------------------------------------------------- */

static void go_wrong(void)
{
    void (*illegal)(void *), *symbol = driver_symbol("double_illegal");

    memcpy(&illegal, &symbol, sizeof illegal);
    illegal(gpu_stream());
}

/* Elements of 16 bits go through host memory, for NCCL has no such. */
static void fault(int bits)
{
    hvd_dtype dtype = bits == 16 ? HVD_INT16 : HVD_INT32;
    int32_t *gpu = gpu_alloc(400);

    must(hvd_allreduce("first", gpu, gpu, 100, dtype, HVD_SUM, &options), "the first one");
    gpu_wait();
    must(hvd_barrier(NULL), "hvd_barrier");
    if (bits && rank == size - 1) {
        gpu_pause(300);
        go_wrong();
    }
    double since = now();
    int status = hvd_allreduce("x", gpu, gpu, 100, dtype, HVD_SUM, &options);
    while (status == HVD_SUCCESS &&
           now() - since < 20000) { /* its place was settled: the next one hears of it */
        usleep(10000);
        status = hvd_barrier(NULL);
    }
    printf("fault/%d after %s: %s: %s\n", rank, now() - since < 2000 ? "less than 2 s" : "long",
           hvd_status_name(status), hvd_last_error());
    exit(1);
}

/* ---- another context ----------------------------------------------------------------------------------- */

static void enter_own(const struct driver *d, int *device)
{
    cu_result (*create)(cu_context *, unsigned, cu_device);
    void *symbol = driver_symbol("cuCtxCreate_v2");
    cu_context own;

    memcpy(&create, &symbol, sizeof create);
    if (d->cuCtxGetDevice(device) != CU_OK || create(&own, 0, *device) != CU_OK)
        wrong("no context");
}

/* The sum is right, whichever way it goes. */
static void foreign(int memory, int stream)
{
    const struct driver *d = driver_open(NULL);
    int32_t *gpu = gpu_alloc(4), x = rank + 1;
    cu_stream given = gpu_stream();
    int device;

    if (rank == size - 1) {
        enter_own(d, &device);
        if (memory)
            gpu = gpu_alloc(4);
        if (stream && d->cuStreamCreate(&given, CU_STREAM_NON_BLOCKING_FLAG) != CU_OK)
            wrong("no stream");
    }
    options.stream = given;
    for (worker_round = 0; worker_round < 3; worker_round++) {
        x = rank + 1;
        if (d->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)gpu, &x, 4, given) != CU_OK)
            wrong("cuMemcpyHtoDAsync");
        must(hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
        if (d->cuMemcpyDtoHAsync(&x, (cu_pointer)(uintptr_t)gpu, 4, given) != CU_OK ||
            d->cuStreamSynchronize(given) != CU_OK)
            wrong("cuMemcpyDtoHAsync");
        if (x != size * (size + 1) / 2)
            wrong("the sum is %d", x);
    }
    printf("rank %d: all right\n", rank);
}

/* ---- the thread's default stream ----------------------------------------------------------------------- */

static void pause_thread(void *unused)
{
    (void)unused;
    usleep(20000);
}

static void thread(void *stream)
{
    const struct driver *d = driver_open(NULL);
    cu_stream own = HVD_DEFAULT_STREAM;
    cu_pointer gpu = (cu_pointer)(uintptr_t)gpu_alloc(4);
    int32_t x;

    if ((uintptr_t)own != 2)
        wrong("HVD_DEFAULT_STREAM is %p", (void *)own);
    options.stream = stream;
    for (worker_round = 0; worker_round < 20; worker_round++) {
        x = rank + worker_round;
        if (d->cuLaunchHostFunc(own, pause_thread, NULL) != CU_OK ||
            d->cuMemcpyHtoDAsync(gpu, &x, 4, own) != CU_OK)
            wrong("cuMemcpyHtoDAsync");
        must(hvd_allreduce("x", (void *)(uintptr_t)gpu, (void *)(uintptr_t)gpu, 1, HVD_INT32, HVD_SUM,
                           &options),
             "hvd_allreduce");
        if (d->cuMemcpyDtoHAsync(&x, gpu, 4, own) != CU_OK || d->cuStreamSynchronize(own) != CU_OK)
            wrong("cuMemcpyDtoHAsync");
        if (x != size * worker_round + size * (size - 1) / 2)
            wrong("the sum is %d", x);
    }
    printf("rank %d: all right\n", rank);
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static void staged(int rounds)
{
    int32_t *gpu = gpu_alloc(4), x;

    for (worker_round = 0; worker_round < rounds; worker_round++) {
        x = rank + 1;
        gpu_put(gpu, &x, 4);
        int status = hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options);
        if (status != HVD_SUCCESS) {
            say("refused", status);
            exit(1);
        }
        gpu_get(&x, gpu, 4);
        if (x != size * (size + 1) / 2)
            wrong("the sum is %d", x);
    }
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: all right\n", rank);
    exit(0);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;

    gpu_begin(&rank, &size, &options);
    if (strcmp(word, "askew") == 0)
        askew();
    else if (strcmp(word, "fault") == 0)
        fault(number);
    else if (strcmp(word, "foreign") == 0)
        foreign(number, argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0);
    else if (strcmp(word, "thread") == 0)
        thread(number ? HVD_DEFAULT_STREAM : NULL);
    else if (strcmp(word, "staged") == 0)
        staged(number ? number : 1);
    else
        wrong("no such word");
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
