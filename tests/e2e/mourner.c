/* Measures how long the others are not told that a rank has died. mourner: all ranks call collectives again
 * and again; after a while the last one prints "died NS" and kills itself, and each other prints "told NS"
 * when its call has failed with HVD_ERR_PEER: times of a clock that all hosts of one machine share. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

#define BEFORE_NS 150000000LL /* of running */

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void say(const char *what)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%s %lld\n", what, now());
    (void)!write(STDOUT_FILENO, line, (size_t)n);
}

int main(void)
{
    float x = 1, sum;
    signal(SIGTERM, SIG_IGN); /* the end of the job must not come before the error */
    if (hvd_init() != HVD_SUCCESS) {
        fprintf(stderr, "mourner: %s\n", hvd_last_error());
        return 1;
    }
    long long end = now() + BEFORE_NS;
    int status = HVD_SUCCESS;
    while (status == HVD_SUCCESS) {
        if (hvd_rank() == hvd_size() - 1 && now() >= end) {
            say("died");
            kill(getpid(), SIGKILL);
        }
        status = hvd_allreduce("x", &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL);
    }
    say(status == HVD_ERR_PEER ? "told" : hvd_status_name(status));
    return 1;
}
