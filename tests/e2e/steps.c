/* steps N [EPOCHS]: N steps of a training that is none, each time after another hvd_init: allreduces of some
 * sizes, all in flight at once, whose inputs depend on the rank, the step and the element. Prints "rank R:
 * DIGEST", of all bits of all results. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/worker.h"

#define TENSORS 5
#define LARGEST 200000

static const size_t count[TENSORS] = {1, 700, 5000, 30000, LARGEST};
static float in[TENSORS][LARGEST], out[TENSORS][LARGEST];

static uint64_t digest(uint64_t hash, const void *bytes, size_t size) /* FNV-1a */
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    return hash;
}

static void step(unsigned number, uint64_t *hash)
{
    hvd_handle handle[TENSORS];
    char name[16];

    for (unsigned t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "grad.%u", t);
        for (size_t i = 0; i < count[t]; i++)
            in[t][i] = 1.0f / (float)(i % 1009 + 7 * number + 3 * (unsigned)hvd_rank() + 1);
        must(hvd_allreduce_async(name, in[t], out[t], count[t], HVD_FLOAT32, t % 2 ? HVD_SUM : HVD_AVERAGE,
                                 NULL, &handle[t]),
             name);
    }
    for (unsigned t = 0; t < TENSORS; t++) {
        must(hvd_wait(handle[t]), "hvd_wait");
        *hash = digest(*hash, out[t], count[t] * sizeof **out);
    }
}

int main(int argc, char **argv)
{
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    unsigned epochs = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    uint64_t hash = 14695981039346656037u;

    for (; epochs > 0; epochs--) {
        must(hvd_init(), "hvd_init");
        for (unsigned i = 0; i < steps; i++)
            step(i, &hash);
        if (epochs == 1)
            printf("rank %d: %016" PRIx64 "\n", hvd_rank(), hash);
        must(hvd_shutdown(), "hvd_shutdown");
    }
    return 0;
}
