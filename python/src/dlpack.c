/* __dlpack__: a capsule with the description of a tensor. The capsule is kept, and frees the tensor. */
#include "python/src/binding.h"

/* The structure that dlpack.h (version 0.5 and later) calls DLManagedTensor, as far as it is read here. */
enum { DEVICE_CPU = 1, DEVICE_CUDA = 2, DEVICE_CUDA_HOST = 3, DEVICE_CUDA_MANAGED = 13 };
enum { CODE_INT, CODE_UINT, CODE_FLOAT, CODE_BFLOAT = 4, CODE_BOOL = 6, CODE_E4M3 = 10, CODE_E5M2 = 12 };

struct dlpack_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t offset;
};

static int dtype_of(const struct dlpack_tensor *t)
{
    static const struct {
        uint8_t code, bits;
        int dtype;
    } known[] = {
        {CODE_INT, 8, HVD_INT8},       {CODE_INT, 16, HVD_INT16},       {CODE_INT, 32, HVD_INT32},
        {CODE_INT, 64, HVD_INT64},     {CODE_UINT, 8, HVD_UINT8},       {CODE_UINT, 16, HVD_UINT16},
        {CODE_UINT, 32, HVD_UINT32},   {CODE_UINT, 64, HVD_UINT64},     {CODE_FLOAT, 16, HVD_FLOAT16},
        {CODE_FLOAT, 32, HVD_FLOAT32}, {CODE_FLOAT, 64, HVD_FLOAT64},   {CODE_BFLOAT, 16, HVD_BFLOAT16},
        {CODE_BOOL, 8, HVD_BOOL},      {CODE_E4M3, 8, HVD_FLOAT8_E4M3}, {CODE_E5M2, 8, HVD_FLOAT8_E5M2}};

    for (size_t i = 0; t->dtype.lanes == 1 && i < sizeof known / sizeof *known; i++)
        if (known[i].code == t->dtype.code && known[i].bits == t->dtype.bits)
            return known[i].dtype;
    return -1;
}

static int read_tensor(const struct dlpack_tensor *t, struct place *place)
{
    int32_t device = t->device.type;

    place->dtype = dtype_of(t);
    if (place->dtype < 0) {
        PyErr_Format(PyExc_TypeError, "hvd.h has no dtype for DLPack's code %d with %d bits", t->dtype.code,
                     t->dtype.bits);
        return -1;
    }
    if (device != DEVICE_CPU && device != DEVICE_CUDA && device != DEVICE_CUDA_HOST &&
        device != DEVICE_CUDA_MANAGED) {
        PyErr_Format(PyExc_TypeError,
                     "the tensor is on a device of DLPack's type %d, and not on a host or of CUDA",
                     (int)device);
        return -1;
    }
    take_dimensions((size_t)t->dimensions, t->shape, place);
    if (!is_contiguous((size_t)t->dimensions, t->shape, t->strides, 1)) {
        PyErr_SetString(PyExc_ValueError, "the tensor is not C-contiguous");
        return -1;
    }
    place->address = t->data ? (char *)t->data + t->offset : NULL;
    place->on_device = device == DEVICE_CUDA;
    place->stream = NULL; /* its producer has made the legacy default stream wait for it */
    return 0;
}

int place_of_dlpack(PyObject *object, bool written, struct place *place, struct kept *kept)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *capsule;
    void *tensor;

    (void)written; /* a capsule of this version does not say that it is read-only */
    if (!method) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    capsule = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    if (!capsule)
        return -1;
    tensor = PyCapsule_GetPointer(capsule, "dltensor");
    if (!tensor || read_tensor(tensor, place) != 0) {
        Py_DECREF(capsule);
        return -1;
    }
    kept->object = capsule;
    return 1;
}
