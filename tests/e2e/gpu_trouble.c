/* Operations on GPUs that go wrong. The first argument of a worker says how:
 *
 *   breaks RANK LIST    calls of the driver fail there (double.h says how LIST is written) when it begins
 *                       two operations that the others have begun: prints how each one ends, and exits
 *                       with status 1
 *   breaks16 RANK LIST  the same by way of host memory
 *   closes LIST         calls fail from hvd_shutdown on, with the last rank's stream busy
 *   aside               a result that is there is waited for while a join has put it aside
 *   capture             operations while streams are being captured into graphs
 *   capture-first       the first operation while another stream is being captured in the global mode
 *   set                 a set is removed while another thread of rank 0 begins an operation in it */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"

static int rank, size;
static hvd_options options;

static void say(const char *what, int status)
{
    printf("%s/%d %s %s\n", what, rank, hvd_status_name(status), status ? hvd_last_error() : "");
}

/* 16 bit integers go through host memory, for NCCL has none. */
static void breaks(int where, const char *list, int dtype)
{
    int32_t *gpu = gpu_alloc(400);
    hvd_handle one, other;

    must(hvd_allreduce("first", gpu, gpu, 100, dtype, HVD_SUM, &options), "the first one");
    gpu_wait();
    if (rank == where) {
        usleep(200000); /* the others have begun both */
        gpu_fail(list);
    }
    int first = hvd_allreduce_async("one", gpu, gpu, 100, dtype, HVD_SUM, &options, &one);
    int second = hvd_allreduce_async("other", gpu + 100, gpu + 100, 0, dtype, HVD_SUM, &options, &other);
    say("other", second ? second : hvd_wait(other));
    say("one", first ? first : hvd_wait(one));
    gpu_wait();
    fflush(stdout);
    if (rank != where) /* the end of this rank must not come first: hvdrun ends it after the other one */
        sleep(30);
    exit(1);
}

