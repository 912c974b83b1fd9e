/* How operations on GPUs come and go, a word a worker:
 *
 *   order ROUNDS   many at once, begun in another order by each rank, blocking ones between; the host never
 *                  waits but where this file does, and says how often that was
 *   refused        what cannot be, and what the ranks disagree about: prints each sentence
 *   death [RANK]   it, or the last rank, stops when it has begun an operation that others have in their
 *                  streams, and is killed: prints how long the streams were held
 *   engine         the same, with the engine instead
 *   gone           the last rank begins an operation and is killed
 *   again          a set that is removed, shutdown, and all of it once more
 *   leaves MS      the last rank's stream is so long busy with something else; shutdown comes at once
 *   joined         the last rank has joined
 *   removed        a set is removed while its stream waits for a rank that is then killed
 *   tries          an operation, and once more
 *   late           it joins while what it has begun is on its way
 *   between ROUNDS a name is used for host memory between two operations on a GPU
 *   empty          rank 0 has no elements, no memory and no stream, and goes with the others */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/e2e/gpu.h"
#include "tests/e2e/worker.h"
#include "tests/gpu/limits.h"

#define NAMES 12

static int rank, size;
static hvd_options options;

/* ---- order --------------------------------------------------------------------------------------------- */

static size_t count_of(int i)
{
    return (size_t)i * 37 % 50 + 1;
}

static int32_t first_of(int i)
{
    return (int32_t)(i * 1000);
}

struct one {
    char name[16];
    int32_t *gpu;
    int32_t host[64];
    hvd_handle handle;
    bool persistent;
};

static void fill(struct one *o, int i)
{
    for (size_t k = 0; k < count_of(i); k++)
        o->host[k] = first_of(i) + rank + (int32_t)k;
    gpu_put(o->gpu, o->host, count_of(i) * 4);
}

static void start(struct one *o, int i)
{
    fill(o, i);
    if (o->persistent)
        must(hvd_start(o->handle), "hvd_start");
    else
        must(hvd_allreduce_async(o->name, o->gpu, o->gpu, count_of(i), HVD_INT32, HVD_SUM, &options,
                                 &o->handle),
             "hvd_allreduce_async");
}

static void look(struct one *o, int i)
{
    gpu_get(o->host, o->gpu, count_of(i) * 4);
    for (size_t k = 0; k < count_of(i); k++)
        if (o->host[k] != size * (first_of(i) + (int32_t)k) + size * (size - 1) / 2)
            wrong("%s: element %zu is %d", o->name, k, o->host[k]);
}

static void order(int rounds)
{
    static struct one all[NAMES];
    int32_t *between = gpu_alloc(4), x;

    for (int i = 0; i < NAMES; i++) {
        snprintf(all[i].name, sizeof all[i].name, "tensor.%d", i);
        all[i].gpu = gpu_alloc(count_of(i) * 4);
        all[i].persistent = i % 3 == 1;
        if (all[i].persistent)
            must(hvd_allreduce_init(all[i].name, all[i].gpu, all[i].gpu, count_of(i), HVD_INT32, HVD_SUM,
                                    &options, &all[i].handle),
                 "hvd_allreduce_init");
    }
    for (worker_round = 0; worker_round < rounds; worker_round++) {
        for (int i = 0; i < NAMES; i++) {
            int which = (rank % 2 ? NAMES - 1 - i : i + rank) % NAMES;
            start(&all[which], which);
            if (i == NAMES / 2) { /* all have some begun that others have not */
                x = rank;
                gpu_put(between, &x, 4);
                must(hvd_allreduce("between", between, between, 1, HVD_INT32, HVD_SUM, &options), "between");
            }
        }
        for (int i = 0; i < NAMES; i++) {
            int which = (i * 5 + rank) % NAMES;
            while (i % 4 == 0 && hvd_poll(all[which].handle) == 0)
                ;
            must(hvd_wait(all[which].handle), "hvd_wait");
        }
        for (int i = 0; i < NAMES; i++)
            look(&all[i], i);
        gpu_get(&x, between, 4);
        if (x != size * (size - 1) / 2)
            wrong("between is %d", x);
    }
    printf("rank %d: waited %d times\n", rank, gpu_waits());
}

/* ---- calls that are refused ---------------------------------------------------------------------------- */

static void say(const char *what, int status)
{
    printf("%s/%d %s %s\n", what, rank, hvd_status_name(status), status ? hvd_last_error() : "");
}

