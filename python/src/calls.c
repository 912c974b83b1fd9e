/* The calls: their arguments, and the function of hvd.h that begins each.
 *
 * A call has two forms, which share its arguments: NAME_async returns a Handle, NAME waits. */
#include "python/src/binding.h"

#include <stdlib.h>

#define GROUP_FACTOR 1000003u /* odd: each member's shape counts, and its place */

/* ---- arguments ----------------------------------------------------------------------------------------- */

static int take_int(PyObject *number, int *value)
{
    long n = PyLong_AsLong(number);

    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n != (int)n) {
        PyErr_Format(PyExc_ValueError, "%ld is out of range", n);
        return -1;
    }
    *value = (int)n;
    return 0;
}

static int take_set(struct operation *o, PyObject *set)
{
    int id;

    if (take_int(set, &id) != 0)
        return -1;
    o->call.options.set = id;
    return 0;
}

/* hvd.h says 1 with a 0, so a factor 0 cannot be had. */
static int take_factor(PyObject *number, const char *what, double *factor)
{
    *factor = PyFloat_AsDouble(number);
    if (*factor == -1 && PyErr_Occurred())
        return -1;
    if (*factor == 0) {
        PyErr_Format(PyExc_ValueError, "%s may not be 0", what);
        return -1;
    }
    return 0;
}

/* op, set, prescale, postscale */
static int take_combining(struct operation *o, PyObject *const *a)
{
    struct call *c = &o->call;

    return take_int(a[0], &c->op) != 0 || take_set(o, a[1]) != 0 ||
                   take_factor(a[2], "prescale", &c->options.prescale) != 0 ||
                   take_factor(a[3], "postscale", &c->options.postscale) != 0
               ? -1
               : 0;
}

static int check_same(const struct operation *o, const struct place *in, const struct place *out,
                      size_t count)
{
    if (in->dtype != out->dtype) {
        PyErr_Format(PyExc_ValueError, "tensor \"%s\": the input has dtype %d, the output %d", o->call.name,
                     in->dtype, out->dtype);
        return -1;
    }
    if (out->count != count) {
        PyErr_Format(PyExc_ValueError, "tensor \"%s\": the output has %zu elements, and %zu are needed",
                     o->call.name, out->count, count);
        return -1;
    }
    return 0;
}

/* NULL, after what has been made of a call whose arguments are wrong. */
static struct operation *give_up(struct operation *o)
{
    if (o)
        operation_free(o);
    return NULL;
}

/* name, input, output, op, set, prescale, postscale, compression, owner */
static struct operation *take_allreduce(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_ALLREDUCE, a[0], a[8]);
    struct call *c;
    int compression;
    bool in_place = a[2] == Py_None;

    if (!o)
        return NULL;
    c = &o->call;
    if (operation_keep(o, a[1], in_place, &c->in) != 0 ||
        (!in_place && operation_keep(o, a[2], true, &c->out) != 0) || take_combining(o, a + 3) != 0 ||
        take_int(a[7], &compression) != 0)
        return give_up(o);
    if (in_place)
        c->out = c->in;
    c->options.compression = (hvd_compression)compression;
    c->options.stream = c->in.stream;
    c->options.shape = c->in.shape;
    return check_same(o, &c->in, &c->out, c->in.count) == 0 ? o : give_up(o);
}

/* ---- groups -------------------------------------------------------------------------------------------- */

/* The length of a sequence that is to have `n` members; -1 with an exception. */
static Py_ssize_t length_of(const struct operation *o, PyObject *sequence, Py_ssize_t n, const char *what)
{
    Py_ssize_t length = PySequence_Size(sequence);

    if (length >= 0 && n >= 0 && length != n) {
        PyErr_Format(PyExc_ValueError, "tensor \"%s\": there are %zd inputs and %zd %s", o->call.name, n,
                     length, what);
        return -1;
    }
    return length;
}

