/* The calls whose tensors are rows, of which ranks may have different numbers. */
#include <stdlib.h>

#include "collectives/kernels/dtype.h"
#include "collectives/client/request.h"
#include "collectives/client/sets.h"

#define BYTES_MAX (1ull << SHM_OFFSET_BITS)

/* Rows of `row` elements; more than there can be become a number that the checks refuse. */
static uint64_t count_elements(size_t rows, size_t row)
{
    uint64_t all;
    return __builtin_mul_overflow(rows, row, &all) || all > BYTES_MAX ? UINT64_MAX : all;
}

static int make_rows_request(struct request *r, uint8_t kind, const void *in, size_t rows, size_t row,
                             hvd_dtype dtype, hvd_op op, void *out, const hvd_options *options)
{
    int status = request_make(r, kind, count_elements(rows, row), dtype, op, options);
    r->in = in;
    r->out = out;
    r->op.row = row;
    if (!status && row == 0)
        return fail(HVD_ERR_INVALID, "a row must have elements");
    if (!status && dtype_size(r->op.dtype) == 0)
        return fail(HVD_ERR_INVALID, "there is no element type %d", (int)dtype);
    return status;
}

static int set_capacity(struct request *r, size_t rows)
{
    size_t size = dtype_size(r->op.dtype);
    uint64_t capacity = count_elements(rows, r->op.row);
    if (__builtin_mul_overflow(capacity, size, &r->capacity) || r->capacity > BYTES_MAX)
        return fail(HVD_ERR_INVALID, "room for %zu rows of %llu elements is more than there can be", rows,
                    (unsigned long long)r->op.row);
    return HVD_SUCCESS;
}

static int make_allgather(struct request *r, const void *in, size_t rows, size_t row, hvd_dtype dtype,
                          void *out, size_t out_rows, size_t *rows_of, const hvd_options *options)
{
    int status = make_rows_request(r, SHM_ALLGATHER, in, rows, row, dtype, (hvd_op)0, out, options);
    r->rows = rows_of;
    return status ? status : set_capacity(r, out_rows);
}

/* The caller frees r->table. */
static int make_alltoall(struct request *r, const void *in, size_t in_rows, const size_t *splits, size_t row,
                         hvd_dtype dtype, void *out, size_t out_rows, size_t *received,
                         const hvd_options *options)
{
    int status = make_rows_request(r, SHM_ALLTOALL, in, in_rows, row, dtype, (hvd_op)0, out, options);
    size_t size = status ? 1 : r->team->size, sum = 0;
    r->rows = received;
    if (status == HVD_SUCCESS)
        status = set_capacity(r, out_rows);
    if (status != HVD_SUCCESS)
        return status;
    if (!splits)
        return in_rows % size == 0
                   ? HVD_SUCCESS
                   : fail(HVD_ERR_INVALID, "%zu rows cannot be sent evenly to %zu ranks", in_rows, size);
    uint64_t *table = malloc(size * sizeof *table);
    if (!table)
        return fail(HVD_ERR_MEMORY, "no memory for the splits");
    r->table = table;
    for (size_t i = 0; i < size; i++) {
        if (splits[i] > in_rows - sum)
            return fail(HVD_ERR_INVALID, "the splits are more than the %zu rows there are", in_rows);
        sum += splits[i];
        table[i] = (uint64_t)splits[i] * row;
    }
    return HVD_SUCCESS;
}

/* The result goes to memory that the caller allocates. */
static int make_sized(struct request *r, struct allocator allocator, int status)
{
    r->op.op = OP_SIZED;
    r->allocator = allocator;
    sized_reap();
    return status || allocator.allocate
               ? status
               : fail(HVD_ERR_INVALID, "the function that allocates the result is NULL");
}

static int make_allgather_alloc(struct request *r, const void *in, size_t rows, size_t row, hvd_dtype dtype,
                                struct allocator allocator, size_t *rows_of, const hvd_options *options)
{
    int status = make_allgather(r, in, rows, row, dtype, NULL, 0, rows_of, options);

    return make_sized(r, allocator, status);
}

/* The caller frees r->table. */
static int make_alltoall_alloc(struct request *r, const void *in, size_t in_rows, const size_t *splits,
                               size_t row, hvd_dtype dtype, struct allocator allocator, size_t *received,
                               const hvd_options *options)
{
    int status = make_alltoall(r, in, in_rows, splits, row, dtype, NULL, 0, received, options);

    return make_sized(r, allocator, status);
}