static void refused(void)
{
    int32_t *gpu = gpu_alloc(64), host[16] = {0};
    void *more = gpu_alloc(64);
    const void *result;
    hvd_handle handle;
    size_t rows[2];

    say("mixed", hvd_allreduce_async("a", gpu, host, 4, HVD_INT32, HVD_SUM, &options, &handle));
    say("shared", hvd_allreduce_shared_async("b", gpu, 4, HVD_INT32, HVD_SUM, &options, &result, &handle));
    say("bits", hvd_allreduce_async("b", gpu, gpu, 4, HVD_FLOAT8_E4M3, HVD_BAND, &options, &handle));
    say("hosted", hvd_allreduce_async("b", host, host, 4, HVD_FLOAT8_E4M3, HVD_SUM, NULL, &handle));
    say("memory", rank == 0 ? hvd_allreduce("c", gpu, gpu, 4, HVD_INT32, HVD_SUM, &options)
                            : hvd_allreduce("c", host, host, 4, HVD_INT32, HVD_SUM, &options));
    say("count", hvd_allreduce("c", gpu, gpu, rank == 0 ? 4 : 5, HVD_INT32, HVD_SUM, &options));
    say("room", hvd_allgather("d", gpu, 2, 1, HVD_INT32, more, rank == 0 ? 3 : 4, rows, &options));
    say("after", hvd_allreduce("c", gpu, gpu, 4, HVD_INT32, HVD_SUM, &options));
}

/* ---- deaths -------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

#define DEATH_MS 400 /* from the operation that others wait in to the death */

/* `more`: ms until the death. */
static const char *in_time(double since, int more)
{
    return now() - since < gpu_limits()->free_ms + more ? "in time" : "late";
}

/* The session's other child. */
static pid_t engine_pid(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0;

    while (proc && !found && (entry = readdir(proc)) != NULL) {
        char path[64], name[32] = "";
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%*d (%31[^)]) %*c %d", name, &parent) == 2 && parent == getppid() &&
            strcmp(name, "hvd-engine") == 0)
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        if (f)
            fclose(f);
    }
    if (proc)
        closedir(proc);
    return found;
}

/* hvdrun ends the others after a death; how long they were held has to be said all the same. */
static void outlast_the_end(void)
{
    signal(SIGTERM, SIG_IGN);
}