static int make_group(struct operation *o, size_t n)
{
    struct call *c = &o->call;

    c->n = n;
    c->ins = calloc(n + 1, sizeof *c->ins);
    c->outs = calloc(n + 1, sizeof *c->outs);
    c->counts = calloc(n + 1, sizeof *c->counts);
    c->row_counts = calloc(n + 1, sizeof *c->row_counts);
    if (c->ins && c->outs && c->counts && c->row_counts)
        return operation_reserve(o, 2 * n + 1);
    PyErr_NoMemory();
    return -1;
}

/* The k-th member of a sequence of buffers. */
static int keep_member(struct operation *o, PyObject *sequence, size_t k, bool written, struct place *place)
{
    PyObject *item = PySequence_GetItem(sequence, (Py_ssize_t)k);
    int status;

    if (!item)
        return -1;
    status = operation_keep(o, item, written, place);
    Py_DECREF(item);
    return status;
}

/* The k-th number of a sequence. */
static int take_member(PyObject *sequence, size_t k, const char *what, size_t *number)
{
    PyObject *item = PySequence_GetItem(sequence, (Py_ssize_t)k);
    int status;

    if (!item)
        return -1;
    status = size_of(item, what, number);
    Py_DECREF(item);
    return status;
}

/* All members of a group have one dtype and one stream: those of the first. The group's shape is made of
 * all shapes. */
static int join_group(struct operation *o, size_t k, const struct place *in)
{
    struct call *c = &o->call;

    if (k == 0)
        c->in = *in;
    c->ins[k] = in->address;
    c->options.shape = c->options.shape * GROUP_FACTOR ^ in->shape;
    c->options.stream = c->in.stream;
    if (in->dtype == c->in.dtype)
        return 0;
    PyErr_Format(PyExc_ValueError, "tensor \"%s\": input 0 of the group has dtype %d, input %zu has %d",
                 c->name, c->in.dtype, k, in->dtype);
    return -1;
}

/* name, inputs, outputs, op, set, prescale, postscale, owner */
static struct operation *take_grouped_allreduce(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_GROUPED_ALLREDUCE, a[0], a[7]);
    bool in_place = a[2] == Py_None;
    struct place in, out;
    Py_ssize_t n;

    if (!o || (n = length_of(o, a[1], -1, "")) < 0 || (!in_place && length_of(o, a[2], n, "outputs") < 0) ||
        take_combining(o, a + 3) != 0 || make_group(o, (size_t)n) != 0)
        return give_up(o);
    for (size_t k = 0; k < (size_t)n; k++) {
        if (keep_member(o, a[1], k, in_place, &in) != 0 || join_group(o, k, &in) != 0 ||
            (!in_place && keep_member(o, a[2], k, true, &out) != 0) ||
            (!in_place && check_same(o, &in, &out, in.count) != 0))
            return give_up(o);
        o->call.outs[k] = in_place ? in.address : out.address;
        o->call.counts[k] = in.count;
    }
    return o;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int check_rows(const struct operation *o, const struct place *in, size_t rows, size_t row_count)
{
    size_t count;

    if (!__builtin_mul_overflow(rows, row_count, &count) && count == in->count)
        return 0;
    PyErr_Format(PyExc_ValueError, "tensor \"%s\": %zu rows of %zu elements are not %zu elements",
                 o->call.name, rows, row_count, in->count);
    return -1;
}

/* The number of rows that this rank gets of a reducescatter; -1 with an exception. */
static int own_part(const struct operation *o, size_t rows, size_t *part)
{
    int ranks = hvd_set_size(o->call.options.set), rank = hvd_set_rank(o->call.options.set);

    if (ranks <= 0 || rank < 0)
        return raise_last(ranks <= 0 ? ranks : rank), -1;
    *part = rows / (size_t)ranks + ((size_t)rank < rows % (size_t)ranks);
    return 0;
}

/* name, input, rows, row_count */
static int take_rows(struct operation *o, PyObject *const *a)
{
    struct call *c = &o->call;

    if (operation_keep(o, a[1], false, &c->in) != 0 || size_of(a[2], "the number of rows", &c->rows) != 0 ||
        size_of(a[3], "the length of a row", &c->row_count) != 0)
        return -1;
    c->options.stream = c->in.stream;
    c->options.shape = c->in.row_shape;
    return check_rows(o, &c->in, c->rows, c->row_count);
}

