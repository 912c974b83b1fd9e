/* laggard MILLISECONDS RANK...: all ranks reduce "grad.3" twice (LAGGARD_ROUNDS: so often), and the given
 * ones come so much later to the last time. Then a barrier, rank 0 broadcasts 1 MiB, a moment, hvd_shutdown.
 *
 * LAGGARD_PIECES: all ranks reduce "pieces" instead, of private memory that goes piece by piece. The given
 * ranks begin with the others, and do their part so much later. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/e2e/worker.h"

#define LARGE  (1u << 18)
#define PIECES (3u << 20) /* elements: 12 MiB */

static bool done;

/* A rank that got an error stays a moment before it ends. On a busy machine the news of its end could
 * otherwise reach another host before the error does, and its ranks would report the end as the cause. */
static void stay(void)
{
    if (!done)
        usleep(500000);
}

static void pass_pieces(bool late, const char *milliseconds)
{
    const hvd_options will_wait = {.will_wait = 1};
    float *x = calloc(PIECES, sizeof *x);
    hvd_handle handle;

    must(hvd_allreduce_async("pieces", x, x, PIECES, HVD_FLOAT32, HVD_SUM, &will_wait, &handle), "pieces");
    if (late)
        usleep((useconds_t)strtol(milliseconds, NULL, 10) * 1000);
    must(hvd_wait(handle), "the end of pieces");
    free(x);
}

int main(int argc, char **argv)
{
    static float large[LARGE];
    float x = 1, sum = 0;
    bool late = false;
    hvd_handle handle;
    const char *rounds = getenv("LAGGARD_ROUNDS");
    long last = (rounds ? strtol(rounds, NULL, 10) : 2) - 1;

    if (argc < 2)
        return 2;
    (void)atexit(stay);
    must(hvd_init(), "hvd_init");
    for (int i = 2; i < argc; i++)
        late = late || strtol(argv[i], NULL, 10) == hvd_rank();
    if (getenv("LAGGARD_PIECES"))
        pass_pieces(late, argv[1]);
    for (long round = 0; round <= last && !getenv("LAGGARD_PIECES"); round++) {
        if (late && round == last)
            usleep((useconds_t)strtol(argv[1], NULL, 10) * 1000);
        must(hvd_allreduce("grad.3", &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL), "grad.3");
    }
    /* Not the blocking call, which goes by pieces: this one has copies to be seen. */
    must(hvd_barrier(NULL), "barrier");
    must(hvd_broadcast_async("large \"1\"", large, LARGE, HVD_FLOAT32, 0, NULL, &handle), "broadcast");
    must(hvd_wait(handle), "the broadcast's end");
    usleep(300000);
    must(hvd_shutdown(), "hvd_shutdown");
    done = true;
    return 0;
}
