#include "agent/inspect/stacks_proc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/worker/descendants.h"
#include "common/base/log.h"

#define LISTENS       0x0a
#define PROCESSES_MAX 256
#define FILES_MAX     4096

uint16_t ras_port(const char *text)
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    return port > 0 && port <= UINT16_MAX ? (uint16_t)port : RAS_PORT;
}

/* Words of the kernel, as it has them in memory: the first one is that of the address's first bytes. */
static bool read_address(const char *hex, uint16_t port, struct ras_listener *out)
{
    uint32_t word[4] = {0};
    char part[9] = "";
    size_t words = strlen(hex) / 8;
    for (size_t i = 0; i < words && i < 4; i++) {
        memcpy(part, hex + 8 * i, 8);
        word[i] = (uint32_t)strtoul(part, NULL, 16);
    }
    memset(&out->address, 0, sizeof out->address);
    if (words == 1) {
        struct sockaddr_in *a = (struct sockaddr_in *)&out->address;
        *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        a->sin_addr.s_addr = word[0] ? word[0] : htonl(INADDR_LOOPBACK);
        out->size = sizeof *a;
        return ntohl(a->sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 *a = (struct sockaddr_in6 *)&out->address;
    *a = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&a->sin6_addr, word, sizeof word);
    if (IN6_IS_ADDR_UNSPECIFIED(&a->sin6_addr))
        a->sin6_addr = in6addr_loopback;
    out->size = sizeof *a;
    return IN6_IS_ADDR_LOOPBACK(&a->sin6_addr);
}

bool ras_parse_tcp(const char *line, uint16_t port, unsigned uid, struct ras_listener *out)
{
    char hex[33];
    unsigned at, state, owner;
    if (sscanf(line, " %*u: %32[0-9A-Fa-f]:%4x %*s %2x %*s %*s %*s %u %*u %lu", hex, &at, &state, &owner,
               &out->inode) != 5)
        return false;
    size_t digits = strlen(hex);
    return at == port && state == LISTENS && owner == uid && (digits == 8 || digits == 32) &&
           read_address(hex, port, out);
}

bool ras_find(uint16_t port, struct ras_listener *out)
{
    static const char *const files[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    bool found = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        char line[400];
        FILE *f = fopen(files[i], "re");
        while (f && !found && fgets(line, sizeof line, f))
            found = ras_parse_tcp(line, port, geteuid(), out);
        if (f)
            fclose(f);
    }
    return found;
}

static bool holds_socket(pid_t pid, unsigned long inode)
{
    char path[64], link[64], wanted[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    for (int i = 0; dir && !found && i < FILES_MAX && (entry = readdir(dir)); i++) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        link[length > 0 ? length : 0] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

pid_t ras_holder(pid_t worker, unsigned long inode)
{
    pid_t list[PROCESSES_MAX] = {worker};
    for (size_t i = 0, count = 1; i < count; i++) {
        if (holds_socket(list[i], inode))
            return list[i];
        count += descendants_children(list[i], list + count, PROCESSES_MAX - count);
    }
    return 0;
}

size_t ras_lines(char *text, char *line[RAS_LINES_MAX])
{
    char *begin = strstr(text, "\nCommunicators"), *rest = NULL;
    size_t count = 0;
    for (char *at = strtok_r(begin ? begin : text, "\n", &rest); at && count < RAS_LINES_MAX;
         at = strtok_r(NULL, "\n", &rest)) {
        if (at[strspn(at, "= \t\r")] == '\0')
            continue; /* it underlines a heading */
        if (strlen(at) > RAS_LINE_MAX)
            at[RAS_LINE_MAX] = '\0';
        log_printable(at);
        line[count++] = at;
    }
    return count;
}
