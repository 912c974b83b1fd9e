/* shm_floor RANKS BYTES[,BYTES ...] [private|readv] - the least that an in-place f32 sum over the processes
 * of one host takes: their buffers lie in shared memory already, each process adds up its part of all of them
 * and stores the result into all of them; a spin barrier before and one after. A line of JSON per size, as
 * hvd_bench prints.
 *
 * private: the buffers are each process's own, so what others need is copied through shared memory, a piece
 * at a time, small enough to stay in a cache. readv: they are read where they are, with process_vm_readv. The
 * best copy kernel found is the faster one of the two at each size. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/floor.h"

#define RANKS_MAX      64
#define ITERATIONS_MAX 50000
#define BLOCK          1024       /* floats summed at a time: they stay in the first-level cache */
#define PIECE          (64 << 10) /* floats of each process copied at a time */

struct shared {
    _Alignas(128) atomic_int arrived;
    _Alignas(128) atomic_int generation;
    float *private[RANKS_MAX]; /* the address of each process's own buffer */
    pid_t pid[RANKS_MAX];
};

/* By what a process sees the others' elements. */
enum way { SHARED, COPIED, READ };
static const char *const way_names[] = {"", "private", "readv"};
static const char *const way_labels[] = {"floor", "floor_malloc", "floor_readv"};

static struct shared *shared;
static float *buffer[RANKS_MAX];
static int ranks, crowded;
static enum way way;
static float
    *staging[2][RANKS_MAX]; /* COPIED: a piece each; two, so that one is read while the next is filled */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void barrier(void)
{
    const int generation = atomic_load(&shared->generation);
    int spins = 0;

    if (atomic_fetch_add(&shared->arrived, 1) == ranks - 1) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
        return;
    }
    while (atomic_load(&shared->generation) == generation)
        if (crowded || ++spins > 10000)
            sched_yield();
}

FLOOR_FASTEST static void sum_two(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];

        a[i] = sum;
        b[i] = sum;
    }
}

FLOOR_FASTEST static void add(float *restrict sum, const float *restrict more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += more[i];
}

static void sum_slice(size_t first, size_t last)
{
    float sum[BLOCK];

    if (ranks == 2) {
        sum_two(buffer[0] + first, buffer[1] + first, last - first);
        return;
    }
    for (size_t at = first; at < last; at += BLOCK) {
        const size_t n = last - at < BLOCK ? last - at : BLOCK;

        memcpy(sum, buffer[0] + at, n * sizeof *sum);
        for (int r = 1; r < ranks; r++)
            add(sum, buffer[r] + at, n);
        for (int r = 0; r < ranks; r++)
            memcpy(buffer[r] + at, sum, n * sizeof *sum);
    }
}

/* Process r's part of a piece of n floats begins here. */
static size_t part(size_t n, int r)
{
    return n * (size_t)r / (size_t)ranks;
}

/* Each process copies what the others sum, sums its own part, and copies the others' results. */
static void sum_private(int rank, float *mine, size_t count)
{
    int half = 0;

    for (size_t at = 0; at < count; at += PIECE, half = !half) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        const size_t first = part(n, rank), last = part(n, rank + 1);
        float *piece = mine + at, *copy = staging[half][rank];

        memcpy(copy, piece, first * sizeof *copy);
        memcpy(copy + last, piece + last, (n - last) * sizeof *copy);
        barrier();
        for (int r = 0; r < ranks; r++)
            if (r != rank)
                add(piece + first, staging[half][r] + first, last - first);
        memcpy(copy + first, piece + first, (last - first) * sizeof *copy);
        barrier();
        for (int r = 0; r < ranks; r++)
            if (r != rank)
                memcpy(piece + part(n, r), staging[half][r] + part(n, r),
                       (part(n, r + 1) - part(n, r)) * sizeof *piece);
    }
}

static void read_from(int r, float *to, size_t first, size_t n)
{
    struct iovec local = {to, n * sizeof *to}, remote = {shared->private[r] + first, n * sizeof *to};

    if (n > 0 && process_vm_readv(shared->pid[r], &local, 1, &remote, 1, 0) != (ssize_t)local.iov_len) {
        fprintf(stderr, "shm_floor: process_vm_readv: %s\n", strerror(errno));
        _exit(1);
    }
}

