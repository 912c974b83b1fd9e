/* Preloaded into a job: the Nth call of one kind fails in one of its processes.
 *
 *   COUNTDOWN=KIND:N@PROCESS   as malloc:17@session; COUNTDOWN_MARK names a file that tells where it happened
 *
 * PROCESS is hvdrun, guard, session or engine. hvdagent is the guard; the child that it forks is the session,
 * whose count begins there. The variable's name is not one of ours (HVD_...), so the environment of the
 * workers keeps it and the engine gets it with that; a worker is no such process, and nothing is counted in
 * it.
 *
 * Kinds: malloc; read, write and connect (everything that makes a descriptor or a mapping) fail for good;
 * read-eintr, read-eagain, read-short, write-eintr, write-eagain and write-short are what a caller has to
 * bear; write-nobufs is of sockets; fork. An error is what the descriptor could really say: a pipe that is
 * read has none, an eventfd neither, so they are not counted. Nor is standard error (when that fails nobody
 * can be told), a worker's stdin (when a worker closes it that is no fault), and the pipe that libuv makes
 * once for itself: it aborts without it. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FRAMES 24

enum kind {
    NOTHING,
    MALLOC,
    READ,
    READ_EINTR,
    READ_EAGAIN,
    READ_SHORT,
    WRITE,
    WRITE_EINTR,
    WRITE_EAGAIN,
    WRITE_SHORT,
    WRITE_NOBUFS,
    FORK,
    CONNECT
};
static const char *const kinds[] = {
    "",        "malloc",      "read",         "read-eintr",  "read-eagain",  "read-short",
    "write",   "write-eintr", "write-eagain", "write-short", "write-nobufs", "fork",
    "connect",
};

static enum kind armed;
static unsigned long wanted;
static atomic_ulong counted;
static char process[16]; /* the process that counts its calls */
static pid_t home;       /* its id; a vfork child shares our memory, but has another id */
static int own_pipe[2] = {-1, -1};

