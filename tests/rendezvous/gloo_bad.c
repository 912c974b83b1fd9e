/* A worker that does to its host's Gloo rendezvous what it should not, and sees that each gets its answer,
 * that nobody else is disturbed, and that much is kept as well as little:
 *
 *   hvdrun -np 1 gloo_bad
 *
 * Prints a line for each thing that went otherwise; exit 1 then. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEYS    10000
#define LARGE   (1u << 20)
#define CROWD   200
#define WAIT_MS 20000

static struct sockaddr_in server;
static int wrong;

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&server, sizeof server) < 0) {
        printf("cannot connect: %s\n", strerror(errno));
        exit(1);
    }
    return fd;
}

/* Reads until the server closes. Returns the number of bytes; -1: the server did not close within WAIT_MS. */
static long read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, WAIT_MS) != 1)
            return -1;
        ssize_t n = recv(fd, buf + used, size - 1 - used, 0);
        if (n <= 0 || used + (size_t)n == size - 1) {
            buf[used + (size_t)(n > 0 ? n : 0)] = '\0';
            return (long)used + (n > 0 ? n : 0);
        }
        used += (size_t)n;
    }
}

/* Sends it as it is, and says the status; 0: closed without an answer, -1: nothing came. */
static int status_of(const char *text, size_t len)
{
    char buf[4096];
    int fd = dial();
    (void)send(fd, text, len, MSG_NOSIGNAL);
    long n = read_all(fd, buf, sizeof buf);
    close(fd);
    const char *space = n > 0 ? strchr(buf, ' ') : NULL;
    return n < 0 ? -1 : space ? (int)strtol(space + 1, NULL, 10) : 0;
}

static void expect(const char *what, int found, int wanted)
{
    if (found == wanted)
        return;
    printf("%s: %d, not %d\n", what, found, wanted);
    wrong = 1;
}

static int say(const char *text)
{
    return status_of(text, strlen(text));
}

static int put(const char *path, const char *value, size_t len)
{
    char *text = malloc(len + 512);
    int n = snprintf(text, 512, "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", path, len);
    memcpy(text + n, value, len);
    int status = status_of(text, (size_t)n + len);
    free(text);
    return status;
}

/* 0: the value is as expected. */
static int get(const char *path, const char *value, size_t len)
{
    char head[512], *buf = malloc(len + 1024);
    int fd = dial(), n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    (void)send(fd, head, (size_t)n, MSG_NOSIGNAL);
    long got = read_all(fd, buf, len + 1024);
    close(fd);
    const char *body = got > 0 ? strstr(buf, "\r\n\r\n") : NULL;
    int different = !body || (size_t)(buf + got - body - 4) != len || memcmp(body + 4, value, len) != 0 ||
                    strncmp(buf, "HTTP/1.1 200 ", 13) != 0;
    free(buf);
    return different;
}