/* The caller's memory for the result; None: there is none. */
static int take_result(struct operation *o, PyObject *output)
{
    struct call *c = &o->call;

    if (output == Py_None)
        return 0;
    if (operation_keep(o, output, true, &c->out) != 0)
        return -1;
    c->into = true;
    return check_same(o, &c->in, &c->out, c->out.count);
}

/* name, input, rows, row_count, output, set, owner */
static struct operation *take_allgather(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_ALLGATHER, a[0], a[6]);

    return o && take_rows(o, a) == 0 && take_result(o, a[4]) == 0 && take_set(o, a[5]) == 0 ? o : give_up(o);
}

static int take_splits(struct operation *o, PyObject *splits)
{
    struct call *c = &o->call;
    Py_ssize_t n;
    size_t sum = 0;

    if (splits == Py_None)
        return 0;
    n = PySequence_Size(splits);
    if (n < 0)
        return -1;
    c->splits = calloc((size_t)n + 1, sizeof *c->splits);
    if (!c->splits) {
        PyErr_NoMemory();
        return -1;
    }
    c->n = (size_t)n;
    for (size_t k = 0; k < c->n; k++) {
        if (take_member(splits, k, "a split", &c->splits[k]) != 0)
            return -1;
        if (__builtin_add_overflow(sum, c->splits[k], &sum) || sum > c->rows) {
            PyErr_Format(PyExc_ValueError, "tensor \"%s\": the splits are more than its %zu rows", c->name,
                         c->rows);
            return -1;
        }
    }
    return 0;
}

/* name, input, rows, row_count, splits, output, set, owner */
static struct operation *take_alltoall(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_ALLTOALL, a[0], a[7]);

    return o && take_rows(o, a) == 0 && take_splits(o, a[4]) == 0 && take_result(o, a[5]) == 0 &&
                   take_set(o, a[6]) == 0
               ? o
               : give_up(o);
}

/* name, input, rows, row_count, output, op, set, prescale, postscale, owner */
static struct operation *take_reducescatter(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_REDUCESCATTER, a[0], a[9]);
    size_t part;

    if (!o || take_rows(o, a) != 0 || operation_keep(o, a[4], true, &o->call.out) != 0 ||
        take_combining(o, a + 5) != 0 || own_part(o, o->call.rows, &part) != 0 ||
        check_same(o, &o->call.in, &o->call.out, part * o->call.row_count) != 0)
        return give_up(o);
    return o;
}

/* The k-th tensor of the group: inputs, rows, row_counts, outputs */
static int take_grouped_rows(struct operation *o, PyObject *const *a, size_t k)
{
    struct call *c = &o->call;
    struct place in, out;
    size_t part;

    if (keep_member(o, a[0], k, false, &in) != 0 || join_group(o, k, &in) != 0 ||
        take_member(a[1], k, "the number of rows", &c->counts[k]) != 0 ||
        take_member(a[2], k, "the length of a row", &c->row_counts[k]) != 0 ||
        check_rows(o, &in, c->counts[k], c->row_counts[k]) != 0 || own_part(o, c->counts[k], &part) != 0 ||
        keep_member(o, a[3], k, true, &out) != 0 || check_same(o, &in, &out, part * c->row_counts[k]) != 0)
        return -1;
    c->outs[k] = out.address;
    return 0;
}

/* name, inputs, rows, row_counts, outputs, op, set, prescale, postscale, owner */
static struct operation *take_grouped_reducescatter(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_GROUPED_REDUCESCATTER, a[0], a[9]);
    Py_ssize_t n;

    if (!o || (n = length_of(o, a[1], -1, "")) < 0 || length_of(o, a[2], n, "numbers of rows") < 0 ||
        length_of(o, a[3], n, "lengths of rows") < 0 || length_of(o, a[4], n, "outputs") < 0 ||
        take_combining(o, a + 5) != 0 || make_group(o, (size_t)n) != 0)
        return give_up(o);
    for (size_t k = 0; k < (size_t)n; k++)
        if (take_grouped_rows(o, a + 1, k) != 0)
            return give_up(o);
    return o;
}

