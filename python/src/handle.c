/* The type Handle: an operation that Python waits for. */
#include "python/src/binding.h"

struct handle {
    PyObject_HEAD struct operation *operation;
};

PyTypeObject *handle_type;

static struct operation *operation_of(PyObject *self)
{
    return ((struct handle *)self)->operation;
}

PyObject *handle_new(struct operation *o)
{
    struct handle *h = PyObject_New(struct handle, handle_type);

    if (!h)
        operation_drop(o);
    else
        h->operation = o;
    return (PyObject *)h;
}

static void free_handle(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kind, *value, *trace;

    PyErr_Fetch(&kind, &value, &trace);
    operation_drop(operation_of(self));
    PyErr_Restore(kind, value, trace);
    PyObject_Free(self);
    Py_DECREF(type);
}

int take_time_limit(PyObject *const *argument, Py_ssize_t n, double *seconds)
{
    *seconds = -1;
    if (n > 1)
        return check_number("wait", n, 1);
    if (n == 0 || argument[0] == Py_None)
        return 0;
    *seconds = PyFloat_AsDouble(argument[0]);
    if (*seconds == -1 && PyErr_Occurred())
        return -1;
    if (*seconds >= 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a time limit is not below 0");
    return -1;
}

static PyObject *wait_handle(PyObject *self, PyObject *const *argument, Py_ssize_t n)
{
    double seconds;

    if (take_time_limit(argument, n, &seconds) != 0)
        return NULL;
    return operation_wait(operation_of(self), seconds) == 0 ? operation_result(operation_of(self)) : NULL;
}

static PyObject *poll_handle(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(operation_poll(operation_of(self)));
}

static PyObject *get_done(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(operation_of(self)->phase == PHASE_ENDED);
}

static PyObject *get_name(PyObject *self, void *unused)
{
    struct operation *o = operation_of(self);

    (void)unused;
    return o->name ? Py_NewRef(o->name) : PyUnicode_FromString(o->kind == KIND_JOIN ? "join" : "barrier");
}

static PyObject *get_rows(PyObject *self, void *unused)
{
    PyObject *rows = operation_of(self)->rows;

    (void)unused;
    return Py_NewRef(rows ? rows : Py_None);
}

static PyObject *show_handle(PyObject *self)
{
    struct operation *o = operation_of(self);
    PyObject *name = get_name(self, NULL), *text = NULL;

    if (name)
        text = PyUnicode_FromFormat("<hvdrun handle of \"%U\", %s>", name,
                                    o->phase != PHASE_ENDED ? "pending"
                                    : o->status == 0        ? "done"
                                                            : hvd_status_name(o->status));
    Py_XDECREF(name);
    return text;
}

int handle_make_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"wait", FAST(wait_handle),
         "wait(timeout=None, /): waits until the operation has ended; returns its result"},
        {"poll", poll_handle, METH_NOARGS, "poll(): True when wait() will not block"},
        {0}};
    static PyGetSetDef attributes[] = {
        {"done", get_done, NULL, "True: wait() or poll() has seen the end.", NULL},
        {"name", get_name, NULL, "The tensor's name.", NULL},
        {"rows", get_rows, NULL, "After an allgather or alltoall: the rows that came from each rank.", NULL},
        {0}};
    static PyType_Slot slots[] = {{Py_tp_doc, "One operation. Its buffers live until it has ended."},
                                  {Py_tp_dealloc, free_handle},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, attributes},
                                  {Py_tp_repr, show_handle},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "hvdrun._hvd.Handle",
                               .basicsize = sizeof(struct handle),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};

    handle_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return handle_type ? PyModule_AddObjectRef(module, "Handle", (PyObject *)handle_type) : -1;
}
