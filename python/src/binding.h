/* The extension hvdrun._hvd: hvd.h for Python, in CPython's stable ABI. Its contract is
 * python/hvdrun/_hvd.pyi.
 *
 *   module.c      the table of functions; the job
 *   arguments.c   an object of the caller becomes an address, a count, a dtype and a stream
 *   interfaces.c  __array_interface__ and __cuda_array_interface__
 *   dlpack.c      __dlpack__
 *   operation.c   the life of an operation: begun, waited for, ended; what becomes of dropped ones
 *   calls.c       the arguments of each call; which function of hvd.h begins it
 *   rows.c        allgather and alltoall, which learn the size of their result
 *   handle.c      the type Handle
 *   persistent.c  the type Persistent: an allreduce that is started many times
 *   memory.c      the type Memory
 *   sets.c        process sets
 *   errors.c      a status becomes an exception
 *   exit.c        the end of the program
 *
 * The GIL protects all that is here. It is released in calls of hvd.h that may wait, copy or take a lock. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "collectives/hvd.h"

#define DTYPES 15

/* ---- errors.c ------------------------------------------------------------------------------------------ */

/* Sets the exception for the status, with the sentence. Returns -1. */
int raise_status(int status, const char *sentence);
/* The same with the library's sentence of this thread. Returns NULL. */
PyObject *raise_last(int status);

/* ---- arguments.c --------------------------------------------------------------------------------------- */

/* The place of elements. */
struct place {
    void *address;
    size_t count;
    int dtype;
    void *stream;
    bool on_device;
    uint32_t shape, row_shape; /* for hvd_options.shape: of all dimensions, and of all but the first */
};

/* It keeps such memory alive and in place. */
struct kept {
    Py_buffer view; /* view.obj NULL: none */
    PyObject *object;
};

/* The memory of an argument. It is kept as long as `kept` says. 0, or -1 with an exception. */
int place_of(PyObject *argument, bool written, struct place *place, struct kept *kept);
void kept_release(struct kept *kept);
/* Bytes of an element. */
size_t dtype_bytes(int dtype);
/* A non-negative number. -1 with an exception. */
int size_of(PyObject *number, const char *what, size_t *size);
/* Sets the number of elements and the numbers of the shape. */
void take_dimensions(size_t n, const int64_t *shape, struct place *place);
/* Whether it is C-contiguous. `strides` are in units of which an element has `step`; NULL: it is. */
bool is_contiguous(size_t n, const int64_t *shape, const int64_t *strides, int64_t step);

/* ---- interfaces.c, dlpack.c ---------------------------------------------------------------------------- */

/* 1: `place` is set; 0: the object has no such attribute; -1: an exception. */
int place_of_interface(PyObject *object, bool written, struct place *place, struct kept *kept);
int place_of_dlpack(PyObject *object, bool written, struct place *place, struct kept *kept);

/* ---- memory.c ------------------------------------------------------------------------------------------ */

enum memory_kind { MEMORY_PRIVATE, MEMORY_SHARED, MEMORY_DEVICE };

extern PyTypeObject *memory_type;
int memory_make_type(PyObject *module);
/* A new Memory, or NULL with an exception. */
PyObject *memory_new(size_t bytes, enum memory_kind kind);
void *memory_address(PyObject *memory);
/* Bytes of malloc; the address of nothing for none. NULL: there is no memory. Without the GIL too. */
void *memory_take_private(size_t bytes);
/* A Memory of such bytes, which it takes over. NULL with an exception. */
PyObject *memory_adopt(void *address, size_t bytes);
/* The number of Memories of devices. */
size_t memory_of_devices(void);
/* hvd_shutdown has freed the memory of devices. */
void memory_forget_devices(void);

/* ---- operation.c --------------------------------------------------------------------------------------- */

enum kind {
    KIND_ALLREDUCE,
    KIND_GROUPED_ALLREDUCE,
    KIND_BROADCAST,
    KIND_ALLGATHER,
    KIND_ALLTOALL,
    KIND_REDUCESCATTER,
    KIND_GROUPED_REDUCESCATTER,
    KIND_BARRIER,
    KIND_JOIN,
    KIND_SEND,
    KIND_RECV
};

enum phase {
    PHASE_NEW,
    PHASE_HELD,   /* another operation has its name */
    PHASE_SIZING, /* the ranks tell each other their numbers of rows first (rows.c) */
    PHASE_RUNNING,
    PHASE_ENDED
};

/* The arguments of a call. Pointers to arrays: the operation frees them. */
struct call {
    const char *name;
    struct place in, out;
    bool into;    /* an allgather or alltoall: `out` is the caller's */
    int op, rank; /* rank: the root, or the other rank */
    hvd_options options;
    size_t rows, row_count;
    size_t *splits;
    /* of a group: */
    size_t n;
    const void **ins;
    void **outs;
    size_t *counts, *row_counts;
};

