/* Member j's output is part j of the reduction of all inputs. The chunks cover the input; where one crosses
 * from a part into the next, it is reduced in two pieces. The parts are whole rows, the first ones a row
 * longer when they do not come out even; of a group they are what its table says. */
#include "collectives/local/kind.h"

static uint64_t measure_output(const struct tensor_view *v, uint32_t member)
{
    return v->split[v->team->member[member]] * tensor_element_size(v);
}

static uint64_t plan_reducescatter(struct tensor_view *v, char *wrong, size_t size)
{
    (void)wrong, (void)size;
    for (uint32_t i = 0; i < v->team->members; i++)
        v->get[i] = v->split[v->team->member[i]];
    return v->op.count;
}

static void reduce_part(const struct tensor_view *v, size_t first, size_t count)
{
    size_t size = tensor_element_size(v), begin = 0;
    for (uint32_t j = 0; j < v->team->members && begin < first + count; j++) {
        size_t end = begin + v->get[j];
        size_t a = first > begin ? first : begin, b = first + count < end ? first + count : end;
        /* The output's begin if it had all parts: the reduction counts from there. */
        void *out = (void *)((uintptr_t)v->out[j] - begin * size);
        if (a < b)
            kind_reduce(v, &out, 1, a, b - a);
        begin = end;
    }
}

static void reduce_mine(const struct tensor_view *v, void *out)
{
    size_t size = tensor_element_size(v), begin = 0;
    for (uint32_t j = 0; j < v->me; j++)
        begin += v->get[j];
    out = (void *)((uintptr_t)out - begin * size);
    kind_reduce(v, &out, 1, begin, v->get[v->me]);
}

const struct kind kind_reducescatter = {measure_output, plan_reducescatter, reduce_part, reduce_mine};
