/* The peer of `make bench`, part gloo: one server for all hosts, as horovodrun has it, but in C, with threads
 * that wait for their clients. It holds no request, as the stock server does not: what is not there is 404.
 *
 *   gloo_central ADDRESS
 *
 * Prints its port, then serves until its standard input ends; prints the requests, the bytes of values sent
 * and its processor time. The store is that of the agents, but one for all. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/rendezvous/gloo/gloo_store.h"

#define THREADS 256

static int listener;
static struct gloo_store *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong requests, missing, bytes;

static void send_all(int fd, const void *data, size_t len)
{
    for (const char *at = data; len > 0;) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        at += n;
        len -= (size_t)n;
    }
}

static void reply(int fd, struct gloo_value *value, int status)
{
    char head[128];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status,
                     value ? value->len : 0);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    send_all(fd, head, (size_t)n);
    if (value)
        send_all(fd, value->bytes, value->len);
}

/* The body of a PUT, of which `got` bytes came with the headers. */
static struct gloo_value *read_body(int fd, const char *head, const char *rest, size_t got)
{
    const char *field = strstr(head, "\r\nContent-Length: ");
    size_t len = field ? strtoul(field + strlen("\r\nContent-Length: "), NULL, 10) : 0;
    struct gloo_value *v = got <= len && len < (64u << 20) ? gloo_value_new(len) : NULL;
    if (!v)
        return NULL;
    memcpy(v->bytes, rest, got);
    while (got < len) {
        ssize_t n = recv(fd, v->bytes + got, len - got, 0);
        if (n <= 0) {
            gloo_value_release(v);
            return NULL;
        }
        got += (size_t)n;
    }
    return v;
}

static void answer(int fd, const char *verb, const struct gloo_path *path, struct gloo_value *body)
{
    struct gloo_value *found = NULL;
    int status = 200;
    pthread_mutex_lock(&lock);
    if (body)
        status = gloo_store_put(store, path, body, NULL) == 0 ? 200 : 507;
    else if (verb[0] == 'D')
        (void)gloo_store_delete(store, path);
    else if ((found = gloo_store_get(store, path)) != NULL)
        (void)gloo_value_share(found);
    else
        status = 404;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&requests, 1);
    atomic_fetch_add(&missing, status == 404);
    atomic_fetch_add(&bytes, found ? found->len : 0);
    reply(fd, found, status);
    pthread_mutex_lock(&lock);
    gloo_value_release(found);
    pthread_mutex_unlock(&lock);
}

static void serve(int fd)
{
    char head[4096], *end = NULL;
    size_t used = 0;
    while (!end && used < sizeof head - 1) {
        ssize_t n = recv(fd, head + used, sizeof head - 1 - used, 0);
        if (n <= 0)
            return;
        used += (size_t)n;
        head[used] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    char *path_text = strchr(head, ' ');
    struct gloo_path path;
    if (!end || !path_text || !gloo_path_parse(path_text + 1, strcspn(path_text + 1, " "), &path)) {
        reply(fd, NULL, 400);
        return;
    }
    struct gloo_value *body = NULL;
    if (head[0] == 'P' && !(body = read_body(fd, head, end + 4, used - (size_t)(end + 4 - head))))
        return;
    answer(fd, head, &path, body);
}

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        serve(fd);
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct gloo_limits limits = {
        .keys = 1u << 20, .bytes = 4ul << 30, .value = 64u << 20, .ranks = 65536};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    struct rusage used;
    char byte;
    store = gloo_store_new(&limits);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 2 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1 || !store ||
        bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 4096) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0) {
        fprintf(stderr, "gloo_central: %s\n", argc == 2 ? strerror(errno) : "usage: gloo_central ADDRESS");
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 1;
    }
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    getrusage(RUSAGE_SELF, &used);
    printf("requests %lu missing %lu bytes %lu cpu_ms %ld\n", atomic_load(&requests), atomic_load(&missing),
           atomic_load(&bytes),
           (long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
               (long)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    fflush(stdout);
    _exit(0); /* the threads still use the store */
}
