/* An object of the caller becomes the address, count, dtype and stream of its elements.
 *
 * A tuple of numbers is taken at its word. Other objects are asked in the order of what it costs: the buffer
 * protocol, then interfaces.c, then dlpack.c. */
#include "python/src/binding.h"

#define TUPLE_DIMENSIONS 64

size_t dtype_bytes(int dtype)
{
    static const uint8_t bytes[DTYPES] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 4, 8, 1, 1};

    return bytes[dtype];
}

int size_of(PyObject *number, const char *what, size_t *size)
{
    *size = PyLong_AsSize_t(number);
    if (*size != (size_t)-1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, "%s is %S, which is no number of elements", what, number);
    return -1;
}

/* A list needs no number, since its count says all. FNV-1a, by words. */
static uint32_t number_shape(size_t n, const int64_t *shape)
{
    uint64_t hash = 0xcbf29ce484222325;

    if (n < 2)
        return 0;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)shape[i]) * 0x100000001b3;
    return (uint32_t)(hash >> 32 ^ hash) | 1;
}

void take_dimensions(size_t n, const int64_t *shape, struct place *place)
{
    place->count = 1;
    for (size_t i = 0; i < n; i++)
        place->count *= (size_t)shape[i];
    place->shape = number_shape(n, shape);
    place->row_shape = n > 0 ? number_shape(n - 1, shape + 1) : 0;
}

bool is_contiguous(size_t n, const int64_t *shape, const int64_t *strides, int64_t step)
{
    bool contiguous = true;
    int64_t count = 1;

    for (size_t i = n; strides && i-- > 0;) {
        if (shape[i] != 1 && strides[i] != step * count)
            contiguous = false;
        count *= shape[i];
    }
    return contiguous || count == 0;
}

/* ---- tuples -------------------------------------------------------------------------------------------- */

static int take_dtype(PyObject *number, struct place *place)
{
    long dtype = PyLong_AsLong(number);

    if (dtype >= 0 && dtype < DTYPES) {
        place->dtype = (int)dtype;
        return 0;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%ld is no dtype of hvd.h", dtype);
    return -1;
}

static int take_shape(PyObject *tuple, struct place *place)
{
    int64_t shape[TUPLE_DIMENSIONS];
    Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    size_t count = place->count;

    if (n < 0 || n > TUPLE_DIMENSIONS) {
        PyErr_Format(PyExc_TypeError, "a shape is a tuple of at most %d numbers, and not %R",
                     TUPLE_DIMENSIONS, tuple);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (PyErr_Occurred())
        return -1;
    take_dimensions((size_t)n, shape, place);
    place->count = count;
    return 0;
}

/* (address, count, dtype), then the stream or None, then the shape */
static int place_of_tuple(PyObject *tuple, struct place *place)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    PyObject *stream;

    if (n < 3 || n > 5) {
        PyErr_Format(PyExc_TypeError,
                     "a buffer's tuple is (address, count, dtype), (address, count, dtype, stream) or "
                     "(address, count, dtype, stream, shape), and has not %zd members",
                     n);
        return -1;
    }
    place->address = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, 0));
    if (!place->address && PyErr_Occurred())
        return -1;
    if (size_of(PyTuple_GetItem(tuple, 1), "the count", &place->count) != 0 ||
        take_dtype(PyTuple_GetItem(tuple, 2), place) != 0)
        return -1;
    stream = n > 3 ? PyTuple_GetItem(tuple, 3) : Py_None;
    place->on_device = stream != Py_None;
    place->stream = place->on_device ? PyLong_AsVoidPtr(stream) : NULL;
    if (place->on_device && !place->stream && PyErr_Occurred())
        return -1;
    place->shape = place->row_shape = 0;
    return n == 5 ? take_shape(PyTuple_GetItem(tuple, 4), place) : 0;
}

/* ---- the buffer protocol ------------------------------------------------------------------------------- */

