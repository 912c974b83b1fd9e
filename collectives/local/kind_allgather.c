/* Every member's output is all inputs, one behind the other in the order of ranks. The chunks cover that
 * output: a chunk is copied from the one or more inputs that it lies in to every member, so the inputs' sizes
 * may differ as they like and the work is shared out evenly all the same. */
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/copy.h"
#include "collectives/local/kind.h"

static uint64_t measure_output(const struct tensor_view *v, uint32_t member)
{
    return v->capacity[member] * tensor_element_size(v);
}

static uint64_t plan_allgather(struct tensor_view *v, char *wrong, size_t size)
{
    uint64_t total = 0, row = v->op.row;
    for (uint32_t i = 0; i < v->team->members; i++)
        total += v->count[i];
    for (uint32_t i = 0; i < v->team->members; i++) {
        v->get[i] = total;
        if (v->capacity[i] < total) {
            snprintf(wrong, size, "rank %u has room for %llu rows, the result has %llu",
                     team_rank(v->team, i), (unsigned long long)(v->capacity[i] / row),
                     (unsigned long long)(total / row));
            return UINT64_MAX;
        }
    }
    return total;
}

/* The part of the result that lies in [first, first + count), to `out`, which begins where the result does.
 */
static void gather_from(const struct tensor_view *v, char *out, size_t first, size_t count)
{
    size_t size = tensor_element_size(v), begin = 0;
    for (uint32_t i = 0; i < v->team->members && begin < first + count; i++) {
        size_t end = begin + v->count[i];
        size_t from = first > begin ? first : begin, to = first + count < end ? first + count : end;
        if (from < to)
            copy_bytes(out + from * size, (const char *)v->in[i] + (from - begin) * size, (to - from) * size);
        begin = end;
    }
}

static void gather_part(const struct tensor_view *v, size_t first, size_t count)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        gather_from(v, v->out[i], first, count);
}

static void gather_mine(const struct tensor_view *v, void *out)
{
    gather_from(v, out, 0, v->get[v->me]);
}

const struct kind kind_allgather = {measure_output, plan_allgather, gather_part, gather_mine};
