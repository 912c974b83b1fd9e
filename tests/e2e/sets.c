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

#include "tests/e2e/worker.h"

#define COUNT 100000u

static int rank, size;

static hvd_set set_of(int first, int step)
{
    int ranks[64], n = 0;
    hvd_set set = 0;

    for (int i = first; i < size; i += step)
        ranks[n++] = i;
    must(hvd_set_add(ranks, n, &set), "hvd_set_add");
    return set;
}

/* Sums of ranks over the set, in tensors of both sizes. */
static void work_in(hvd_set set, int rounds)
{
    static int64_t in[COUNT], out[COUNT];
    hvd_options options = {.set = set};
    int ranks[64], sum = 0;

    must(hvd_set_ranks(set, ranks), "hvd_set_ranks");
    for (int i = 0; i < hvd_set_size(set); i++)
        sum += ranks[i];
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < COUNT; i++)
            in[i] = rank * (int64_t)(i + 1);
        must(hvd_allreduce("small", in, out, 1, HVD_INT64, HVD_SUM, &options), "small");
        if (out[0] != sum)
            wrong("small is %lld, not %d", (long long)out[0], sum);
        must(hvd_allreduce("large", in, out, COUNT, HVD_INT64, HVD_SUM, &options), "large");
        for (size_t i = 0; i < COUNT; i++)
            if (out[i] != sum * (int64_t)(i + 1))
                wrong("large: element %zu is %lld", i, (long long)out[i]);
    }
}

static void pass_on(void)
{
    static int32_t mine[COUNT], got[COUNT];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    hvd_handle handle;

    mine[COUNT - 1] = rank;
    must(hvd_send_async("pass", mine, COUNT, HVD_INT32, to, NULL, &handle), "hvd_send_async");
    must(hvd_recv("pass", got, COUNT, HVD_INT32, from, NULL), "hvd_recv");
    must(hvd_wait(handle), "what was sent");
    if (got[COUNT - 1] != from)
        wrong("rank %d passed on %d", from, (int)got[COUNT - 1]);
}

/* From hvd_init to hvd_shutdown. */
static void epoch(useconds_t late_by)
{
    must(hvd_init(), "hvd_init");
    rank = hvd_rank();
    size = hvd_size();
    hvd_set even = set_of(0, 2), odd = set_of(1, 2), ends = set_of(0, size - 1);
    work_in(rank % 2 ? odd : even, 10);
    if (rank == size - 1)
        usleep(late_by);
    if (hvd_set_rank(ends) >= 0)
        work_in(ends, 10);
    must(hvd_set_remove(odd), "hvd_set_remove");
    if (hvd_set_count() != 3)
        wrong("%d sets are left", hvd_set_count());
    pass_on();
    must(hvd_shutdown(), "hvd_shutdown");
}

int main(int argc, char **argv)
{
    epoch(argc > 1 ? (useconds_t)strtol(argv[1], NULL, 10) * 1000 : 0);
    epoch(0);
    printf("rank %d: all right\n", rank);
    return 0;
}
