/* ssh_floor USER KEY COMMAND HOST ... - the least that a command on many hosts takes with libssh2: connect,
 * key exchange, authentication with one key, exec, read to the end; all hosts at once in one thread. It looks
 * at no known_hosts and starts no agent.
 *
 * Each step is a function that returns 0 (done: next step), EAGAIN (come back when the socket is ready) or -1
 * (the host failed). */
#include <errno.h>
#include <libssh2.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOSTS_MAX 1024

struct host {
    const char *name;
    int fd;
    unsigned step;
    int failed;
    LIBSSH2_SESSION *session;
    LIBSSH2_CHANNEL *channel;
};

static const char *user, *key, *command;

static int result(int status)
{
    return status == LIBSSH2_ERROR_EAGAIN ? EAGAIN : status < 0 ? -1 : 0;
}

static int connect_start(struct host *h)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int status;

    if (getaddrinfo(h->name, "22", &hints, &list) != 0)
        return -1;
    h->fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    status = connect(h->fd, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    if (status == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -1;
    h->step++;
    return EAGAIN;
}

static int connect_end(struct host *h)
{
    int error = 0;
    socklen_t len = sizeof error;

    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0)
        return -1;
    h->session = libssh2_session_init();
    if (h->session == NULL)
        return -1;
    libssh2_session_set_blocking(h->session, 0);
    libssh2_session_method_pref(h->session, LIBSSH2_METHOD_HOSTKEY, "ssh-ed25519");
    return 0;
}

static int handshake(struct host *h)
{
    return result(libssh2_session_handshake(h->session, h->fd));
}

static int authenticate(struct host *h)
{
    return result(libssh2_userauth_publickey_fromfile(h->session, user, NULL, key, NULL));
}

static int open_channel(struct host *h)
{
    h->channel = libssh2_channel_open_session(h->session);
    return h->channel != NULL ? 0 : result(libssh2_session_last_errno(h->session));
}

static int execute(struct host *h)
{
    return result(libssh2_channel_exec(h->channel, command));
}

static int read_all(struct host *h)
{
    char bytes[4096];
    ssize_t n;

    do
        n = libssh2_channel_read(h->channel, bytes, sizeof bytes);
    while (n > 0);
    if (n < 0)
        return result((int)n);
    return libssh2_channel_eof(h->channel) ? 0 : EAGAIN;
}

static int close_channel(struct host *h)
{
    int status = result(libssh2_channel_close(h->channel));

    return status != 0 ? status : libssh2_channel_get_exit_status(h->channel) != 0 ? -1 : 0;
}

static int (*const steps[])(struct host *) = {connect_start, connect_end, handshake, authenticate,
                                              open_channel,  execute,     read_all,  close_channel};
static const char *const names[] = {"resolve", "connect", "key exchange", "authentication",
                                    "channel", "exec",    "read",         "close"};
#define STEPS (sizeof steps / sizeof steps[0])

/* Acknowledges at once, now and for the next packets: a server with a small packet in flight holds the next
 * one back until then. */
static void acknowledge(const struct host *h)
{
    setsockopt(h->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
}

/* Goes as far as it can. Returns 1 when the host is finished, well or not. */
static int advance(struct host *h)
{
    while (h->step < STEPS) {
        int status = steps[h->step](h);

        acknowledge(h);
        if (status == EAGAIN)
            return 0;
        if (status != 0) {
            fprintf(stderr, "ssh_floor: %s: %s failed\n", h->name, names[h->step]);
            h->failed = 1;
            return 1;
        }
        h->step++;
    }
    return 1;
}

static short wanted(const struct host *h)
{
    int directions;

    if (h->session == NULL)
        return POLLOUT;
    directions = libssh2_session_block_directions(h->session);
    return (short)((directions & LIBSSH2_SESSION_BLOCK_OUTBOUND ? POLLOUT : 0) | POLLIN);
}

static int run(struct host *host, int hosts)
{
    static struct pollfd polled[HOSTS_MAX];
    int left = hosts, failed = 0;

    for (int i = 0; i < hosts; i++) {
        polled[i].fd = -1;
        if (advance(&host[i]))
            left--;
        else
            polled[i] = (struct pollfd){.fd = host[i].fd, .events = wanted(&host[i])};
    }
    while (left > 0) {
        if (poll(polled, (nfds_t)hosts, 30000) <= 0)
            return -1;
        for (int i = 0; i < hosts; i++) {
            if (polled[i].fd < 0 || polled[i].revents == 0)
                continue;
            if (advance(&host[i])) {
                polled[i].fd = -1;
                left--;
            } else {
                polled[i].events = wanted(&host[i]);
            }
        }
    }
    for (int i = 0; i < hosts; i++)
        failed |= host[i].failed;
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct host host[HOSTS_MAX];
    const int hosts = argc - 4;

    if (hosts < 1 || hosts > HOSTS_MAX) {
        fprintf(stderr, "usage: ssh_floor USER KEY COMMAND HOST ... (at most %d hosts)\n", HOSTS_MAX);
        return 2;
    }
    user = argv[1];
    key = argv[2];
    command = argv[3];
    for (int i = 0; i < hosts; i++)
        host[i].name = argv[4 + i];
    if (libssh2_init(0) != 0)
        return 1;
    return run(host, hosts) == 0 ? 0 : 1;
}
