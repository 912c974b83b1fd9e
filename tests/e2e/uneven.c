/* A worker with as much work as its rank says, and hvd_join after it.
 *
 *   uneven             rank r does 2 (r + 1) steps of a small and a large allreduce, then joins; twice
 *   uneven wait MS     the same, but the last rank comes to its first join MS later
 *   uneven refused     the first rank calls a broadcast when all others have joined, and prints the sentence
 *   uneven die         the last rank kills itself when all others have joined; they print what they get
 *
 * Ends with status 0, having printed "rank R: all right, rank L was last", when every result is right. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/worker.h"

#define LARGE 200000

static int rank, size;
static float in[LARGE], out[LARGE];

/* Of the ranks from `first` on, each with its rank + 1 everywhere. */
static void check(size_t count, int first, float divisor)
{
    float sum = 0;

    for (int r = first; r < size; r++)
        sum += (float)r + 1;
    for (size_t i = 0; i < count; i++)
        if (out[i] != sum / divisor)
            wrong("element %zu is %g, not %g", i, (double)out[i], (double)(sum / divisor));
}

static void work(void)
{
    for (int k = 0; k < 2 * (rank + 1); k++) {
        must(hvd_allreduce("small", in, out, 3, HVD_FLOAT32, HVD_SUM, NULL), "small");
        check(3, k / 2, 1);
        must(hvd_allreduce("average", in, out, 3, HVD_FLOAT32, HVD_AVERAGE, NULL), "average");
        check(3, k / 2, (float)size);
        must(hvd_allreduce("large", in, out, LARGE, HVD_FLOAT32, HVD_SUM, NULL), "large");
        check(LARGE, k / 2, 1);
    }
}

static void pause_ms(int ms)
{
    usleep((unsigned)ms * 1000);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int last = -1, status;

    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    for (size_t i = 0; i < LARGE; i++)
        in[i] = (float)rank + 1;
    if (strcmp(mode, "refused") != 0)
        work();
    if (strcmp(mode, "wait") == 0 && argc > 2 && rank == size - 1)
        pause_ms((int)strtol(argv[2], NULL, 10));
    if (strcmp(mode, "die") == 0 && rank == size - 1) {
        pause_ms(300);
        raise(SIGKILL);
    }
    if (strcmp(mode, "refused") == 0 && rank == 0) {
        pause_ms(200);
        status = hvd_broadcast("weights", out, 5, HVD_FLOAT32, 0, NULL);
        printf("%s: %s\n", hvd_status_name(status), hvd_last_error());
    }
    must(hvd_join(&last), "hvd_join");
    if (*mode == '\0') {
        work();
        pause_ms(rank == size - 1 ? 30 : 0);
        must(hvd_join(&last), "hvd_join");
    }
    printf("rank %d: all right, rank %d was last\n", rank, last);
    must(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