/* Each process sums its part of the whole, then takes the others' parts. */
static void sum_read(int rank, float *mine, size_t count)
{
    static float theirs[PIECE];
    const size_t last = part(count, rank + 1);

    for (size_t at = part(count, rank); at < last; at += PIECE) {
        const size_t n = last - at < PIECE ? last - at : PIECE;

        for (int r = 0; r < ranks; r++)
            if (r != rank) {
                read_from(r, theirs, at, n);
                add(mine + at, theirs, n);
            }
    }
    barrier();
    for (int r = 0; r < ranks; r++)
        if (r != rank)
            read_from(r, mine + part(count, r), part(count, r), part(count, r + 1) - part(count, r));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Each process on its own CPU while there are enough. */
static void pin(int rank)
{
    cpu_set_t allowed, one;
    int skip;

    sched_getaffinity(0, sizeof allowed, &allowed);
    crowded = ranks > CPU_COUNT(&allowed);
    skip = rank % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static void sum(int rank, float *mine, size_t count)
{
    if (way == SHARED)
        sum_slice(part(count, rank), part(count, rank + 1));
    else if (way == COPIED)
        sum_private(rank, mine, count);
    else
        sum_read(rank, mine, count);
}

static void bench_size(int rank, size_t bytes)
{
    static double us[ITERATIONS_MAX];
    const int n = bytes <= 4096         ? ITERATIONS_MAX / (crowded ? 5 : 1)
                  : bytes <= 65536      ? ITERATIONS_MAX / 5
                  : bytes <= (1 << 20)  ? 400
                  : bytes <= (16 << 20) ? 60
                  : bytes <= (64 << 20) ? 10
                                        : 5;
    float *mine = way != SHARED ? malloc(bytes) : buffer[rank];

    if (mine == NULL)
        _exit(1);
    memset(mine, 0, bytes);
    shared->private[rank] = mine;
    shared->pid[rank] = getpid();
    for (int i = -2; i < n; i++) {
        double before;

        barrier();
        before = now_us();
        barrier();
        sum(rank, mine, bytes / sizeof(float));
        barrier();
        if (i >= 0)
            us[i] = now_us() - before;
    }
    if (way != SHARED)
        free(mine);
    if (rank != 0)
        return;
    qsort(us, (size_t)n, sizeof us[0], compare);
    printf("{\"op\":\"allreduce\",\"bytes\":%zu,\"ranks\":%d,\"buffer\":\"%s\",\"dtype\":\"f32\","
           "\"iterations\":%d,"
           "\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
           bytes, ranks, way_labels[way], n, us[n / 2], us[n / 10], us[n - 1 - n / 10], us[0], us[n - 1]);
    fflush(stdout);
}

static int run(int rank, const char *sizes)
{
    const char *at = sizes;

    pin(rank);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* one process may then read another that is not its child */
    while (*at != '\0') {
        char *end;

        bench_size(rank, strtoull(at, &end, 10));
        at = *end == ',' ? end + 1 : end;
    }
    return 0;
}

/* The largest size of the list; 0 when the list is wrong. */
static size_t largest(const char *sizes)
{
    size_t most = 0;

    for (const char *at = sizes;;) {
        char *end;
        unsigned long long n = strtoull(at, &end, 10);

        if (end == at || n < 4 || n % 4 != 0 || n > 1ULL << 32 || (*end != ',' && *end != '\0'))
            return 0;
        most = n > most ? (size_t)n : most;
        if (*end == '\0')
            return most;
        at = end + 1;
    }
}

static float *shared_floats(size_t count)
{
    float *memory =
        mmap(NULL, count * sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static int share_memory(size_t bytes)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -1;
    for (int r = 0; r < ranks; r++) {
        buffer[r] = way != SHARED ? NULL : shared_floats(bytes / sizeof(float));
        staging[0][r] = way == COPIED ? shared_floats(PIECE) : NULL;
        staging[1][r] = way == COPIED ? shared_floats(PIECE) : NULL;
        if (way == COPIED ? !staging[0][r] || !staging[1][r] : way == SHARED && !buffer[r])
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const long n = argc >= 3 && argc <= 4 ? strtol(argv[1], NULL, 10) : 0;
    const size_t most = argc >= 3 ? largest(argv[2]) : 0;
    int failed = 0;

    while (argc == 4 && way <= READ && strcmp(argv[3], way_names[way]) != 0)
        way++;
    if (n < 1 || n > RANKS_MAX || most == 0 || way > READ) {
        fprintf(stderr,
                "usage: shm_floor RANKS BYTES[,BYTES ...] [private|readv] (1 to %d ranks; bytes without "
                "suffix)\n",
                RANKS_MAX);
        return 2;
    }
    ranks = (int)n;
    if (share_memory(most) != 0) {
        fprintf(stderr, "shm_floor: no memory: %s\n", strerror(errno));
        return 1;
    }
    for (int r = 1; r < ranks; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(run(r, argv[2]));
        }
        failed |= pid < 0;
    }
    if (failed) /* children end with us */
        return 1;
    run(0, argv[2]);
    for (int r = 1; r < ranks; r++) {
        int status = 0;

        wait(&status);
        failed |= status != 0;
    }
    return failed;
}
