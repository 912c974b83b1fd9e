/* A worker that meets the others as stock Horovod's Gloo controller does: the same bytes, the same order.
 * Every value is checked, every pair is connected.
 *
 *   hvdrun -np 64 gloo_client [--rounds N] [--quiet] [--leave RANK] [--own]
 *
 * For each scope (global, local_<host>, cross_<local rank>), rank r of n: PUT rank_<r>; GET rank_<i> for i<r;
 * PUT <r>; for each i != r GET <i> every 10 ms until it is there, and once more; connect to every i<r at the
 * address that its value names for us, and accept from every i>r; DELETE <r>. Each request has a connection
 * of its own.
 *
 * A value `<r>` is (n - 1) records of RECORD bytes, one for each other rank i, ascending: "r i pid address
 * port" as text. The rank that connects sends its number, and gets ours.
 *
 * --leave RANK: that rank ends after its first PUT with status 7.
 * --own: of each value only the record for this rank is read, as Gloo does; else reading takes more time than
 * asking. Prints its time and from when on (CLOCK_MONOTONIC), requests, 404s, its processor time. Exit 1 with
 * a sentence when anything is wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/net/net.h"

#define RECORD    136
#define NAME_MAX_ 300
#define GIVE_UP_S 300

static struct {
    union net_address server;
    const char *address; /* as the variable says, for Host: */
    uint32_t rank;
    unsigned long requests, missing, connects;
    union net_address own;
    bool leaves, reads_own_only;
} me;

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "gloo_client: rank %u: ", me.rank);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text)
        die("%s is not set", name);
    return text;
}

static uint32_t number(const char *name)
{
    char *end;
    unsigned long n = strtoul(variable(name), &end, 10);
    if (*end)
        die("%s is no number", name);
    return (uint32_t)n;
}

/* ---- HTTP ---------------------------------------------------------------------------------------------- */

static void send_all(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0)
            die("cannot send: %s", strerror(errno));
        at += n;
        len -= (size_t)n;
    }
}

static int dial(const union net_address *to)
{
    char text[NET_TEXT_MAX];
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, &to->any, net_length(to)) < 0)
        die("cannot connect to %s: %s", net_format_port(to, text), strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Up to the end of the headers; returns how many bytes are there, *body where the body begins. */
static size_t read_head(int fd, char *buf, size_t size, size_t *body)
{
    size_t used = 0;
    for (;;) {
        ssize_t n = recv(fd, buf + used, size - 1 - used, 0);
        if (n <= 0)
            die("the rendezvous closed the connection: %s", n < 0 ? strerror(errno) : "its end");
        used += (size_t)n;
        buf[used] = '\0';
        char *end = strstr(buf, "\r\n\r\n");
        if (end) {
            *body = (size_t)(end - buf) + 4;
            return used;
        }
        if (used == size - 1)
            die("the answer's headers have no end");
    }
}

/* The status; 200 to a GET fills value (*len bytes of it). */
static unsigned request(const char *method, const char *scope, const char *key, const void *data, size_t len,
                        char *value, size_t *value_len)
{
    char head[1024];
    size_t body, room = value_len ? *value_len : 0;
    int fd = dial(&me.server);
    int n = snprintf(head, sizeof head, "%s /%s/%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %zu\r\n\r\n",
                     method, scope, key, me.address, len);
    send_all(fd, head, (size_t)n);
    send_all(fd, data, len);
    size_t used = read_head(fd, head, sizeof head, &body);
    const char *space = strchr(head, ' '), *field = strstr(head, "\r\nContent-Length: ");
    if (!space || !field)
        die("no status or no Content-Length in: %.*s", (int)body, head);
    unsigned status = (unsigned)strtoul(space + 1, NULL, 10);
    size_t wanted = strtoul(field + strlen("\r\nContent-Length: "), NULL, 10), got = used - body;
    if (wanted > room || got > wanted)
        die("%s /%s/%s: an answer of %zu bytes, status %u", method, scope, key, wanted, status);
    if (got)
        memcpy(value, head + body, got);
    while (got < wanted) {
        ssize_t r = recv(fd, value + got, wanted - got, 0);
        if (r <= 0)
            die("the answer is cut short");
        got += (size_t)r;
    }
    close(fd);
    if (value_len)
        *value_len = wanted;
    me.requests++;
    me.missing += status == 404;
    if (status != 200 && !(status == 404 && wanted == 0 && method[0] == 'G'))
        die("%s /%s/%s: status %u", method, scope, key, status);
    return status;
}

/* ---- one scope ----------------------------------------------------------------------------------------- */

static const char *text_of(uint32_t n)
{
    static char text[16];
    snprintf(text, sizeof text, "%u", n);
    return text;
}

static int listen_here(union net_address *at)
{
    socklen_t len = sizeof *at;
    *at = me.own;
    int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, &at->any, net_length(at)) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, &at->any, &len) < 0)
        die("cannot listen: %s", strerror(errno));
    return fd;
}

