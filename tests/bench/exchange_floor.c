/* exchange_floor - the least that a small operation between two hosts takes when an engine does it: the
 * worker wakes the engine (futex), the engine sends 4 bytes and reads the other host's 4 (one blocking
 * exchange over TCP), and wakes the worker. Two ranks, one a host, under hvdrun: RANK, MASTER_ADDR and
 * MASTER_PORT say who meets where. Rank 0 prints a line for the exchange by itself and one for all of it, as
 * hvd_bench does. */
#include <linux/futex.h>
#include <netdb.h>
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
#include <unistd.h>

#include "tests/bench/floor.h"

#define ITERATIONS 10000

/* Each counts the rounds that were asked for, or done. */
struct shared {
    _Alignas(128) _Atomic uint32_t asked;
    _Alignas(128) _Atomic uint32_t done;
};

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

static void exchange_bytes(int fd)
{
    uint32_t four = 4;

    if (send(fd, &four, sizeof four, MSG_NOSIGNAL) != sizeof four ||
        recv(fd, &four, sizeof four, MSG_WAITALL) != sizeof four)
        floor_die("exchange");
}

static int meet_other(int rank)
{
    struct addrinfo *at = floor_find_rank_0();
    int fd;

    if (rank == 0) {
        const int listener = floor_listen(at->ai_addr, at->ai_addrlen);

        fd = floor_accept(listener);
        close(listener);
    } else {
        fd = floor_dial(at->ai_addr, at->ai_addrlen);
    }
    freeaddrinfo(at);
    return fd;
}

static void report(int rank, const char *column, double *us)
{
    if (rank == 0)
        floor_report(&(struct floor_row){4, 2, column}, us, ITERATIONS);
}

int main(void)
{
    static double us[ITERATIONS];
    const char *number = getenv("RANK");
    const int rank = number != NULL && strcmp(number, "0") == 0 ? 0 : 1, fd = meet_other(rank);
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t engine;

    if (shared == MAP_FAILED)
        floor_die("mmap");
    for (int i = 0; i < ITERATIONS; i++) {
        const double before = floor_now_us();

        exchange_bytes(fd);
        us[i] = floor_now_us() - before;
    }
    report(rank, "exchange", us);
    engine = fork();
    if (engine < 0)
        floor_die("fork");
    if (engine == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (uint32_t i = 1; i <= ITERATIONS; i++) {
            await(&shared->asked, i);
            exchange_bytes(fd);
            post(&shared->done, i);
        }
        _exit(0);
    }
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        const double before = floor_now_us();

        post(&shared->asked, i);
        await(&shared->done, i);
        us[i - 1] = floor_now_us() - before;
    }
    report(rank, "floor", us);
    waitpid(engine, NULL, 0);
    return 0;
}
