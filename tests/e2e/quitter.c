/* A rank that gives up and says why. quitter STATUS [PAUSE]: all ranks call collectives again and again.
 * After a while rank 1 calls hvd_abort, waits PAUSE milliseconds, prints "cleaned up" and ends with STATUS
 * (0: after hvd_shutdown). Each other rank prints "heard NS", the time from the abort, and ends with
 * status 9. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int give_up(int status, unsigned pause)
{
    printf("said %lld\n", now());
    fflush(stdout);
    if (hvd_abort("ValueError: bad \nbatch") != HVD_SUCCESS)
        return 1;
    usleep(pause * 1000);
    if (status == 0)
        hvd_shutdown();
    printf("cleaned up\n");
    return status;
}

int main(int argc, char **argv)
{
    int status = HVD_SUCCESS;
    float x = 1, sum;
    if (argc < 2 || hvd_init() != HVD_SUCCESS) {
        fprintf(stderr, "quitter: %s\n", hvd_last_error());
        return 1;
    }
    for (int i = 0; status == HVD_SUCCESS; i++) {
        if (hvd_rank() == 1 && i == 100)
            return give_up((int)strtol(argv[1], NULL, 10),
                           argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0);
        status = hvd_allreduce("x", &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL);
    }
    printf("heard %lld: %s\n", now(), hvd_last_error());
    return 9;
}
