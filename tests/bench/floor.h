/* Shared by the floors that run under hvdrun: a clock, connections between ranks, and the line of a
 * figure. */
#pragma once

#include <stddef.h>
#include <sys/socket.h>

/* For loops over elements: for the processor that runs them. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FLOOR_FASTEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FLOOR_FASTEST
#endif

/* Names of a figure: bytes of each rank, the number of ranks, and the column. */
struct floor_row {
    size_t bytes;
    int ranks;
    const char *column;
};

double floor_now_us(void);

/* Ends the program with one line: its name, `what`, and errno's text. */
_Noreturn void floor_die(const char *what);

/* A socket without delay, connected to `at`. The other rank may not listen yet: a refusal is asked again for
 * ten seconds. */
int floor_dial(const struct sockaddr *at, socklen_t size);
int floor_listen(const struct sockaddr *at, socklen_t size);
int floor_accept(int listener);

/* Rank 0's address, from MASTER_ADDR and MASTER_PORT: the caller frees the list with freeaddrinfo. */
struct addrinfo *floor_find_rank_0(void);

/* Sorts `us`, the times of `count` iterations, and prints them as hvd_bench does. */
void floor_report(const struct floor_row *row, double *us, int count);
