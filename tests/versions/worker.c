#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE (3 << 18) /* elements: 3 MiB, which hosts exchange piece by piece */

/* The ranks sum a large tensor, and pass it on. NULL, or what was wrong. */
static const char *move_large(void)
{
    float *x = malloc(LARGE * sizeof *x);
    int ranks = hvd_size();

    for (int i = 0; x && i < LARGE; i++)
        x[i] = (float)(i % 1000 + hvd_rank());
    if (!x || hvd_allreduce("large", x, x, LARGE, HVD_FLOAT32, HVD_SUM, NULL) != HVD_SUCCESS)
        return hvd_last_error();
    for (int i = 0; i < LARGE; i++)
        if (x[i] != (float)(ranks * (i % 1000) + ranks * (ranks - 1) / 2))
            return "a wrong sum";
    for (int root = 0, step = ranks > 1 ? ranks - 1 : 1; root < ranks; root += step) {
        x[LARGE - 1] = (float)(hvd_rank() == root ? root + 1 : -1);
        if (hvd_broadcast("passed on", x, LARGE, HVD_FLOAT32, root, NULL) != HVD_SUCCESS)
            return hvd_last_error();
        if (x[LARGE - 1] != (float)(root + 1))
            return "another rank's elements";
    }
    free(x);
    return NULL;
}

/* [TIMES] */
int main(int argc, char **argv)
{
    if (hvd_init() != HVD_SUCCESS)
        return fprintf(stderr, "%s\n", hvd_last_error()), 1;
    float one = 0;
    for (long i = argc > 1 ? strtol(argv[1], NULL, 10) : 1; i > 0; i--) {
        one = (float)hvd_rank() + 1;
        if (hvd_allreduce("sum", &one, &one, 1, HVD_FLOAT32, HVD_SUM, NULL) != HVD_SUCCESS)
            return fprintf(stderr, "%s\n", hvd_last_error()), 1;
    }
    const char *wrong = move_large();
    if (wrong)
        return fprintf(stderr, "%s\n", wrong), 1;
    printf("the sum is %g\n", one);
    return hvd_shutdown();
}