static int integer_dtype(Py_ssize_t bytes, bool is_signed)
{
    switch (bytes) {
    case 1:
        return is_signed ? HVD_INT8 : HVD_UINT8;
    case 2:
        return is_signed ? HVD_INT16 : HVD_UINT16;
    case 4:
        return is_signed ? HVD_INT32 : HVD_UINT32;
    case 8:
        return is_signed ? HVD_INT64 : HVD_UINT64;
    default:
        return -1;
    }
}

/* The dtype of a format of the struct module; -1: hvd.h lacks it. */
static int dtype_of_format(const char *format, Py_ssize_t bytes)
{
    if (!format)
        return HVD_UINT8;
    if (*format == '@' || *format == '=' || *format == '<' ||
        (bytes == 1 && (*format == '>' || *format == '!')))
        format++;
    if (!format[0] || format[1])
        return -1;
    switch (*format) {
    case 'f':
        return bytes == 4 ? HVD_FLOAT32 : -1;
    case 'd':
        return bytes == 8 ? HVD_FLOAT64 : -1;
    case 'e':
        return bytes == 2 ? HVD_FLOAT16 : -1;
    case '?':
        return bytes == 1 ? HVD_BOOL : -1;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
        return integer_dtype(bytes, true);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
    case 'c':
        return integer_dtype(bytes, false);
    default:
        return -1;
    }
}

/* 1: `place` is set; 0: the object cannot be had in this way, with an exception; -1: an exception that
 * stays. */
static int place_of_buffer(PyObject *object, bool written, struct place *place, struct kept *kept)
{
    Py_buffer *view = &kept->view;

    if (PyObject_GetBuffer(object, view,
                           PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0)) != 0)
        return 0;
    place->dtype = dtype_of_format(view->format, view->itemsize);
    if (place->dtype < 0) {
        PyErr_Format(PyExc_TypeError, "hvd.h has no dtype for elements of %zd bytes with the format \"%s\"",
                     view->itemsize, view->format);
        PyBuffer_Release(view);
        view->obj = NULL;
        return -1;
    }
    place->address = view->buf;
    take_dimensions((size_t)view->ndim, view->shape, place);
    place->stream = NULL;
    place->on_device = false;
    return 1;
}

/* The pending exception says why the buffer protocol failed: as a ValueError with the same text. */
static void raise_value_error(PyObject *object)
{
    PyObject *type, *value, *trace;

    if (!PyErr_ExceptionMatches(PyExc_BufferError))
        return;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_Format(PyExc_ValueError, "%s: %S", "the buffer cannot be used", value ? value : object);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static int raise_no_buffer(PyObject *object)
{
    PyErr_Format(PyExc_TypeError,
                 "%R is no buffer: it has no buffer protocol, __array_interface__, __cuda_array_interface__ "
                 "or __dlpack__",
                 (PyObject *)Py_TYPE(object));
    return -1;
}

static int place_of_object(PyObject *object, bool written, struct place *place, struct kept *kept)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    bool has_protocol = PyObject_CheckBuffer(object);
    int found;

    if (has_protocol && (found = place_of_buffer(object, written, place, kept)) != 0)
        return found < 0 ? -1 : 0;
    PyErr_Fetch(&type, &value, &trace);
    found = place_of_interface(object, written, place, kept);
    if (found == 0)
        found = place_of_dlpack(object, written, place, kept);
    if (found == 0 && has_protocol) {
        PyErr_Restore(type, value, trace);
        raise_value_error(object);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    if (found == 0)
        return raise_no_buffer(object);
    return found < 0 ? -1 : 0;
}

int place_of(PyObject *argument, bool written, struct place *place, struct kept *kept)
{
    kept->view.obj = NULL;
    kept->object = NULL;
    return PyTuple_Check(argument) ? place_of_tuple(argument, place)
                                   : place_of_object(argument, written, place, kept);
}

void kept_release(struct kept *kept)
{
    PyObject *object = kept->object;

    kept->object = NULL;
    if (kept->view.obj)
        PyBuffer_Release(&kept->view);
    Py_XDECREF(object);
}
