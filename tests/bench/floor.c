#include "tests/bench/floor.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double floor_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

_Noreturn void floor_die(const char *what)
{
    const int code = errno;
    const char *rank = getenv("RANK");

    fprintf(stderr, "%s: rank %s: %s: %s\n", program_invocation_short_name, rank ? rank : "?", what,
            strerror(code));
    exit(1);
}

static int send_at_once(int fd)
{
    const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int floor_dial(const struct sockaddr *at, socklen_t size)
{
    const double deadline = floor_now_us() + 10e6;

    for (;;) {
        const int fd = socket(at->sa_family, SOCK_STREAM, 0);

        if (fd < 0)
            floor_die("socket");
        if (connect(fd, at, size) == 0)
            return send_at_once(fd);
        if (errno != ECONNREFUSED || floor_now_us() > deadline)
            floor_die("connect");
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

int floor_listen(const struct sockaddr *at, socklen_t size)
{
    const int one = 1;
    const int fd = socket(at->sa_family, SOCK_STREAM, 0);

    if (fd < 0)
        floor_die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at, size) != 0 || listen(fd, SOMAXCONN) != 0)
        floor_die("listen");
    return fd;
}

int floor_accept(int listener)
{
    const int fd = accept(listener, NULL, NULL);

    if (fd < 0)
        floor_die("accept");
    return send_at_once(fd);
}

struct addrinfo *floor_find_rank_0(void)
{
    const char *name = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *at;

    if (!name || !port || getaddrinfo(name, port, &hints, &at) != 0) {
        fprintf(stderr, "%s: MASTER_ADDR and MASTER_PORT must name rank 0's address: start it with hvdrun\n",
                program_invocation_short_name);
        exit(2);
    }
    return at;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void floor_report(const struct floor_row *row, double *us, int count)
{
    qsort(us, (size_t)count, sizeof *us, compare_times);
    printf("{\"op\":\"allreduce\",\"bytes\":%zu,\"ranks\":%d,\"buffer\":\"%s\",\"dtype\":\"f32\","
           "\"iterations\":%d,"
           "\"median_us\":%.2f,\"p10_us\":%.2f,\"p90_us\":%.2f,\"min_us\":%.2f,\"max_us\":%.2f}\n",
           row->bytes, row->ranks, row->column, count, us[count / 2], us[count / 10],
           us[count - 1 - count / 10], us[0], us[count - 1]);
    fflush(stdout);
}