static int make_reducescatter(struct request *r, const void *in, size_t rows, size_t row, hvd_dtype dtype,
                              hvd_op op, void *out, const hvd_options *options)
{
    int status = make_rows_request(r, SHM_REDUCESCATTER, in, rows, row, dtype, op, out, options);
    return status ? status : set_capacity(r, team_rows_of(rows, r->team, team_own_index(r->team)));
}

int hvd_allgather_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                        void *out, size_t out_rows, size_t *rows_of, const hvd_options *options,
                        hvd_handle *handle)
{
    struct request r;
    int status = make_allgather(&r, in, rows, row_count, dtype, out, out_rows, rows_of, options);
    return request_async(name, &r, status, handle);
}

int hvd_allgather(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype, void *out,
                  size_t out_rows, size_t *rows_of, const hvd_options *options)
{
    struct request r;
    int status = make_allgather(&r, in, rows, row_count, dtype, out, out_rows, rows_of, options);
    return request_and_wait(name, &r, status);
}

int hvd_alltoall_async(const char *name, const void *in, size_t in_rows, const size_t *splits,
                       size_t row_count, hvd_dtype dtype, void *out, size_t out_rows, size_t *received,
                       const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_alltoall(&r, in, in_rows, splits, row_count, dtype, out, out_rows, received, options);
    status = request_async(name, &r, status, handle);
    free((void *)(uintptr_t)r.table);
    return status;
}

int hvd_alltoall(const char *name, const void *in, size_t in_rows, const size_t *splits, size_t row_count,
                 hvd_dtype dtype, void *out, size_t out_rows, size_t *received, const hvd_options *options)
{
    struct request r;
    int status = make_alltoall(&r, in, in_rows, splits, row_count, dtype, out, out_rows, received, options);
    status = request_and_wait(name, &r, status);
    free((void *)(uintptr_t)r.table);
    return status;
}

int hvd_allgather_alloc_async(const char *name, const void *in, size_t rows, size_t row_count,
                              hvd_dtype dtype, void *(*allocate)(void *context, size_t rows), void *context,
                              size_t *rows_of, const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_allgather_alloc(&r, in, rows, row_count, dtype, (struct allocator){allocate, context},
                                      rows_of, options);

    return request_async(name, &r, status, handle);
}

int hvd_allgather_alloc(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                        void *(*allocate)(void *context, size_t rows), void *context, size_t *rows_of,
                        const hvd_options *options)
{
    struct request r;
    int status = make_allgather_alloc(&r, in, rows, row_count, dtype, (struct allocator){allocate, context},
                                      rows_of, options);

    return request_and_wait(name, &r, status);
}

int hvd_alltoall_alloc_async(const char *name, const void *in, size_t in_rows, const size_t *splits,
                             size_t row_count, hvd_dtype dtype, void *(*allocate)(void *context, size_t rows),
                             void *context, size_t *received, const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_alltoall_alloc(&r, in, in_rows, splits, row_count, dtype,
                                     (struct allocator){allocate, context}, received, options);

    status = request_async(name, &r, status, handle);
    free((void *)(uintptr_t)r.table);
    return status;
}

int hvd_alltoall_alloc(const char *name, const void *in, size_t in_rows, const size_t *splits,
                       size_t row_count, hvd_dtype dtype, void *(*allocate)(void *context, size_t rows),
                       void *context, size_t *received, const hvd_options *options)
{
    struct request r;
    int status = make_alltoall_alloc(&r, in, in_rows, splits, row_count, dtype,
                                     (struct allocator){allocate, context}, received, options);

    status = request_and_wait(name, &r, status);
    free((void *)(uintptr_t)r.table);
    return status;
}

int hvd_reducescatter_async(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                            hvd_op op, void *out, const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_reducescatter(&r, in, rows, row_count, dtype, op, out, options);
    return request_async(name, &r, status, handle);
}

int hvd_reducescatter(const char *name, const void *in, size_t rows, size_t row_count, hvd_dtype dtype,
                      hvd_op op, void *out, const hvd_options *options)
{
    struct request r;
    int status = make_reducescatter(&r, in, rows, row_count, dtype, op, out, options);
    return request_and_wait(name, &r, status);
}
