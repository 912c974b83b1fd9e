/* A PMI-1 client that does what its arguments say, one after another; as rank PMI_ID ('@' in a text):
 *
 *   >TEXT     sends the line             <TEXT    the next line begins like that
 *   join      up to cmd=init             bye      cmd=finalize
 *   fence     the barrier                eof      the server closes the connection
 *   new       another connection         half     nothing more will be sent
 *   raw:N     N bytes without an end     flood:N  asks up to N times without reading an answer; is closed
 *   put:N     N keys of this rank        get:N    as many of every rank
 *   wait:MS   does nothing for so long
 *
 * Says "@ good" at its end, or what was not as it must be, with exit status 1. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd = -1;
static char space[300] = "?", got[8192];
static size_t have;
static const char *rank, *size;

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
    va_list args;
    printf("%s: ", rank);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    exit(1);
}

static void connect_to_server(void)
{
    const char *port = getenv("PMI_PORT");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!port || strncmp(port, "127.0.0.1:", 10) != 0)
        fail("PMI_PORT is %s", port ? port : "not set");
    at.sin_port = htons((uint16_t)strtoul(port + 10, NULL, 10));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    have = 0;
    if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
        fail("cannot connect: %s", strerror(errno));
}

static void send_bytes(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0)
            fail("cannot send: %s", strerror(errno));
        bytes += n;
        len -= (size_t)n;
    }
}

/* With the rank for '@'; valid until the next call. */
static const char *own(const char *text)
{
    static char line[8192];
    size_t n = 0;
    for (; *text && n + 17 < sizeof line; text++) {
        if (*text == '@')
            n += (size_t)snprintf(line + n, 16, "%s", rank);
        else
            line[n++] = *text;
    }
    line[n] = '\0';
    return line;
}

static void say(const char *text)
{
    char line[8192];
    int n = snprintf(line, sizeof line, "%s\n", own(text));
    send_bytes(line, (size_t)n); /* in one piece: two would wait for each other's acknowledgement */
}

/* The next line; NULL at the end. Valid until the next call. */
static const char *hear(void)
{
    static char line[sizeof got];
    for (;;) {
        char *end = memchr(got, '\n', have);
        if (end) {
            size_t n = (size_t)(end - got);
            memcpy(line, got, n);
            line[n] = '\0';
            have -= n + 1;
            memmove(got, end + 1, have);
            return line;
        }
        ssize_t n = recv(fd, got + have, sizeof got - have, 0);
        if (n <= 0)
            return NULL;
        have += (size_t)n;
    }
}

static const char *expect(const char *wanted)
{
    const char *line = hear();
    if (!line || strncmp(line, wanted, strlen(wanted)) != 0)
        fail("heard \"%s\", not \"%s\"", line ? line : "the end", wanted);
    return line;
}

static void ask(const char *wanted, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void ask(const char *wanted, const char *fmt, ...)
{
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    say(line);
    expect(wanted);
}

static void join(void)
{
    ask("cmd=initack", "cmd=initack pmiid=@");
    expect("cmd=set size=");
    expect("cmd=set rank=");
    expect("cmd=set debug=0");
    ask("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        "cmd=init pmi_version=1 pmi_subversion=1");
    say("cmd=get_my_kvsname");
    snprintf(space, sizeof space, "%s", expect("cmd=my_kvsname kvsname=") + 23);
}

static void get_all(unsigned long n)
{
    for (unsigned long r = 0; r < strtoul(size, NULL, 10); r++)
        for (unsigned long i = 0; i < n; i++) {
            char wanted[100];
            snprintf(wanted, sizeof wanted, "cmd=get_result rc=0 msg=success value=v%lu-%lu", r, i);
            ask(wanted, "cmd=get kvsname=%s key=k%lu-%lu", space, r, i);
        }
}

static void flood(unsigned long n)
{
    static const char line[] = "cmd=getbyidx kvsname=x idx=0\n";
    for (unsigned long i = 0; i < n; i++) {
        struct pollfd p = {fd, POLLOUT, 0};
        if (poll(&p, 1, 5000) <= 0)
            fail("the server neither reads nor closes");
        if (send(fd, line, sizeof line - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            return;
    }
    fail("the server took it all");
}

static void act(const char *word)
{
    const char *colon = strchr(word, ':');
    unsigned long n = colon ? strtoul(colon + 1, NULL, 10) : 0;
    if (word[0] == '>')
        say(word + 1);
    else if (word[0] == '<')
        expect(own(word + 1));
    else if (strcmp(word, "join") == 0)
        join();
    else if (strcmp(word, "bye") == 0)
        ask("cmd=finalize_ack rc=0", "cmd=finalize");
    else if (strcmp(word, "fence") == 0)
        ask("cmd=barrier_out rc=0", "cmd=barrier_in");
    else if (strcmp(word, "eof") == 0) {
        if (hear())
            fail("the connection is open");
    } else if (strcmp(word, "new") == 0)
        connect_to_server();
    else if (strcmp(word, "half") == 0)
        shutdown(fd, SHUT_WR);
    else if (strncmp(word, "raw:", 4) == 0)
        while (n-- > 0)
            send_bytes("x", 1);
    else if (strncmp(word, "flood:", 6) == 0)
        flood(n);
    else if (strncmp(word, "put:", 4) == 0)
        for (unsigned long i = 0; i < n; i++)
            ask("cmd=put_result rc=0", "cmd=put kvsname=%s key=k@-%lu value=v@-%lu", space, i, i);
    else if (strncmp(word, "get:", 4) == 0)
        get_all(n);
    else if (strncmp(word, "wait:", 5) == 0)
        usleep((useconds_t)n * 1000);
    else
        fail("unknown word %s", word);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    rank = getenv("PMI_ID");
    size = getenv("PMI_SIZE");
    if (!rank || !size)
        fail("PMI_ID or PMI_SIZE is not set");
    connect_to_server();
    for (int i = 1; i < argc; i++)
        act(argv[i]);
    printf("%s good\n", rank);
    return 0;
}
