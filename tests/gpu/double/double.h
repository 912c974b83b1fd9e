/* The inside of the test double of CUDA's driver; the double of NCCL uses it too.
 *
 * A device is a number of bytes of host memory in memfds. A device address is reserved without any access:
 * who touches it as host memory dies, as with a GPU. The double itself reaches the bytes through a second,
 * hidden mapping. A stream is a queue with a thread of its own, which lets a random moment go by before each
 * piece of work, so that an ordering that nobody asked for shows as a wrong result. Handles are numbers and
 * never used twice: whatever was destroyed is known as such for good.
 *
 * Environment (hvdrun gives none of these to ranks without -x; `gpus` in tests/e2e/lib.sh adds those):
 *   HVD_DOUBLE_GPUS=N       devices (1); 0: cuInit finds none. CUDA_VISIBLE_DEVICES counts as usual
 *   HVD_DOUBLE_MEMORY=N     bytes each device has (4 GiB)
 *   HVD_DOUBLE_PEERS=0      no device can use memory of another one
 *   HVD_DOUBLE_BLOCKS=0     an old driver: it does not number what is mapped
 *   HVD_DOUBLE_IPC_EVENTS=N events that a process has for others, or from others, at once (64)
 *   HVD_DOUBLE_DELAY_US=N   longest random delay before a piece of work (100)
 *   HVD_DOUBLE_SEED=N       another sequence of delays
 *   HVD_DOUBLE_FAIL=LIST    function[@RANK]:N[+][:CODE],...: the Nth call of it fails
 *                           (+: and all that follow)
 *                           (RANK: that of HVD_RANK alone; none: who has no rank)
 *                           of ncclKernel, what NCCL has put into a stream, its context fails for good
 *   HVD_DOUBLE_SLOW=WHAT    function[@RANK]:MS: each call of it takes so long
 *   HVD_DOUBLE_REAL=1       as slow as a GPU that ranks share (enum real_ms): the driver's beginning,
 *                           connecting and aborting of NCCL take seconds, ranks take turns; and NCCL
 *                           hears of deaths
 *   HVD_DOUBLE_HEARS=MS     a rank that has waited for others so long in an operation hears from NCCL
 *                           that one of them has gone, as it does before the process has ended
 *   HVD_DOUBLE_TRACE=FILE   one line a call, appended: `PID FUNCTION`
 *                           a wait of the host adds `PID host-sync FUNCTION`
 *                           the end of a process `PID left KIND N`: what was not given back
 *                           a communicator `PID set NCCL_NAME=VALUE` of its environment
 *                           `PID freed-while-open`: memory that another process has open
 *   HVD_DOUBLE_LOG=FILE     one line for each misuse of the interface (standard error)
 *   HVD_DOUBLE_DIR=DIR      where communicators meet across hosts
 *                           (without it they do through /proc of their creator)
 *   HVD_DOUBLE_NCCL=N       the version that NCCL gives (22809)
 *   HVD_DOUBLE_LAZY=N       percent of calls on a non-blocking communicator that are
 *                           in progress at first (10) */
#pragma once

#include "tests/gpu/double/cuda_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { GPUS_MAX = 16, DIRT = 0xa5, DIRTY = 64 << 10 }; /* DIRT fills the first DIRTY bytes of new memory */

/* Of HVD_DOUBLE_REAL, milliseconds. */
enum real_ms { REAL_INIT = 1000, REAL_CONNECT = 4000, REAL_ABORT = 3000, REAL_SLICE = 5 };

/* ---- core.c: settings, what is written down, faults, handles ---- */
int double_fault(
    const char *function); /* traces the call; the code it is to fail with, or 0, or -1: without a code */
/* For a program that finds it by dlsym: from now on these faults, instead of those that are left. */
void double_fail(const char *list);
/* Likewise: a kernel in that stream that goes to an address that is not there. From then on calls in the
 * context return this error, its streams run empty, and the host is not called back. */
void double_illegal(CUstream stream);
void double_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
void double_host_sync(const char *function);
void double_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
long double_setting(const char *name, long otherwise);
bool double_is_slow(void);         /* HVD_DOUBLE_REAL */
void double_take(enum real_ms ms); /* then */
uint64_t double_now_ns(void);

enum handle_kind {
    HANDLE_CONTEXT = 1,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_KERNEL,
    HANDLE_ALLOCATION,
    HANDLE_COMMUNICATOR,
    HANDLE_REGISTRATION,
    HANDLE_KINDS,
};
/* An object is never freed: it stays in the table, where others may still look at it. */
void *double_handle_new(enum handle_kind kind, void *object);
void *double_handle_get(enum handle_kind kind,
                        const void *handle); /* NULL, with a line, when there is no such one */
void double_handle_drop(enum handle_kind kind, const void *handle);

void double_futex_wait(_Atomic uint32_t *word, uint32_t seen);
void double_futex_wake(_Atomic uint32_t *word);

/* ---- segment.c: memory that processes share ---- */
struct segment {
    int fd;
    size_t size;
    void *at;
    char path[160]; /* of its file in HVD_DOUBLE_DIR; empty for a memfd */
};
struct segment_name { /* fits into any handle of CUDA and NCCL */
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t inode, size, id;
    uint64_t base; /* of memory of a device: its address there */
};
bool double_segment_new(struct segment *segment, size_t size,
                        bool anywhere); /* anywhere: may be a file in HVD_DOUBLE_DIR */
