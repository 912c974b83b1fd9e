#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>

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
    printf("the sum is %g\n", one);
    return hvd_shutdown();
}
