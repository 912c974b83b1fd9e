/* hvd.h - collective operations for the workers of a distributed training job.
 *
 * USE. A worker started by hvdrun calls hvd_init, any number of operations, then hvd_shutdown. All ranks
 * call the same operations with the same names; the order may differ between ranks. A program that was
 * started without hvdrun is a job of one rank. README.md has a whole worker, examples/train a whole
 * trainer, hvd(3) and its pages the same contract at more length. Compile with `pkg-config --cflags --libs
 * hvd`.
 *
 * RESULTS. A function that can fail returns HVD_SUCCESS (0) or a negative hvd_status. hvd_last_error() then
 * has one sentence about the failure. After any error an output buffer is undefined; an input buffer is
 * unchanged, unless it is the output as well. Every operation may return HVD_ERR_NOT_INITIALIZED,
 * HVD_ERR_FORKED, HVD_ERR_INVALID, HVD_ERR_MEMORY, HVD_ERR_IN_PROGRESS, HVD_ERR_MISMATCH, HVD_ERR_PEER and
 * HVD_ERR_ENGINE. Comments at a call list further statuses, or refine these.
 *
 * FAILURES. Every wait ends. When a rank dies, every pending call on every other rank returns HVD_ERR_PEER,
 * and the sentence names rank, host and cause. After HVD_ERR_PEER or HVD_ERR_ENGINE the job has failed:
 * only hvd_shutdown is useful. After any other error the job goes on.
 *
 * UNITS. Counts are of elements or of rows, never of bytes; only hvd_alloc, hvd_alloc_lasting and
 * hvd_alloc_device take bytes. Ranks and indices count from 0.
 *
 * OWNERSHIP. Strings, options and arrays that are only read belong to the caller, and may be freed when the
 * call returns. A buffer of elements and an array that a call fills belong to the operation until its end:
 * the call's return or, for an asynchronous one, the return of hvd_wait. Until then the caller may read
 * inputs, and must touch nothing else. Memory that the library returns is freed only by the function that
 * is named there.
 *
 * THREADS. Any thread may call any function, except hvd_init and hvd_shutdown: one thread calls these while
 * no other thread is in a call of this header. One thread waits for a handle; it need not be the thread
 * that got the handle. hvd_last_error is per thread. No function may be called from a signal handler, and
 * none installs one. After fork() the child's calls return HVD_ERR_FORKED.
 *
 * BUFFERS. Any pointer works. Memory from hvd_alloc lies in the job's shared memory. The other ranks of the
 * host read and write it in place, so it is the fast way.
 *
 * GPUS. A buffer may be memory of a CUDA device, on all ranks or on none (HVD_ERR_MISMATCH). The operation
 * reads it after all earlier work of options->stream, and later work in that stream finds the result. The
 * operation does not wait for the device. The rules are in hvd(3), "Device memory".
 *
 * DETERMINISM. A result has the same bits on every rank, and from run to run with the same placement of
 * ranks on hosts. Sums and products of floating point may have other bits for another placement, since each
 * host combines its ranks first. On devices NCCL has its own order and rounding.
 *
 * ROUNDING, on the host. float16 and bfloat16 are combined as float32. The result is rounded once, to the
 * nearest, ties to even. So their average or sum is infinite only if the result is too large, or a sum
 * exceeds float32. An average between hosts is rounded once more, if these have several ranks each, equally
 * many: each host's part is its own average, rounded. This also holds for a sum that prescale and postscale
 * make as small.
 *
 * NUMBERS, on the host. A NaN among the elements makes a sum, average, product, minimum or maximum a NaN:
 * the quiet one without a sign. Only the element of a single rank that is not scaled keeps its bits. For
 * HVD_MIN and HVD_MAX, 0 and -0 are equal; the last of equal elements counts, in the order of hosts and of
 * ranks.
 *
 * INTEGERS, on the host. Sums and products wrap. An average is the wrapped sum divided, toward zero. A
 * scaled integer is multiplied as a double and cut toward zero; beyond its range it becomes the end of the
 * range.
 *
 * STABILITY. A program that was linked to libhvd.so.0 runs with every later libhvd.so.0. Numbers in here
 * never change. Only new functions, new numbers and new members of hvd_options (in place of reserved ones)
 * are added. Enumerations have the size of an int: do not compile with -fshort-enums. */
