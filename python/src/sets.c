/* Process sets. */
#include "python/src/binding.h"

#include <stdlib.h>

static int take_id(PyObject *number, hvd_set *set)
{
    long id = PyLong_AsLong(number);

    if (id == -1 && PyErr_Occurred())
        return -1;
    *set = id == (hvd_set)id ? (hvd_set)id : -1;
    return 0;
}

/* A list of the numbers, or NULL with an exception. */
static PyObject *make_list(const int *number, int n)
{
    PyObject *list = PyList_New(n);

    for (int i = 0; list && i < n; i++) {
        PyObject *item = PyLong_FromLong(number[i]);
        if (!item) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, i, item);
    }
    return list;
}

/* The numbers of a sequence, of malloc; NULL with an exception. */
static int *take_ranks(PyObject *sequence, Py_ssize_t n)
{
    int *ranks = calloc((size_t)n + 1, sizeof *ranks);

    if (!ranks)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; ranks && i < n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        long rank = item ? PyLong_AsLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred()) {
            free(ranks);
            return NULL;
        }
        ranks[i] = rank == (int)rank ? (int)rank : -1;
    }
    return ranks;
}

static PyObject *add_set(PyObject *module, PyObject *sequence)
{
    Py_ssize_t n = PySequence_Size(sequence);
    int *ranks = n < 0 ? NULL : take_ranks(sequence, n);
    hvd_set set = 0;
    int status;

    (void)module;
    if (!ranks)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = hvd_set_add(ranks, (int)n, &set);
    Py_END_ALLOW_THREADS free(ranks);
    return status == HVD_SUCCESS ? PyLong_FromLong(set) : raise_last(status);
}

static PyObject *open_set(PyObject *module, PyObject *const *a, Py_ssize_t number)
{
    const char *name = NULL;
    Py_ssize_t n;
    hvd_set set = 0;
    int status, *ranks;

    (void)module;
    if (check_number("set_open", number, 2) != 0 || !(name = PyUnicode_AsUTF8AndSize(a[0], NULL)) ||
        (n = PySequence_Size(a[1])) < 0 || !(ranks = take_ranks(a[1], n)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = hvd_set_open(name, ranks, (int)n, &set);
    Py_END_ALLOW_THREADS free(ranks);
    return status == HVD_SUCCESS ? PyLong_FromLong(set) : raise_last(status);
}

/* Calls hvd_set_remove or hvd_set_close. */
static PyObject *end_set(PyObject *number, int (*end)(hvd_set set))
{
    hvd_set set;
    int status;

    if (take_id(number, &set) != 0)
        return NULL;
    operations_reap();
    Py_BEGIN_ALLOW_THREADS status = end(set);
    Py_END_ALLOW_THREADS return status == HVD_SUCCESS ? Py_NewRef(Py_None) : raise_last(status);
}

static PyObject *remove_set(PyObject *module, PyObject *number)
{
    (void)module;
    return end_set(number, hvd_set_remove);
}

static PyObject *close_set(PyObject *module, PyObject *number)
{
    (void)module;
    return end_set(number, hvd_set_close);
}

static PyObject *rank_in(PyObject *module, PyObject *number)
{
    hvd_set set;
    int rank;

    (void)module;
    if (take_id(number, &set) != 0)
        return NULL;
    rank = hvd_set_rank(set);
    return rank >= 0 ? PyLong_FromLong(rank) : raise_last(rank);
}

static PyObject *size_in(PyObject *module, PyObject *number)
{
    hvd_set set;
    int size;

    (void)module;
    if (take_id(number, &set) != 0)
        return NULL;
    size = hvd_set_size(set);
    return size >= 0 ? PyLong_FromLong(size) : raise_last(size);
}

/* The numbers that `fill` writes, of which there are `n`. */
static PyObject *list_of(int n, hvd_set set, int (*fill)(hvd_set, int *))
{
    PyObject *list;
    int *number, status;

    if (n < 0)
        return raise_last(n);
    number = calloc((size_t)n + 1, sizeof *number);
    if (!number)
        return PyErr_NoMemory();
    status = fill(set, number);
    list = status < 0 ? raise_last(status) : make_list(number, n);
    free(number);
    return list;
}

static PyObject *ranks_in(PyObject *module, PyObject *number)
{
    hvd_set set;

    (void)module;
    return take_id(number, &set) == 0 ? list_of(hvd_set_size(set), set, hvd_set_ranks) : NULL;
}

static int fill_ids(hvd_set unused, int *ids)
{
    (void)unused;
    return hvd_set_ids(ids);
}

static PyObject *list_ids(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return list_of(hvd_set_count(), 0, fill_ids);
}

PyMethodDef set_methods[] = {
    {"set_add", add_set, METH_O, "set_add(ranks, /) -> int: makes a process set; all ranks call it"},
    {"set_remove", remove_set, METH_O, "set_remove(set, /): removes a process set; all ranks call it"},
    {"set_open", FAST(open_set), "set_open(name, ranks, /) -> int: makes a set that only its ranks know"},
    {"set_close", close_set, METH_O, "set_close(set, /): closes a set of set_open; its ranks call it"},
    {"set_rank", rank_in, METH_O, "set_rank(set, /) -> int: this rank's index in the set"},
    {"set_size", size_in, METH_O, "set_size(set, /) -> int: the number of ranks"},
    {"set_ranks", ranks_in, METH_O, "set_ranks(set, /) -> list: the ranks, ascending"},
    {"set_ids", list_ids, METH_NOARGS, "set_ids() -> list: the ids of all sets"},
    {0}};