static void put_values(const char *scope, uint32_t r, uint32_t n, const union net_address *at)
{
    size_t len = (size_t)(n - 1) * RECORD;
    char *value = calloc(1, len + 1), key[32], got[NAME_MAX_], address[NET_TEXT_MAX];
    snprintf(key, sizeof key, "rank_%u", r);
    request("PUT", scope, key, variable("HOROVOD_HOSTNAME"), strlen(variable("HOROVOD_HOSTNAME")), NULL,
            NULL);
    if (me.leaves)
        _exit(7);
    for (uint32_t i = 0; i < r; i++) {
        size_t got_len = sizeof got;
        snprintf(key, sizeof key, "rank_%u", i);
        request("GET", scope, key, "", 0, got, &got_len); /* 404 is tolerated */
    }
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (i != r)
            snprintf(value + (size_t)k++ * RECORD, RECORD, "%s %u %u %s %u", scope, r, i,
                     net_format(at, address), net_port(at));
    request("PUT", scope, text_of(r), value, len, NULL, NULL);
    free(value);
}

/* Reads from the value of rank i the address on which it listens for us. Checks every record, or with --own
 * only ours. */
static void read_value(const char *scope, uint32_t r, uint32_t n, uint32_t i, const char *value,
                       union net_address *to)
{
    for (uint32_t j = 0, k = 0; j < n; j++) {
        char name[NAME_MAX_], address[64];
        unsigned a, b, port;
        if (j == i)
            continue;
        const char *record = value + (size_t)k++ * RECORD;
        if (me.reads_own_only && j != r)
            continue;
        if (!memchr(record, '\0', RECORD) ||
            sscanf(record, "%299s %u %u %63s %u", name, &a, &b, address, &port) != 5 ||
            strcmp(name, scope) != 0 || a != i || b != j)
            die("scope %s: the value of rank %u is wrong at rank %u: %.100s", scope, i, j, record);
        if (j == r && net_parse(address, (uint16_t)port, to, NULL) < 0)
            die("scope %s: the value of rank %u has no address: %.100s", scope, i, record);
    }
}

static void get_values(const char *scope, uint32_t r, uint32_t n, union net_address *to)
{
    size_t len = (size_t)(n - 1) * RECORD;
    char *value = malloc(len + 1), *again = malloc(len + 1);
    double since = now();
    for (uint32_t i = 0; i < n; i++) {
        size_t got = len, twice = len;
        if (i == r)
            continue;
        while (request("GET", scope, text_of(i), "", 0, value, &got) != 200) {
            if (now() - since > GIVE_UP_S)
                die("scope %s: nothing of rank %u within %d s", scope, i, GIVE_UP_S);
            usleep(10000);
            got = len;
        }
        if (request("GET", scope, text_of(i), "", 0, again, &twice) != 200 || got != len || twice != len ||
            memcmp(value, again, len) != 0)
            die("scope %s: the value of rank %u has %zu and %zu bytes, not %zu, or has changed", scope, i,
                got, twice, len);
        read_value(scope, r, n, i, value, &to[i]);
    }
    free(value);
    free(again);
}

