/* The type Memory: bytes in the job's shared memory, of a device, or of this process alone. All but a
 * device's live as long as the Memory, whatever becomes of the job. */
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
static size_t device_memory; /* pieces of a device */
static uint8_t nothing[1];   /* the address of no bytes */

size_t memory_of_devices(void)
{
    return device_memory;
}

void memory_forget_devices(void)
{
    device_memory = 0;
}

void *memory_address(PyObject *memory)
{
    return ((struct memory *)memory)->address;
}

static bool is_of_device(const struct memory *m)
{
    return m->kind == MEMORY_DEVICE && m->bytes > 0;
}

void *memory_take_private(size_t bytes)
{
    void *address;

    if (bytes == 0)
        return nothing;
    return posix_memalign(&address, ALIGNMENT, bytes) == 0 ? address : NULL;
}

/* NULL with an exception. */
static void *take_bytes(size_t bytes, enum memory_kind kind)
{
    void *address;

    if (bytes == 0 || kind == MEMORY_PRIVATE) {
        address = memory_take_private(bytes);
        return address ? address : PyErr_NoMemory();
    }
    address = kind == MEMORY_DEVICE ? hvd_alloc_device(bytes) : hvd_alloc_lasting(bytes);
    if (!address)
        raise_last(kind == MEMORY_SHARED || hvd_is_initialized() == 1 ? HVD_ERR_MEMORY
                                                                      : HVD_ERR_NOT_INITIALIZED);
    return address;
}

/* The bytes are not the job's any more when hvd_shutdown has freed those of devices. */
static void free_bytes(void *address, size_t bytes, enum memory_kind kind, unsigned epoch)
{
    if (bytes == 0)
        return;
    if (kind == MEMORY_PRIVATE)
        free(address);
    else if (kind == MEMORY_SHARED || epoch == job_epoch)
        hvd_free(address);
}

/* Takes over the bytes. NULL with an exception. */
static PyObject *wrap_bytes(void *address, size_t bytes, enum memory_kind kind)
{
    struct memory *m = PyObject_New(struct memory, memory_type);

    if (!m) {
        free_bytes(address, bytes, kind, job_epoch);
        return NULL;
    }
    m->address = address;
    m->bytes = bytes;
    m->kind = kind;
    m->epoch = job_epoch;
    device_memory += is_of_device(m);
    return (PyObject *)m;
}

PyObject *memory_new(size_t bytes, enum memory_kind kind)
{
    void *address = take_bytes(bytes, kind);

    return address ? wrap_bytes(address, bytes, kind) : NULL;
}

PyObject *memory_adopt(void *address, size_t bytes)
{
    return wrap_bytes(address, bytes, MEMORY_PRIVATE);
}

static void free_memory(PyObject *self)
{
    struct memory *m = (struct memory *)self;
    PyTypeObject *type = Py_TYPE(self);

    free_bytes(m->address, m->bytes, m->kind, m->epoch);
    if (is_of_device(m) && m->epoch == job_epoch)
        device_memory--;
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
