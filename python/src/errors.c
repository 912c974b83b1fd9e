/* A status becomes an exception of hvdrun.exceptions. */
#include "python/src/binding.h"

/* exceptions.from_status, looked up at the first failure. */
static PyObject *find_maker(void)
{
    static PyObject *maker;
    PyObject *module;

    if (maker)
        return maker;
    module = PyImport_ImportModule("hvdrun.exceptions");
    if (!module)
        return NULL;
    maker = PyObject_GetAttrString(module, "from_status");
    Py_DECREF(module);
    return maker;
}

int raise_status(int status, const char *sentence)
{
    PyObject *maker = find_maker(), *text, *error;

    if (!maker)
        return -1;
    text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
    if (!text)
        return -1;
    error = PyObject_CallFunction(maker, "iO", status, text);
    Py_DECREF(text);
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return -1;
}

PyObject *raise_last(int status)
{
    raise_status(status, hvd_last_error());
    return NULL;
}