static void bad_requests(void)
{
    static const struct {
        const char *what, *text;
        int status;
    } cases[] = {
        {"one word", "hello\r\n\r\n", 0},
        {"no scope", "GET /key HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"no key", "GET /scope/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"an empty scope", "GET //key HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"three words", "GET /a/b/c HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"a whole address", "GET http://x/a/b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"another method", "POST /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400},
        {"PUT without a length", "PUT /a/b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET with a body", "GET /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400},
        {"a length that is none", "PUT /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 3x\r\n\r\nabc", 400},
        {"a huge length", "PUT /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413},
        {"no such key", "GET /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404},
        {"a rank that does not exist", "GET /global/rank_77 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
         404},
        {"a key that never comes", "GET /cross_9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404},
        {"the end of a rank that did not begin",
         "DELETE /cross_9/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(cases[i].what, say(cases[i].text), cases[i].status);
    int garbage = say(
        "\x01\x02\xff\xfe garbage\r\n\r\n"); /* libmicrohttpd 1.0 closes the connection, older ones answer */
    expect("garbage", garbage, garbage == 0 ? 0 : 400);
}

static const char cut[] = "PUT /cut/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc";
static const char *const unfinished[] = {cut, "GET /a", ""};
#define UNFINISHED (sizeof unfinished / sizeof *unfinished)

/* Half a request, and nothing more will come. */
static void begin_unfinished(int fd[UNFINISHED])
{
    for (size_t i = 0; i < UNFINISHED; i++) {
        fd[i] = dial();
        (void)send(fd[i], unfinished[i], strlen(unfinished[i]), MSG_NOSIGNAL);
        shutdown(fd[i], SHUT_WR);
    }
}

static void end_unfinished(int fd[UNFINISHED])
{
    char buf[512];
    for (size_t i = 0; i < UNFINISHED; i++) {
        expect("closed after half a request", (int)read_all(fd[i], buf, sizeof buf), 0);
        close(fd[i]);
    }
    expect("the value that was cut", say("GET /cut/k HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
}

static void bad_senders(void)
{
    char head[20000];
    memset(head, 'a', sizeof head);
    memcpy(head, "GET /", 5);
    int status = status_of(head, sizeof head); /* closed before it is all read: an answer may be lost */
    if (status != 0 && (status < 400 || status > 499))
        expect("a very long target", status, 414);
    for (int i = 0; i < 50; i++) /* gone before the answer */
        close(dial());
}

/* Many that say half a request and wait, and one that sends a byte at a time: nobody waits for them. */
static void slow_senders(void)
{
    static const char text[] = "PUT /slow/k HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nslow";
    int idle[CROWD], slow = dial();
    char buf[512];
    for (int i = 0; i < CROWD; i++)
        (void)send(idle[i] = dial(), text, 20, MSG_NOSIGNAL);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        (void)send(slow, text + i, 1, MSG_NOSIGNAL);
        if (i % 10 == 0)
            expect("a value beside slow senders", put("/beside/slow", "x", 1), 200);
        usleep(1000);
    }
    expect("the slow sender", read_all(slow, buf, sizeof buf) > 0 && strstr(buf, " 200 "), 1);
    expect("its value", get("/slow/k", "slow", 4), 0);
    close(slow);
    for (int i = 0; i < CROWD; i++)
        close(idle[i]);
}

static void much(void)
{
    char path[64], value[64], *large = malloc(LARGE);
    for (int i = 0; i < KEYS; i++) {
        snprintf(path, sizeof path, "/many/key-%d", i);
        snprintf(value, sizeof value, "value %d", i);
        expect(path, put(path, value, strlen(value)), 200);
    }
    for (int i = 0; i < KEYS; i += 97) {
        snprintf(path, sizeof path, "/many/key-%d", i);
        snprintf(value, sizeof value, "value %d", i);
        expect(path, get(path, value, strlen(value)), 0);
    }
    for (int i = 0; i < 64; i++) {
        memset(large, 'a' + i % 26, LARGE);
        snprintf(path, sizeof path, "/large/%d", i);
        expect(path, put(path, large, LARGE), 200);
        expect(path, get(path, large, LARGE), 0);
    }
    /* more than may be kept: refused, and what is there stays */
    int status = 200;
    for (int i = 64; i < 1000 && status == 200; i++) {
        snprintf(path, sizeof path, "/large/%d", i);
        status = put(path, large, LARGE);
    }
    expect("more than may be kept", status, 507);
    memset(large, 'a', LARGE);
    expect("the first large value", get("/large/0", large, LARGE), 0);
    free(large);
}

int main(void)
{
    const char *port = getenv("HOROVOD_GLOO_RENDEZVOUS_PORT");
    if (!port) {
        printf("HOROVOD_GLOO_RENDEZVOUS_PORT is not set\n");
        return 1;
    }
    server = (struct sockaddr_in){.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int half[UNFINISHED];
    begin_unfinished(half);
    bad_requests();
    bad_senders();
    slow_senders();
    much();
    end_unfinished(half);
    if (!wrong)
        printf("all as it should be\n");
    return wrong;
}
