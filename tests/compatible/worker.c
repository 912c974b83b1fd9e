/* A worker of every family of calls of hvd.h, for tests/compatible/run.sh.
 *
 * The script links it to one libhvd, and runs it with another. It writes "rank N works", or says which call
 * did not do what the header says. Steps: memory and members of hvd_options; blocking, asynchronous, grouped
 * and persistent calls; a process set; the end. */
#include <hvd.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void expect_right(int right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "%s: %s\n", what, hvd_last_error());
    exit(1);
}

/* Ranks give their number plus one: the sum over two ranks is 3. */
static void combine_all(void)
{
    float *sum = hvd_alloc(COUNT * sizeof *sum);
    hvd_options options = {.prescale = 2, .postscale = 3, .compression = HVD_COMPRESSION_FLOAT16};
    expect_right(sum != NULL, "hvd_alloc");
    for (int i = 0; i < COUNT; i++)
        sum[i] = (float)hvd_rank() + 1;
    expect_right(hvd_allreduce("sum", sum, sum, COUNT, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS,
                 "hvd_allreduce");
    expect_right(sum[0] == 3 && sum[COUNT - 1] == 3, "the sum");
    expect_right(hvd_allreduce("scaled", sum, sum, COUNT, HVD_FLOAT32, HVD_AVERAGE, &options) == HVD_SUCCESS,
                 "hvd_allreduce with options");
    expect_right(sum[0] == 18, "the scaled average");
    hvd_free(sum);
}

static void move_all(void)
{
    int64_t mine = 10 + hvd_rank(), all[2] = {0};
    size_t rows_of[2];
    expect_right(hvd_allgather("all", &mine, 1, 1, HVD_INT64, all, 2, rows_of, NULL) == HVD_SUCCESS &&
                     all[0] == 10 && all[1] == 11 && rows_of[1] == 1,
                 "hvd_allgather");
    expect_right(hvd_broadcast("mine", &mine, 1, HVD_INT64, 1, NULL) == HVD_SUCCESS && mine == 11,
                 "hvd_broadcast");
    expect_right(hvd_alltoall("swap", (int64_t[]){hvd_rank(), hvd_rank()}, 2, NULL, 1, HVD_INT64, all, 2,
                              NULL, NULL) == HVD_SUCCESS &&
                     all[0] == 0 && all[1] == 1,
                 "hvd_alltoall");
    expect_right(hvd_reducescatter("part", all, 2, 1, HVD_INT64, HVD_MAX, &mine, NULL) == HVD_SUCCESS &&
                     mine == hvd_rank(),
                 "hvd_reducescatter");
    expect_right((hvd_rank() == 0 ? hvd_send("to", &(int32_t){5}, 1, HVD_INT32, 1, NULL)
                                  : hvd_recv("to", &(int32_t){0}, 1, HVD_INT32, 0, NULL)) == HVD_SUCCESS,
                 "hvd_send and hvd_recv");
}

static void use_handles(void)
{
    double in = 1, out = 0, pair[2] = {1, 2};
    const void *ins[2] = {&pair[0], &pair[1]};
    void *outs[2] = {&pair[0], &pair[1]};
    hvd_handle handle = 0;
    expect_right(hvd_grouped_allreduce_async("pair", 2, ins, outs, (size_t[]){1, 1}, HVD_FLOAT64, HVD_PRODUCT,
                                             NULL, &handle) == HVD_SUCCESS &&
                     hvd_wait(handle) == HVD_SUCCESS && pair[1] == 4,
                 "hvd_grouped_allreduce_async");
    expect_right(hvd_allreduce_init("kept", &in, &out, 1, HVD_FLOAT64, HVD_SUM, NULL, &handle) == HVD_SUCCESS,
                 "hvd_allreduce_init");
    for (int i = 0; i < 3; i++)
        expect_right(hvd_start(handle) == HVD_SUCCESS && hvd_wait(handle) == HVD_SUCCESS && out == 2,
                     "hvd_start");
    expect_right(hvd_handle_free(handle) == HVD_SUCCESS, "hvd_handle_free");
}

static void use_set(void)
{
    hvd_options options = {.set = HVD_WORLD};
    int32_t one = 1;
    expect_right(hvd_set_add((int[]){1}, 1, &options.set) == HVD_SUCCESS && hvd_set_count() == 2,
                 "hvd_set_add");
    expect_right(hvd_rank() == 0
                     ? hvd_set_rank(options.set) == HVD_ERR_SET_FOREIGN
                     : hvd_allreduce("alone", &one, &one, 1, HVD_INT32, HVD_SUM, &options) == HVD_SUCCESS,
                 "an operation in a process set");
    expect_right(hvd_barrier(NULL) == HVD_SUCCESS && hvd_set_remove(options.set) == HVD_SUCCESS,
                 "hvd_set_remove");
}

int main(void)
{
    expect_right(hvd_init() == HVD_SUCCESS, "hvd_init");
    expect_right(hvd_size() == 2 && hvd_local_size() == 2 && hvd_cross_size() == 1, "the numbers of ranks");
    combine_all();
    move_all();
    use_handles();
    use_set();
    expect_right(hvd_join(NULL) == HVD_SUCCESS, "hvd_join");
    int rank = hvd_rank();
    expect_right(hvd_shutdown() == HVD_SUCCESS && !hvd_is_initialized(), "hvd_shutdown");
    printf("rank %d works\n", rank);
    return 0;
}
