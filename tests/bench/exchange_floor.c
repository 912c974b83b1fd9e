/* exchange_floor - the least that a small operation between two hosts takes when an engine does it: the
 * worker wakes the engine (futex), the engine sends 4 bytes and reads the other host's 4 (one blocking
 * exchange over TCP), and wakes the worker. Two ranks, one a host, under hvdrun: RANK, MASTER_ADDR and
 * MASTER_PORT say who meets where. Rank 0 prints a line for the exchange by itself and one for all of it, as
 * hvd_bench does. */
#include <errno.h>
#include <linux/futex.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ITERATIONS 2000

/* Each counts the rounds that were asked for, or done. */
struct shared {
    _Alignas(128) _Atomic uint32_t asked;
    _Alignas(128) _Atomic uint32_t done;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "exchange_floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void post(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void await(_Atomic uint32_t *word, uint32_t value)
{
    for (uint32_t seen = atomic_load(word); seen != value; seen = atomic_load(word))
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void exchange(int fd)
{
    uint32_t four = 4;

    if (send(fd, &four, sizeof four, MSG_NOSIGNAL) != sizeof four ||
        recv(fd, &four, sizeof four, MSG_WAITALL) != sizeof four)
        die("exchange");
}

/* The other rank may not listen yet: its refusal is asked again for ten seconds. */
static int dial(const struct addrinfo *at)
{
    const double deadline = now_us() + 10e6;

    for (;;) {
        int fd = socket(at->ai_family, SOCK_STREAM, 0);

        if (fd < 0)
            die("socket");
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            return fd;
        if (errno != ECONNREFUSED || now_us() > deadline)
            die("connect");
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static int listen_for_one(const struct addrinfo *at)
{
    const int one = 1;
    int fd = socket(at->ai_family, SOCK_STREAM, 0), peer;

    if (fd < 0)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 1) != 0)
        die("listen");
    peer = accept(fd, NULL, NULL);
    if (peer < 0)
        die("accept");
    close(fd);
    return peer;
}

static int meet(int rank)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const int one = 1;
    struct addrinfo *at;
    int fd;

    if (host == NULL || port == NULL || getaddrinfo(host, port, &hints, &at) != 0) {
        fprintf(stderr, "exchange_floor: MASTER_ADDR and MASTER_PORT must name rank 0's address\n");
        exit(2);
    }
    fd = rank == 0 ? listen_for_one(at) : dial(at);
    freeaddrinfo(at);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(int rank, const char *label, double *us)
{
    if (rank != 0)
        return;
    qsort(us, ITERATIONS, sizeof *us, compare);
    printf("{\"op\":\"allreduce\",\"bytes\":4,\"ranks\":2,\"buffer\":\"%s\",\"dtype\":\"f32\","
           "\"iterations\":%d,"
           "\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
           label, ITERATIONS, us[ITERATIONS / 2], us[ITERATIONS / 10], us[ITERATIONS - 1 - ITERATIONS / 10],
           us[0], us[ITERATIONS - 1]);
    fflush(stdout);
}

int main(void)
{
    static double us[ITERATIONS];
    const char *who = getenv("RANK");
    const int rank = who != NULL && strcmp(who, "0") == 0 ? 0 : 1, fd = meet(rank);
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t engine;

    if (shared == MAP_FAILED)
        die("mmap");
    for (int i = 0; i < ITERATIONS; i++) {
        const double before = now_us();

        exchange(fd);
        us[i] = now_us() - before;
    }
    report(rank, "exchange", us);
    engine = fork();
    if (engine < 0)
        die("fork");
    if (engine == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint32_t i = 1; i <= ITERATIONS; i++) {
            await(&shared->asked, i);
            exchange(fd);
            post(&shared->done, i);
        }
        _exit(0);
    }
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        const double before = now_us();

        post(&shared->asked, i);
        await(&shared->done, i);
        us[i - 1] = now_us() - before;
    }
    report(rank, "floor", us);
    waitpid(engine, NULL, 0);
    return 0;
}
