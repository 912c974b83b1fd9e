#include <hvd.h>
#include <stdio.h>

int main(void)
{
    if (hvd_init() != HVD_SUCCESS)
        return fprintf(stderr, "%s\n", hvd_last_error()), 1;
    float one = (float)hvd_rank() + 1;
    if (hvd_allreduce("sum", &one, &one, 1, HVD_FLOAT32, HVD_SUM, NULL) != HVD_SUCCESS)
        return fprintf(stderr, "%s\n", hvd_last_error()), 1;
    printf("the sum is %g\n", one);
    return hvd_shutdown();
}
