/* hvd.h - collective operations for the workers of a distributed training job.
 *
 * A worker started by hvdrun calls hvd_init, then any number of operations, then hvd_shutdown. All ranks call
 * the same operations with the same names; the order may differ between ranks. Started without hvdrun, a
 * program is a job of one rank. README.md has a whole worker, examples/train a whole trainer, hvd(3) and the
 * pages it names the same contract at more length. Compile with `pkg-config --cflags --libs hvd`.
 *
 * Results: every function that can fail returns HVD_SUCCESS (0) or a negative hvd_status; hvd_last_error()
 * then holds one sentence that says what happened. Nothing here waits for ever: when a rank dies, every
 * pending call on every other rank returns HVD_ERR_PEER and the sentence names rank, host and cause. After
 * any error an output buffer is undefined; an input buffer is unchanged unless it is the output as well.
 * Every operation may return HVD_ERR_NOT_INITIALIZED, HVD_ERR_FORKED, HVD_ERR_INVALID, HVD_ERR_MEMORY,
 * HVD_ERR_IN_PROGRESS, HVD_ERR_MISMATCH, HVD_ERR_PEER and HVD_ERR_ENGINE; what is said at a call is what
 * these mean there, or what else there is. After HVD_ERR_PEER and HVD_ERR_ENGINE the job has failed: what is
 * left to do is hvd_shutdown. After all others it goes on.
 *
 * Units: counts are of elements or of rows, never of bytes; only hvd_alloc and hvd_alloc_device take bytes.
 * Ranks and indices count from 0.
 *
 * Ownership: strings, options and arrays of pointers or numbers that are only read belong to the caller and
 * may go when the call returns. A buffer of elements and an array that a call fills belong to the operation
 * from its start until its end: the call's return or, for an asynchronous one, hvd_wait's. Meanwhile the
 * caller may read inputs, and nothing else. What the library returns is its own, and nobody frees it but by
 * the function named there.
 *
 * Threads: any thread may call any function but hvd_init and hvd_shutdown, which one thread calls while no
 * other is in a call of this header. A handle may be waited for in another thread than the one that got it,
 * by one thread. hvd_last_error is per thread. No function may be called from a signal handler, and none
 * installs one. After fork(), the child's calls return HVD_ERR_FORKED.
 *
 * Buffers: any pointer works. Memory from hvd_alloc lies in the job's shared memory, is read and written in
 * place by the other ranks of the host, and is the fast way.
 *
 * GPUs: a buffer may be memory of a CUDA device (cudaMalloc and its relatives). All buffers of a call are
 * then of one device, and all ranks give memory of a device, or none (HVD_ERR_MISMATCH). A rank whose buffers
 * all have length 0, wherever they are, goes with the others if its process has loaded CUDA (else it is one
 * of the host). It takes part with a GPU all the same: that of its buffers or its stream, or which it has
 * used, or the thread's; else one whose context this process has; else that of its local rank, whose context
 * is then made. An operation on a device reads its input after all work that was in options->stream when the
 * call was made; NULL is the legacy default stream. The blocking call, and hvd_wait, return when the result's
 * place in the stream is settled, without waiting for the device: work put into the stream afterwards finds
 * the result, and what the caller may do with a buffer it may let the stream do: cuMemFreeAsync in that
 * stream, say, but no cuMemFree before the stream has come so far. An operation that the device fails in, or
 * that a rank's death ends, never leaves the stream hanging. Addresses of elements that are combined are
 * multiples of their size (HVD_ERR_INVALID). NCCL does the work where it can, else it goes through host
 * memory: all ranks the same way. With process sets that share ranks, operations of one set on a device are
 * enqueued in one order, those of two sets in none. Not for memory of a device are hvd_allreduce_shared
 * (HVD_ERR_INVALID) and a rank in hvd_join (HVD_ERR_MISMATCH), nor is a stream that is being captured into a
 * graph (HVD_ERR_INVALID). A wait for an operation that was begun before its stream's capture waits for the
 * device; captures of other streams are not disturbed. Whether CUDA is in the process is found out when a
 * name is new, a stream is given or a buffer is large (32 KiB): a program that gives small host memory under
 * a name, then loads CUDA and gives device memory under the same name, gives a stream.
 *
 * Determinism: a result has the same bits on every rank, and from run to run with the same placement of ranks
 * on hosts.
 *
 * Numbers, in memory of the host: float16 and bfloat16 are combined as float32, and the result is rounded
 * once, to the nearest, ties to even. So an average or sum of them is infinite only where the result is too
 * large or a sum exceeds float32, wherever the ranks are. There is one more rounding for an average between
 * hosts that have several ranks each, equally many: each host's part is its own average, rounded. The same
 * holds for a sum that prescale and postscale make as small. The bits of floating-point sums and products may
 * depend on placement, since each host combines its ranks first.
 *
 * A NaN among the elements makes a sum, average, product, least or greatest a NaN: the quiet one without a
 * sign. Only a single rank's element that is not scaled keeps its bits. For HVD_MIN and HVD_MAX 0 and -0 are
 * equal; the last of equal elements counts, in the order of hosts and, on each, of ranks. Sums and products
 * of integers wrap. An average of integers is the wrapped sum divided, toward zero. A scaled integer is
 * multiplied as a double and cut toward zero; one beyond its range becomes the end of the range. On devices
 * NCCL has its own order and rounding.
 *
 * Stability: a program that was linked to libhvd.so.0 runs with every later libhvd.so.0. Numbers in here
 * never change, and only new functions, new numbers and new members of hvd_options (in place of its reserved
 * ones) are added. Enumerations have the size of an int: do not compile with -fshort-enums. */
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