#ifndef HVD_H
#define HVD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The version of this header. hvd_version() is the version of the library that the program runs with. */
#define HVD_VERSION_MAJOR 0
#define HVD_VERSION_MINOR 2

/* Results of calls. Negative means failure. Later versions may add statuses. */
typedef enum hvd_status {
    HVD_SUCCESS = 0,
    HVD_ERR_NOT_INITIALIZED = -1, /* hvd_init was not called, or hvd_shutdown was */
    HVD_ERR_INVALID = -2,         /* an argument is wrong; nothing was started */
    HVD_ERR_MISMATCH = -3,        /* the ranks disagree about an operation; names the tensor and the ranks */
    HVD_ERR_PEER = -4,            /* another rank or its host has gone; names rank, host and cause */
    HVD_ERR_ENGINE = -5,          /* an engine has gone, has stopped or cannot go on; names it */
    HVD_ERR_MEMORY = -6,          /* no (shared) memory */
    HVD_ERR_FORKED = -7,          /* called in a child made by fork() */
    HVD_ERR_SYSTEM = -8,          /* a system call failed; names it */
    HVD_ERR_IN_PROGRESS = -9,     /* an operation of this name is pending already */
    HVD_ERR_SET_UNKNOWN = -10,    /* the process set does not exist */
    HVD_ERR_SET_FOREIGN = -11,    /* this rank is not in the process set */
    HVD_ERR_SET_EXISTS = -12,     /* there is a process set of these ranks already */
    HVD_ERR_TIMEOUT = -13,        /* the time of hvd_wait_for has passed; the operation is pending */
    HVD_ERR_LEFT = -14            /* this worker is not among the ranks of its elastic job any more */
} hvd_status;

/* Element types; Horovod's numbers first. */
typedef enum hvd_dtype {
    HVD_UINT8 = 0,
    HVD_INT8 = 1,
    HVD_UINT16 = 2,
    HVD_INT16 = 3,
    HVD_INT32 = 4,
    HVD_INT64 = 5,
    HVD_FLOAT16 = 6, /* IEEE 754 binary16 */
    HVD_FLOAT32 = 7,
    HVD_FLOAT64 = 8,
    HVD_BOOL = 9,      /* one byte, 0 or not */
    HVD_BFLOAT16 = 10, /* the upper half of a float32 */
    HVD_UINT32 = 11,
    HVD_UINT64 = 12,
    HVD_FLOAT8_E4M3 = 13, /* 8 bits: combined on devices only, by an NCCL that can; moved anywhere */
    HVD_FLOAT8_E5M2 = 14
} hvd_dtype;

/* How elements are combined; Horovod's numbers first. */
typedef enum hvd_op {
    HVD_AVERAGE = 0, /* the sum divided by the number of ranks; of integers toward zero */
    HVD_SUM = 1,     /* integers wrap */
    HVD_ADASUM = 2,  /* floating point, a power of two of ranks; not scaled, not of groups */
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5, /* integers wrap */
    HVD_BAND = 6,    /* bits, of integers and bool: and, or, exclusive or */
    HVD_BOR = 7,
    HVD_BXOR = 8,
    HVD_LAND = 9, /* truth, of integers and bool; the result is 0 or 1 */
    HVD_LOR = 10,
    HVD_LXOR = 11
} hvd_op;

/* The type of float32 elements between hosts, in an allreduce or reducescatter. Other operations,
 * HVD_ADASUM and data within a host are never compressed. Each host's part and the result are rounded to
 * this type. A number that is too large for it (for float16 65520 and more) becomes infinite. A host's part
 * is the combination of its ranks' elements. For an average, and for a sum that prescale and postscale make
 * as small, a host's part is the average of its ranks. */
typedef enum hvd_compression {
    HVD_COMPRESSION_NONE = 0,
    HVD_COMPRESSION_FLOAT16 = 1,
    HVD_COMPRESSION_BFLOAT16 = 2
} hvd_compression;

/* A process set: the ranks that take part in an operation. */
typedef int32_t hvd_set;
#define HVD_WORLD 0 /* all ranks */

