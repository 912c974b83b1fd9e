/* The end of the program. A rank that ends with status 0 leaves the job, and waits for the others there. A
 * rank that ends with another status leaves nothing to wait for: the others hear of its death.
 *
 * Python does not tell its own exit handlers the status; the C library does. When its handlers run, Python
 * has ended: leave_job uses nothing of Python. */
#include "python/src/binding.h"

#include <stdio.h>
#include <stdlib.h>

static void leave_job(int status, void *unused)
{
    size_t under_way;

    (void)unused;
    if (status != 0 || hvd_is_initialized() != 1)
        return;
    under_way = operations_under_way();
    if (under_way > 0)
        fprintf(stderr, "hvdrun: rank %d ends while %zu operations are pending: wait for them first\n",
                hvd_rank(), under_way);
    else if (hvd_shutdown() != HVD_SUCCESS)
        fprintf(stderr, "hvdrun: shutdown at the end of the program: %s\n", hvd_last_error());
}

static PyObject *watch_exit(PyObject *module, PyObject *unused)
{
    static bool watched;

    (void)module, (void)unused;
    if (!watched)
        watched = on_exit(leave_job, NULL) == 0;
    if (!watched) {
        PyErr_NoMemory();
        return NULL;
    }
    return Py_NewRef(Py_None);
}

PyMethodDef exit_methods[] = {{"watch_exit", watch_exit, METH_NOARGS,
                               "watch_exit(): leave the job when the program ends with status 0"},
                              {0}};
