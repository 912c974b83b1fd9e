/* System calls in their virtual form (the linker's --wrap): those that wait, those that map shared memory,
 * and those that say who somebody is. All other calls are the real ones, and never wait. */
#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/kernels/reduce.h"
#include "common/net/auth.h"
#include "common/base/clock.h"
#include "tests/sim/sim.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define MAPPINGS 4096
#define FDS      4096

static struct {
    char *base;
    size_t bytes;
    uint64_t inode;
    const struct fiber *owner;
} mapping[MAPPINGS];
static const struct fiber *fd_owner[FDS];
static size_t mappings;
static uintptr_t free_at = (uintptr_t)2 << SIM_SHARED_BITS;

uint64_t clock_now(void)
{
    return sim_now + SEC; /* 0 means never in some places */
}

/* Links of the simulation know one another. */
const struct auth_ops *auth_open(struct err *e)
{
    static const struct auth_ops none;

    (void)e;
    return &none;
}

unsigned system_reset(void)
{
    unsigned left = 0;

    for (size_t i = 0; i < mappings; i++)
        if (mapping[i].base) {
            munmap(mapping[i].base, mapping[i].bytes);
            left++;
        }
    mappings = 0;
    free_at = (uintptr_t)2 << SIM_SHARED_BITS;
    memset(fd_owner, 0, sizeof fd_owner);
    return left;
}

unsigned system_open_files(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

void system_release(const struct fiber *owner)
{
    for (size_t i = 0; i < mappings; i++)
        if (mapping[i].owner == owner && mapping[i].base) {
            munmap(mapping[i].base, mapping[i].bytes);
            mapping[i].base = NULL;
        }
    for (int fd = 0; fd < FDS; fd++)
        if (fd_owner[fd] == owner) {
            close(fd);
            fd_owner[fd] = NULL;
        }
}

static bool in_member(void)
{
    return sim_current && sim_current->role == ROLE_MEMBER;
}

static struct sim_host *my_host(void)
{
    return &job.host[sim_current->host];
}

static int own(int fd)
{
    if (fd >= 0 && fd < FDS && in_member())
        fd_owner[fd] = sim_current;
    return fd;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
/* Other pages in the place of a mapping. */
static void *map_again(void *at, size_t bytes, int prot, int flags, int fd, ino_t inode)
{
    for (size_t i = 0; i < mappings; i++)
        if (mapping[i].base == at)
            mapping[i].inode = inode;
    return __real_mmap(at, bytes, prot, flags, fd, 0);
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    struct stat st;

    if (!(flags & MAP_SHARED) || fd < 0 || mappings == MAPPINGS || fstat(fd, &st) != 0)
        return __real_mmap(at, bytes, prot, flags, fd, offset);
    if (flags & MAP_FIXED)
        return map_again(at, bytes, prot, flags, fd, st.st_ino);
    char *base = __real_mmap((void *)free_at, bytes, prot, flags | MAP_FIXED_NOREPLACE, fd, offset);
    if (base == MAP_FAILED)
        return base;
    free_at += (bytes + (4u << 20)) & ~((uintptr_t)(2u << 20) - 1);
    mapping[mappings].base = base;
    mapping[mappings].bytes = bytes;
    mapping[mappings].inode = st.st_ino;
    mapping[mappings++].owner = sim_current;
    return base;
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes)
{
    for (size_t i = 0; i < mappings && sim_is_shared(at); i++)
        if (mapping[i].base == at)
            mapping[i].base = NULL;
    return __real_munmap(at, bytes);
}

uint64_t system_futex_key(const void *word)
{
    for (size_t i = 0; i < mappings; i++) {
        size_t offset = (size_t)((const char *)word - mapping[i].base);
        if (mapping[i].base && offset < mapping[i].bytes)
            return mapping[i].inode << 40 | (offset + 1);
    }
    return 0;
}

void __real_reduce_range(const struct reduce_job *reduce, size_t first, size_t count);
void __wrap_reduce_range(const struct reduce_job *reduce, size_t first, size_t count);
void __wrap_reduce_range(const struct reduce_job *reduce, size_t first, size_t count)
{
    size_t half = count / 2;

    sim_point();
    __real_reduce_range(reduce, first, half);
    sim_point();
    __real_reduce_range(reduce, first + half, count - half);
    sim_point();
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static long futex_wait(uint32_t *word, uint32_t value, const struct timespec *limit)
{
    uint64_t until = limit ? sim_now + (uint64_t)limit->tv_sec * SEC + (uint64_t)limit->tv_nsec : 0;

    sim_point();
    if (*word != value) {
        errno = EAGAIN;
        return -1;
    }
    sim_current->poked = false;
    sim_current->futex = system_futex_key(word);
    bool woken = fiber_wait(until);
    sim_current->futex = 0;
    if (woken)
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

static long futex_wake(const uint32_t *word)
{
    uint64_t key = system_futex_key(word);
    long woken = 0;

    sim_point();
    for (uint32_t i = 0; i < job.size; i++) {
        struct fiber *f = &job.member[i].fiber;
        if (f->futex != key || f->state != FIBER_WAITING)
            continue;
        f->futex = 0;
        fiber_poke(f);
        woken++;
    }
    return woken;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    va_list args;
    long arg[6];

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        arg[i] = va_arg(args, long);
    va_end(args);
    if (number != SYS_futex)
        return __real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
    if ((arg[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
        return futex_wait((uint32_t *)arg[0], (uint32_t)arg[2], (const struct timespec *)arg[3]);
    return futex_wake((const uint32_t *)arg[0]);
}

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    if (sim_current)
        fiber_yield();
    return 0;
}

/* An engine dies where it waits: there it is whole, so its memory can be given back. */
int __real_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    uint64_t until = timeout > 0 ? sim_now + (uint64_t)timeout * MSEC : 0;
    int n;

    if (++my_host()->waits == my_host()->die_at_wait)
        fiber_die();
    if (timeout == 0)
        fiber_yield();
    while ((n = __real_epoll_wait(fd, events, most, 0)) == 0 && timeout != 0)
        if (!fiber_wait(until))
            break;
    return n;
}

/* ---- a member's sockets -------------------------------------------------------------------------------- */

static void poke_engine(void)
{
    if (in_member())
        fiber_poke(&my_host()->fiber);
}

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
    return own(__real_socket(domain, type, protocol));
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return own(__real_memfd_create(name, flags));
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (fd >= 0 && fd < FDS)
        fd_owner[fd] = NULL;
    poke_engine();
    return __real_close(fd);
}

/* To the engine of its host, with a name by which the engine finds its process. */
int __real_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    struct sim_member *m = &job.member[sim_current->index];

    (void)address, (void)length;
    bind(fd, (struct sockaddr *)&any, sizeof any.sun_family);
    m->name_length = sizeof m->name;
    getsockname(fd, (struct sockaddr *)&m->name, &m->name_length);
    poke_engine();
    return __real_connect(fd, (struct sockaddr *)&my_host()->name, my_host()->name_length);
}

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    poke_engine();
    return __real_write(fd, data, size);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    sim_point();
    poke_engine();
    if (sim_current && sim_current->role == ROLE_ENGINE)
        for (uint32_t i = 0; i < job.size; i++)
            if (job.member[i].fiber.host == sim_current->host && !job.member[i].fiber.futex)
                fiber_poke(&job.member[i].fiber); /* it may wait for this answer */
    return __real_sendmsg(fd, message, flags);
}

static void own_received(const struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR((struct msghdr *)message, c))
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            own(fd);
        }
}