/* The stream that 0 means in a kernel launch or a copy of the same source file, for hvd_options.stream. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM /* nvcc --default-stream per-thread */
#define HVD_DEFAULT_STREAM ((void *)2)    /* cudaStreamPerThread: of the thread that calls */
#else
#define HVD_DEFAULT_STREAM ((void *)0)
#endif

/* Options of an operation. A NULL pointer means all zeros, and zeros mean the defaults. Start from
 * `hvd_options options = {0}`, in C++ `= {}`. All ranks must give the same options, but for will_wait. */
typedef struct hvd_options {
    hvd_set set;                 /* default HVD_WORLD; ranks in arguments are then indices in the set */
    double prescale;             /* factor of every input before it is combined; 0 means 1 */
    double postscale;            /* factor of the result; 0 means 1 */
    hvd_compression compression; /* float32 only */
    /* 1: after this _async call the same thread waits for the operation, by hvd_wait or hvd_wait_for, again
     * after HVD_ERR_TIMEOUT; else other ranks may wait as long. The operation is as fast as a blocking call
     * then: the engine and spare copies are left out. 2 (since 0.2.0): likewise, and the thread begins no
     * other operation before it waits. Then more tensors may go from rank to rank, as those of a blocking
     * call. */
    uint32_t will_wait;
    /* A CUstream or cudaStream_t of this process, for buffers of a device. NULL: the legacy default stream,
     * whatever the caller was compiled for (see HVD_DEFAULT_STREAM). */
    void *stream;
    /* A number of the caller's for the tensor's dimensions, such as a hash; 0: none. Ranks that give
     * different numbers get HVD_ERR_MISMATCH. */
    uint32_t shape;
    uint32_t reserved[5]; /* zeros; else HVD_ERR_INVALID: a later version may give them a meaning */
} hvd_options;

/* One pending or persistent operation of this process; 0 is no operation. hvd_wait frees a handle, or
 * hvd_handle_free if it is persistent. A freed handle, and a handle from before hvd_shutdown, is
 * HVD_ERR_INVALID in every call. */
typedef int64_t hvd_handle;

/* ---- the job ---- */

/* Joins the job; reads the variables HVD_* that hvdrun set. Returns when every rank has called it. After
 * success a second call does nothing. After a failure, and after hvd_shutdown by all ranks, it may be
 * called again; HVD_ERR_PEER then: a rank has ended. A job that has failed stays failed, because a dead
 * rank cannot come back: every further hvd_init returns the same error and sentence at once.
 * HVD_ERR_SYSTEM: hvdrun did not start this process as it starts workers, or the process cannot reach its
 * engine. In an elastic job it waits for a membership that has this worker. */
int hvd_init(void);
/* Leaves the job. Returns when every rank has called it, or at once when the job has failed. No operation
 * may be pending. The remaining work of operations in streams of a device ends first, unless the job fails.
 * Frees handles, process sets and memory of hvd_alloc and hvd_alloc_device, but not of hvd_alloc_lasting. So
 * it does whatever it returns, except for HVD_ERR_MISMATCH: other ranks are in hvd_join, and nothing has
 * changed. After a wait of a second, operations of others that need this rank get HVD_ERR_MISMATCH (in jobs
 * of more than 64 hosts only those of this host's ranks). A worker that exits with status 0 after hvd_init
 * and without hvd_shutdown counts as failed. */
int hvd_shutdown(void);
/* Elastic jobs (hvdrun --min-np and others): the ranks change while the job runs, by memberships that hvdrun
 * names. A rank that dies ends the present membership: pending and later calls return HVD_ERR_PEER, handles
 * can still be waited for, and outputs are undefined. The other ranks go on in the next membership, with the
 * same processes. hvd_reset leaves the present membership and enters the next one; it is hvd_shutdown and
 * hvd_init, but memory of hvd_alloc stays: address and contents. It returns when all ranks of a membership
 * have entered, also over further failures. Then hvd_rank, hvd_size and their like have new values; ranks
 * that stay come first, in their order. Process sets keep their ids, and the ranks that stay. Handles are
 * gone, persistent ones too.
 *
 * Ranks that come or go by hvdrun's will end nothing: hvd_membership_changed says that a membership waits.
 * All ranks have to call hvd_reset then, at the same place. Each may hear of it at another time, so they
 * agree first, for example by an allreduce with HVD_MAX.
 *
 * HVD_ERR_LEFT: this worker has no rank any more, and should clean up and exit with status 0. In a job that
 * is not elastic hvd_reset starts the next epoch as hvd_init after hvd_shutdown does. */
