#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/inspect/stacks_proc.h"
#include "agent/worker/descendants.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define PROCESSES_MAX 128 /* that are looked at for the other end of a pipe */
#define FILES_MAX     256 /* likewise, of each */
#define LOCKS_MAX     (64u << 10)
#define LINK_SIZE     160

static void add_text(struct inspected_process *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_text(struct inspected_process *p, const char *fmt, ...)
{
    size_t used = strlen(p->waits);
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->waits + used, sizeof p->waits - used, fmt, args);
    va_end(args);
}

/* False when there is no such descriptor, or it may not be read. */
static bool read_link(pid_t pid, long fd, char *to)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%ld", (int)pid, fd);
    ssize_t n = readlink(path, to, LINK_SIZE - 1);
    to[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Behind the words that name something of another process. */
static void add_process(struct inspected_process *p, pid_t pid)
{
    struct inspected_process other;
    bool ignored;
    if (!inspect_read(pid, &other, &ignored)) {
        add_text(p, "pid %d", (int)pid);
        return;
    }
    add_text(p, "%s (pid %d)", other.name, (int)pid);
    if (other.state == 'T')
        add_text(p, ", which is stopped");
}

/* ---- pipes --------------------------------------------------------------------------------------------- */

/* O_RDONLY, O_WRONLY or O_RDWR; -1: not known. */
static int read_access(pid_t pid, long fd)
{
    char path[64], text[256];
    unsigned flags;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%ld", (int)pid, fd);
    if (file_read(path, 0, text, sizeof text) <= 0)
        return -1;
    const char *at = strstr(text, "flags:");
    return at && sscanf(at, "flags: %o", &flags) == 1 ? (int)flags & O_ACCMODE : -1;
}

static bool has_end(pid_t pid, const char *pipe, int access)
{
    char path[64], link[LINK_SIZE];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    for (int i = 0; dir && !found && i < FILES_MAX && (entry = readdir(dir)) != NULL; i++) {
        long fd = entry->d_name[0] == '.' ? -1 : strtol(entry->d_name, NULL, 10);
        found = fd >= 0 && read_link(pid, fd, link) && strcmp(link, pipe) == 0 &&
                (read_access(pid, fd) == access || read_access(pid, fd) == O_RDWR);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* A process of the job with the other end; its own is the last choice. 0: there is none. */
static pid_t find_end(pid_t pid, const char *pipe, int access)
{
    pid_t list[PROCESSES_MAX] = {getpid()};
    size_t count = 1;
    for (size_t i = 0; i < count; i++) {
        if (list[i] != pid && has_end(list[i], pipe, access))
            return list[i];
        count += descendants_children(list[i], list + count, PROCESSES_MAX - count);
    }
    return has_end(pid, pipe, access) ? pid : 0;
}

static void find_pipe(struct inspected_process *p, long fd, const char *pipe)
{
    bool reads = read_access(p->pid, fd) == O_RDONLY;
    pid_t other = find_end(p->pid, pipe, reads ? O_WRONLY : O_RDONLY);
    if (other == 0)
        return;
    if (other == p->pid) {
        add_text(p, " of a pipe that only this process holds");
        return;
    }
    if (other == getpid()) { /* the session has the other ends of the standard streams */
        add_text(p, reads ? " of its standard input" : ": hvdrun has not taken its output");
        return;
    }
    add_text(p, " of a pipe %s ", reads ? "from" : "to");
    add_process(p, other);
    p->holder = other;
}

/* ---- locks --------------------------------------------------------------------------------------------- */

pid_t peers_lock_holder(const char *locks, pid_t waiter)
{
    int holder = 0;
    for (const char *line = locks; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        int pid;
        if (sscanf(line, "%*u: -> %*s %*s %*s %d", &pid) == 1) {
            if (pid == waiter)
                return holder;
        } else if (sscanf(line, "%*u: %*s %*s %*s %d", &pid) == 1) {
            holder = pid;
        }
    }
    return 0;
}

static void find_lock(struct inspected_process *p)
{
    char *locks = malloc(LOCKS_MAX);
    pid_t holder = 0;
    if (locks && file_read("/proc/locks", 0, locks, LOCKS_MAX) > 0)
        holder = peers_lock_holder(locks, p->pid);
    free(locks);
    if (holder <= 0)
        return;
    add_text(p, ", locked by ");
    add_process(p, holder);
    p->holder = holder;
}

/* ---- connections --------------------------------------------------------------------------------------- */

void peers_parse_tcp(const char *line, unsigned long inode, char *out, size_t size)
{
    char local[33], remote[33], address[INET6_ADDRSTRLEN];
    unsigned port, unsent;
    unsigned long found;
    uint32_t word[4] = {0};
    out[0] = '\0';
    if (sscanf(line, " %*u: %32[0-9A-F]:%*x %32[0-9A-F]:%x %*x %x:%*x %*x:%*x %*x %*u %*u %lu", local, remote,
               &port, &unsent, &found) != 5 ||
        found != inode)
        return;
    size_t words = strlen(remote) / 8;
    for (size_t i = 0; i < words; i++) /* in the machine's order, each */
        if (sscanf(remote + 8 * i, "%8" SCNx32, &word[i]) != 1)
            return;
    if (port == 0 || !inet_ntop(words == 4 ? AF_INET6 : AF_INET, word, address, sizeof address))
        return;
    int n = snprintf(out, size, words == 4 ? "[%s]:%u" : "%s:%u", address, port);
    if (unsent > 0 && n > 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, ", which has not taken %u bytes", unsent);
}

static bool find_in_table(const struct inspected_process *p, const char *table, unsigned long inode,
                          char *out, size_t size)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)p->pid, table);
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file))
        peers_parse_tcp(line, inode, out, size);
    if (file)
        (void)fclose(file);
    return out[0] != '\0';
}