static void closes(const char *list)
{
    int32_t *gpu = gpu_alloc(400);
    hvd_handle handle;

    must(hvd_allreduce("first", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "the first one");
    gpu_wait();
    if (rank == size - 1)
        gpu_pause(1500);
    must(hvd_broadcast_async("last", gpu, 100, HVD_INT32, 0, &options, &handle), "last");
    usleep(300000); /* its turn has come, and the driver is to call when the stream has come to it */
    if (rank == size - 1)
        gpu_fail(list);
    say("closed", hvd_shutdown());
    gpu_wait();
    usleep(200000);
    exit(0);
}

/* Rank 0 comes late to the other "x", which the last rank has no part in but as one that has joined. */
static void aside(void)
{
    int32_t *gpu = gpu_alloc(4), x = rank + 1, last;
    hvd_handle handle, join;

    must(hvd_allreduce("first", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "the first one");
    gpu_put(gpu, &x, 4);
    if (rank == 1)
        gpu_pause(1500);
    must(hvd_allreduce_async("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options, &handle), "x");
    if (rank == size - 1) {
        while (hvd_poll(handle) == 0)
            ;
        must(hvd_join_async(&last, &join), "hvd_join_async");
        usleep(300000);
    }
    must(hvd_wait(handle), "hvd_wait");
    if (rank < size - 1) {
        int32_t other = 1;
        usleep(rank == 0 ? 700000 : 100000);
        must(hvd_allreduce("x", &other, &other, 1, HVD_INT32, HVD_SUM, NULL), "x on the host");
    }
    gpu_get(&x, gpu, 4);
    if (x != size * (size + 1) / 2)
        wrong("the sum is %d", x);
    must(rank == size - 1 ? hvd_wait(join) : hvd_join(NULL), "the join");
    printf("rank %d: all right\n", rank);
}

/* NCCL connects in threads of its own, and spoils a capture in the global mode. */
static void capture_first(void)
{
    int32_t *gpu = gpu_alloc(400), x = rank + 1;

    gpu_put(gpu, &x, 4);
    gpu_wait();
    if (rank == size - 1)
        gpu_capture(false, true);
    must(hvd_allreduce("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "x");
    if (rank == size - 1)
        printf("rank %d: the capture %s\n", rank, gpu_capture_spoilt() ? "is spoilt" : "is whole");
    gpu_get(&x, gpu, 4);
    if (x != size * (size + 1) / 2)
        wrong("the sum is %d", x);
    printf("rank %d: all right\n", rank);
}

/* No call of the library spoils a capture of another stream, from the second operation to hvd_shutdown. There
 * NCCL frees memory in threads of its own, which may spoil one. */
static void capture(void)
{
    int32_t *gpu = gpu_alloc(400), x = rank + 1;
    int16_t *shorts = gpu_alloc(200);
    hvd_handle handle;

    must(hvd_allreduce("first", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "the first one");
    gpu_put(gpu, &x, 4);
    gpu_wait();
    gpu_capture(false, true);
    must(hvd_allreduce("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "x");
    must(hvd_allreduce("shorts", shorts, shorts, 100, HVD_INT16, HVD_MAX, &options), "shorts");
    gpu_captured(false, "the end of a capture beside operations");
    gpu_capture(true, false);
    say("captured", hvd_allreduce("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options));
    gpu_captured(true, "the end of a capture that is refused");
    gpu_pause(300);
    must(hvd_allreduce_async("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options, &handle), "x");
    gpu_capture(true, false);
    must(hvd_wait(handle), "hvd_wait");
    gpu_captured(true, "the end of a capture beside hvd_wait");
    gpu_get(&x, gpu, 4);
    if (x != size * size * (size + 1) / 2)
        wrong("the sum is %d", x);
    gpu_capture(false, true);
    must(hvd_shutdown(), "hvd_shutdown");
    printf("rank %d: the capture beside hvd_shutdown %s\n", rank,
           gpu_capture_spoilt() ? "is spoilt" : "is whole");
    printf("rank %d: all right\n", rank);
    exit(0);
}

static hvd_options apart;

static void *begin_late(void *gpu)
{
    hvd_handle handle;

    usleep(200000);
    must(hvd_allreduce_async("late", gpu, gpu, 1, HVD_INT32, HVD_SUM, &apart, &handle), "late");
    say("late", hvd_wait(handle));
    return NULL;
}

static void set(void)
{
    const int members[2] = {0, 1};
    int32_t *gpu = gpu_alloc(4);
    pthread_t thread;

    apart = options;
    must(hvd_set_add(members, 2, &apart.set), "hvd_set_add");
    if (rank < 2)
        must(hvd_allreduce("early", gpu, gpu, 1, HVD_INT32, HVD_SUM, &apart), "early");
    must(hvd_barrier(NULL), "hvd_barrier");
    if (rank == 0)
        pthread_create(&thread, NULL, begin_late, gpu);
    else
        usleep(500000); /* rank 0 is in its call until then */
    must(hvd_set_remove(apart.set), "hvd_set_remove");
    if (rank == 0)
        pthread_join(thread, NULL);
    say("after", hvd_allreduce("after", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options));
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    gpu_begin(&rank, &size, &options);
    if (strcmp(word, "breaks") == 0 && argc == 4)
        breaks((int)strtol(argv[2], NULL, 10), argv[3], HVD_INT32);
    else if (strcmp(word, "breaks16") == 0 && argc == 4)
        breaks((int)strtol(argv[2], NULL, 10), argv[3], HVD_INT16);
    else if (strcmp(word, "closes") == 0 && argc == 3)
        closes(argv[2]);
    else if (strcmp(word, "aside") == 0)
        aside();
    else if (strcmp(word, "capture") == 0)
        capture();
    else if (strcmp(word, "capture-first") == 0)
        capture_first();
    else if (strcmp(word, "set") == 0)
        set();
    else
        wrong("usage: gpu_trouble breaks RANK LIST | breaks16 RANK LIST | closes LIST | aside | capture | "
              "capture-first | set");
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