int hvd_reset(void);
/* Returns 1 when another membership waits, else 0. It costs one load. */
int hvd_membership_changed(void);
/* Returns the number of the present membership, from 1; 0: the job is not elastic. */
int hvd_membership(void);
/* Tells hvdrun how far this rank is with the change to the present membership. hvdrun --report and hvdctl
 * status say then how long the training stood still, and in which part of the change. HVD_STAGE_STATE: the
 * rank has the state of the training. HVD_STAGE_STEP: it has done its first step. It costs some microseconds,
 * and does nothing in a job that is not elastic. */
#define HVD_STAGE_STATE 1
#define HVD_STAGE_STEP  2
int hvd_stage(int stage);
/* Says that this rank has failed, and why. Every pending and later call of every rank, of this one too,
 * returns HVD_ERR_PEER at once; its sentence names this rank, its host and `why`. The process goes on: it may
 * print, clean up and exit, soon and with a status of its own. hvdrun names this rank, `why` and that status
 * as the cause, also when the status is 0. When hvdrun has ended the other ranks it waits 5 s for this one.
 *
 * `why` may be NULL. 300 bytes of it are used, and control characters become question marks. Any thread may
 * call this, while others are in calls. HVD_ERR_NOT_INITIALIZED: there is no job, and nothing has changed.
 * In a job that has failed already it does nothing, and returns HVD_SUCCESS. */
int hvd_abort(const char *why);
/* Returns 1 between hvd_init and hvd_shutdown, else 0; HVD_ERR_FORKED in a child. */
int hvd_is_initialized(void);

/* Horovod's numbers, constant from hvd_init to hvd_shutdown. Before and after: HVD_ERR_NOT_INITIALIZED. */
int hvd_rank(void); /* this worker among all of the job */
/* The number of ranks of the job. */
int hvd_size(void);
/* This worker's index among the ranks of its host. */
int hvd_local_rank(void);
/* The number of ranks on this host. */
int hvd_local_size(void);
/* The index of this host among the hosts that have this local rank. */
int hvd_cross_rank(void);
/* The number of hosts that have this local rank. */
int hvd_cross_size(void);

/* ---- memory ---- */

/* Returns `bytes` of zeroed memory in the job's shared memory, aligned to 64. NULL: there is none, and
 * hvd_last_error says why. Works after hvd_init only. Freed by hvd_free or by hvd_shutdown. */
void *hvd_alloc(size_t bytes);
/* As hvd_alloc, but the memory lasts until hvd_free, which works at any time, in any thread. It keeps its
 * address and contents, and may be read and written, before hvd_init, after hvd_shutdown, after a failure of
 * the job and in a later job. Every job's operations work in it as in memory of hvd_alloc. hvd_shutdown of a
 * job that has failed moves the contents to new pages: no other thread may write there meanwhile.
 *
 * After fork() the child has copies. No other process sees what the child writes. The child may see what the
 * parent writes later, or may not. NULL: there is no memory, and hvd_last_error says why. */
void *hvd_alloc_lasting(size_t bytes);
/* Returns `bytes` of zeroed memory of a GPU, aligned to 256. The GPU is that of the calling thread's
 * current CUDA context; without a context, that of this rank's local rank (counted round). The memory
 * serves kernels, copies and operations like any other memory of a device. NCCL (2.19 and newer) need not
 * copy it on the way. For that, all ranks of a set give such memory, at the same distance from the address
 * that this function returned. Memory of 64 KiB and more takes a multiple of 2 MiB of the GPU, since NCCL
 * maps no less. Smaller memory is of cuMemAlloc, takes little more than its bytes, and NCCL is not told of
 * it. NULL: there is none, no CUDA or no GPU, and hvd_last_error says why. Works after hvd_init only, also
 * in a job of one rank. Any thread. May wait for the GPU, not for other ranks. Freed by hvd_free or by
 * hvd_shutdown. */
