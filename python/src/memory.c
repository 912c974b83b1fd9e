/* The type Memory: bytes of hvd_alloc, of a device, or of this process alone. */
#include "python/src/binding.h"

#include <stdlib.h>

#define ALIGNMENT 64

struct memory {
    PyObject_HEAD void *address;
    size_t bytes;
    enum memory_kind kind;
    unsigned epoch; /* the job's, when it was made */
};

PyTypeObject *memory_type;
static size_t in_use;
static uint8_t nothing[1]; /* the address of no bytes */

size_t memory_in_use(void)
{
    return in_use;
}

void memory_forget(void)
{
    in_use = 0;
}

void *memory_address(PyObject *memory)
{
    return ((struct memory *)memory)->address;
}

static bool is_of_job(const struct memory *m)
{
    return m->kind != MEMORY_PRIVATE && m->bytes > 0;
}

/* hvd_shutdown has freed it. */
static bool has_gone(const struct memory *m)
{
    return is_of_job(m) && m->epoch != job_epoch;
}

/* NULL with an exception. */
static void *take_bytes(size_t bytes, enum memory_kind kind)
{
    void *address;

    if (bytes == 0)
        return nothing;
    if (kind == MEMORY_PRIVATE) {
        if (posix_memalign(&address, ALIGNMENT, bytes) == 0)
            return address;
        return PyErr_NoMemory();
    }
    address = kind == MEMORY_DEVICE ? hvd_alloc_device(bytes) : hvd_alloc(bytes);
    if (!address)
        raise_last(hvd_is_initialized() == 1 ? HVD_ERR_MEMORY : HVD_ERR_NOT_INITIALIZED);
    return address;
}

PyObject *memory_new(size_t bytes, enum memory_kind kind)
{
    void *address = take_bytes(bytes, kind);
    struct memory *m;

    if (!address)
        return NULL;
    m = PyObject_New(struct memory, memory_type);
    if (!m)
        return NULL;
    m->address = address;
    m->bytes = bytes;
    m->kind = kind;
    m->epoch = job_epoch;
    in_use += is_of_job(m);
    return (PyObject *)m;
}

static void free_memory(PyObject *self)
{
    struct memory *m = (struct memory *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (is_of_job(m) && !has_gone(m)) {
        hvd_free(m->address);
        in_use--;
    } else if (m->kind == MEMORY_PRIVATE && m->bytes > 0) {
        free(m->address);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *m = (struct memory *)self;

    view->obj = NULL;
    if (m->kind == MEMORY_DEVICE) {
        PyErr_SetString(PyExc_BufferError, "this memory is a device's");
        return -1;
    }
    if (has_gone(m)) {
        PyErr_SetString(PyExc_BufferError, "this memory ended with shutdown()");
        return -1;
    }
    return PyBuffer_FillInfo(view, self, m->address, (Py_ssize_t)m->bytes, 0, flags);
}

static Py_ssize_t get_length(PyObject *self)
{
    return (Py_ssize_t)((struct memory *)self)->bytes;
}

static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((struct memory *)self)->address);
}

static PyObject *get_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(((struct memory *)self)->bytes);
}

static PyObject *get_shared(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct memory *)self)->kind == MEMORY_SHARED);
}

static PyObject *get_cuda_interface(PyObject *self, void *unused)
{
    struct memory *m = (struct memory *)self;

    (void)unused;
    if (m->kind != MEMORY_DEVICE) {
        PyErr_SetString(PyExc_AttributeError, "this memory is not a device's");
        return NULL;
    }
    return Py_BuildValue("{s:(n),s:s,s:(NO),s:i}", "shape", (Py_ssize_t)m->bytes, "typestr", "|u1", "data",
                         PyLong_FromVoidPtr(m->address), Py_False, "version", 3);
}

int memory_make_type(PyObject *module)
{
    static PyGetSetDef attributes[] = {
        {"address", get_address, NULL, "The address of the first byte.", NULL},
        {"nbytes", get_nbytes, NULL, "The number of bytes.", NULL},
        {"shared", get_shared, NULL, "True: in the job's shared memory.", NULL},
        {"__cuda_array_interface__", get_cuda_interface, NULL, "Of memory of a device: bytes.", NULL},
        {0}};
    static PyType_Slot slots[] = {{Py_tp_doc, "Bytes of the library. Freed with the last view of them."},
                                  {Py_tp_dealloc, free_memory},
                                  {Py_tp_getset, attributes},
                                  {Py_bf_getbuffer, get_buffer},
                                  {Py_mp_length, get_length},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "hvdrun._hvd.Memory",
                               .basicsize = sizeof(struct memory),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};

    memory_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return memory_type ? PyModule_AddObjectRef(module, "Memory", (PyObject *)memory_type) : -1;
}
