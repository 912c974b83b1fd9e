/* steps N [EPOCHS]: N steps of a training that is none, each time after another hvd_init: allreduces of some
 * sizes, all in flight at once, whose inputs depend on the rank, the step and the element. Prints "rank R:
 * DIGEST", of all bits of all results. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "hvd.h"

#define TENSORS 5
#define LARGEST 200000

static const size_t count[TENSORS] = {1, 700, 5000, 30000, LARGEST};
static float in[TENSORS][LARGEST], out[TENSORS][LARGEST];

static int failed(const char *what)
{
    fprintf(stderr, "steps: %s: %s\n", what, hvd_last_error());
    return 1;
}

static uint64_t digest(uint64_t hash, const void *bytes, size_t size) /* FNV-1a */
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    return hash;
}

static int step(unsigned number, uint64_t *hash)
{
    hvd_handle handle[TENSORS];
    char name[16];

    for (unsigned t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "grad.%u", t);
        for (size_t i = 0; i < count[t]; i++)
            in[t][i] = 1.0f / (float)(i % 1009 + 7 * number + 3 * (unsigned)hvd_rank() + 1);
        if (hvd_allreduce_async(name, in[t], out[t], count[t], HVD_FLOAT32, t % 2 ? HVD_SUM : HVD_AVERAGE,
                                NULL, &handle[t]) != HVD_SUCCESS)
            return failed(name);
    }
    for (unsigned t = 0; t < TENSORS; t++) {
        if (hvd_wait(handle[t]) != HVD_SUCCESS)
            return failed("hvd_wait");
        *hash = digest(*hash, out[t], count[t] * sizeof **out);
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned steps = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    unsigned epochs = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    uint64_t hash = 14695981039346656037u;

    for (; epochs > 0; epochs--) {
        if (hvd_init() != HVD_SUCCESS)
            return failed("hvd_init");
        for (unsigned i = 0; i < steps; i++)
            if (step(i, &hash) != 0)
                return 1;
        if (epochs == 1)
            printf("rank %d: %016" PRIx64 "\n", hvd_rank(), hash);
        if (hvd_shutdown() != HVD_SUCCESS)
            return failed("hvd_shutdown");
    }
    return 0;
}