void *hvd_alloc_device(size_t bytes);
/* Frees memory of hvd_alloc, hvd_alloc_lasting or hvd_alloc_device, and no other memory. NULL is ignored;
 * after hvd_shutdown every pointer is but those of hvd_alloc_lasting. Memory of hvd_alloc and
 * hvd_alloc_lasting: no operation may be using it. Memory of hvd_alloc_device: the
 * caller's own streams must have finished with it. Streams of this library are waited for. While an
 * operation that uses the memory has not been waited for, and after the job has failed, the memory is freed
 * later, at the latest by hvd_shutdown. */
void hvd_free(void *memory);

/* ---- operations ----
 *
 * FORMS. The plain form blocks until the operation has ended, and returns its status. The form with _async
 * returns at once, with a handle for hvd_poll and hvd_wait. After an error of the call that starts an
 * operation, *handle is 0 and nothing was started.
 *
 * NAMES. `name` (1 to 255 bytes) is the tensor's: the ranks' calls of one name belong together. A name may
 * be used again after its operation was waited for; before, the call returns HVD_ERR_IN_PROGRESS. A job may
 * have any number of names. About 16,000 of them can be pending at once; one more is HVD_ERR_MEMORY. Names
 * of persistent handles, of shared results and of tensors on GPUs count as pending. A call with a new name
 * may wait until other ranks of the host have waited for their operations.
 *
 * ARGUMENTS. Counts are of elements and may be 0. Pointers need no alignment, except to elements that GPUs
 * combine. A pointer to no bytes may be NULL, and so may `options`.
 *
 * ERRORS. HVD_ERR_INVALID: an argument of this rank is wrong, and nothing was started. HVD_ERR_MISMATCH:
 * the ranks disagree; all of them get one sentence, which names two of them and their arguments.
 * HVD_ERR_PEER and HVD_ERR_ENGINE: the job has failed. */

/* Combines: out[i] = (op over all ranks of in[i] * prescale) * postscale, for i < count. `in` may equal
 * `out`; otherwise they may not overlap. Integers are scaled as doubles and cut toward zero. */
int hvd_allreduce_async(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                        const hvd_options *options, hvd_handle *handle);
int hvd_allreduce(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                  const hvd_options *options);

/* Combines `n` tensors as one operation: in[k] and out[k] have count[k] elements each. All of them complete
 * together, or fail together. */
int hvd_grouped_allreduce_async(const char *name, size_t n, const void *const *in, void *const *out,
                                const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options,
                                hvd_handle *handle);
int hvd_grouped_allreduce(const char *name, size_t n, const void *const *in, void *const *out,
                          const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options);

/* An allreduce with one result for each host, in shared memory, instead of one in each rank's buffer. This
 * writes less memory. *result is set when the operation has ended with success. It belongs to the library:
 * the caller may only read it, until this rank's next operation of that name or hvd_shutdown. */
int hvd_allreduce_shared_async(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                               const hvd_options *options, const void **result, hvd_handle *handle);
int hvd_allreduce_shared(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                         const hvd_options *options, const void **result);

/* Copies the elements of rank `root` into `buffer` on every rank. */
int hvd_broadcast_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                        const hvd_options *options, hvd_handle *handle);
int hvd_broadcast(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                  const hvd_options *options);

/* Gathers the rows of all ranks into `out`, in the order of ranks. Each rank gives `rows` rows, its own
 * number, of row_count elements (1 or more, the same number on all). `out` has capacity for out_rows rows,
 * and may not overlap `in`. If it is too small on any rank, all ranks get HVD_ERR_MISMATCH, which names
 * that rank. rows_of[size] (or NULL) gets the number of rows of each rank; it must stay until the operation
 * was waited for. */
int hvd_allgather_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                        void *out, size_t out_rows, size_t *rows_of, const hvd_options *options,
                        hvd_handle *handle);
int hvd_allgather(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype, void *out,
                  size_t out_rows, size_t *rows_of, const hvd_options *options);

/* Exchanges rows: the first splits[0] of in_rows rows go to rank 0, the next splits[1] to rank 1, and so
 * on. With splits NULL each rank gets the same number, and in_rows must be a multiple of the number of
 * ranks. Rows after the last split are not sent. `out` gets the rows that were sent to this rank, in the
 * order of ranks. `out`, out_rows and received[size] (rows from each rank) are as in hvd_allgather. */
