/* Adasum: the same bits as the pure function over all ranks' vectors, whoever makes it, on one host and on
 * two. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/adasum.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/half.h"
#include "collectives/hvd.h"
#include "tests/unit/job.h"

#define RANKS_MAX 4

static const size_t counts[] = {1, 37, 512, 513, 40001};
static const hvd_dtype dtypes[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};

static void fill(void *to, hvd_dtype dtype, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) {
        double x = (double)((i * 31 + (size_t)rank * 17) % 101) / 16 - 3;
        if (dtype == HVD_FLOAT64)
            ((double *)to)[i] = x;
        else if (dtype == HVD_FLOAT32)
            ((float *)to)[i] = (float)x;
        else
            ((uint16_t *)to)[i] = dtype == HVD_FLOAT16 ? float16_narrow((float)x) : bfloat16_narrow((float)x);
    }
}

static void one(int rank, hvd_dtype dtype, size_t count, unsigned form)
{
    size_t bytes = count * dtype_size(dtype), size = (size_t)hvd_size();
    void *vector[RANKS_MAX], *scratch = malloc(adasum_scratch(dtype, size, count)), *want = malloc(bytes);
    bool arena = (form + (unsigned)rank) % 3 == 0;
    void *in = arena ? hvd_alloc(bytes) : malloc(bytes), *out = form & 1 ? malloc(bytes) : in;
    hvd_options o = {0}; /* Adasum is not compressed, whoever asks for it */
    hvd_handle h;

    if (dtype == HVD_FLOAT32 && form & 4)
        o.compression = form & 8 ? HVD_COMPRESSION_FLOAT16 : HVD_COMPRESSION_BFLOAT16;
    job_check(scratch && want && in && out);
    for (size_t r = 0; r < size; r++) {
        job_check((vector[r] = malloc(bytes)) != NULL);
        fill(vector[r], dtype, count, (int)r);
    }
    adasum((const void *const *)vector, size, want, count, dtype, scratch);
    fill(in, dtype, count, rank);
    if (form & 2) {
        job_check(hvd_allreduce("a", in, out, count, dtype, HVD_ADASUM, &o) == HVD_SUCCESS);
    } else {
        job_check(!hvd_allreduce_async("a", in, out, count, dtype, HVD_ADASUM, &o, &h));
        job_check(hvd_wait(h) == HVD_SUCCESS);
    }
    job_check(memcmp(out, want, bytes) == 0);
    job_check(out == in || memcmp(in, vector[rank], bytes) == 0);
    for (size_t r = 0; r < size; r++)
        free(vector[r]);
    if (out != in)
        free(out);
    if (arena)
        hvd_free(in);
    else
        free(in);
    free(want);
    free(scratch);
}

static int vectors(const struct job *job, int rank)
{
    unsigned form = 0;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int again = 0; again < 4; again++)
                one(rank, dtypes[d], counts[c], form++);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

static void run(int hosts, int ranks, int (*worker)(const struct job *, int))
{
    job_must_succeed(job_ran((struct job_shape){hosts, ranks, false}, worker));
}

START_TEST(as_the_pure_function)
{
    run(1, 1 << _i, vectors);
}
END_TEST

/* A request that cannot be done gets a sentence, on each rank by itself. */
static int refused(const struct job *job, int rank)
{
    float x[4] = {0};
    const void *in[1] = {x};
    void *out[1] = {x};

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_allreduce("a", x, x, 4, HVD_FLOAT32, HVD_ADASUM, NULL) == HVD_ERR_INVALID);
    job_check(strstr(hvd_last_error(), "power of two") != NULL);
    job_check(hvd_allreduce("a", x, x, 4, HVD_INT32, HVD_ADASUM, NULL) == HVD_ERR_INVALID);
    job_check(hvd_reducescatter("a", x, 4, 1, HVD_FLOAT32, HVD_ADASUM, x, NULL) == HVD_ERR_INVALID);
    job_check(hvd_grouped_allreduce("a", 1, in, out, (size_t[]){4}, HVD_FLOAT32, HVD_ADASUM, NULL) ==
              HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, x, 4, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(as_the_pure_function_on_two_hosts)
{
    run(2, _i, vectors);
}
END_TEST

START_TEST(in_the_order_of_ranks_that_go_round_the_hosts)
{
    job_must_succeed(job_ran((struct job_shape){2, 2, true}, vectors));
}
END_TEST

START_TEST(what_cannot_be_is_said)
{
    run(_i == 0 ? 1 : 3, _i == 0 ? 3 : 1, refused);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adasum_ranks");
    TCase *tc = tcase_create("adasum_ranks");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, as_the_pure_function, 1, 3);
    tcase_add_loop_test(tc, as_the_pure_function_on_two_hosts, 1, 3);
    tcase_add_test(tc, in_the_order_of_ranks_that_go_round_the_hosts);
    tcase_add_loop_test(tc, what_cannot_be_is_said, 0, 2);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
