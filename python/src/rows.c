/* Allgather and alltoall: the ranks' numbers of rows decide the size of the result.
 *
 * On the host the library tells the size in the same exchange (hvd_allgather_alloc), and asks here for
 * memory. It knows no rows without elements, and no such calls for devices. For these the ranks first tell
 * each other their numbers of rows, and the length and dtype of a row. The question has the tensor's name and
 * is a plain operation. So ranks that disagree about the way get one sentence at once. */
#include "python/src/binding.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_BYTES 500

struct told {
    int64_t rows, row_count, dtype;
};
#define TOLD (sizeof(struct told) / sizeof(int64_t))

struct sizes {
    size_t ranks;
    size_t *rows_of; /* [ranks]; the library fills it */
    void *memory;    /* of the result, until it becomes a Memory */
    size_t bytes;    /* of the result */
    /* of a question: */
    struct told *heard;
    struct told *told; /* [1] of an allgather, [ranks] of an alltoall */
};

bool rows_must_ask(const struct operation *o)
{
    return o->call.row_count == 0 || o->call.in.on_device;
}

/* The rows for each rank. 0, or -1 with an exception. */
static int tell_splits(struct operation *o, struct sizes *s)
{
    const struct call *c = &o->call;

    if (!c->splits && c->rows % s->ranks != 0) {
        PyErr_Format(PyExc_ValueError,
                     "tensor \"%s\": %zu rows are not the same number for each of %zu ranks", c->name,
                     c->rows, s->ranks);
        return -1;
    }
    for (size_t i = 0; i < s->ranks; i++)
        s->told[i].rows = (int64_t)(c->splits ? c->splits[i] : c->rows / s->ranks);
    return 0;
}

static int prepare_question(struct operation *o, struct sizes *s)
{
    const struct call *c = &o->call;

    s->heard = calloc(s->ranks, sizeof *s->heard);
    s->told = calloc(s->ranks, sizeof *s->told);
    if (!s->heard || !s->told) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < s->ranks; i++)
        s->told[i] = (struct told){(int64_t)c->rows, (int64_t)c->row_count, c->in.dtype};
    return o->kind == KIND_ALLTOALL ? tell_splits(o, s) : 0;
}

int rows_prepare(struct operation *o)
{
    const struct call *c = &o->call;
    int ranks = hvd_set_size(c->options.set);
    struct sizes *s;

    if (ranks < 0)
        return raise_last(ranks), -1;
    if (c->splits && c->n != (size_t)ranks) {
        PyErr_Format(PyExc_ValueError, "tensor \"%s\": there are %zu splits for %d ranks", c->name, c->n,
                     ranks);
        return -1;
    }
    o->sizes = s = calloc(1, sizeof *s);
    if (s) {
        s->ranks = (size_t)ranks;
        s->rows_of = calloc(s->ranks, sizeof *s->rows_of);
    }
    if (!s || !s->rows_of) {
        PyErr_NoMemory();
        return -1;
    }
    return rows_must_ask(o) ? prepare_question(o, s) : 0;
}

/* For the library, in the thread that waits, without the GIL. */
static void *allocate_result(void *operation, size_t rows)
{
    struct operation *o = operation;
    struct sizes *s = o->sizes;

    if (__builtin_mul_overflow(rows, o->call.row_count * dtype_bytes(o->call.in.dtype), &s->bytes))
        return NULL;
    if (o->call.into)
        return rows * o->call.row_count == o->call.out.count ? o->call.out.address : NULL;
    s->memory = memory_take_private(s->bytes);
    return s->memory;
}

int rows_run(struct operation *o)
{
    const struct call *c = &o->call;

    if (o->kind == KIND_ALLGATHER)
        return hvd_allgather_alloc_async(c->name, c->in.address, c->rows, c->row_count,
                                         (hvd_dtype)c->in.dtype, allocate_result, o, o->sizes->rows_of,
                                         &c->options, &o->handle);
    return hvd_alltoall_alloc_async(c->name, c->in.address, c->rows, c->splits, c->row_count,
                                    (hvd_dtype)c->in.dtype, allocate_result, o, o->sizes->rows_of,
                                    &c->options, &o->handle);
}