static void connect_mesh(const char *scope, int listener, uint32_t r, uint32_t n, const union net_address *to)
{
    bool *seen = calloc(n, sizeof *seen);
    uint32_t own = r, peer;
    for (uint32_t i = 0; i < r; i++) {
        int fd = dial(&to[i]);
        send_all(fd, &own, sizeof own);
        if (recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer || peer != i)
            die("scope %s: somebody else is at the address of rank %u", scope, i);
        close(fd);
        me.connects++;
    }
    for (uint32_t left = n - 1 - r; left > 0; left--) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, GIVE_UP_S * 1000) != 1)
            die("scope %s: %u ranks have not connected", scope, left);
        int fd = accept(listener, NULL, NULL);
        if (recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer || peer >= n || peer <= r || seen[peer])
            die("scope %s: a wrong connection", scope);
        seen[peer] = true;
        send_all(fd, &own, sizeof own);
        close(fd);
    }
    free(seen);
}

static void meet(const char *scope, uint32_t r, uint32_t n)
{
    union net_address at, *to = calloc(n, sizeof *to);
    int listener = listen_here(&at);
    if (n == 1) {
        request("PUT", scope, "0", "", 0, NULL, NULL);
    } else {
        put_values(scope, r, n, &at);
        get_values(scope, r, n, to);
        connect_mesh(scope, listener, r, n, to);
    }
    request("DELETE", scope, text_of(r), "", 0, NULL, NULL);
    close(listener);
    free(to);
}

/* The first address of the interface that we are told to use; of IPv6 only one that means the same elsewhere.
 */
static void find_own_address(const char *interface)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        die("no interfaces");
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        const union net_address *a = (const union net_address *)(const void *)i->ifa_addr;
        if (!a || strcmp(i->ifa_name, interface) != 0 ||
            (a->any.sa_family != AF_INET &&
             (a->any.sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr))))
            continue;
        memcpy(&me.own, a, net_length(a));
        freeifaddrs(list);
        return;
    }
    die("interface %s has no address", interface);
}

int main(int argc, char **argv)
{
    unsigned long rounds = 1;
    bool quiet = false;
    char scope[NAME_MAX_];
    me.rank = number("HOROVOD_RANK");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quiet") == 0)
            quiet = true;
        else if (strcmp(argv[i], "--own") == 0)
            me.reads_own_only = true;
        else if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0)
            rounds = strtoul(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--leave") == 0)
            me.leaves = strtoul(argv[++i], NULL, 10) == me.rank;
        else
            die("usage: gloo_client [--rounds N] [--quiet] [--leave RANK] [--own]");
    }
    me.address = variable("HOROVOD_GLOO_RENDEZVOUS_ADDR");
    if (net_parse(me.address, (uint16_t)number("HOROVOD_GLOO_RENDEZVOUS_PORT"), &me.server, NULL) < 0)
        die("HOROVOD_GLOO_RENDEZVOUS_ADDR is no address");
    if (strcmp(variable("HOROVOD_CONTROLLER"), "gloo") != 0)
        die("HOROVOD_CONTROLLER is not gloo");
    find_own_address(variable("HOROVOD_GLOO_IFACE"));
    double since = now();
    for (unsigned long i = 0; i < rounds; i++) {
        meet("global", me.rank, number("HOROVOD_SIZE"));
        snprintf(scope, sizeof scope, "local_%s", variable("HOROVOD_HOSTNAME"));
        meet(scope, number("HOROVOD_LOCAL_RANK"), number("HOROVOD_LOCAL_SIZE"));
        snprintf(scope, sizeof scope, "cross_%u", number("HOROVOD_LOCAL_RANK"));
        meet(scope, number("HOROVOD_CROSS_RANK"), number("HOROVOD_CROSS_SIZE"));
    }
    double took = now() - since;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    if (!quiet)
        printf("rank %u met all: %.3f s, %lu requests, %lu of them 404, %lu connections, %ld ms of processor "
               "time, "
               "from %.3f on\n",
               me.rank, took, me.requests, me.missing, me.connects,
               (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                   (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000,
               since);
    return 0;
}
