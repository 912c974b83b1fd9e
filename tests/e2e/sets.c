/* sets [MILLISECONDS]: ranks work in process sets, the last rank coming so much later to the last set. Prints
 * "rank N: all right" at the end; the first difference ends it with status 1.
 *
 * Sets: the even ranks, the odd ones (at work at the same time, under the same names), the first and the
 * last; then each rank sends to the next and receives from the one before. All of that twice, with
 * hvd_shutdown and hvd_init between. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hvd.h"

#define COUNT 100000u

static int rank, size;

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, hvd_last_error());
    exit(1);
}

static hvd_set set_of(int first, int step)
{
    int ranks[64], n = 0;
    hvd_set set = 0;

    for (int i = first; i < size; i += step)
        ranks[n++] = i;
    must(hvd_set_add(ranks, n, &set) == HVD_SUCCESS, "hvd_set_add");
    return set;
}

/* Sums of ranks over the set, in tensors of both sizes. */
static void work_in(hvd_set set, int rounds)
{
    static int64_t in[COUNT], out[COUNT];
    hvd_options options = {.set = set};
    int ranks[64], sum = 0;

    must(hvd_set_ranks(set, ranks) == HVD_SUCCESS, "hvd_set_ranks");
    for (int i = 0; i < hvd_set_size(set); i++)
        sum += ranks[i];
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < COUNT; i++)
            in[i] = rank * (int64_t)(i + 1);
        must(hvd_allreduce("small", in, out, 1, HVD_INT64, HVD_SUM, &options) == HVD_SUCCESS, "small");
        must(out[0] == sum, "small is right");
        must(hvd_allreduce("large", in, out, COUNT, HVD_INT64, HVD_SUM, &options) == HVD_SUCCESS, "large");
        for (size_t i = 0; i < COUNT; i++)
            must(out[i] == sum * (int64_t)(i + 1), "large is right");
    }
}

static void pass_on(void)
{
    static int32_t mine[COUNT], got[COUNT];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    hvd_handle handle;

    mine[COUNT - 1] = rank;
    must(hvd_send_async("pass", mine, COUNT, HVD_INT32, to, NULL, &handle) == HVD_SUCCESS, "hvd_send_async");
    must(hvd_recv("pass", got, COUNT, HVD_INT32, from, NULL) == HVD_SUCCESS, "hvd_recv");
    must(got[COUNT - 1] == from && hvd_wait(handle) == HVD_SUCCESS, "what was passed on");
}

/* From hvd_init to hvd_shutdown. */
static void epoch(useconds_t late_by)
{
    must(hvd_init() == HVD_SUCCESS, "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    hvd_set even = set_of(0, 2), odd = set_of(1, 2), ends = set_of(0, size - 1);
    work_in(rank % 2 ? odd : even, 10);
    if (rank == size - 1)
        usleep(late_by);
    if (hvd_set_rank(ends) >= 0)
        work_in(ends, 10);
    must(hvd_set_remove(odd) == HVD_SUCCESS && hvd_set_count() == 3, "hvd_set_remove");
    pass_on();
    must(hvd_shutdown() == HVD_SUCCESS, "hvd_shutdown");
}

int main(int argc, char **argv)
{
    epoch(argc > 1 ? (useconds_t)strtol(argv[1], NULL, 10) * 1000 : 0);
    epoch(0);
    printf("rank %d: all right\n", rank);
    return 0;
}
