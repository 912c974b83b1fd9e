#include "common/net/port_range.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_MAX sizeof "65535-65535"

/* Why the ports of a range were not to be had. */
struct refusals {
    unsigned taken, denied;
};

/* Decimal 1..65535; *end is left behind it. */
static uint16_t parse_port(const char *text, const char **end)
{
    unsigned long n = 0;
    size_t len = strspn(text, "0123456789");
    *end = text + len;
    if (len == 0 || len > 5)
        return 0;
    n = strtoul(text, NULL, 10);
    return n <= UINT16_MAX ? (uint16_t)n : 0;
}

int port_range_parse(const char *text, struct port_range *range, struct err *e)
{
    *range = (struct port_range){0};
    const char *at;
    uint16_t low = parse_port(text, &at), high = low;
    if (low && *at == '-')
        high = parse_port(at + 1, &at);
    if (!low || !high || *at)
        return err_set(e, ERR_USAGE,
                       "--port-range: '%.40s' is neither a port nor LOW-HIGH, with ports from 1 to 65535",
                       text);
    if (low > high)
        return err_set(e, ERR_USAGE, "--port-range: %s ends before it begins", text);
    range->low = low;
    range->high = high;
    return 0;
}

int port_range_set(struct port_range *range, uint32_t low, uint32_t high, struct err *e)
{
    if ((low == 0) != (high == 0) || low > high || high > UINT16_MAX)
        return err_set(e, ERR_PROTOCOL, "ports from %u to %u are no range", low, high);
    *range = (struct port_range){.low = (uint16_t)low, .high = (uint16_t)high};
    return 0;
}

static const char *range_text(const struct port_range *r, char *text)
{
    int n = snprintf(text, TEXT_MAX, "%u", r->low);
    if (r->high != r->low)
        snprintf(text + n, TEXT_MAX - (size_t)n, "-%u", r->high);
    return text;
}

/* Both families, if there are two. */
static int make_wildcard(union net_address *any)
{
    int zero = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(any, 0, sizeof *any);
    any->v6.sin6_family = AF_INET6;
    if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    any->any.sa_family = AF_INET;
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

uint16_t port_try(uint16_t port, int *errnum)
{
    union net_address any;
    socklen_t len = sizeof any;
    int fd = make_wildcard(&any);
    net_set_port(&any, port);
    bool bound = fd >= 0 && bind(fd, &any.any, net_length(&any)) == 0 && getsockname(fd, &any.any, &len) == 0;
    *errnum = bound ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return bound ? net_port(&any) : 0;
}

/* A descriptor; -1 while another job has it. */
static int claim_port(uint16_t port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "hvd-port-%u", port);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&name, len) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void count_refusal(struct refusals *r, int errnum)
{
    if (errnum == EACCES || errnum == EPERM)
        r->denied++;
    else
        r->taken++;
}

static int none_left(const struct port_range *range, const struct refusals *r, size_t wanted, struct err *e)
{
    char why[80] = "";
    unsigned ports = range->high - range->low + 1u, left = ports - r->taken - r->denied;
    size_t used = 0;
    if (r->taken)
        used = (size_t)snprintf(why, sizeof why, "%u taken", r->taken);
    if (r->denied)
        snprintf(why + used, sizeof why - used, "%s%u only for root", used ? ", " : "", r->denied);
    char text[TEXT_MAX];
    err_set(e, ERR_HOST, "--port-range %s: %zu port%s wanted on this host, %u of %u free%s%s%s",
            range_text(range, text), wanted, wanted == 1 ? "" : "s", left, ports, *why ? " (" : "", why,
            *why ? ")" : "");
    return err_hint(e, "give a wider range; jobs that share a host share its ports");
}

int port_range_promise(const struct port_range *range, uint32_t *port, int *claim, size_t count,
                       struct err *e)
{
    struct refusals refused = {0};
    size_t n = 0;
    for (uint32_t p = range->low; p <= range->high && n < count; p++) {
        int errnum = EADDRINUSE;
        claim[n] = claim_port((uint16_t)p);
        if (claim[n] >= 0 && port_try((uint16_t)p, &errnum)) {
            port[n++] = p;
            continue;
        }
        if (claim[n] >= 0)
            close(claim[n]);
        count_refusal(&refused, errnum);
    }
    if (n == count)
        return 0;
    while (n > 0)
        close(claim[--n]);
    return none_left(range, &refused, count, e);
}

/* 1: listens; 0: not to be had, and counted; -1. */
static int listen_at(uint16_t port, const union net_address *address, size_t addresses, int *fds,
                     struct refusals *refused, struct err *e)
{
    struct err why = ERR_INIT;
    if (net_listen_all(address, addresses, &port, fds, &why) == 0)
        return 1;
    int errnum = errno;
    if (errnum != EADDRINUSE && errnum != EACCES && errnum != EPERM)
        return err_set(e, why.code, "%s", why.text);
    count_refusal(refused, errnum);
    return 0;
}

int port_range_listen(const struct port_range *range, const union net_address *address, size_t addresses,
                      uint16_t *port, int *fds, struct err *e)
{
    struct refusals refused = {0}, ignored = {0};
    int rc = 0;
    *port = 0;
    if (!range->low)
        return net_listen_all(address, addresses, port, fds, e);
    for (uint32_t p = range->low; p <= range->high && rc == 0; p++) {
        int claim = claim_port((uint16_t)p);
        if (claim < 0) {
            refused.taken++;
            continue;
        }
        rc = listen_at((uint16_t)p, address, addresses, fds, &refused, e);
        close(claim); /* from now on bind finds out */
        *port = (uint16_t)p;
    }
    if (rc == 0 && range->promised) {
        rc = listen_at(range->promised, address, addresses, fds, &ignored, e);
        *port = range->promised;
    }
    if (rc == 0)
        none_left(range, &refused, 1, e);
    return rc == 1 ? 0 : -1;
}