/* The version of this header; hvd_version() is that of the library which the program runs with. */
#define HVD_VERSION_MAJOR 0
#define HVD_VERSION_MINOR 1

/* What calls return. Negative means failure. Later versions may add further ones. */
typedef enum hvd_status {
    HVD_SUCCESS = 0,
    HVD_ERR_NOT_INITIALIZED = -1, /* hvd_init was not called, or hvd_shutdown was */
    HVD_ERR_INVALID = -2,         /* an argument is wrong; nothing was started */
    HVD_ERR_MISMATCH = -3,        /* the ranks disagree about an operation; names the tensor and the ranks */
    HVD_ERR_PEER = -4,            /* another rank or its host has gone; names rank, host and cause */
    HVD_ERR_ENGINE = -5,          /* this host's engine has gone or stopped, or one cannot go on; names it */
    HVD_ERR_MEMORY = -6,          /* no (shared) memory */
    HVD_ERR_FORKED = -7,          /* called in a child made by fork() */
    HVD_ERR_SYSTEM = -8,          /* a system call failed; names it */
    HVD_ERR_IN_PROGRESS = -9,     /* an operation of this name is pending already */
    HVD_ERR_SET_UNKNOWN = -10,    /* there is no such process set */
    HVD_ERR_SET_FOREIGN = -11,    /* this rank is not in the process set */
    HVD_ERR_SET_EXISTS = -12      /* there is a process set of these ranks already */
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
    HVD_FLOAT8_E4M3 = 13, /* these two are combined on devices by an NCCL that can; moved by everything */
    HVD_FLOAT8_E5M2 = 14
} hvd_dtype;