int rows_ask(struct operation *o)
{
    struct sizes *s = o->sizes;
    hvd_options options = {.set = o->call.options.set};

    if (o->kind == KIND_ALLGATHER)
        return hvd_allgather_async(o->call.name, s->told, 1, TOLD, HVD_INT64, s->heard, s->ranks, NULL,
                                   &options, &o->handle);
    return hvd_alltoall_async(o->call.name, s->told, s->ranks, NULL, TOLD, HVD_INT64, s->heard, s->ranks,
                              NULL, &options, &o->handle);
}

/* NULL, or a sentence: the ranks disagree. */
static char *find_difference(const struct operation *o)
{
    const struct sizes *s = o->sizes;
    char text[TEXT_BYTES];

    for (size_t i = 1; i < s->ranks; i++) {
        const struct told *a = &s->heard[0], *b = &s->heard[i];
        if (a->row_count == b->row_count && a->dtype == b->dtype)
            continue;
        snprintf(
            text, sizeof text,
            "tensor \"%s\": rank 0 gives rows of %lld elements of dtype %lld, rank %zu rows of %lld elements "
            "of dtype %lld",
            o->call.name, (long long)a->row_count, (long long)a->dtype, i, (long long)b->row_count,
            (long long)b->dtype);
        return strdup(text);
    }
    return NULL;
}

static size_t count_rows(const struct sizes *s)
{
    size_t rows = 0;

    for (size_t i = 0; i < s->ranks; i++)
        rows += s->rows_of[i];
    return rows;
}

char *rows_misfit(const struct operation *o)
{
    char text[TEXT_BYTES];

    if (!o->sizes || !o->call.into || count_rows(o->sizes) * o->call.row_count == o->call.out.count)
        return NULL;
    snprintf(text, sizeof text, "tensor \"%s\": the output has %zu elements, and %zu come", o->call.name,
             o->call.out.count, count_rows(o->sizes) * o->call.row_count);
    return strdup(text);
}

int rows_answered(struct operation *o, char **sentence)
{
    struct sizes *s = o->sizes;
    size_t bytes;

    *sentence = find_difference(o);
    if (*sentence)
        return HVD_ERR_MISMATCH;
    for (size_t i = 0; i < s->ranks; i++)
        s->rows_of[i] = (size_t)s->heard[i].rows;
    if (__builtin_mul_overflow(count_rows(s), o->call.row_count * dtype_bytes(o->call.in.dtype), &bytes))
        bytes = SIZE_MAX;
    if (o->call.into) {
        if (count_rows(s) * o->call.row_count == o->call.out.count)
            return o->call.row_count == 0;
        *sentence = rows_misfit(o);
        return HVD_ERR_INVALID;
    }
    o->result = memory_new(bytes, o->call.in.on_device ? MEMORY_DEVICE : MEMORY_PRIVATE);
    if (!o->result) {
        PyErr_Clear();
        *sentence = strdup("there is no memory for the result");
        return HVD_ERR_MEMORY;
    }
    return o->call.row_count == 0;
}

int rows_begin(struct operation *o)
{
    struct sizes *s = o->sizes;
    const struct call *c = &o->call;
    void *out = c->into ? c->out.address : memory_address(o->result);

    if (o->kind == KIND_ALLGATHER)
        return hvd_allgather_async(c->name, c->in.address, c->rows, c->row_count, (hvd_dtype)c->in.dtype, out,
                                   count_rows(s), s->rows_of, &c->options, &o->handle);
    return hvd_alltoall_async(c->name, c->in.address, c->rows, c->splits, c->row_count,
                              (hvd_dtype)c->in.dtype, out, count_rows(s), s->rows_of, &c->options,
                              &o->handle);
}

int rows_take(struct operation *o)
{
    struct sizes *s = o->sizes;

    if (!o->result && !o->call.into) {
        o->result = memory_adopt(s->memory, s->bytes);
        s->memory = NULL;
        if (!o->result)
            return -1;
    }
    o->rows = PyList_New((Py_ssize_t)s->ranks);
    for (size_t i = 0; o->rows && i < s->ranks; i++) {
        PyObject *rows = PyLong_FromSize_t(s->rows_of[i]);
        if (!rows)
            return -1;
        PyList_SetItem(o->rows, (Py_ssize_t)i, rows);
    }
    return o->rows ? 0 : -1;
}

void rows_free(struct operation *o)
{
    if (!o->sizes)
        return;
    if (o->sizes->bytes > 0)
        free(o->sizes->memory); /* NULL of one into the caller's memory */
    free(o->sizes->rows_of);
    free(o->sizes->heard);
    free(o->sizes->told);
    free(o->sizes);
}
