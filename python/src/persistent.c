/* The type Persistent: an allreduce that is checked once and started many times (hvd_allreduce_init). Its
 * buffers are kept as long as it lives. If it is dropped while it is started, its buffers are never freed:
 * the other ranks may still read them. */
#include "python/src/binding.h"

#include <math.h>

#define SLICE_MS 50 /* signal handlers run at least that often */

struct persistent {
    PyObject_HEAD struct operation *operation;
    bool started;
};

static PyTypeObject *persistent_type;

static struct persistent *self_of(PyObject *self)
{
    return (struct persistent *)self;
}

static int begin_operation(struct operation *o)
{
    const struct call *c = &o->call;
    int status;

    Py_BEGIN_ALLOW_THREADS status =
        hvd_allreduce_init(c->name, c->in.address, c->out.address, c->in.count, (hvd_dtype)c->in.dtype,
                           (hvd_op)c->op, &c->options, &o->handle);
    Py_END_ALLOW_THREADS return status;
}

static PyObject *make_persistent(PyObject *module, PyObject *const *a, Py_ssize_t n)
{
    struct operation *o;
    struct persistent *p;
    int status;

    (void)module;
    if (check_number("allreduce_init", n, 9) != 0 || !(o = call_take_allreduce(a)))
        return NULL;
    status = begin_operation(o);
    if (status != HVD_SUCCESS) {
        operation_free(o);
        return raise_last(status);
    }
    p = PyObject_New(struct persistent, persistent_type);
    if (!p) {
        hvd_handle_free(o->handle);
        operation_free(o);
        return NULL;
    }
    p->operation = o;
    p->started = false;
    return (PyObject *)p;
}

static PyObject *start_persistent(PyObject *self, PyObject *unused)
{
    struct persistent *p = self_of(self);
    int status;

    (void)unused;
    Py_BEGIN_ALLOW_THREADS status = hvd_start(p->operation->handle);
    Py_END_ALLOW_THREADS if (status != HVD_SUCCESS) return raise_last(status);
    p->started = true;
    return Py_NewRef(Py_None);
}

/* The wait has ended with that status. */
static PyObject *end_wait(struct persistent *p, int status)
{
    p->started = false;
    return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *wait_persistent(PyObject *self, PyObject *const *argument, Py_ssize_t n)
{
    struct persistent *p = self_of(self);
    double seconds = -1, until;

    if (take_time_limit(argument, n, &seconds) != 0)
        return NULL;
    until = seconds >= 0 ? read_clock() + seconds : 0;
    for (;;) {
        double left = seconds >= 0 ? until - read_clock() : 1;
        unsigned slice = left * 1000 < SLICE_MS ? (unsigned)ceil(left > 0 ? left * 1000 : 0) : SLICE_MS;
        int status;
        Py_BEGIN_ALLOW_THREADS status = hvd_wait_for(p->operation->handle, slice);
        Py_END_ALLOW_THREADS if (status != HVD_ERR_TIMEOUT) return end_wait(p, status);
        if (PyErr_CheckSignals() != 0)
            return NULL;
        if (seconds >= 0 && left <= 0)
            return raise_last(status);
    }
}

static PyObject *poll_persistent(PyObject *self, PyObject *unused)
{
    int ended = hvd_poll(self_of(self)->operation->handle);

    (void)unused;
    return ended < 0 ? raise_last(ended) : PyBool_FromLong(ended == 1);
}

/* 1 and negative answers of hvd_poll: the library needs the buffers no more. */
static void free_persistent(PyObject *self)
{
    struct persistent *p = self_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kind, *value, *trace;

    PyErr_Fetch(&kind, &value, &trace);
    if (!p->started || hvd_poll(p->operation->handle) != 0) {
        if (p->started)
            hvd_wait(p->operation->handle);
        hvd_handle_free(p->operation->handle);
        operation_free(p->operation);
    }
    PyErr_Restore(kind, value, trace);
    PyObject_Free(self);
    Py_DECREF(type);
}

int persistent_make_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"start", start_persistent, METH_NOARGS, "start(): begins with the elements of this moment"},
        {"wait", FAST(wait_persistent), "wait(timeout=None, /): waits until the operation has ended"},
        {"poll", poll_persistent, METH_NOARGS, "poll(): True when wait() will not block"},
        {0}};
    static PyType_Slot slots[] = {{Py_tp_doc, "An allreduce that is started many times."},
                                  {Py_tp_dealloc, free_persistent},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "hvdrun._hvd.Persistent",
                               .basicsize = sizeof(struct persistent),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
    static PyMethodDef functions[] = {
        {"allreduce_init", FAST(make_persistent),
         "allreduce_init(name, input, output, op, set, prescale, postscale, compression, owner, /)"},
        {0}};

    persistent_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return persistent_type && PyModule_AddObjectRef(module, "Persistent", (PyObject *)persistent_type) == 0
               ? PyModule_AddFunctions(module, functions)
               : -1;
}