/* A member waits as long as its socket's time-out says, one second. */
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    struct msghdr asked = *message;
    uint64_t until = sim_now + SEC;
    ssize_t n;

    if (!in_member())
        return __real_recvmsg(fd, message, flags);
    do {
        *message = asked;
        n = __real_recvmsg(fd, message, flags | MSG_DONTWAIT);
    } while (n < 0 && errno == EAGAIN && fiber_wait(until));
    if (n > 0)
        own_received(message);
    return n;
}

/* ---- identities of processes --------------------------------------------------------------------------- */

/* Of a member's socket: a descriptor that becomes readable when the member ends. */
static int member_pidfd(int fd)
{
    struct sockaddr_un name;
    socklen_t length = sizeof name;

    if (getpeername(fd, (struct sockaddr *)&name, &length) != 0)
        return -1;
    for (uint32_t i = 0; i < job.size; i++) {
        struct sim_member *m = &job.member[i];
        if (m->name_length != length || memcmp(&m->name, &name, length) != 0)
            continue;
        if (m->pidfd >= 0)
            close(m->pidfd); /* of its former membership */
        m->pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return dup(m->pidfd);
    }
    return -1;
}

int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    if (level != SOL_SOCKET || option != SO_PEERPIDFD)
        return __real_getsockopt(fd, level, option, value, length);
    int pidfd = member_pidfd(fd);
    memcpy(value, &pidfd, sizeof pidfd);
    return pidfd < 0 ? -1 : 0;
}

char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name)
{
    static char text[40];
    struct sim_member *m = in_member() ? &job.member[sim_current->index] : NULL;
    const struct sim_host *h = m ? my_host() : NULL;
    struct {
        const char *name;
        long value;
    } number[] = {{"HVD_SIZE", job.size},
                  {"HVD_RANK", m ? m->rank : 0},
                  {"HVD_LOCAL_SIZE", h ? h->ranks : 0},
                  {"HVD_LOCAL_RANK", m ? m->local : 0},
                  {"HVD_CROSS_SIZE", job.hosts},
                  {"HVD_CROSS_RANK", m ? m->fiber.host : 0},
                  {"HVD_EPOCH", 1}};

    if (!m)
        return __real_getenv(name);
    if (job.elastic && strcmp(name, "HVD_ELASTIC") == 0)
        return snprintf(text, sizeof text, "1"), text;
    if (job.elastic && strcmp(name, "HVD_WORKER") == 0)
        return snprintf(text, sizeof text, "%u", m->rank), text;
    if (strcmp(name, "HVD_WORKER_SOCKET") == 0)
        return snprintf(text, sizeof text, "engine"), text;
    if (strcmp(name, "HVD_JOB_TOKEN") == 0)
        return memset(text, '0', 32), text[32] = '\0', text;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (strcmp(name, number[i].name) == 0)
            return snprintf(text, sizeof text, "%ld", number[i].value), text;
    return NULL;
}

/* As many processors as ranks, or fewer. */
static int processors(void)
{
    return job.crowded ? 1 : 64;
}

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? processors() : __real_sysconf(name);
}

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid, (void)size;
    CPU_ZERO(set);
    for (int i = 0; i < processors(); i++)
        CPU_SET(i, set);
    return 0;
}

/* The processor of a fiber changes as the kernel pleases: a rank is beside its engine now and then. */
int __wrap_sched_getcpu(void);
int __wrap_sched_getcpu(void)
{
    return job.crowded ? 0 : (int)chance_below(&sim_timing, 4);
}