/* An allgather or alltoall; rows.c. */
struct sizes;

struct link {
    struct link *before, *after;
};

struct operation {
    struct link link; /* first: in one of the lists of operation.c until it has ended; else NULL */
    struct operation *earlier, *later; /* operations of the same name; NULL: none is pending */
    enum kind kind;
    enum phase phase;
    bool orphan;  /* nobody has a Handle of it: freed when it has ended */
    bool waiting; /* a thread waits for it */
    int status;
    char *text; /* of a status that is not 0 */
    hvd_handle handle;
    struct call call;
    struct sizes *sizes;
    int last_rank;
    PyObject *name, *owner, *result, *rows;
    size_t kept_number, kept_room;
    struct kept *kept;
    struct kept first_kept[2];
};

/* A new operation with the name, or NULL with an exception. `name` NULL: it has none. */
struct operation *operation_new(enum kind kind, PyObject *name, PyObject *owner);
/* Before it was begun, or after its end. */
void operation_free(struct operation *o);
/* Room to keep `n` arguments. 0, or -1 with an exception. */
int operation_reserve(struct operation *o, size_t n);
/* Adds an argument's memory to what is kept. */
int operation_keep(struct operation *o, PyObject *argument, bool written, struct place *place);
/* Begins it. 0, or -1 with an exception; it has ended then. */
int operation_begin(struct operation *o);
/* Waits for the end. 0: it has ended; -1: an exception (of a signal handler, or WaitTimeoutError). `seconds`
 * below 0: without a limit. */
int operation_wait(struct operation *o, double seconds);
/* Seconds of a clock that never jumps. */
double read_clock(void);
/* Whether it has ended; does what can be done now. */
bool operation_poll(struct operation *o);
/* Its result, or NULL with its exception. It has ended. */
PyObject *operation_result(struct operation *o);
/* Nobody needs it any more. Its buffers are kept until it has ended. */
void operation_drop(struct operation *o);
/* Looks after dropped operations, and those that wait for sizes. */
void operations_reap(void);

/* Lets the handles of those that have ended know their ends: the library forgets them. */
void operations_settle(void);
/* The number of those that have not ended. */
size_t operations_pending(void);
/* The number of those that the library still works on. Moves them on. Uses nothing of Python. */
size_t operations_under_way(void);

/* ---- calls.c ------------------------------------------------------------------------------------------- */

/* Calls the function of hvd.h that begins the operation. A status. Without the GIL. */
int call_begin(struct operation *o);
/* The arguments of an allreduce, as _hvd.pyi has them. NULL with an exception. */
struct operation *call_take_allreduce(PyObject *const *argument);
extern PyMethodDef call_methods[];

/* ---- rows.c -------------------------------------------------------------------------------------------- */

/* Whether the ranks must tell each other their numbers of rows before the operation. */
bool rows_must_ask(const struct operation *o);
/* Prepares the operation, and the question. 0, or -1 with an exception. */
int rows_prepare(struct operation *o);
/* Begins the operation without a question. A status. Without the GIL. */
int rows_run(struct operation *o);
/* Begins the question. A status. Without the GIL. */
int rows_ask(struct operation *o);
/* The answers are there: takes memory for the result. A status, with a sentence of malloc; 1: the result is
 * empty, and nothing is left to do. */
int rows_answered(struct operation *o, char **sentence);
/* A sentence of malloc: the rows are not as many as the caller's memory holds. NULL: they are. */
char *rows_misfit(const struct operation *o);
/* Begins the operation itself. A status. Without the GIL. */
int rows_begin(struct operation *o);
/* The operation has ended with success: sets result and rows. 0, or -1 with an exception. */
int rows_take(struct operation *o);
void rows_free(struct operation *o);

/* ---- handle.c, persistent.c, sets.c -------------------------------------------------------------------- */

extern PyTypeObject *handle_type;
int handle_make_type(PyObject *module);
/* A new Handle, which owns the operation; NULL with an exception, and the operation is dropped. */
PyObject *handle_new(struct operation *o);
/* The argument of wait(timeout=None, /); below 0: without a limit. 0, or -1 with an exception. */
int take_time_limit(PyObject *const *argument, Py_ssize_t n, double *seconds);
int persistent_make_type(PyObject *module);
extern PyMethodDef set_methods[];

/* ---- exit.c -------------------------------------------------------------------------------------------- */

extern PyMethodDef exit_methods[];

/* The job's epoch: the number of shutdowns so far. */
extern unsigned job_epoch;

/* ---- checks of calls ----------------------------------------------------------------------------------- */

static inline int check_number(const char *function, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd positional arguments, but %zd were given", function, wanted,
                 given);
    return -1;
}

/* The stable ABI lacks a type for functions with METH_FASTCALL. */
#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL
