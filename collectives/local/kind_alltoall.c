/* Member j's output is what every member sends to j, in the order of ranks. The chunks cover all outputs, one
 * behind the other in the order of members; a chunk is copied piece by piece, each from one member's input.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/copy.h"
#include "collectives/local/kind.h"

static uint64_t measure_output(const struct tensor_view *v, uint32_t member)
{
    return v->capacity[member] * tensor_element_size(v);
}

/* The counts that member `from` sends to each rank of the job. */
static const uint64_t *count_sent(const struct tensor_view *v, uint32_t from)
{
    return v->split + (size_t)from * v->team->size;
}

static uint64_t plan_alltoall(struct tensor_view *v, char *wrong, size_t size)
{
    uint32_t members = v->team->members; /* all ranks are here: member j is rank j of the team */
    uint64_t total = 0, row = v->op.row;
    for (uint32_t j = 0; j < members; j++) {
        v->get[j] = 0;
        for (uint32_t i = 0; i < members; i++)
            v->get[j] += count_sent(v, i)[j];
        if (v->capacity[j] < v->get[j]) {
            snprintf(wrong, size, "rank %u has room for %llu rows, it is sent %llu", team_rank(v->team, j),
                     (unsigned long long)(v->capacity[j] / row), (unsigned long long)(v->get[j] / row));
            return UINT64_MAX;
        }
        total += v->get[j];
    }
    return total;
}

/* Elements [first, first + count) of what member `to` gets, to `out`, where its result begins. */
static void receive_from(const struct tensor_view *v, uint32_t to, char *out, size_t first, size_t count)
{
    size_t size = tensor_element_size(v), begin = 0;
    for (uint32_t i = 0; i < v->team->members && begin < first + count; i++) {
        const uint64_t *split = count_sent(v, i);
        size_t end = begin + split[to], before = 0;
        size_t a = first > begin ? first : begin, b = first + count < end ? first + count : end;
        if (a < b) {
            for (uint32_t r = 0; r < to; r++)
                before += split[r];
            copy_bytes(out + a * size, (const char *)v->in[i] + (before + a - begin) * size, (b - a) * size);
        }
        begin = end;
    }
}

static void receive_part(const struct tensor_view *v, size_t first, size_t count)
{
    size_t begin = 0;
    for (uint32_t j = 0; j < v->team->members && begin < first + count; j++) {
        size_t end = begin + v->get[j];
        size_t a = first > begin ? first : begin, b = first + count < end ? first + count : end;
        if (a < b)
            receive_from(v, j, v->out[j], a - begin, b - a);
        begin = end;
    }
}

static void receive_mine(const struct tensor_view *v, void *out)
{
    receive_from(v, v->me, out, 0, v->get[v->me]);
}

const struct kind kind_alltoall = {measure_output, plan_alltoall, receive_part, receive_mine};
