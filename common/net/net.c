#include "common/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTEN_TRIES 64

/* Decimal 0..max, the whole of `text`; -1 for anything else. */
static long parse_number(const char *text, long max)
{
    if (text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    char *end;
    long v = strtol(text, &end, 10);
    return errno || *end || v > max ? -1 : v;
}

/* A bare numeric address. */
static bool parse_bare(const char *text, union net_address *a)
{
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        return true;
    }
    if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        return true;
    }
    return false;
}

int net_parse(const char *text, uint16_t port, union net_address *address, struct err *e)
{
    const char *rest = "";
    size_t n = strlen(text);
    const char *close = text[0] == '[' ? strchr(text, ']') : NULL;
    const char *colon = strchr(text, ':');
    bool bracket = close != NULL;
    if (bracket) {
        rest = close + 1;
        n = (size_t)(close - text) - 1;
    } else if (colon && !strchr(colon + 1, ':')) { /* one colon: IPv4 and port; more: IPv6 without one */
        rest = colon;
        n = (size_t)(colon - text);
    }
    char host[NET_TEXT_MAX];
    bool ok = n < sizeof host;
    if (ok) {
        memcpy(host, text + bracket, n);
        host[n] = '\0';
        ok = parse_bare(host, address) && (!bracket || address->any.sa_family == AF_INET6);
    }
    long p = rest[0] == '\0' ? port : rest[0] == ':' ? parse_number(rest + 1, 65535) : -1;
    if (!ok || p < 0)
        return err_set(e, ERR_USAGE, "'%.80s' is not a numeric address", text);
    net_set_port(address, (uint16_t)p);
    return 0;
}

char *net_format(const union net_address *address, char *text)
{
    const void *bytes =
        address->any.sa_family == AF_INET6 ? (const void *)&address->v6.sin6_addr : &address->v4.sin_addr;
    if (!inet_ntop(address->any.sa_family, bytes, text, NET_TEXT_MAX))
        snprintf(text, NET_TEXT_MAX, "?");
    return text;
}

char *net_format_port(const union net_address *address, char *text)
{
    char bare[INET6_ADDRSTRLEN] = "?";
    bool v6 = address->any.sa_family == AF_INET6;
    inet_ntop(address->any.sa_family, v6 ? (const void *)&address->v6.sin6_addr : &address->v4.sin_addr, bare,
              sizeof bare);
    snprintf(text, NET_TEXT_MAX, v6 ? "[%s]:%u" : "%s:%u", bare, net_port(address));
    return text;
}

uint16_t net_port(const union net_address *address)
{
    return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

void net_set_port(union net_address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET6)
        address->v6.sin6_port = htons(port);
    else
        address->v4.sin_port = htons(port);
}

socklen_t net_length(const union net_address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}

static int open_socket(const union net_address *address, struct err *e)
{
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot open a socket");
    return fd;
}

int net_listen(union net_address *address, int backlog, struct err *e)
{
    int one = 1, fd = open_socket(address, e);
    socklen_t length = sizeof *address;
    if (fd < 0)
        return -1;
    /* An IPv6 socket must not take the port of the IPv4 one beside it. */
    if (address->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (net_port(address) != 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &address->any, net_length(address)) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, &address->any, &length) < 0) {
        int errnum = errno;
        close(fd);
        char text[NET_TEXT_MAX];
        err_sys(e, errnum, "cannot listen at %s", net_format_port(address, text));
        errno = errnum;
        return -1;
    }
    return fd;
}

/* One try: 1 with all listening, 0 when the port is taken at one of the addresses, -1. */
static int listen_all_once(const union net_address *address, size_t addresses, uint16_t *port, int *fds,
                           struct err *e)
{
    for (size_t i = 0; i < addresses; i++) {
        union net_address a = address[i];
        net_set_port(&a, *port);
        fds[i] = net_listen(&a, 256, e);
        if (fds[i] < 0) {
            int errnum = errno;
            while (i-- > 0)
                close(fds[i]);
            errno = errnum;
            return errnum == EADDRINUSE ? 0 : -1;
        }
        *port = net_port(&a);
    }
    return 1;
}

int net_listen_all(const union net_address *address, size_t addresses, uint16_t *port, int *fds,
                   struct err *e)
{
    if (addresses == 0)
        return err_set(e, ERR_SYSTEM, "there is no address to listen at");
    /* Any port: the one that the first address got may be taken at another. */
    int tries = *port ? 1 : LISTEN_TRIES;
    for (int i = 0; i < tries; i++) {
        struct err why = ERR_INIT;
        uint16_t p = *port;
        int rc = listen_all_once(address, addresses, &p, fds, &why);
        if (rc == 1) {
            *port = p;
            return 0;
        }
        if (rc < 0 || i == tries - 1) {
            errno = rc < 0 ? errno : EADDRINUSE;
            return err_set(e, why.code, "%s", why.text);
        }
    }
    return -1;
}

int net_connect(const union net_address *address, struct err *e)
{
    int one = 1, fd = open_socket(address, e);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, &address->any, net_length(address)) < 0 && errno != EINPROGRESS) {
        char text[NET_TEXT_MAX];
        err_sys(e, errno, "cannot connect to %s", net_format_port(address, text));
        close(fd);
        return -1;
    }
    return fd;
}

/* A datagram socket that is connected has been routed, and nothing was sent. */
bool net_source_for(const union net_address *to, union net_address *source)
{
    union net_address at = *to;
    socklen_t len = sizeof *source;
    int fd = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(source, 0, sizeof *source);
    net_set_port(&at, 9);
    bool found =
        fd >= 0 && connect(fd, &at.any, net_length(&at)) == 0 && getsockname(fd, &source->any, &len) == 0;
    if (fd >= 0)
        close(fd);
    net_set_port(source, 0);
    return found;
}

int net_connected(int fd, struct err *e)
{
    int errnum = 0;
    socklen_t length = sizeof errnum;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &length) < 0)
        errnum = errno;
    return errnum ? err_sys(e, errnum, "cannot connect") : 0;
}

int net_accept(int listener, union net_address *peer)
{
    int one = 1, fd;
    do {
        socklen_t length = sizeof *peer;
        fd = accept4(listener, &peer->any, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int net_set_link_options(int fd, unsigned ms, unsigned unsent, struct err *e)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent) < 0)
        return err_sys(e, errno, "cannot set the options of a link's socket");
    return 0;
}

/* Every kernel has this one. If the administrator does not allow it, the connection is slower. */
void net_set_near_options(int fd)
{
    static const char plain[] = "reno";
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

int net_set_quiet_options(int fd, int seconds, struct err *e)
{
    int on = 1, probes = 100;
    unsigned never = 0;
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) < 0)
        return err_sys(e, errno, "cannot set the options of a connection");
    return 0;
}
