/* --network-interfaces: the addresses that a host offers to others. The option is read once into rules, and
 * the rules are applied to the list of the kernel. */
#include "common/net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANDIDATES_MAX 256

struct rule {
    bool exclude;
    bool by_address;
    const char *name; /* interface; a trailing * matches any end */
    uint8_t prefix[16];
    unsigned bits;
    int family;
};

static const uint8_t *address_bytes(const union net_address *a)
{
    return a->any.sa_family == AF_INET6 ? a->v6.sin6_addr.s6_addr : (const uint8_t *)&a->v4.sin_addr;
}

static bool is_name(const char *text)
{
    size_t n = strlen(text), star = strcspn(text, "*");
    if (n == 0 || n >= IF_NAMESIZE + 1 || (star < n && star != n - 1))
        return false;
    /* Digits, dots and colons alone are an address with a fault, not an interface. */
    return strspn(text, "0123456789.:") < n && !strpbrk(text, "/ ,^\t\n[]");
}

static int parse_rule(const char *entry, struct rule *rule, struct err *e)
{
    const char *text = entry[0] == '^' ? entry + 1 : entry;
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    *rule = (struct rule){.exclude = text != entry, .name = text};
    char host[NET_TEXT_MAX];
    if (n < sizeof host) {
        memcpy(host, text, n);
        host[n] = '\0';
        union net_address a;
        if (!strchr(host, '[') && net_parse(host, 0, &a, NULL) == 0 && net_port(&a) == 0) {
            rule->by_address = true;
            rule->family = a.any.sa_family;
            unsigned most = rule->family == AF_INET6 ? 128 : 32;
            memcpy(rule->prefix, address_bytes(&a), most / 8);
            rule->bits = most;
            if (!slash)
                return 0;
            char *end;
            unsigned long bits = strtoul(slash + 1, &end, 10);
            if (slash[1] >= '0' && slash[1] <= '9' && !*end && bits <= most) {
                rule->bits = (unsigned)bits;
                return 0;
            }
        }
    }
    if (!slash && is_name(text))
        return 0;
    err_set(e, ERR_USAGE, "'%.80s' is not a network interface, an address or a network", entry);
    return err_hint(e, "use names (eth0, ib*), networks (10.0.0.0/8, fd00::/8) or addresses, with ^ before "
                       "what is excluded");
}

int net_filter_check(const char *const *entry, size_t entries, struct err *e)
{
    struct rule rule;
    for (size_t i = 0; i < entries; i++)
        if (parse_rule(entry[i], &rule, e) < 0)
            return -1;
    return 0;
}

static bool prefix_matches(const uint8_t *address, const uint8_t *prefix, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(address, prefix, whole) != 0)
        return false;
    uint8_t mask = (uint8_t)(0xff00 >> rest);
    return rest == 0 || (address[whole] & mask) == (prefix[whole] & mask);
}

static bool rule_matches(const struct rule *rule, const struct net_candidate *c)
{
    if (rule->by_address)
        return rule->family == c->address.any.sa_family &&
               prefix_matches(address_bytes(&c->address), rule->prefix, rule->bits);
    size_t n = strlen(rule->name);
    if (rule->name[n - 1] == '*')
        return strncmp(rule->name, c->interface, n - 1) == 0;
    return strcmp(rule->name, c->interface) == 0;
}

static bool is_loopback(const union net_address *a)
{
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) : address_bytes(a)[0] == 127;
}

static bool is_usable(const struct net_candidate *c)
{
    if (!c->up)
        return false;
    if (c->address.any.sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(&c->address.v6.sin6_addr);
    return c->address.any.sa_family == AF_INET;
}

/* Networks that usually end on this host: offered, but after the others. */
static bool is_local_bridge(const char *interface)
{
    static const char *const prefix[] = {"docker", "br-", "virbr", "podman", "cni", "flannel",
                                         "cali",   "lxc", "tun",   "tap",    "wg"};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(interface, prefix[i], strlen(prefix[i])) == 0)
            return true;
    return false;
}

enum { RANK_BRIDGE = 1000, RANK_LOOPBACK = 2000, RANK_NEVER = -1 };

/* Lower is better; RANK_NEVER: not offered. Addresses come in the order of the entries that
 * include them. */
static int rank_of(const struct net_candidate *c, const struct rule *rule, size_t rules)
{
    int rank = RANK_NEVER;
    bool includes = false;
    for (size_t i = 0; i < rules; i++) {
        if (rule[i].exclude) {
            if (rule_matches(&rule[i], c))
                return RANK_NEVER;
            continue;
        }
        includes = true;
        if (rank == RANK_NEVER && rule_matches(&rule[i], c))
            rank = (int)i;
    }
    if (includes)
        return rank;
    return is_loopback(&c->address) ? RANK_LOOPBACK : is_local_bridge(c->interface) ? RANK_BRIDGE : 0;
}

