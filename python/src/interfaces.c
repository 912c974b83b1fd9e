/* __array_interface__ of NumPy, and __cuda_array_interface__ of Numba and others: a dict with the address. */
#include "python/src/binding.h"

#include <stdlib.h>

#define DIMENSIONS 64

/* -1: hvd.h lacks it. */
static int dtype_of_type(char kind, long bytes)
{
    static const struct {
        char kind;
        long bytes;
        int dtype;
    } known[] = {{'b', 1, HVD_BOOL},   {'u', 1, HVD_UINT8},   {'u', 2, HVD_UINT16},  {'u', 4, HVD_UINT32},
                 {'u', 8, HVD_UINT64}, {'i', 1, HVD_INT8},    {'i', 2, HVD_INT16},   {'i', 4, HVD_INT32},
                 {'i', 8, HVD_INT64},  {'f', 2, HVD_FLOAT16}, {'f', 4, HVD_FLOAT32}, {'f', 8, HVD_FLOAT64}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].kind == kind && known[i].bytes == bytes)
            return known[i].dtype;
    return -1;
}

/* The dtypes of ml_dtypes look like plain bytes in the interface. They are told by their names. */
static int dtype_of_name(PyObject *object)
{
    static const struct {
        const char *name;
        int dtype;
    } known[] = {
        {"bfloat16", HVD_BFLOAT16}, {"float8_e4m3fn", HVD_FLOAT8_E4M3}, {"float8_e5m2", HVD_FLOAT8_E5M2}};
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    int found = -1;

    for (size_t i = 0; text && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, text) == 0)
            found = known[i].dtype;
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(dtype);
    return found;
}

static int take_dtype(PyObject *object, PyObject *typestr, struct place *place)
{
    const char *text = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
    long bytes = 0;

    place->dtype = -1;
    if (text && strlen(text) >= 3) {
        bytes = strtol(text + 2, NULL, 10);
        if (text[1] == 'V' || (text[1] == 'f' && bytes == 1))
            place->dtype = dtype_of_name(object);
        else if (text[0] != '>')
            place->dtype = dtype_of_type(text[1], bytes);
    }
    if (place->dtype >= 0)
        return 0;
    PyErr_Format(PyExc_TypeError, "hvd.h has no dtype for elements of the type %R",
                 typestr ? typestr : Py_None);
    return -1;
}

/* The members of a tuple of numbers. Their number, or -1 with an exception. */
static Py_ssize_t take_numbers(PyObject *tuple, int64_t *number)
{
    Py_ssize_t n = tuple ? PySequence_Size(tuple) : -1;

    if (n < 0 || n > DIMENSIONS) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the array interface has no usable shape");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(tuple, i);
        number[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return n;
}

static bool has_negative(const int64_t *number, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (number[i] < 0)
            return true;
    return false;
}

static int take_shape(PyObject *interface, struct place *place)
{
    PyObject *strides = PyDict_GetItemString(interface, "strides");
    int64_t shape[DIMENSIONS], stride[DIMENSIONS];
    Py_ssize_t n = take_numbers(PyDict_GetItemString(interface, "shape"), shape);
    bool has_strides = strides && strides != Py_None;

    if (n < 0 || (has_strides && take_numbers(strides, stride) != n) || has_negative(shape, n)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the array interface has no usable shape or strides");
        return -1;
    }
    take_dimensions((size_t)n, shape, place);
    if (is_contiguous((size_t)n, shape, has_strides ? stride : NULL, (int64_t)dtype_bytes(place->dtype)))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the array is not C-contiguous");
    return -1;
}

static int take_data(PyObject *interface, bool written, struct place *place)
{
    PyObject *data = PyDict_GetItemString(interface, "data");

    if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        PyErr_SetString(PyExc_TypeError, "the array interface has no address");
        return -1;
    }
    place->address = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    if (!place->address && PyErr_Occurred())
        return -1;
    if (!written || !PyObject_IsTrue(PyTuple_GetItem(data, 1)))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the array is read-only, and would be written");
    return -1;
}

static int take_stream(PyObject *interface, struct place *place)
{
    PyObject *stream = PyDict_GetItemString(interface, "stream");

    place->stream = stream && stream != Py_None ? PyLong_AsVoidPtr(stream) : NULL;
    return place->stream || !PyErr_Occurred() ? 0 : -1;
}

/* The attribute; NULL without an exception: there is none. */
static PyObject *find_attribute(PyObject *object, const char *name, int *status)
{
    PyObject *found = PyObject_GetAttrString(object, name);

    *status = 0;
    if (!found && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    else if (!found)
        *status = -1;
    return found;
}

int place_of_interface(PyObject *object, bool written, struct place *place, struct kept *kept)
{
    int status;
    PyObject *interface = find_attribute(object, "__cuda_array_interface__", &status);

    place->on_device = interface != NULL;
    if (!interface && status == 0)
        interface = find_attribute(object, "__array_interface__", &status);
    if (!interface)
        return status;
    place->stream = NULL;
    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_TypeError, "the array interface is no dict");
        status = -1;
    } else if (take_dtype(object, PyDict_GetItemString(interface, "typestr"), place) != 0 ||
               take_shape(interface, place) != 0 || take_data(interface, written, place) != 0 ||
               (place->on_device && take_stream(interface, place) != 0)) {
        status = -1;
    } else {
        kept->object = Py_BuildValue("(OO)", object, interface);
        status = kept->object ? 1 : -1;
    }
    Py_DECREF(interface);
    return status;
}