static void find_connection(struct inspected_process *p, unsigned long inode)
{
    char peer[120];
    if (find_in_table(p, "tcp", inode, peer, sizeof peer) ||
        find_in_table(p, "tcp6", inode, peer, sizeof peer))
        add_text(p, " of a connection to %s", peer);
    else
        add_text(p, " of a socket");
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static bool is_one_of(long call, const long *list, size_t count)
{
    size_t i = 0;
    while (i < count && list[i] != call)
        i++;
    return i < count;
}

/* The path is in the memory of the process. */
static void find_path(struct inspected_process *p, uint64_t address)
{
    char memory[64], path[LINK_SIZE] = "";
    snprintf(memory, sizeof memory, "/proc/%d/mem", (int)p->pid);
    int fd = open(memory, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, path, sizeof path - 1, (off_t)address) : -1;
    if (fd >= 0)
        close(fd);
    path[n > 0 ? n : 0] = '\0';
    log_printable(path);
    if (path[0])
        add_text(p, " of %s", path);
}

void peers_find(struct inspected_process *p)
{
    static const long with_file[] = {SYS_read,     SYS_write,  SYS_readv,     SYS_writev,  SYS_pread64,
                                     SYS_pwrite64, SYS_fsync,  SYS_flock,     SYS_fcntl,   SYS_recvfrom,
                                     SYS_recvmsg,  SYS_sendto, SYS_fdatasync, SYS_sendmsg, SYS_accept,
                                     SYS_accept4,  SYS_connect};
    char link[LINK_SIZE];
    unsigned long inode;
    if (p->state != 'S' && p->state != 'D')
        return;
    if (p->call == SYS_openat)
        find_path(p, p->argument[1]);
    if (!is_one_of(p->call, with_file, sizeof with_file / sizeof *with_file))
        return;
    long fd = (int)p->argument[0];
    if (!read_link(p->pid, fd, link))
        return;
    if (link[0] == '/') {
        log_printable(link);
        add_text(p, " of %s", link);
        find_lock(p);
    } else if (strncmp(link, "pipe:", 5) == 0) {
        find_pipe(p, fd, link);
    } else if (sscanf(link, "socket:[%lu]", &inode) == 1) {
        find_connection(p, inode);
    }
}