/* Appends the usable candidates of this rank in their order. */
static size_t take_rank(const struct net_candidate *c, const int *rank, size_t candidates, int wanted,
                        union net_address *out, size_t n, size_t max)
{
    for (size_t i = 0; i < candidates && n < max; i++)
        if (rank[i] == wanted)
            out[n++] = c[i].address;
    return n;
}

int net_filter(const struct net_candidate *candidate, size_t candidates, const char *const *entry,
               size_t entries, union net_address *out, size_t max, struct err *e)
{
    struct rule *rule = calloc(entries ? entries : 1, sizeof *rule);
    int *rank = calloc(candidates ? candidates : 1, sizeof *rank);
    size_t n = 0;
    int rc = -1;
    if (!rule || !rank || entries >= RANK_BRIDGE) {
        err_set(e, ERR_MEMORY, "too many network interfaces");
        goto out;
    }
    for (size_t i = 0; i < entries; i++)
        if (parse_rule(entry[i], &rule[i], e) < 0)
            goto out;
    for (size_t i = 0; i < candidates; i++)
        rank[i] = is_usable(&candidate[i]) ? rank_of(&candidate[i], rule, entries) : RANK_NEVER;
    for (int r = 0; r <= (int)entries; r++)
        n = take_rank(candidate, rank, candidates, r, out, n, max);
    n = take_rank(candidate, rank, candidates, RANK_BRIDGE, out, n, max);
    if (n == 0)
        n = take_rank(candidate, rank, candidates, RANK_LOOPBACK, out, n, max);
    rc = (int)n;
out:
    free(rule);
    free(rank);
    return rc;
}

/* Not one of IPv6 whose check for a duplicate goes on, or has found one: no program can listen there. */
static bool is_assigned(const union net_address *address)
{
    int fd = socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && bind(fd, &address->any, net_length(address)) < 0 && errno == EADDRNOTAVAIL;
    if (fd >= 0)
        close(fd);
    return !refused;
}

static size_t list_candidates(const struct ifaddrs *list, struct net_candidate *out, size_t max)
{
    size_t n = 0;
    for (const struct ifaddrs *i = list; i && n < max; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        struct net_candidate *c = &out[n++];
        memset(c, 0, sizeof *c);
        snprintf(c->interface, sizeof c->interface, "%s", i->ifa_name);
        memcpy(&c->address, i->ifa_addr,
               i->ifa_addr->sa_family == AF_INET6 ? sizeof c->address.v6 : sizeof c->address.v4);
        net_set_port(&c->address, 0);
        c->up = (i->ifa_flags & IFF_UP) != 0 && is_assigned(&c->address);
    }
    return n;
}

/* "eth0 10.0.0.1, lo 127.0.0.1" for the error. */
static void describe_candidates(const struct net_candidate *c, size_t candidates, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    char address[NET_TEXT_MAX];
    for (size_t i = 0; i < candidates; i++) {
        if (!is_usable(&c[i]))
            continue;
        int n = snprintf(text + at, size - at, "%s%s %s", at ? ", " : "", c[i].interface,
                         net_format(&c[i].address, address));
        if (n < 0 || (size_t)n >= size - at)
            return;
        at += (size_t)n;
    }
}

int net_local_addresses(const char *const *entry, size_t entries, union net_address *out, size_t max,
                        struct err *e)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        return err_sys(e, errno, "cannot list the network interfaces");
    struct net_candidate candidate[CANDIDATES_MAX];
    size_t candidates = list_candidates(list, candidate, CANDIDATES_MAX);
    freeifaddrs(list);
    int n = net_filter(candidate, candidates, entry, entries, out, max, e);
    if (n != 0)
        return n;
    char text[300];
    describe_candidates(candidate, candidates, text, sizeof text);
    if (entries == 0)
        return err_set(e, ERR_HOST, "no network interface of this host is up");
    return err_set(e, ERR_HOST, "--network-interfaces: '%s'%s matches no address of this host (it has %s)",
                   entry[0], entries > 1 ? " and the others" : "", text);
}

bool net_interface_of(const union net_address *address, char *name, size_t size)
{
    struct ifaddrs *list;
    size_t len = address->any.sa_family == AF_INET6 ? 16 : 4;
    bool found = false;
    if (getifaddrs(&list) < 0)
        return false;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        const union net_address *has = (const union net_address *)(const void *)i->ifa_addr;
        found = has && has->any.sa_family == address->any.sa_family &&
                memcmp(address_bytes(has), address_bytes(address), len) == 0;
        if (found)
            snprintf(name, size, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return found;
}