int hvd_alltoall_async(const char *name, const void *in, size_t in_rows, const size_t *splits,
                       size_t row_count, hvd_dtype dtype, void *out, size_t out_rows, size_t *received,
                       const hvd_options *options, hvd_handle *handle);
int hvd_alltoall(const char *name, const void *in, size_t in_rows, const size_t *splits, size_t row_count,
                 hvd_dtype dtype, void *out, size_t out_rows, size_t *received, const hvd_options *options);

/* hvd_allgather and hvd_alltoall for a caller that learns the size of the result first, in the same exchange.
 * When the numbers of rows of all ranks are known, and before any row is copied, `allocate` is called once
 * with `context` and the number of rows of this rank's result. It returns the memory for them. The thread
 * that waits calls it: in the blocking call, or in hvd_wait. The memory is the caller's in every case, also
 * when the operation fails afterwards. With 0 rows allocate may return NULL. NULL for more: this rank gets
 * HVD_ERR_MEMORY, and the other ranks get their results.
 *
 * allocate may call hvd_alloc, hvd_alloc_lasting and hvd_free, and no other function of this header.
 * hvd_poll returns 1 when hvd_wait will not block for other ranks. rows_of and received are set between the
 * call of allocate and the end of the operation. All ranks call the same function: another rank's
 * hvd_allgather of that name is HVD_ERR_MISMATCH. `in` lies in memory of the host; a device is
 * HVD_ERR_INVALID. */
int hvd_allgather_alloc_async(const char *name, const void *in, size_t rows, size_t row_count,
                              hvd_dtype dtype, void *(*allocate)(void *context, size_t rows), void *context,
                              size_t *rows_of, const hvd_options *options, hvd_handle *handle);
int hvd_allgather_alloc(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                        void *(*allocate)(void *context, size_t rows), void *context, size_t *rows_of,
                        const hvd_options *options);
/* The same for hvd_alltoall. */
int hvd_alltoall_alloc_async(const char *name, const void *in, size_t in_rows, const size_t *splits,
                             size_t row_count, hvd_dtype dtype, void *(*allocate)(void *context, size_t rows),
                             void *context, size_t *received, const hvd_options *options, hvd_handle *handle);
int hvd_alltoall_alloc(const char *name, const void *in, size_t in_rows, const size_t *splits,
                       size_t row_count, hvd_dtype dtype, void *(*allocate)(void *context, size_t rows),
                       void *context, size_t *received, const hvd_options *options);

/* Combines `rows` rows as hvd_allreduce does, and leaves each rank its part. Rank r of n gets rows / n of
 * them, the first rows % n ranks get one more, in order. `out` has capacity for that part, and may not
 * overlap `in`. */
int hvd_reducescatter_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                            hvd_op op, void *out, const hvd_options *options, hvd_handle *handle);
int hvd_reducescatter(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                      hvd_op op, void *out, const hvd_options *options);

/* A reducescatter of `n` tensors as one operation: in[k] has rows[k] rows of row_count[k] elements, and
 * out[k] gets this rank's part of them. */
int hvd_grouped_reducescatter_async(const char *name, size_t n, const void *const *in, const size_t *rows,
                                    const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                                    const hvd_options *options, hvd_handle *handle);
int hvd_grouped_reducescatter(const char *name, size_t n, const void *const *in, const size_t *rows,
                              const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                              const hvd_options *options);

/* Ends when every rank of the set has called it. Of the options only the set counts. Blocking barriers of
 * several threads follow one another. While a barrier with a handle is pending, another is
 * HVD_ERR_IN_PROGRESS. */
int hvd_barrier_async(const hvd_options *options, hvd_handle *handle);
int hvd_barrier(const hvd_options *options);