/* ---- calls with one buffer, or none -------------------------------------------------------------------- */

/* name, buffer, rank, set, owner */
static struct operation *take_one(enum kind kind, PyObject *const *a)
{
    struct operation *o = operation_new(kind, a[0], a[4]);

    if (!o || operation_keep(o, a[1], kind != KIND_SEND, &o->call.in) != 0 ||
        take_int(a[2], &o->call.rank) != 0 || take_set(o, a[3]) != 0)
        return give_up(o);
    o->call.options.stream = o->call.in.stream;
    o->call.options.shape = o->call.in.shape;
    return o;
}

static struct operation *take_broadcast(PyObject *const *a)
{
    return take_one(KIND_BROADCAST, a);
}

static struct operation *take_send(PyObject *const *a)
{
    return take_one(KIND_SEND, a);
}

static struct operation *take_recv(PyObject *const *a)
{
    return take_one(KIND_RECV, a);
}

/* set */
static struct operation *take_barrier(PyObject *const *a)
{
    struct operation *o = operation_new(KIND_BARRIER, NULL, NULL);

    return o && take_set(o, a[0]) == 0 ? o : give_up(o);
}

static struct operation *take_join(PyObject *const *a)
{
    (void)a;
    return operation_new(KIND_JOIN, NULL, NULL);
}

/* ---- the library's functions --------------------------------------------------------------------------- */

/* volatile: gcc 12 with -ftree-slp-vectorize leaves two such conversions out. */
static double round_factor(double factor)
{
    volatile float rounded = (float)factor;

    return rounded;
}

/* Horovod multiplies floats of up to 32 bits by a float32. With such a factor the products have its bits. */
static void round_factors(struct call *c)
{
    if (c->in.dtype != HVD_FLOAT32 && c->in.dtype != HVD_FLOAT16 && c->in.dtype != HVD_BFLOAT16)
        return;
    c->options.prescale = round_factor(c->options.prescale);
    c->options.postscale = round_factor(c->options.postscale);
}

struct operation *call_take_allreduce(PyObject *const *argument)
{
    struct operation *o = take_allreduce(argument);

    if (o)
        round_factors(&o->call);
    return o;
}

int call_begin(struct operation *o)
{
    struct call *c = &o->call;
    const hvd_options *options = &c->options;
    hvd_dtype dtype = (hvd_dtype)c->in.dtype;
    hvd_op op = (hvd_op)c->op;

    round_factors(c);
    switch (o->kind) {
    case KIND_ALLREDUCE:
        return hvd_allreduce_async(c->name, c->in.address, c->out.address, c->in.count, dtype, op, options,
                                   &o->handle);
    case KIND_GROUPED_ALLREDUCE:
        return hvd_grouped_allreduce_async(c->name, c->n, c->ins, c->outs, c->counts, dtype, op, options,
                                           &o->handle);
    case KIND_BROADCAST:
        return hvd_broadcast_async(c->name, c->in.address, c->in.count, dtype, c->rank, options, &o->handle);
    case KIND_REDUCESCATTER:
        return hvd_reducescatter_async(c->name, c->in.address, c->rows, c->row_count, dtype, op,
                                       c->out.address, options, &o->handle);
    case KIND_GROUPED_REDUCESCATTER:
        return hvd_grouped_reducescatter_async(c->name, c->n, c->ins, c->counts, c->row_counts, dtype, op,
                                               c->outs, options, &o->handle);
    case KIND_BARRIER:
        return hvd_barrier_async(options, &o->handle);
    case KIND_JOIN:
        return hvd_join_async(&o->last_rank, &o->handle);
    case KIND_SEND:
        return hvd_send_async(c->name, c->in.address, c->in.count, dtype, c->rank, options, &o->handle);
    case KIND_RECV:
        return hvd_recv_async(c->name, c->in.address, c->in.count, dtype, c->rank, options, &o->handle);
    case KIND_ALLGATHER:
    case KIND_ALLTOALL:
        return rows_run(o);
    }
    return HVD_ERR_INVALID;
}