/* The next definition of the function in which it stands. */
#define NEXT(function)                                                                                       \
    static __typeof__(function) *next;                                                                       \
    if (!next)                                                                                               \
    next = (__typeof__(function) *)dlsym(RTLD_NEXT, #function)

/* ---- counting ------------------------------------------------------------------------------------------ */

static void tell(const char *function)
{
    void *frame[FRAMES];
    const char *mark = getenv("COUNTDOWN_MARK");
    int saved = errno,
        fd = mark ? (int)syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    if (fd >= 0) {
        dprintf(fd, "%s\n", function);
        if (getpid() == home) /* else on a stack of a few KiB */
            backtrace_symbols_fd(frame, backtrace(frame, FRAMES), fd);
        syscall(SYS_close, fd);
    }
    errno = saved;
}

/* Is this the call? */
static bool now(enum kind kind, const char *function)
{
    if (armed != kind || atomic_fetch_add(&counted, 1) + 1 != wanted)
        return false;
    armed = NOTHING;
    tell(function);
    return true;
}

static void aim(const char *role)
{
    const char *text = getenv("COUNTDOWN");
    char kind[16];
    armed = NOTHING;
    if (!text || sscanf(text, "%15[a-z-]:%lu@%15s", kind, &wanted, process) != 3 ||
        strcmp(process, role) != 0)
        return;
    atomic_store(&counted, 0);
    home = getpid();
    for (size_t i = 1; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0)
            armed = (enum kind)i;
}

static void __attribute__((constructor)) begin(void)
{
    void *frame[2];
    (void)backtrace(frame, 2); /* it opens libgcc the first time */
    const char *name = program_invocation_short_name;
    aim(strcmp(name, "hvdagent") == 0 ? "guard" : strcmp(name, "hvd-engine") == 0 ? "engine" : name);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static bool no_memory(const char *function)
{
    if (!now(MALLOC, function))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return no_memory("malloc") ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return no_memory("calloc") ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return no_memory("realloc") ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory("aligned_alloc") ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = no_memory("posix_memalign") ? NULL : __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

/* ---- reading and writing ------------------------------------------------------------------------------- */

enum what { STREAM, PIPE, TTY, FILE_, OTHER };

static enum what look(int fd)
{
    struct stat st;
    int type = 0;
    socklen_t size = sizeof type;
    if (fd == own_pipe[0] || fd == own_pipe[1] || fstat(fd, &st) < 0)
        return OTHER;
    if (S_ISSOCK(st.st_mode))
        return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM ? STREAM : OTHER;
    return S_ISFIFO(st.st_mode) ? PIPE : S_ISREG(st.st_mode) ? FILE_ : S_ISCHR(st.st_mode) ? TTY : OTHER;
}

static bool fail_with(int error)
{
    errno = error;
    return true;
}

static bool may_wait(int fd, int flags)
{
    return (flags & MSG_DONTWAIT) || (fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static bool read_fails(int fd, int flags, const char *function)
{
    enum what what = armed >= READ && armed <= READ_SHORT ? look(fd) : OTHER;
    if (what == OTHER)
        return false;
    if (armed == READ && what != PIPE && now(READ, function))
        return fail_with(what == STREAM ? ECONNRESET : EIO);
    if (armed == READ_EAGAIN && may_wait(fd, flags) && what != FILE_ && now(READ_EAGAIN, function))
        return fail_with(EAGAIN);
    return armed == READ_EINTR && now(READ_EINTR, function) && fail_with(EINTR);
}

static bool write_fails(int fd, int flags, const char *function)
{
    enum what what = armed >= WRITE && armed <= WRITE_NOBUFS ? look(fd) : OTHER;
    if (what == OTHER || (fd == STDERR_FILENO && armed == WRITE))
        return false;
    if (armed == WRITE && what == PIPE && strcmp(process, "session") == 0)
        return false;
    if (armed == WRITE && now(WRITE, function))
        return fail_with(what == FILE_ ? ENOSPC : what == TTY ? EIO : EPIPE);
    if (armed == WRITE_EAGAIN && may_wait(fd, flags) && what != FILE_ && now(WRITE_EAGAIN, function))
        return fail_with(EAGAIN);
    if (armed == WRITE_NOBUFS && what == STREAM && now(WRITE_NOBUFS, function))
        return fail_with(ENOBUFS);
    return armed == WRITE_EINTR && now(WRITE_EINTR, function) && fail_with(EINTR);
}

/* A byte is a beginning; all of one byte cannot be shortened. */
static size_t shortened(int fd, size_t size, enum kind kind, const char *function)
{
    if (size < 2 || armed != kind)
        return size;
    enum what what = look(fd);
    return what != OTHER && what != TTY && now(kind, function) ? 1 : size;
}

ssize_t read(int fd, void *bytes, size_t size)
{
    NEXT(read);
    return read_fails(fd, 0, "read") ? -1 : next(fd, bytes, shortened(fd, size, READ_SHORT, "read"));
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    NEXT(recv);
    return read_fails(fd, flags, "recv") ? -1
                                         : next(fd, bytes, shortened(fd, size, READ_SHORT, "recv"), flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    NEXT(recvmsg);
    return read_fails(fd, flags, "recvmsg") ? -1 : next(fd, msg, flags);
}

ssize_t readv(int fd, const struct iovec *part, int count)
{
    NEXT(readv);
    return read_fails(fd, 0, "readv") ? -1 : next(fd, part, count);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    NEXT(write);
    return write_fails(fd, 0, "write") ? -1 : next(fd, bytes, shortened(fd, size, WRITE_SHORT, "write"));
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    NEXT(send);
    return write_fails(fd, flags, "send") ? -1
                                          : next(fd, bytes, shortened(fd, size, WRITE_SHORT, "send"), flags);
}

ssize_t writev(int fd, const struct iovec *part, int count)
{
    NEXT(writev);
    if (write_fails(fd, 0, "writev"))
        return -1;
    if (count > 0 && part[0].iov_len > 1 && shortened(fd, 2, WRITE_SHORT, "writev") == 1)
        return write(fd, part[0].iov_base, 1);
    return next(fd, part, count);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    NEXT(sendmsg);
    /* Descriptors are passed where there is room: in a socket's first message, and in the one answer to a
     * question. */
    if (armed != WRITE_EAGAIN && write_fails(fd, flags, "sendmsg"))
        return -1;
    if (msg->msg_iovlen > 0 && msg->msg_iov[0].iov_len > 1 && shortened(fd, 2, WRITE_SHORT, "sendmsg") == 1) {
        struct iovec one = {msg->msg_iov[0].iov_base, 1};
        struct msghdr part = *msg;
        part.msg_iov = &one;
        part.msg_iovlen = 1;
        return next(fd, &part, flags);
    }
    return next(fd, msg, flags);
}

/* ---- calls that make descriptors and mappings ---------------------------------------------------------- */

static bool none_left(const char *function, int error)
{
    return now(CONNECT, function) && fail_with(error);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return none_left("open", EMFILE) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return none_left("openat", ENFILE) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

/* libuv and others are built for large files; here these are the same. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return none_left("fopen", EMFILE) ? NULL : next(path, mode);
}

int socket(int domain, int type, int protocol)
{
    NEXT(socket);
    return none_left("socket", EMFILE) ? -1 : next(domain, type, protocol);
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
    NEXT(socketpair);
    return none_left("socketpair", EMFILE) ? -1 : next(domain, type, protocol, pair);
}

int pipe2(int pair[2], int flags)
{
    NEXT(pipe2);
    Dl_info caller;
    if (own_pipe[0] < 0 && dladdr(__builtin_return_address(0), &caller) && caller.dli_sname &&
        strcmp(caller.dli_sname, "uv_pipe") == 0) {
        int rc = next(own_pipe, flags);
        memcpy(pair, own_pipe, sizeof own_pipe);
        return rc;
    }
    return none_left("pipe2", ENFILE) ? -1 : next(pair, flags);
}

int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    NEXT(accept4);
    return none_left("accept4", EMFILE) ? -1 : next(fd, address, size, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    NEXT(connect);
    return none_left("connect", ECONNREFUSED) ? -1 : next(fd, address, size);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap);
    return none_left("mmap", ENOMEM) ? MAP_FAILED : next(at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

int memfd_create(const char *name, unsigned flags)
{
    NEXT(memfd_create);
    return none_left("memfd_create", ENFILE) ? -1 : next(name, flags);
}

int epoll_create1(int flags)
{
    NEXT(epoll_create1);
    return none_left("epoll_create1", EMFILE) ? -1 : next(flags);
}

/* Their headers would declare them otherwise in other versions of libc; they are told by name alone. */
int eventfd(unsigned value, int flags);
int eventfd(unsigned value, int flags)
{
    return none_left("eventfd", EMFILE) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

int signalfd(int fd, const sigset_t *set, int flags);
int signalfd(int fd, const sigset_t *set, int flags)
{
    NEXT(signalfd);
    return none_left("signalfd", EMFILE) ? -1 : next(fd, set, flags);
}

int timerfd_create(int clock, int flags);
int timerfd_create(int clock, int flags)
{
    return none_left("timerfd_create", EMFILE) ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

/* ---- processes ----------------------------------------------------------------------------------------- */

pid_t fork(void)
{
    NEXT(fork);
    if (now(FORK, "fork"))
        return fail_with(EAGAIN) ? -1 : 0;
    pid_t child = next();
    if (child == 0 && strcmp(program_invocation_short_name, "hvdagent") == 0)
        aim("session");
    return child;
}

/* For the clone3 of common/process/spawn.c where that copies memory; pidfd_open also makes a descriptor. */
long syscall(long number, ...)
{
    typedef long system_call(long number, ...);
    static system_call *next;
    long word[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        word[i] = va_arg(args, long);
    va_end(args);
    if (!next)
        next = (system_call *)dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_clone3 && now(FORK, "clone3"))
        return fail_with(EAGAIN) ? -1 : 0;
    if (number == SYS_pidfd_open && none_left("pidfd_open", EMFILE))
        return -1;
    return next(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