/* For ranks with unequal amounts of work. Returns when every rank of the job has called it, and takes part
 * in the operations of the other ranks meanwhile. This rank gives zeros to their allreduces (plain,
 * grouped, shared, persistent; of any process set). An average still divides by the number of all ranks.
 *
 * HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_BAND, HVD_LAND and all other kinds of operations need every rank. A
 * rank that calls one of them, or hvd_shutdown, gets HVD_ERR_MISMATCH with the names of joined ranks, and
 * the job goes on. hvd_shutdown has not left the job then.
 *
 * Earlier operations of this rank go on, and may be waited for meanwhile or afterwards. The result of an
 * earlier shared allreduce is no longer valid. Until the join has ended, no thread of this rank may start
 * an operation, join again or shut down: HVD_ERR_IN_PROGRESS. Joining again is possible as soon as the
 * handle was waited for.
 *
 * *last_rank (or NULL) gets the rank that joined last, by the clocks of the hosts, the same on all ranks.
 * HVD_ERR_PEER, HVD_ERR_ENGINE: the job has failed. HVD_ERR_MEMORY: the job fails, for lack of memory for
 * the zeros.
 *
 * hvd_join_async joins and returns. A thread of the library then takes part; it gets no signals, and lives
 * until the join has ended. *last_rank is set by then, with success. HVD_ERR_SYSTEM: there is no thread,
 * and this rank has not joined. */
int hvd_join_async(int *last_rank, hvd_handle *handle);
int hvd_join(int *last_rank);

/* ---- two ranks ----
 *
 * hvd_send of one rank and hvd_recv of another rank belong together by their name, and have the same count
 * and dtype. The two name each other by rank; with options->set by index in that set. No other rank takes
 * part, and a name is the business of these two ranks alone. Between two ranks a name has one operation at
 * a time, in either direction. */

/* Sends `buffer` to rank `to`. Returns after that rank has called hvd_recv. HVD_ERR_INVALID: `to` is this
 * rank or no rank, or the job has more than 4096 ranks. */
int hvd_send_async(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
                   const hvd_options *options, hvd_handle *handle);
int hvd_send(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
             const hvd_options *options);
/* Receives into `buffer` what rank `from` sends. HVD_ERR_INVALID: as for hvd_send. */
int hvd_recv_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
                   const hvd_options *options, hvd_handle *handle);
int hvd_recv(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
             const hvd_options *options);

/* ---- process sets ----
 *
 * A process set is some of the ranks, which do operations among themselves: those with its id in
 * options->set. Sets progress independently of each other, and a name in one set is another name in another
 * set. Within a set a rank is its index among the set's ranks in ascending order. HVD_WORLD has all ranks
 * and always exists. Other sets are made and removed at any time after hvd_init, and end with hvd_shutdown.
 * A rank's death fails the job, whatever sets the rank was in.
 *
 * After hvd_reset in an elastic job a set consists of its ranks that stay, by their new numbers, in their
 * order. Several sets may have the same ranks then. All ranks know the same sets of hvd_set_add. New ranks
 * find them by hvd_set_ids, or by hvd_set_add with the set's ranks, which gives the id with
 * HVD_ERR_SET_EXISTS. A call of hvd_set_add or hvd_set_remove that the change interrupts has taken effect on
 * all ranks if it has succeeded on a rank that stays. A set of hvd_set_open goes on if all of its ranks that
 * stay have it, else it is over for these. A set that is over, or has no rank left, does not exist any more:
 * each use is HVD_ERR_SET_UNKNOWN, and the sentence has its id and its last ranks. */

/* Makes a set of `n` different ranks, in any order. All ranks of the job call it with the same ranks,
 * whether or not they are in the set; it returns when all have. *set gets the id, the same on every rank;
 * ids are not used again. HVD_ERR_SET_EXISTS: these ranks have a set; *set gets its id. HVD_ERR_MISMATCH:
 * the ranks disagree; all of them get the sentence, and there is no new set. At most 4095 sets can be made
 * between hvd_init and hvd_shutdown; hvd_reset of an elastic job counts on. */
int hvd_set_add(const int *ranks, int n, hvd_set *set);
/* Removes a set. All ranks of the job call it. It returns when all have, and when the work of the set's
 * operations in streams of a device is done. HVD_ERR_IN_PROGRESS: an operation in the set was not waited
 * for, or a persistent handle not freed. HVD_ERR_INVALID: HVD_WORLD cannot be removed. */