/* ---- the two forms ------------------------------------------------------------------------------------- */

/* `o` NULL: the arguments are wrong. */
static PyObject *start_call(struct operation *o)
{
    if (!o)
        return NULL;
    if (operation_begin(o) == 0)
        return handle_new(o);
    operation_free(o);
    return NULL;
}

/* `seconds` below 0: without a limit. */
static PyObject *run_call(struct operation *o, double seconds)
{
    PyObject *result;

    if (!o)
        return NULL;
    o->call.options.will_wait = 2;
    if (operation_begin(o) != 0) {
        operation_free(o);
        return NULL;
    }
    if (operation_wait(o, seconds) != 0) {
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        operation_drop(o);
        PyErr_Restore(kind, value, trace);
        return NULL;
    }
    result = operation_result(o);
    if (result && o->rows)
        result = Py_BuildValue("(NO)", result, o->rows);
    operation_drop(o);
    return result;
}

/* The arguments of a call that waits: the call's own, then maybe a time limit. */
static int take_limit(const char *name, PyObject *const *a, Py_ssize_t n, Py_ssize_t number, double *seconds)
{
    *seconds = -1;
    return n == number + 1 ? take_time_limit(a + number, 1, seconds) : check_number(name, n, number);
}

/* NAME and NAME_async, with that number of arguments. */
#define CALL(name, number)                                                                                   \
    static PyObject *start_##name(PyObject *module, PyObject *const *a, Py_ssize_t n)                        \
    {                                                                                                        \
        (void)module;                                                                                        \
        return check_number(#name "_async", n, number) == 0 ? start_call(take_##name(a)) : NULL;             \
    }                                                                                                        \
    static PyObject *run_##name(PyObject *module, PyObject *const *a, Py_ssize_t n)                          \
    {                                                                                                        \
        double seconds;                                                                                      \
        (void)module;                                                                                        \
        return take_limit(#name, a, n, number, &seconds) == 0 ? run_call(take_##name(a), seconds) : NULL;    \
    }

CALL(allreduce, 9)
CALL(grouped_allreduce, 8)
CALL(broadcast, 5)
CALL(allgather, 7)
CALL(alltoall, 8)
CALL(reducescatter, 10)
CALL(grouped_reducescatter, 10)
CALL(send, 5)
CALL(recv, 5)
CALL(barrier, 1)
CALL(join, 0)

#define METHODS(name, arguments)                                                                             \
    {#name, FAST(run_##name), #name "(" arguments "/): as in hvd.h; see _hvd.pyi"},                          \
    {                                                                                                        \
#name "_async", FAST(start_##name), #name "_async(" arguments "/) -> Handle"                         \
    }

PyMethodDef call_methods[] = {
    METHODS(allreduce, "name, input, output, op, set, prescale, postscale, compression, owner, "),
    METHODS(grouped_allreduce, "name, inputs, outputs, op, set, prescale, postscale, owner, "),
    METHODS(broadcast, "name, buffer, root, set, owner, "),
    METHODS(allgather, "name, input, rows, row_count, output, set, owner, "),
    METHODS(alltoall, "name, input, rows, row_count, splits, output, set, owner, "),
    METHODS(reducescatter, "name, input, rows, row_count, output, op, set, prescale, postscale, owner, "),
    METHODS(grouped_reducescatter,
            "name, inputs, rows, row_counts, outputs, op, set, prescale, postscale, owner, "),
    METHODS(send, "name, buffer, to, set, owner, "),
    METHODS(recv, "name, buffer, source, set, owner, "),
    METHODS(barrier, "set, "),
    METHODS(join, ""),
    {0}};
