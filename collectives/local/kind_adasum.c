/* An allreduce by Adasum: every member's output is the joined vector, which is made in one piece: its dot
 * products are over whole vectors. Small ones are made by each rank for itself, large ones by whoever comes
 * first. */
#include "collectives/kernels/adasum.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/kernels/copy.h"
#include "collectives/local/kind.h"

#define LEVELS_MAX 11 /* of SHM_MEMBERS_MAX vectors; a small one's elements become twice as wide at most */

static uint64_t measure_output(const struct tensor_view *v, uint32_t member)
{
    return v->count[member] * tensor_element_size(v);
}

/* The scratch memory is the next operation's to free. */
static uint64_t plan_adasum(struct tensor_view *v, char *wrong, size_t size)
{
    for (uint32_t i = 0; i < v->team->members; i++)
        v->get[i] = v->op.count;
    if (v->place == SHM_INLINE)
        return v->op.count;
    free(v->scratch);
    v->scratch = malloc(adasum_scratch((hvd_dtype)v->op.dtype, v->team->members, v->op.count));
    if (v->scratch)
        return v->op.count;
    snprintf(wrong, size, "no memory for adasum");
    return UINT64_MAX;
}

static void reduce_part(const struct tensor_view *v, size_t first, size_t count)
{
    (void)first; /* 0: it is the whole */
    adasum(v->in, v->team->members, v->out[0], count, (hvd_dtype)v->op.dtype, v->scratch);
    for (uint32_t i = 1; i < v->team->members; i++)
        copy_bytes(v->out[i], v->out[0], count * tensor_element_size(v));
}

static void reduce_mine(const struct tensor_view *v, void *out)
{
    _Alignas(8) char scratch[LEVELS_MAX * 2 * SHM_INLINE_MAX];
    adasum(v->in, v->team->members, out, v->op.count, (hvd_dtype)v->op.dtype, scratch);
}

const struct kind kind_adasum = {measure_output, plan_adasum, reduce_part, reduce_mine};
