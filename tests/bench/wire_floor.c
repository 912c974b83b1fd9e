/* wire_floor BYTES[,BYTES ...] [private] - the least that an allreduce takes between hosts: one process of
 * each host exchanges as many bytes with the others as a reduce-scatter and an allgather do, and adds up the
 * elements that come. private: several ranks of a host have the elements in ordinary memory, so each rank
 * copies them into shared memory first, and the result back. Under hvdrun, whose variables say who the ranks
 * are. Rank 0 prints a line of JSON for each size.
 *
 * The phases follow one another: a program that overlaps them, or that sends ordinary memory from where the
 * memory lies, may be faster than this floor. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/floor.h"

#define HOSTS_MAX  16
#define RANKS_MAX  256
#define ITERATIONS 15
#define WARMUP     2
#define AT_ONCE    (1 << 20)   /* bytes that one call sends or receives at most */
#define AHEAD      (512 << 10) /* bytes that are under way, when the next ones are sent */

static bool is_private;
static int rank, ranks, local_rank, host, hosts;
static int control[RANKS_MAX]; /* of rank 0: to each other rank; of others: [0] to rank 0 */
static int peer[HOSTS_MAX];    /* between the hosts' first ranks */

static int number_of(const char *variable, int most)
{
    const char *text = getenv(variable);
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : -1;

    if (n < 0 || n > most || end == text) {
        fprintf(stderr, "wire_floor: %s is not a number from 0 to %d: start it with hvdrun\n", variable,
                most);
        exit(2);
    }
    return (int)n;
}

/* ---- meeting ------------------------------------------------------------------------------------------- */

static void send_all(int fd, const void *data, size_t size)
{
    if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
        floor_die("send");
}

static void receive_all(int fd, void *data, size_t size)
{
    if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
        floor_die("recv");
}

/* Each rank has a connection to rank 0, for barriers. */
static void meet_rank_0(const struct addrinfo *at)
{
    if (rank != 0) {
        control[0] = floor_dial(at->ai_addr, at->ai_addrlen);
        send_all(control[0], &rank, sizeof rank);
        return;
    }
    const int listener = floor_listen(at->ai_addr, at->ai_addrlen);

    for (int i = 1; i < ranks; i++) {
        const int fd = floor_accept(listener);
        int other;

        receive_all(fd, &other, sizeof other);
        if (other < 1 || other >= ranks)
            floor_die("a rank that there is not");
        control[other] = fd;
    }
    close(listener);
}

/* The addresses of the hosts' first ranks. Rank 0 sees them at the other ends of its connections. */
static void tell_addresses(const struct sockaddr_storage *mine, struct sockaddr_storage *all)
{
    if (rank != 0) {
        send_all(control[0], mine, sizeof *mine);
        receive_all(control[0], all, (size_t)hosts * sizeof *all);
        return;
    }
    all[0] = *mine;
    for (int i = 1; i < hosts; i++)
        receive_all(control[i * (ranks / hosts)], &all[i], sizeof *all);
    for (int i = 1; i < hosts; i++)
        send_all(control[i * (ranks / hosts)], all, (size_t)hosts * sizeof *all);
}

/* Each host's first rank connects to those of the hosts before it. */
static void meet_hosts(const struct addrinfo *at)
{
    struct sockaddr_storage mine, all[HOSTS_MAX];
    socklen_t size = sizeof mine;

    memset(&mine, 0, sizeof mine);
    if (rank == 0)
        memcpy(&mine, at->ai_addr, at->ai_addrlen);
    else if (getsockname(control[0], (struct sockaddr *)&mine, &size) != 0)
        floor_die("getsockname");
    /* The same place in IPv4 and IPv6. */
    ((struct sockaddr_in *)(void *)&mine)->sin_port = 0;
    size = mine.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    const int listener = floor_listen((struct sockaddr *)&mine, size);

    if (getsockname(listener, (struct sockaddr *)&mine, &size) != 0)
        floor_die("getsockname");
    tell_addresses(&mine, all);
    for (int i = 0; i < host; i++) {
        peer[i] = floor_dial((struct sockaddr *)&all[i], size);
        send_all(peer[i], &host, sizeof host);
    }
    for (int i = host + 1; i < hosts; i++) {
        const int fd = floor_accept(listener);
        int other;

        receive_all(fd, &other, sizeof other);
        if (other <= host || other >= hosts)
            floor_die("a host that there is not");
        peer[other] = fd;
    }
    close(listener);
    for (int i = 0; i < hosts; i++)
        if (i != host && fcntl(peer[i], F_SETFL, O_NONBLOCK) != 0)
            floor_die("fcntl");
}

static void meet_others(void)
{
    struct addrinfo *at = floor_find_rank_0();

    meet_rank_0(at);
    if (local_rank == 0 && hosts > 1)
        meet_hosts(at);
    freeaddrinfo(at);
}

static void meet_at_barrier(void)
{
    char byte = 0;

    if (rank != 0) {
        send_all(control[0], &byte, 1);
        receive_all(control[0], &byte, 1);
        return;
    }
    for (int i = 1; i < ranks; i++)
        receive_all(control[i], &byte, 1);
    for (int i = 1; i < ranks; i++)
        send_all(control[i], &byte, 1);
}

/* ---- the floor ----------------------------------------------------------------------------------------- */

