/* The module: the job, memory, the timeline, and what the other files add. */
#include "python/src/binding.h"

#include <stdio.h>
#include <time.h>

unsigned job_epoch;

static PyObject *start_job(PyObject *module, PyObject *unused)
{
    int status;

    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS status = hvd_init();
    Py_END_ALLOW_THREADS return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

/* 0, or -1 with an exception: something still needs the job. */
enum { RESET_LIMIT_MS = 30000 };

/* Nothing of this rank needs the job. 0, or an exception. */
static int check_idle(void)
{
    char text[160];
    size_t under_way, memory = memory_of_devices();

    operations_reap();
    under_way = operations_under_way();
    if (under_way > 0)
        snprintf(text, sizeof text, "%zu operations are pending: wait for them first", under_way);
    else if (memory > 0)
        snprintf(text, sizeof text, "%zu pieces of memory of alloc_device() are in use: delete them first",
                 memory);
    else
        return 0;
    return raise_status(HVD_ERR_IN_PROGRESS, text);
}

static PyObject *end_job(PyObject *module, PyObject *unused)
{
    int status;

    (void)module, (void)unused;
    if (hvd_is_initialized() == 0)
        return Py_NewRef(Py_None);
    if (hvd_is_initialized() == 1 && check_idle() != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = hvd_shutdown();
    Py_END_ALLOW_THREADS if (hvd_is_initialized() == 0)
    {
        job_epoch++;
        memory_forget_devices();
    }
    return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

/* When a rank has died, all operations end with an error, though not all in one moment: waits for them. */
static int wait_until_idle(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int left;

    for (left = RESET_LIMIT_MS; left > 0; left--) {
        operations_reap();
        if (operations_under_way() == 0)
            break;
        Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() != 0) return -1;
    }
    return check_idle();
}

/* To the next membership of an elastic job; in a job that is not elastic to its next epoch. */
static PyObject *reset_job(PyObject *module, PyObject *unused)
{
    int status;

    (void)module, (void)unused;
    if (hvd_is_initialized() == 1 && wait_until_idle() != 0)
        return NULL;
    operations_settle();
    Py_BEGIN_ALLOW_THREADS status = hvd_is_initialized() == 1 ? hvd_reset() : hvd_init();
    Py_END_ALLOW_THREADS job_epoch++;
    memory_forget_devices();
    return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *has_membership_changed(PyObject *module, PyObject *unused)
{
    int changed = hvd_membership_changed();

    (void)module, (void)unused;
    return changed >= 0 ? PyBool_FromLong(changed) : raise_last(changed);
}

static PyObject *tell_stage(PyObject *module, PyObject *number)
{
    long stage = PyLong_AsLong(number);
    int status;

    (void)module;
    if (stage == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = hvd_stage((int)stage);
    Py_END_ALLOW_THREADS return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *abort_job(PyObject *module, PyObject *why)
{
    const char *text = PyUnicode_AsUTF8AndSize(why, NULL);
    int status = text ? hvd_abort(text) : 0;

    (void)module;
    if (!text)
        return NULL;
    return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *is_initialized(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(hvd_is_initialized() == 1);
}

/* A number of the job. */
#define NUMBER(name)                                                                                         \
    static PyObject *get_##name(PyObject *module, PyObject *unused)                                          \
    {                                                                                                        \
        int number = hvd_##name();                                                                           \
        (void)module, (void)unused;                                                                          \
        return number >= 0 ? PyLong_FromLong(number) : raise_last(number);                                   \
    }

NUMBER(rank)
NUMBER(size)
NUMBER(local_rank)
NUMBER(local_size)
NUMBER(cross_rank)
NUMBER(cross_size)
NUMBER(membership)

static PyObject *get_version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(hvd_version());
}

static PyObject *get_status_name(PyObject *module, PyObject *number)
{
    long status = PyLong_AsLong(number);

    (void)module;
    return status == -1 && PyErr_Occurred() ? NULL : PyUnicode_FromString(hvd_status_name((int)status));
}

static PyObject *get_pending(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    operations_reap();
    return PyLong_FromSize_t(operations_pending());
}

static PyObject *get_under_way(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    operations_reap();
    return PyLong_FromSize_t(operations_under_way());
}

static PyObject *alloc_memory(PyObject *module, PyObject *number)
{
    size_t bytes;

    (void)module;
    return size_of(number, "the number of bytes", &bytes) == 0 ? memory_new(bytes, MEMORY_SHARED) : NULL;
}

static PyObject *alloc_device(PyObject *module, PyObject *number)
{
    size_t bytes;

    (void)module;
    return size_of(number, "the number of bytes", &bytes) == 0 ? memory_new(bytes, MEMORY_DEVICE) : NULL;
}

static PyObject *start_timeline(PyObject *module, PyObject *const *argument, Py_ssize_t n)
{
    PyObject *path;
    int mark, status;

    (void)module;
    if (check_number("timeline_start", n, 2) != 0 || (mark = PyObject_IsTrue(argument[1])) < 0 ||
        !PyUnicode_FSConverter(argument[0], &path))
        return NULL;
    status = hvd_timeline_start(PyBytes_AsString(path), mark);
    Py_DECREF(path);
    return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *stop_timeline(PyObject *module, PyObject *unused)
{
    int status;

    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS status = hvd_timeline_stop();
    Py_END_ALLOW_THREADS return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyMethodDef job_methods[] = {
    {"init", start_job, METH_NOARGS, "init(): joins the job; returns when every rank has called it"},
    {"shutdown", end_job, METH_NOARGS, "shutdown(): leaves the job"},
    {"reset", reset_job, METH_NOARGS, "reset(): goes on with the ranks of the next membership"},
    {"membership", get_membership, METH_NOARGS, "membership() -> int: its number; 0: not elastic"},
    {"stage", tell_stage, METH_O, "stage(stage) -> None"},
    {"membership_changed", has_membership_changed, METH_NOARGS, "membership_changed() -> bool"},
    {"abort", abort_job, METH_O, "abort(why, /): says that this rank has failed"},
    {"is_initialized", is_initialized, METH_NOARGS, "is_initialized() -> bool"},
    {"rank", get_rank, METH_NOARGS, "rank() -> int: this worker among all of the job"},
    {"size", get_size, METH_NOARGS, "size() -> int: the number of ranks"},
    {"local_rank", get_local_rank, METH_NOARGS, "local_rank() -> int: this worker among those of its host"},
    {"local_size", get_local_size, METH_NOARGS, "local_size() -> int: the number of ranks on this host"},
    {"cross_rank", get_cross_rank, METH_NOARGS,
     "cross_rank() -> int: this host among those with this local rank"},
    {"cross_size", get_cross_size, METH_NOARGS,
     "cross_size() -> int: the number of hosts with this local rank"},
    {"version", get_version, METH_NOARGS, "version() -> str: the library's"},
    {"status_name", get_status_name, METH_O, "status_name(status, /) -> str"},
    {"pending", get_pending, METH_NOARGS, "pending() -> int: operations that have not ended"},
    {"under_way", get_under_way, METH_NOARGS,
     "under_way() -> int: operations that the library still works on"},
    {"alloc", alloc_memory, METH_O, "alloc(nbytes, /) -> Memory: zeroed bytes in the job's shared memory"},
    {"alloc_device", alloc_device, METH_O, "alloc_device(nbytes, /) -> Memory: zeroed bytes of a GPU"},
    {"timeline_start", FAST(start_timeline), "timeline_start(path, mark_cycles, /)"},
    {"timeline_stop", stop_timeline, METH_NOARGS, "timeline_stop()"},
    {0}};

static int fill_module(PyObject *module)
{
    return PyModule_AddFunctions(module, call_methods) != 0 ||
                   PyModule_AddFunctions(module, set_methods) != 0 ||
                   PyModule_AddFunctions(module, exit_methods) != 0 || memory_make_type(module) != 0 ||
                   handle_make_type(module) != 0 || persistent_make_type(module) != 0
               ? -1
               : 0;
}

/* A process has one job, so this module is for the first interpreter only, and has one phase of
 * initialisation. */
PyMODINIT_FUNC PyInit__hvd(void);
PyMODINIT_FUNC PyInit__hvd(void)
{
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "hvdrun._hvd",
                                            .m_doc = "The binding: hvd.h for Python. See _hvd.pyi.",
                                            .m_size = -1, .m_methods = job_methods};
    PyObject *module = PyModule_Create(&definition);

    if (module && fill_module(module) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