/* How elements are combined; Horovod's numbers first. */
typedef enum hvd_op {
    HVD_AVERAGE = 0, /* the sum divided by the number of ranks; of integers toward zero */
    HVD_SUM = 1,     /* integers wrap */
    HVD_ADASUM = 2,  /* of floating point, by a power of two of ranks; not scaled, not of groups */
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

/* What float32 elements of an allreduce or reducescatter become on their way between hosts. Within a host
 * nothing is compressed, and neither is any other operation, nor HVD_ADASUM. Between hosts each host's part
 * and the result are rounded to that type. A number that is too large for it (for float16 65520 and more)
 * becomes infinite. A host's part is the combination of its ranks' elements; for an average, and for a sum
 * that prescale and postscale make as small, it is their average. */
typedef enum hvd_compression {
    HVD_COMPRESSION_NONE = 0,
    HVD_COMPRESSION_FLOAT16 = 1,
    HVD_COMPRESSION_BFLOAT16 = 2
} hvd_compression;

/* A process set: the ranks that take part in an operation. */
typedef int32_t hvd_set;
#define HVD_WORLD 0 /* all ranks */

/* The stream that a kernel launch or a copy of the same source file means by 0, for hvd_options.stream. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM /* nvcc --default-stream per-thread */
#define HVD_DEFAULT_STREAM ((void *)2)    /* cudaStreamPerThread: of the thread that calls */
#else
#define HVD_DEFAULT_STREAM ((void *)0)
#endif

/* What an operation may be told besides its arguments. A NULL pointer to it means all zeros, and zeros mean
 * the defaults: start from `hvd_options options = {0}`, `= {}` in C++. All ranks must say the same. */
typedef struct hvd_options {
    hvd_set set;                 /* default HVD_WORLD; ranks in arguments are then indices in the set */
    double prescale;             /* every input times this before it is combined; 0 means 1 */
    double postscale;            /* the result times this; 0 means 1 */
    hvd_compression compression; /* float32 only */
    uint32_t reserved_before;    /* zero, as all of reserved */
    void *stream; /* a CUstream or cudaStream_t of this process; NULL: the legacy default stream, whatever the
                     caller was compiled for (HVD_DEFAULT_STREAM); for buffers of a device only */
    uint32_t reserved[6]; /* zeros; else HVD_ERR_INVALID: what a later version means by them is not known */
} hvd_options;

/* Names one pending (or persistent) operation of this process; 0 is none. Freed by hvd_wait (or
 * hvd_handle_free); a freed one, or one from before hvd_shutdown, is HVD_ERR_INVALID wherever it is given. */
typedef int64_t hvd_handle;

/* ---- the job ---- */

/* Joins the job: returns when every rank has called it. Reads HVD_* variables that hvdrun set. Again after
 * success it does nothing; after a failure, or after hvd_shutdown (then by all ranks again; HVD_ERR_PEER: one
 * has ended), it may be called anew. A job that has failed stays failed, since the rank that has gone cannot
 * come back to it: every further hvd_init returns the same error at once, with the same sentence.
 * HVD_ERR_SYSTEM: the process was not started as hvdrun starts one, or cannot reach its engine. */
int hvd_init(void);
/* Leaves the job: returns when every rank has called it, or at once when the job failed. No operation may be
 * pending; what operations have left to do in streams of a device is let end first, unless the job fails.
 * Frees handles, process sets and memory of hvd_alloc and hvd_alloc_device, whatever it returns, but for
 * HVD_ERR_MISMATCH: others are in hvd_join, and nothing has changed. A worker that exits with status 0 after
 * hvd_init and without hvd_shutdown counts as failed. */
int hvd_shutdown(void);
/* 1 between hvd_init and hvd_shutdown, else 0; HVD_ERR_FORKED in a child. */
int hvd_is_initialized(void);

/* Horovod's numbers, the same from hvd_init to hvd_shutdown; before and after, HVD_ERR_NOT_INITIALIZED. */
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

/* `bytes` of zeroed memory in the job's shared memory, aligned to 64; NULL when there is none (hvd_last_error
 * says why). Works after hvd_init only. Freed by hvd_free or by hvd_shutdown. */
void *hvd_alloc(size_t bytes);
/* `bytes` of zeroed memory of a GPU, aligned to 256: the GPU of the calling thread's current CUDA context, or
 * where it has none the one of this rank's local rank (counted round). It is as any memory of a device, for
 * kernels, copies and operations; and where all ranks of a set give such memory to an operation, each at the
 * same distance from what this function returned, NCCL is told of it and need not copy on the way (NCCL 2.19
 * and newer). Memory of 64 KiB and more takes 2 MiB of the GPU, or a multiple of that, since NCCL maps no
 * less; smaller memory is of cuMemAlloc, takes little more than its bytes, and NCCL is told nothing of it.
 * NULL: there is none, no CUDA or no GPU (hvd_last_error says why). Works after hvd_init only, also in a job
 * of one rank; may wait for the GPU, not for other ranks. Any thread. Freed by hvd_free or by hvd_shutdown.
 */
void *hvd_alloc_device(size_t bytes);
/* Frees what hvd_alloc or hvd_alloc_device returned, no other memory; NULL is ignored, and after hvd_shutdown
 * everything is. Of hvd_alloc: no operation may be using it. Of hvd_alloc_device: the caller's own streams
 * have to be done with it; what this library has in its streams is waited for, and while an operation that
 * uses it has not been waited for, or when the job has failed, the memory goes later, with hvd_shutdown at
 * the latest. */
void hvd_free(void *memory);

/* ---- operations ----
 *
 * Each has two forms: the plain one blocks until it has ended and returns its status; the one with _async
 * returns at once, with a handle for hvd_poll and hvd_wait. `name` (1 to 255 bytes) is the tensor's: the
 * ranks' calls of the same name belong together. The same name may be used again after its operation was
 * waited for; before, it is HVD_ERR_IN_PROGRESS. Counts are of elements, not bytes, and may be 0; pointers
 * need no alignment, but for elements that GPUs combine; a pointer to no bytes may be NULL. `options` may be
 * NULL.
 *
 * HVD_ERR_INVALID: what this rank says cannot be, nothing was started. HVD_ERR_MISMATCH: the ranks disagree;
 * all of them get the same sentence, which names two of them and what each said. HVD_ERR_PEER,
 * HVD_ERR_ENGINE: the job has failed. After an error of the call that starts an operation *handle is 0 and
 * nothing was started. */

/* out[i] = op over all ranks of in[i] * prescale, then * postscale, for i < count. `in` may equal `out`;
 * otherwise they may not overlap. Integers are scaled as doubles and cut toward zero. */
int hvd_allreduce_async(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                        const hvd_options *options, hvd_handle *handle);
int hvd_allreduce(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                  const hvd_options *options);

/* The same for `n` tensors, in[k] and out[k] of count[k] elements each, as one operation: they complete
 * together or fail together. */
int hvd_grouped_allreduce_async(const char *name, size_t n, const void *const *in, void *const *out,
                                const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options,
                                hvd_handle *handle);
int hvd_grouped_allreduce(const char *name, size_t n, const void *const *in, void *const *out,
                          const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options);

/* An allreduce with one result a host, in shared memory, instead of one in each rank's buffer: less memory is
 * written. *result is set when the operation has ended with success. What it points to is the library's: to
 * be read only, valid until this rank's next operation of that name or hvd_shutdown. */
int hvd_allreduce_shared_async(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                               const hvd_options *options, const void **result, hvd_handle *handle);
int hvd_allreduce_shared(const char *name, const void *in, size_t count, hvd_dtype dtype, hvd_op op,
                         const hvd_options *options, const void **result);

/* buffer = root's buffer on every rank. */
int hvd_broadcast_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                        const hvd_options *options, hvd_handle *handle);
int hvd_broadcast(const char *name, void *buffer, size_t count, hvd_dtype dtype, int root,
                  const hvd_options *options);

/* out = the rows of all ranks, in the order of ranks. Each rank gives `rows` rows (its own number) of
 * row_count elements (1 or more, the same number on all). `out` has room for out_rows rows and may not
 * overlap `in`; where it is too small on any rank, all get HVD_ERR_MISMATCH, which names that rank.
 * rows_of[size] (NULL: not wanted) gets the number of rows of each rank; it must stay until the operation was
 * waited for. */
int hvd_allgather_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                        void *out, size_t out_rows, size_t *rows_of, const hvd_options *options,
                        hvd_handle *handle);
int hvd_allgather(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype, void *out,
                  size_t out_rows, size_t *rows_of, const hvd_options *options);

/* Sends the first splits[0] of in_rows rows to rank 0, the next splits[1] to rank 1, ...; splits NULL: the
 * same number to each, in_rows must then be a multiple of the number of ranks. Rows behind the last split are
 * not sent. out = the rows sent to this rank, in the order of ranks; `out`, out_rows and received[size] (rows
 * from each rank) are as in hvd_allgather. */
int hvd_alltoall_async(const char *name, const void *in, size_t in_rows, const size_t *splits,
                       size_t row_count, hvd_dtype dtype, void *out, size_t out_rows, size_t *received,
                       const hvd_options *options, hvd_handle *handle);
int hvd_alltoall(const char *name, const void *in, size_t in_rows, const size_t *splits, size_t row_count,
                 hvd_dtype dtype, void *out, size_t out_rows, size_t *received, const hvd_options *options);

/* Reduces `rows` rows as hvd_allreduce does, and leaves each rank its part: rank r of n gets rows / n of
 * them, the first rows % n ranks one more, in order. `out` has room for that part and may not overlap `in`.
 */
int hvd_reducescatter_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                            hvd_op op, void *out, const hvd_options *options, hvd_handle *handle);
int hvd_reducescatter(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                      hvd_op op, void *out, const hvd_options *options);

/* The same for `n` tensors, as one operation: in[k] has rows[k] rows of row_count[k] elements, out[k] gets
 * this rank's part of them. */
int hvd_grouped_reducescatter_async(const char *name, size_t n, const void *const *in, const size_t *rows,
                                    const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                                    const hvd_options *options, hvd_handle *handle);
int hvd_grouped_reducescatter(const char *name, size_t n, const void *const *in, const size_t *rows,
                              const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                              const hvd_options *options);

/* Ends when every rank of the set has called it. Of the options only the set counts. Blocking barriers of
 * several threads follow one another; while one with a handle is pending, another is HVD_ERR_IN_PROGRESS. */
int hvd_barrier_async(const hvd_options *options, hvd_handle *handle);
int hvd_barrier(const hvd_options *options);

/* For ranks with unequal amounts of work: returns when every rank of the job has called it, and takes part in
 * what the others do meanwhile. To their allreduces (plain, grouped, shared, persistent; of any process set)
 * this rank gives zeros, and an average still divides by the number of all ranks; with HVD_MIN, HVD_MAX,
 * HVD_PRODUCT, HVD_BAND and HVD_LAND, and in all other kinds, a rank that has joined cannot be done without:
 * who calls one gets HVD_ERR_MISMATCH with a sentence that names ranks that have joined, and the job goes on.
 * So does hvd_shutdown, which then has not left the job. Operations that this rank has begun before go on and
 * may be waited for meanwhile or afterwards. What a shared allreduce has given is valid no longer.
 *
 * *last_rank (NULL: not wanted) gets the rank that joined last, by the clocks of the hosts, the same on all.
 * Until the join has ended no thread of this rank may begin anything, join again or shut down:
 * HVD_ERR_IN_PROGRESS. HVD_ERR_PEER, HVD_ERR_ENGINE: the job has failed; HVD_ERR_MEMORY: it fails, for want
 * of memory for the zeros. Joining again, for the next piece of work, is possible at once, when the
 * handle was waited for.
 *
 * hvd_join_async joins and returns; this rank takes part in a thread of the library's, which gets no signals
 * and lives until the join has ended. *last_rank is set by then, with success. HVD_ERR_SYSTEM: there is no
 * thread, and this rank has not joined. */
int hvd_join_async(int *last_rank, hvd_handle *handle);
int hvd_join(int *last_rank);

/* ---- two ranks ----
 *
 * hvd_send of one rank and hvd_recv of another belong together by their name, like the calls of any
 * operation, and have the same count and dtype. They name each other by rank (of options->set, when that is
 * given); no other rank takes part or notices, and a name means what it does between these two only. Each
 * waits for the other: hvd_send returns after the other rank has called hvd_recv. Between two ranks a name
 * has one operation at a time, in whichever direction. HVD_ERR_INVALID: `to` or `from` is this rank, or is
 * none, or the job has more than 4096 ranks. */
int hvd_send_async(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
                   const hvd_options *options, hvd_handle *handle);
int hvd_send(const char *name, const void *buffer, size_t count, hvd_dtype dtype, int to,
             const hvd_options *options);
/* The other half: `buffer` gets what rank `from` sends. */
int hvd_recv_async(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
                   const hvd_options *options, hvd_handle *handle);
int hvd_recv(const char *name, void *buffer, size_t count, hvd_dtype dtype, int from,
             const hvd_options *options);

