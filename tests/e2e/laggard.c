/* laggard MILLISECONDS RANK...: all ranks reduce "grad.3" twice, and the given ones come so much later to the
 * second time. Then a barrier, rank 0 broadcasts 1 MiB, a moment, and hvd_shutdown. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hvd.h"

#define LARGE (1u << 18)

static int failed(const char *what)
{
    fprintf(stderr, "laggard: %s: %s\n", what, hvd_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    static float large[LARGE];
    float x = 1, sum = 0;
    bool late = false;
    hvd_handle handle;

    if (argc < 2 || hvd_init() != HVD_SUCCESS)
        return failed("hvd_init");
    for (int i = 2; i < argc; i++)
        late = late || strtol(argv[i], NULL, 10) == hvd_rank();
    for (int round = 0; round < 2; round++) {
        if (late && round == 1)
            usleep((useconds_t)strtol(argv[1], NULL, 10) * 1000);
        if (hvd_allreduce("grad.3", &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL) != HVD_SUCCESS)
            return failed("grad.3");
    }
    /* Not the blocking call, which goes by pieces: this one has copies to be seen. */
    if (hvd_barrier(NULL) != HVD_SUCCESS ||
        hvd_broadcast_async("large \"1\"", large, LARGE, HVD_FLOAT32, 0, NULL, &handle) != HVD_SUCCESS ||
        hvd_wait(handle) != HVD_SUCCESS)
        return failed("the rest");
    usleep(300000);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : failed("hvd_shutdown");
}