/* To and from one peer: first `part` bytes of elements each way, then as many of the results. Elements come
 * to one place that stays in a cache, and are added up at once. */
struct stream {
    char *theirs, *own;     /* the peer's part of the memory, and this host's */
    size_t part, sent, got; /* bytes */
};

static float hot[AT_ONCE / sizeof(float)];

FLOOR_FASTEST static void add_floats(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* No more is under way than stays in a cache: both ends send as much. */
static bool may_send(const struct stream *s)
{
    return s->sent < 2 * s->part && s->sent <= s->got + AHEAD;
}

/* Bytes that one call moves, of those that lie behind `at` in a part. */
static size_t bytes_at(const struct stream *s, size_t at)
{
    const size_t left = s->part - at % s->part;

    return left < AT_ONCE ? left : AT_ONCE;
}

static void move_some(int fd, short events, struct stream *s)
{
    if ((events & POLLOUT) && may_send(s)) {
        const char *from = s->sent < s->part ? s->theirs : s->own;
        const ssize_t n = send(fd, from + s->sent % s->part, bytes_at(s, s->sent), MSG_NOSIGNAL);

        if (n > 0)
            s->sent += (size_t)n;
        else if (errno != EAGAIN)
            floor_die("send");
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) && s->got < 2 * s->part) {
        const bool adds = s->got < s->part;
        void *to = adds ? (void *)hot : s->theirs + s->got % s->part;
        const ssize_t n = recv(fd, to, bytes_at(s, s->got), 0);

        if (n > 0 && adds)
            add_floats((float *)(void *)(s->own + s->got / sizeof(float) * sizeof(float)), hot,
                       (size_t)n / sizeof(float));
        if (n > 0)
            s->got += (size_t)n;
        else if (n == 0 || errno != EAGAIN)
            floor_die("recv");
    }
}

/* To each other host its part, and back the own part's sum: twice a part in each direction. */
static void exchange_parts(char *memory, size_t bytes)
{
    const size_t part = bytes / (size_t)hosts / sizeof(float) * sizeof(float);
    struct stream stream[HOSTS_MAX];
    struct pollfd waits[HOSTS_MAX];

    for (int i = 0; i < hosts; i++)
        stream[i] = (struct stream){
            .theirs = memory + (size_t)i * part, .own = memory + (size_t)host * part, .part = part};
    for (;;) {
        int left = 0;

        for (int i = 0; i < hosts; i++) {
            const struct stream *s = &stream[i];
            const short wanted = (short)((may_send(s) ? POLLOUT : 0) | (s->got < 2 * part ? POLLIN : 0));

            waits[i] = (struct pollfd){.fd = i == host || !wanted ? -1 : peer[i], .events = wanted};
            left += i != host && (s->sent < 2 * part || s->got < 2 * part);
        }
        if (left == 0)
            return;
        if (poll(waits, (nfds_t)hosts, 10000) <= 0)
            floor_die("ten seconds without a byte");
        for (int i = 0; i < hosts; i++)
            if (waits[i].revents)
                move_some(peer[i], waits[i].revents, &stream[i]);
    }
}

static double run_once(char *own, char *shared, size_t bytes)
{
    meet_at_barrier();

    const double before = floor_now_us();

    if (is_private) {
        memcpy(shared, own, bytes);
        meet_at_barrier();
    }
    if (local_rank == 0)
        exchange_parts(shared, bytes);
    meet_at_barrier();
    if (is_private) {
        memcpy(own, shared, bytes);
        meet_at_barrier();
    }
    return floor_now_us() - before;
}

static void measure_bytes(size_t bytes)
{
    double us[ITERATIONS];
    char *own = malloc(bytes),
         *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (!own || shared == MAP_FAILED)
        floor_die("memory");
    memset(own, 1, bytes);
    memset(shared, 1, bytes);
    for (int i = -WARMUP; i < ITERATIONS; i++) {
        const double took = run_once(own, shared, bytes);

        if (i >= 0)
            us[i] = took;
    }
    free(own);
    munmap(shared, bytes);
    if (rank != 0)
        return;
    floor_report(&(struct floor_row){bytes, ranks, is_private ? "malloc" : "arena"}, us, ITERATIONS);
}

int main(int argc, char **argv)
{
    rank = number_of("RANK", RANKS_MAX - 1);
    ranks = number_of("WORLD_SIZE", RANKS_MAX);
    local_rank = number_of("LOCAL_RANK", RANKS_MAX - 1);
    host = number_of("HVD_CROSS_RANK", HOSTS_MAX - 1);
    hosts = number_of("HVD_CROSS_SIZE", HOSTS_MAX);
    is_private = argc == 3 && strcmp(argv[2], "private") == 0;
    if ((argc != 2 && !is_private) || hosts < 1 || ranks % hosts != 0) {
        fprintf(
            stderr,
            "usage: hvdrun ... wire_floor BYTES[,BYTES ...] [private], with as many ranks on each host\n");
        return 2;
    }
    meet_others();
    for (char *text = argv[1]; *text;) {
        const unsigned long long bytes = strtoull(text, &text, 10);

        if (bytes == 0 || bytes > 1ull << 32 || (*text && *text != ',')) {
            fprintf(stderr, "wire_floor: '%s' is not a list of bytes\n", argv[1]);
            return 2;
        }
        text += *text == ',';
        measure_bytes(bytes);
    }
    return 0;
}
