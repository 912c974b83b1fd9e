#include "agent/host_facts.h"

#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net.h"

static uint32_t count_entries(const char *dir, bool (*wanted)(const char *name))
{
    DIR *d = opendir(dir);
    uint32_t n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += wanted(entry->d_name);
    if (d)
        closedir(d);
    return n;
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static bool is_device(const char *name)
{
    if (strncmp(name, "nvidia", 6) != 0 || !name[6])
        return false;
    for (const char *p = name + 6; *p; p++)
        if (!isdigit((unsigned char)*p))
            return false;
    return true;
}

/* CUDA's rule: entries count up to the first one that names no device. */
static uint32_t count_visible(const char *list, uint32_t gpus)
{
    uint32_t n = 0;
    while (n < gpus) {
        char *end;
        long index = strtol(list, &end, 10);
        bool number = end != list && (*end == ',' || *end == '\0');
        bool uuid = strncmp(list, "GPU-", 4) == 0 || strncmp(list, "MIG-", 4) == 0;
        if (!uuid && !(number && index >= 0 && (unsigned long)index < gpus))
            break;
        n++;
        list += strcspn(list, ",");
        if (*list++ != ',')
            break;
    }
    return n;
}

uint32_t host_slots(const char *proc_dir, const char *dev_dir, const char *visible)
{
    uint32_t gpus = count_entries(proc_dir, is_visible);
    if (gpus == 0)
        gpus = count_entries(dev_dir, is_device);
    if (visible)
        gpus = count_visible(visible, gpus);
    return gpus ? gpus : 1;
}

uint32_t host_free_port(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t len = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint32_t port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0 &&
        getsockname(fd, (struct sockaddr *)&any, &len) == 0)
        port = ntohs(any.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
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
