/* elastic_step - an elastic job that kills its own ranks: how long does the training stand still?
 *
 *   elastic_step DEATHS BYTES
 *
 * A step is a pause of 2 ms, an allreduce of so many bytes, and the question whether the ranks are to
 * change. While the job is whole, a rank kills itself after some steps, another one each time; hvdrun
 * starts one in its place. DEATHS 0: nobody dies; it ends when ranks have gone. Lines, with times of
 * CLOCK_MONOTONIC in ns:
 *   dies T
 *   first SIZE T BEFORE STEP   of rank 0: the end of the first step of other ranks than before, the end of
 *                              the last step before, and the median time of a step, in ns */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

#define STEPS 40 /* between two deaths */

static int64_t spent[STEPS]; /* by the last steps */

static int64_t read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median_step(int64_t steps)
{
    int64_t sorted[STEPS];
    size_t n = steps < STEPS ? (size_t)steps : STEPS;
    memcpy(sorted, spent, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_times);
    return n > 0 ? sorted[n / 2] : 0;
}

static void check_status(int status)
{
    if (status >= 0)
        return;
    fprintf(stderr, "elastic_step: %s\n", hvd_last_error());
    exit(1);
}

/* HVD_SUCCESS, HVD_ERR_PEER, or 1: the ranks are to change. */
static int take_step(float *data, size_t count)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    uint8_t due = hvd_membership_changed() > 0;
    int status = hvd_allreduce("data", data, data, count, HVD_FLOAT32, HVD_MAX, NULL);
    if (status == HVD_SUCCESS)
        status = hvd_allreduce("due", &due, &due, 1, HVD_UINT8, HVD_MAX, NULL);
    return status == HVD_SUCCESS ? due : status;
}

static void kill_itself(void)
{
    char line[40];
    int n = snprintf(line, sizeof line, "dies %lld\n", (long long)read_clock());
    (void)!write(STDOUT_FILENO, line, (size_t)n);
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
    int deaths = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) / sizeof(float) : 1;
    float *data = calloc(count, sizeof *data);
    int64_t steps = 0, before = 0, median = 0;
    bool changed = false;

    if (!data)
        return 1;
    check_status(hvd_init());
    int whole = hvd_size(), died = hvd_membership() / 2; /* a death and an arrival are two changes */
    while (deaths > 0 ? died < deaths || hvd_size() < whole || steps == 0 : !changed || steps < STEPS) {
        int64_t begun = read_clock();
        if (deaths > died && hvd_size() == whole && steps >= STEPS && hvd_rank() == 1 + died % (whole - 1))
            kill_itself();
        int status = take_step(data, count);
        int64_t end = read_clock();
        if (status == HVD_SUCCESS || status == 1) {
            if (changed && steps == 0 && hvd_rank() == 0 && before > 0)
                printf("first %d %lld %lld %lld\n", hvd_size(), (long long)end, (long long)before,
                       (long long)median);
            fflush(stdout);
            spent[steps++ % STEPS] = end - begun;
            before = end;
        } else if (status != HVD_ERR_PEER) {
            check_status(status);
        }
        if (status == HVD_SUCCESS)
            continue;
        median = median_step(steps);
        check_status(hvd_reset());
        died = hvd_membership() / 2;
        steps = 0;
        changed = true;
    }
    check_status(hvd_shutdown());
    free(data);
    return 0;
}
