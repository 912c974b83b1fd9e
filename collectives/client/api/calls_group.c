/* The calls with several tensors: they are packed into one operation. The tensors' sizes go into it as a
 * hash, so ranks with different groups get an error. */
#include <stdlib.h>

#include "collectives/kernels/dtype.h"
#include "collectives/client/group.h"
#include "collectives/client/request.h"
#include "collectives/client/sets.h"
#include "common/base/hash.h"

/* Counts the tensors' elements and hashes their sizes; rows NULL: they have none, row is then their counts.
 */
static int measure_group(struct request *r, size_t n, const size_t *rows, const size_t *row)
{
    uint64_t most = (1ull << SHM_OFFSET_BITS) / dtype_size(r->op.dtype);
    r->op.row = HASH_EMPTY;
    for (size_t i = 0; i < n; i++) {
        size_t times = rows ? rows[i] : 1;
        if (times != 0 && row[i] > most / times)
            return fail(HVD_ERR_INVALID, "tensor %zu of the group has more elements than there can be", i);
        if (times * row[i] > most - r->op.count)
            return fail(HVD_ERR_INVALID, "the group has more elements than there can be");
        r->op.count += times * row[i];
        r->op.row = hash_number(hash_number(r->op.row, row[i]), rows ? rows[i] : 0);
    }
    return HVD_SUCCESS;
}

static int make_group_request(struct request *r, uint8_t kind, size_t n, bool complete, hvd_dtype dtype,
                              hvd_op op, const hvd_options *options)
{
    int status = request_make(r, kind, 0, dtype, op, options);
    if (status)
        return status;
    if (n == 0 || n > UINT32_MAX || !complete)
        return fail(HVD_ERR_INVALID, n == 0 ? "a group must have tensors" : "an array of the group is NULL");
    if (dtype_size(r->op.dtype) == 0)
        return fail(HVD_ERR_INVALID, "there is no element type %d", (int)dtype);
    r->op.group = (uint32_t)n;
    return HVD_SUCCESS;
}

static int make_grouped_allreduce(struct request *r, size_t n, const void *const *in, void *const *out,
                                  const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options)
{
    int status = make_group_request(r, SHM_ALLREDUCE, n, in && out && count, dtype, op, options);
    if (status == HVD_SUCCESS)
        status = measure_group(r, n, NULL, count);
    if (status != HVD_SUCCESS)
        return status;
    r->capacity = tensor_all_bytes(&r->op);
    r->group = group_new(n, n);
    if (!r->group)
        return HVD_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = count[i] * dtype_size(r->op.dtype);
        status = request_check_buffers(in[i], bytes, out[i], bytes, true);
        if (status)
            return status;
        group_add_in(r->group, in[i], bytes);
        group_add_out(r->group, out[i], bytes);
    }
    return HVD_SUCCESS;
}

/* Packed by rank, so that each rank's parts of all tensors are one piece. The caller frees r->table. */
static int pack_by_rank(struct request *r, size_t n, const void *const *in, const size_t *rows,
                        const size_t *row)
{
    size_t size = dtype_size(r->op.dtype), *begin = calloc(n, sizeof *begin);
    uint64_t *table = calloc(r->team->size, sizeof *table);
    r->table = table;
    if (!begin || !table) {
        free(begin);
        return fail(HVD_ERR_MEMORY, "no memory for a group of tensors");
    }
    for (uint32_t rank = 0; rank < r->team->size; rank++)
        for (size_t i = 0; i < n; i++) {
            size_t part = team_rows_of(rows[i], r->team, rank) * row[i];
            group_add_in(r->group, (const char *)in[i] + begin[i] * size, part * size);
            begin[i] += part;
            table[rank] += part;
        }
    free(begin);
    return HVD_SUCCESS;
}

static int make_grouped_reducescatter(struct request *r, size_t n, const void *const *in, const size_t *rows,
                                      const size_t *row, hvd_dtype dtype, hvd_op op, void *const *out,
                                      const hvd_options *options)
{
    int status = make_group_request(r, SHM_REDUCESCATTER, n, in && rows && row && out, dtype, op, options);
    size_t size = dtype_size(r->op.dtype);
    if (status == HVD_SUCCESS)
        status = measure_group(r, n, rows, row);
    if (status != HVD_SUCCESS)
        return status;
    r->group = group_new(n * r->team->size, n);
    if (!r->group)
        return HVD_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        size_t mine = team_rows_of(rows[i], r->team, team_own_index(r->team)) * row[i] * size;
        status = request_check_buffers(in[i], rows[i] * row[i] * size, out[i], mine, false);
        if (status)
            return status;
        group_add_out(r->group, out[i], mine);
        r->capacity += mine;
    }
    status = pack_by_rank(r, n, in, rows, row);
    return status ? status : group_set_rows(r->group, row);
}

int hvd_grouped_allreduce_async(const char *name, size_t n, const void *const *in, void *const *out,
                                const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options,
                                hvd_handle *handle)
{
    struct request r;
    int status = make_grouped_allreduce(&r, n, in, out, count, dtype, op, options);
    return request_async(name, &r, status, handle);
}

int hvd_grouped_allreduce(const char *name, size_t n, const void *const *in, void *const *out,
                          const size_t *count, hvd_dtype dtype, hvd_op op, const hvd_options *options)
{
    struct request r;
    int status = make_grouped_allreduce(&r, n, in, out, count, dtype, op, options);
    return request_and_wait(name, &r, status);
}

int hvd_grouped_reducescatter_async(const char *name, size_t n, const void *const *in, const size_t *rows,
                                    const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                                    const hvd_options *options, hvd_handle *handle)
{
    struct request r;
    int status = make_grouped_reducescatter(&r, n, in, rows, row_count, dtype, op, out, options);
    status = request_async(name, &r, status, handle);
    free((void *)(uintptr_t)r.table);
    return status;
}

int hvd_grouped_reducescatter(const char *name, size_t n, const void *const *in, const size_t *rows,
                              const size_t *row_count, hvd_dtype dtype, hvd_op op, void *const *out,
                              const hvd_options *options)
{
    struct request r;
    int status = make_grouped_reducescatter(&r, n, in, rows, row_count, dtype, op, out, options);
    status = request_and_wait(name, &r, status);
    free((void *)(uintptr_t)r.table);
    return status;
}