/* ---- process sets ----
 *
 * Some of the ranks that do operations among themselves: those with their id in options->set. Sets progress
 * independently of each other, and a name in one has nothing to do with that name in another. Within a set a
 * rank is its index among the set's ranks in ascending order. HVD_WORLD has all ranks and is always there;
 * others are made and removed at any time after hvd_init, and gone after hvd_shutdown. A rank's death fails
 * the job, whatever sets it was in. */

/* Makes a set of `n` different ranks, in any order; all ranks of the job call it with the same ones, in the
 * set or not, and it returns when all have. *set gets the id, the same on every rank; ids are not used again.
 * HVD_ERR_SET_EXISTS: these ranks have a set. HVD_ERR_MISMATCH: the ranks disagree; every rank hears who with
 * whom, and there is no new set. At most 4095 sets can be made between hvd_init and hvd_shutdown. */
int hvd_set_add(const int *ranks, int n, hvd_set *set);
/* Removes it: all ranks of the job call it, and it returns when all have, and when what its operations have
 * left to do in streams of a device has been done. HVD_ERR_IN_PROGRESS: an operation in it was not waited
 * for, or a persistent handle not freed; HVD_ERR_INVALID: HVD_WORLD stays. */
int hvd_set_remove(hvd_set set);
/* This rank's index in the set; HVD_ERR_SET_FOREIGN: it is not in it. */
int hvd_set_rank(hvd_set set);
/* The set's number of ranks. */
int hvd_set_size(hvd_set set);
/* Their ranks in the job, ascending, to ranks[hvd_set_size(set)]. */
int hvd_set_ranks(hvd_set set, int *ranks);
/* The number of sets, HVD_WORLD too. */
int hvd_set_count(void);
/* Their ids, ascending, to ids[hvd_set_count()]. */
int hvd_set_ids(hvd_set *ids);

/* ---- handles ---- */

/* 1 when the operation has ended (hvd_wait will not block), 0 when it is pending, negative for an unknown
 * handle. */
int hvd_poll(hvd_handle handle);
/* Waits until the operation has ended and returns its status. Frees the handle, unless it is persistent: that
 * one is inactive then, and waiting for an inactive one returns at once. */
int hvd_wait(hvd_handle handle);

/* A persistent allreduce: name, arguments and places are checked and looked up once, by this call, which
 * starts nothing and involves no other rank. Then, as often as wanted, hvd_start (with the elements that `in`
 * holds at that time) and hvd_wait. Between, no other call of this rank may use the name. Other ranks may do
 * the same, or call the operation by its name. */
int hvd_allreduce_init(const char *name, const void *in, void *out, size_t count, hvd_dtype dtype, hvd_op op,
                       const hvd_options *options, hvd_handle *handle);
/* HVD_ERR_IN_PROGRESS: it was started and not waited for. */
int hvd_start(hvd_handle handle);
/* Frees an inactive persistent handle; the name may then be used otherwise. hvd_shutdown frees them too. */
int hvd_handle_free(hvd_handle handle);

/* Writes what the calling process does with each tensor to a file, in the Trace Event Format that
 * chrome://tracing and Perfetto open, until hvd_timeline_stop or hvd_shutdown. Any rank may call it at any
 * time; it concerns that rank alone. In `path`, %r stands for the rank; without it ".RANK" is put before the
 * extension. mark_cycles: not 0 marks each moment in which an operation begins. The file is written by a
 * thread that exists meanwhile; no operation waits for it, and what it cannot keep up with is counted in the
 * file. HVD_ERR_IN_PROGRESS: one is being written already. hvdrun --timeline-filename starts one in
 * hvd_init. */
int hvd_timeline_start(const char *path, int mark_cycles);
/* Completes the file. HVD_SUCCESS also when none is being written; HVD_ERR_SYSTEM: not all could be written.
 */
int hvd_timeline_stop(void);

/* The sentence of the last failure in this thread; "" when there was none. Valid until the thread's next
 * call. */
const char *hvd_last_error(void);
/* A status's name, for example "HVD_ERR_PEER", "unknown status" for any other number. Never NULL, for ever.
 */
const char *hvd_status_name(int status);
/* The library's version, "MAJOR.MINOR.PATCH". Valid for ever. */
const char *hvd_version(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
