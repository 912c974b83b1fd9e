#include "agent/session/host_facts.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "common/net/net.h"
#include "common/net/port_range.h"

#define PORT_LOWEST 10000 /* below are those of well-known services */
#define PORT_TRIES  64

uint32_t host_slots(const char *visible)
{
    uint32_t gpus = gpu_count();
    if (visible)
        gpus = gpu_count_visible(visible, gpus);
    return gpus ? gpus : 1;
}

/* The first port that the kernel hands out by itself. */
static unsigned first_ephemeral(void)
{
    unsigned first = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (f && fscanf(f, "%u", &first) != 1)
        first = 0;
    if (f)
        fclose(f);
    return first;
}

static uint32_t free_port(unsigned first)
{
    uint32_t port = 0;
    int ignored;
    for (int i = 0; i < PORT_TRIES && port == 0 && first > PORT_LOWEST && first <= UINT16_MAX; i++) {
        uint16_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            break;
        port = port_try((uint16_t)(PORT_LOWEST + random % (first - PORT_LOWEST)), &ignored);
    }
    return port ? port : port_try(0, &ignored);
}

size_t host_free_ports(uint32_t *port, size_t count)
{
    unsigned first = first_ephemeral();
    bool taken[UINT16_MAX + 1] = {true}; /* 0: none was found */
    size_t n = 0;
    for (size_t tries = 2 * count + PORT_TRIES; n < count && tries > 0; tries--) {
        uint32_t p = free_port(first);
        if (!taken[p])
            port[n++] = p;
        taken[p] = true;
    }
    return n;
}

static bool is_listed(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (; *names; names += strcspn(names, ","), names += *names == ',')
        if (strcspn(names, ",") == len && memcmp(names, name, len) == 0)
            return true;
    return false;
}

void host_interfaces(char *const *address, size_t count, char *names, size_t size)
{
    size_t used = 0;
    snprintf(names, size, "%s", count ? "" : "lo");
    for (size_t i = 0; i < count; i++) {
        union net_address a;
        char name[IF_NAMESIZE];
        bool found = net_parse(address[i], 0, &a, NULL) == 0 && net_interface_of(&a, name, sizeof name);
        if (!found || is_listed(names, name) || used + strlen(name) + 2 > size)
            continue;
        used += (size_t)snprintf(names + used, size - used, "%s%s", used ? "," : "", name);
    }
}

int host_addresses(const char *const *filter, size_t filters, char ***out, size_t *count, struct err *e)
{
    union net_address found[NET_ADDRESSES_MAX];
    int n = net_local_addresses(filter, filters, found, NET_ADDRESSES_MAX, e);
    *out = NULL;
    *count = 0;
    if (n < 0)
        return -1;
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        char text[NET_TEXT_MAX];
        if (((*out)[i] = strdup(net_format(&found[i], text))) != NULL)
            ++*count;
    }
    if (*count == (size_t)n)
        return 0;
    host_addresses_free(*out, *count);
    return err_set(e, ERR_MEMORY, "no memory for this host's addresses");
}

void host_addresses_free(char **address, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(address[i]);
    free(address);
}

uint64_t host_shared_memory(void)
{
    struct statvfs v;
    return statvfs("/dev/shm", &v) == 0 ? (uint64_t)v.f_blocks * v.f_frsize : UINT64_MAX;
}