static void loss(bool of_engine, int last)
{
    outlast_the_end();
    int32_t *gpu = gpu_alloc(400), x[100];
    int64_t mine = getpid(), pid[64];
    hvd_handle handle;

    must(hvd_allreduce("first", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "the first one");
    gpu_wait();
    must(hvd_allgather("pids", &mine, 1, 1, HVD_INT64, pid, (size_t)size, NULL, NULL), "pids");
    pid_t victim = of_engine ? engine_pid() : (pid_t)pid[last];
    if (rank == last) {
        /* The entry is published, and nobody of this process begins what then comes to the order. */
        must(hvd_allreduce_async("last", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options, &handle), "last");
        raise(SIGSTOP);
    }
    usleep(200000);
    if (rank == last)
        exit(1); /* of_engine: it was continued */
    must(hvd_allreduce("last", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "last");
    if (rank == 0) {
        usleep(DEATH_MS * 1000);
        kill(victim, SIGKILL);
    }
    double since = now();
    gpu_get(x, gpu, 400);
    int status = hvd_allreduce("more", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options);
    printf("rank %d: free %s, %s: %s, %.0f ms after the death\n", rank,
           in_time(since, rank ? DEATH_MS + 100 : 0), hvd_status_name(status), hvd_last_error(),
           now() - since - (rank ? DEATH_MS : 0));
    fflush(stdout); /* hvdrun may end this process before its exit */
    if (of_engine && rank == 0)
        kill((pid_t)pid[last], SIGCONT);
    hvd_shutdown();
    exit(1);
}

static void gone(void)
{
    outlast_the_end();
    int32_t *gpu = gpu_alloc(400);
    hvd_handle handle;

    must(hvd_allreduce("first", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options), "the first one");
    must(hvd_barrier(NULL), "hvd_barrier");
    must(hvd_allreduce_async("last", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options, &handle), "last");
    if (rank == size - 1) {
        usleep(300000); /* all have begun it */
        raise(SIGKILL);
    }
    int status = hvd_wait(handle);
    for (int i = 0; i < 10 && status == HVD_SUCCESS; i++) /* it had begun its part */
        status = hvd_allreduce("last", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options);
    gpu_wait();
    printf("rank %d: %s: %s\n", rank, hvd_status_name(status), hvd_last_error());
    exit(1);
}

static void removed(void)
{
    outlast_the_end();
    const int members[2] = {0, 1};
    int32_t *gpu = gpu_alloc(4);
    hvd_options apart = options;

    must(hvd_set_add(members, 2, &apart.set), "hvd_set_add");
    must(hvd_allreduce("first", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "the first one");
    if (rank == size - 1)
        gpu_pause(60000);
    must(hvd_allreduce("last", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "last");
    if (rank < 2)
        must(hvd_allreduce("apart", gpu, gpu, 1, HVD_INT32, HVD_SUM, &apart), "apart");
    double since = now();
    hvd_set_remove(apart.set);
    if (rank == size - 1) {
        usleep(300000);
        raise(SIGKILL);
    }
    gpu_wait();
    printf("rank %d: free %s\n", rank, in_time(since, 500));
    exit(1);
}

static void once(hvd_set set)
{
    hvd_options o = options;
    int32_t *gpu = gpu_alloc(4), x = rank + 1;

    o.set = set;
    gpu_put(gpu, &x, 4);
    must(hvd_allreduce("once", gpu, gpu, 1, HVD_INT32, HVD_SUM, &o), "once");
    gpu_get(&x, gpu, 4);
    if (x != (set ? rank + 1 : size * (size + 1) / 2))
        wrong("once is %d", x);
    gpu_free(gpu);
}

static void again(void)
{
    hvd_set set[64];

    for (int i = 0; i < size; i++)
        must(hvd_set_add(&i, 1, &set[i]), "hvd_set_add");
    once(HVD_WORLD);
    once(set[rank]);
    for (int i = 0; i < size; i++)
        must(hvd_set_remove(set[i]), "hvd_set_remove");
    once(HVD_WORLD);
    must(hvd_shutdown(), "hvd_shutdown");
    must(hvd_init(), "hvd_init");
    once(HVD_WORLD);
    printf("rank %d: all right\n", rank);
}

/* An operation that is still in a stream when its rank calls hvd_shutdown is completed all the same. */
static void leaves(unsigned ms)
{
    int32_t x = rank + 1, *gpu = gpu_alloc(4);

    once(HVD_WORLD);
    gpu_put(gpu, &x, 4);
    if (rank == size - 1)
        gpu_pause(ms);
    must(hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options), "hvd_allreduce");
    must(hvd_shutdown(), "hvd_shutdown");
    gpu_get(&x, gpu, 4);
    if (x != size * (size + 1) / 2)
        wrong("the sum is %d", x);
    printf("rank %d: all right\n", rank);
    must(hvd_init(), "hvd_init");
}

static void joined(void)
{
    int32_t *gpu = gpu_alloc(400);

    if (rank < size - 1) {
        usleep(100000);
        say("nothing", hvd_allreduce("n", gpu, gpu, 0, HVD_INT32, HVD_SUM, NULL));
        say("joined", hvd_allreduce("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options));
    }
    must(hvd_join(NULL), "hvd_join");
    say("after", hvd_allreduce("x", gpu, gpu, 100, HVD_INT32, HVD_SUM, &options));
}

/* The same call fails at all ranks, and then does not. */
static void tries(void)
{
    int32_t *gpu = gpu_alloc(4);

    say("first", hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options));
    say("again", hvd_allreduce("x", gpu, gpu, 1, HVD_INT32, HVD_SUM, &options));
}

/* 16 bit integers go through host memory: the others' are there when this rank's wait for its stream. */
static void late(void)
{
    int16_t *gpu = gpu_alloc(200), host[100];
    hvd_handle handle;

    must(hvd_allreduce("first", gpu, gpu, 100, HVD_INT16, HVD_SUM, &options), "the first one");

    for (int i = 0; i < 100; i++)
        host[i] = (int16_t)(i + rank);
    gpu_put(gpu, host, sizeof host);
    if (rank == size - 1)
        gpu_pause(300);
    must(hvd_allreduce_async("late", gpu, gpu, 100, HVD_INT16, HVD_SUM, &options, &handle), "late");
    if (rank < size - 1)
        must(hvd_wait(handle), "hvd_wait");
    must(hvd_join(NULL), "hvd_join");
    if (rank == size - 1)
        must(hvd_wait(handle), "hvd_wait");
    gpu_get(host, gpu, sizeof host);
    for (int i = 0; i < 100; i++)
        if (host[i] != size * i + size * (size - 1) / 2)
            wrong("element %d is %d", i, host[i]);
    printf("rank %d: all right\n", rank);
}

/* The last rank begins both when the others have, at once, so that they see neither alone. */
static void between(int rounds)
{
    int32_t *x = gpu_alloc(4), *y = gpu_alloc(4), host = 1;
    hvd_handle one, other;

    for (worker_round = 0; worker_round < rounds; worker_round++) {
        must(hvd_allreduce("x", x, x, 1, HVD_INT32, HVD_MAX, &options), "x");
        must(hvd_allreduce("x", &host, &host, 1, HVD_INT32, HVD_MAX, NULL), "x on the host");
        if (rank == size - 1)
            usleep(20000);
        must(hvd_allreduce_async("x", x, x, 1, HVD_INT32, HVD_MAX, &options, &one), "x");
        must(hvd_allreduce_async("y", y, y, 1, HVD_INT32, HVD_MAX, &options, &other), "y");
        must(hvd_wait(one), "hvd_wait");
        must(hvd_wait(other), "hvd_wait");
    }
    printf("rank %d: all right\n", rank);
}

/* `other`: what the others give, of a GPU or of the host. */
static void go_along(const char *name, int32_t *other)
{
    size_t splits[64] = {0}, rows[64];
    hvd_handle handle;
    bool none = rank == 0;

    for (int i = 1; i < size && !none; i++)
        splits[i] = 1;
    size_t n = none ? 0 : (size_t)size - 1;
    must(hvd_alltoall_async(name, none ? NULL : other, n, splits, 1, HVD_INT32, none ? NULL : other + 64, n,
                            rows, none ? NULL : &options, &handle),
         "hvd_alltoall_async");
    must(hvd_allreduce("between", none ? NULL : other, none ? NULL : other, 0, HVD_INT32, HVD_SUM,
                       none ? NULL : &options),
         "hvd_allreduce");
    must(hvd_wait(handle), "hvd_wait");
    for (int i = 0; i < size; i++)
        if (rows[i] != (none || i == 0 ? 0 : 1))
            wrong("%s: rank %d gave %zu rows", name, i, rows[i]);
}

static void empty(void)
{
    int32_t *gpu = gpu_alloc(512), host[128], nothing[2] = {0};

    for (worker_round = 0; worker_round < 4; worker_round++) {
        for (int i = 0; i < 64; i++)
            host[i] = rank * 100 + worker_round;
        gpu_put(gpu, host, 256);
        go_along("gpu", gpu);
        gpu_get(host + 64, gpu + 64, 256);
        for (int i = 1; i < size && rank > 0; i++)
            if (host[64 + i - 1] != i * 100 + worker_round)
                wrong("of rank %d: %d", i, host[64 + i - 1]);
        memset(host + 64, 0, 256);
        go_along(worker_round % 2 ? "gpu" : "host", host);
        for (int i = 1; i < size && rank > 0; i++)
            if (host[64 + i - 1] != i * 100 + worker_round)
                wrong("of rank %d: %d on the host", i, host[64 + i - 1]);
        must(hvd_allreduce("all", nothing, nothing, 0, HVD_INT32, HVD_SUM, NULL), "nobody has any");
    }
    printf("rank %d: all right\n", rank);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    gpu_begin(&rank, &size, &options);
    if (strcmp(word, "order") == 0 && argc == 3)
        order((int)strtol(argv[2], NULL, 10));
    else if (strcmp(word, "refused") == 0)
        refused();
    else if (strcmp(word, "death") == 0 || strcmp(word, "engine") == 0)
        loss(word[0] == 'e', argc == 3 ? (int)strtol(argv[2], NULL, 10) : size - 1);
    else if (strcmp(word, "gone") == 0)
        gone();
    else if (strcmp(word, "again") == 0)
        again();
    else if (strcmp(word, "leaves") == 0 && argc == 3)
        leaves((unsigned)strtoul(argv[2], NULL, 10));
    else if (strcmp(word, "joined") == 0)
        joined();
    else if (strcmp(word, "removed") == 0)
        removed();
    else if (strcmp(word, "tries") == 0)
        tries();
    else if (strcmp(word, "late") == 0)
        late();
    else if (strcmp(word, "between") == 0 && argc == 3)
        between((int)strtol(argv[2], NULL, 10));
    else if (strcmp(word, "empty") == 0)
        empty();
    else
        wrong("usage: gpu_flow order ROUNDS | refused | death | engine | gone | again | leaves MS | joined | "
              "removed | tries | late | between ROUNDS | empty");
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