void double_segment_tell(const struct segment *segment, struct segment_name *name);
bool double_segment_open(struct segment *segment, const struct segment_name *name,
                         size_t size); /* maps it as well */
bool double_segment_grow(struct segment *segment, size_t size);
/* Of one that was opened: until it is closed its maker knows. */
bool double_segment_hold(const struct segment *segment);
bool double_segment_is_held(const struct segment *segment);
void double_segment_close(struct segment *segment);

/* ---- context.c ---- */
struct context {
    CUcontext handle;
    int device;
    int retained;
    _Atomic int error;     /* sticky, as after an illegal address */
    pthread_mutex_t order; /* of what is put into its streams */
    struct stream *streams, *legacy;
    _Atomic size_t used;
};
CUresult double_enter(const char *function); /* first call of each CUDA function */
CUresult double_enter_context(const char *function, struct context **context);
int double_device_count(void);
int double_device_physical(int device);
bool double_are_peers(int device, int other); /* they can use each other's memory */
void double_device_uuid(int device, unsigned char uuid[16]);
struct context *double_primary(int device);
void double_context_current(struct context **context);

#define ENTER(function)                                                                                      \
    do {                                                                                                     \
        CUresult early_ = double_enter(function);                                                            \
        if (early_)                                                                                          \
            return early_;                                                                                   \
    } while (0)
#define ENTER_CONTEXT(function, context)                                                                     \
    do {                                                                                                     \
        CUresult early_ = double_enter_context(function, &(context));                                        \
        if (early_)                                                                                          \
            return early_;                                                                                   \
    } while (0)

/* ---- capture.c: streams that are captured into graphs, which stay empty ---- */
CUresult double_capture_minds(const char *function); /* a call that spoils captures of others */
bool double_capture_minds_threads(void);             /* a library's own thread works meanwhile */
bool double_capture_spoil(CUstream stream);          /* if it is captured */

/* ---- stream.c ---- */
struct stream;
typedef void (*stream_work)(struct context *context, void *argument); /* frees its argument */
/* NULL is the legacy default stream of `current`, 2 the default stream of this thread. NULL: no such stream,
 * and said. */
struct stream *double_stream_get(CUstream handle, struct context *current);
struct context *double_stream_context(const struct stream *stream);
uint64_t double_stream_push(struct stream *stream, stream_work run, void *argument); /* its number */
void double_stream_after(struct stream *stream,
                         struct stream *other); /* goes on when that has done what it has now */
void double_streams_drain(struct context *context);

/* ---- memory.c ---- */
enum range_kind { RANGE_DEVICE, RANGE_IPC, RANGE_MAPPED, RANGE_PINNED, RANGE_REGISTERED };
struct range {
    struct range *next;
    enum range_kind kind;
    uint64_t base, id;
    size_t size, asked;      /* asked: of cuMemAlloc, without the rest of the last page */
    char *alias;             /* the address at which the double reads and writes it */
    struct context *context; /* of cuMemAlloc; NULL: the primary one */
    int device, opened;
    unsigned access; /* a bit for each device that can use it: */
    int registered;  /* with how many communicators */
    struct segment segment;
    struct segment_name from; /* of an opened handle */
    struct allocation *allocation;
};
struct range *double_range_new(enum range_kind kind, int device, uint64_t base, size_t size, char *alias);
struct context *double_range_context(const struct range *r);
bool double_range_find(uint64_t address, size_t bytes, struct range *copy);
#define EVERY_DEVICE (~0u) /* as long as NCCL or the program lets them, which is not looked at */
/* The first one of those in which the bytes lie: more than one only if they are mappings one behind the other
 * in one reservation. All are of one device, which can use them. */
bool double_range_usable(uint64_t address, size_t bytes, struct range *copy);
/* Likewise, and that device can use them, too. */
bool double_range_usable_by(int device, uint64_t address, size_t bytes, struct range *copy);
bool double_range_take(uint64_t base, enum range_kind kind, struct range *copy); /* out of the table */
struct range *double_range_each(bool (*keep)(struct range *range, void *argument), void *argument);
/* The double's own address of these bytes, if they are allocated device memory or registered host memory;
 * else NULL. */
char *double_reach(uint64_t address, size_t bytes);
char *double_reach_or_break(struct context *context, uint64_t address, size_t bytes, const char *what);

/* ---- kernels.c: what stands in for kernels ---- */
enum { KERNEL_PARAMS = 12, KERNEL_BYTES = 4096 };
struct double_launch {
    struct context *context;
    unsigned grid[3], block[3];
    void *values[KERNEL_PARAMS]; /* in store */
    _Alignas(16) unsigned char store[KERNEL_BYTES];
};
struct double_kernel {
    const char *name;
    unsigned short sizes[KERNEL_PARAMS]; /* of its parameters; 0 ends them */
    void (*run)(const struct double_launch *launch);
};
const struct double_kernel *double_kernel_named(const char *name);