int hvd_set_remove(hvd_set set);
/* Makes a set of `n` different ranks, in any order. Only these ranks call it. The calls of one `name` (1 to
 * 240 bytes) belong together; sets that have a rank in common have different names. It returns when all have
 * called. There may be several sets of the same ranks.
 * *set gets a number that only this rank uses: other ranks may have other numbers for the set.
 * HVD_ERR_SET_FOREIGN: this rank is not among them. HVD_ERR_MISMATCH: a rank gives other ranks, or is in
 * hvd_join; there is no new set. Ranks whose lists differ in more than that may wait for one another: the
 * stall check names them. HVD_ERR_INVALID: also when the job has more than 4096 ranks and n > 1. A rank is in
 * 4096 such sets at most, and is the first rank of at most 8,384,512 / hvd_size() of them. */
int hvd_set_open(const char *name, const int *ranks, int n, hvd_set *set);
/* Closes a set of hvd_set_open. Its ranks call it. When it returns, all have called, and its number and name
 * may be used again. No other thread may use the set. HVD_ERR_IN_PROGRESS: as for hvd_set_remove. The results
 * of hvd_allreduce_shared in the set are gone. A set whose tensors were in memory of a device keeps its place
 * until hvd_shutdown. After HVD_ERR_PEER the next membership of an elastic job is without the set. */
int hvd_set_close(hvd_set set);
/* Returns this rank's index in the set; HVD_ERR_SET_FOREIGN: the rank is not in the set. */
int hvd_set_rank(hvd_set set);
/* Returns the set's number of ranks. */
int hvd_set_size(hvd_set set);
/* Writes the set's ranks in the job, ascending, to ranks[hvd_set_size(set)]. */
int hvd_set_ranks(hvd_set set, int *ranks);
/* Returns the number of sets, including HVD_WORLD. */
int hvd_set_count(void);
/* Writes the ids of all sets, ascending, to ids[hvd_set_count()]. */
int hvd_set_ids(hvd_set *ids);

/* ---- handles ---- */

/* Returns 1 when the operation has ended (hvd_wait will not block), 0 when it is pending, a negative status
 * for an unknown handle. */
int hvd_poll(hvd_handle handle);
/* Waits until the operation has ended, and returns its status. Frees the handle, unless it is persistent. A
 * persistent handle is inactive then; waiting for an inactive handle returns at once. */
int hvd_wait(hvd_handle handle);
/* Like hvd_wait, for at most that time. HVD_ERR_TIMEOUT: the time has passed. The operation and its handle
 * are as before the call. With 0 milliseconds it does not sleep. */
int hvd_wait_for(hvd_handle handle, unsigned milliseconds);

/* Makes a persistent allreduce. This call checks name, arguments and places once; it starts nothing and
 * involves no other rank. Then call hvd_start and hvd_wait, any number of times. Each start takes the
 * elements that `in` has at that time. Until hvd_handle_free, no other call of this rank may use the name.
 * Other ranks may do the same, or call the operation by its name. */
int hvd_allreduce_init(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                       const hvd_options *options, hvd_handle *handle);
/* Starts a persistent operation. HVD_ERR_IN_PROGRESS: it was started and not waited for. */
int hvd_start(hvd_handle handle);
/* Frees an inactive persistent handle; other calls may then use the name. hvd_shutdown frees all handles. */
int hvd_handle_free(hvd_handle handle);

/* Starts a file with the calling process's work on each tensor, until hvd_timeline_stop or hvd_shutdown.
 * The format is the Trace Event Format of chrome://tracing and Perfetto. Any rank may call it at any time;
 * it concerns that rank alone. In `path`, %r stands for the rank; without %r, ".RANK" is put before the
 * extension. If mark_cycles is not 0, the start of each operation is marked. A thread writes the file, and
 * no operation waits for it; events that it cannot keep up with are counted in the file.
 * HVD_ERR_IN_PROGRESS: a file is being written already. hvdrun --timeline-filename starts one in hvd_init. */
int hvd_timeline_start(const char *path, int mark_cycles);
/* Completes the file. Returns HVD_SUCCESS also when none is being written. HVD_ERR_SYSTEM: not everything
 * could be written. */
int hvd_timeline_stop(void);

/* Returns the sentence of the last failure in this thread, "" if there was none. Valid until the thread's
 * next call. */
const char *hvd_last_error(void);
/* Returns a status's name, for example "HVD_ERR_PEER"; "unknown status" for any other number. Never NULL;
 * valid until the program ends. */
const char *hvd_status_name(int status);
/* Returns the library's version, "MAJOR.MINOR.PATCH". Valid until the program ends. */
const char *hvd_version(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
