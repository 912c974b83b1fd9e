/* The operations besides plain allreduce and broadcast, on one host: real processes and a real engine, each
 * result against a simple reference. */
/* needs: hvd-engine modules tests/unit/job.c */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "tests/unit/job.h"

#define MOST (4u << 20) /* bytes of the largest buffer */

static void run(int ranks, int (*worker)(const struct job *, int))
{
    job_must_succeed(job_ran((struct job_shape){1, ranks, false}, worker));
}

/* Element i of the rank's tensor. */
job_unwatched static float value(int rank, size_t i)
{
    return (float)((int)((i * 31 + (size_t)rank * 17) % 101) - 50);
}

/* Buffers in the arena and outside, at their beginning and at an odd address. */
struct buffers {
    char *memory[4];
};

static struct buffers buffers_new(void)
{
    return (struct buffers){
        {hvd_alloc(MOST + 64), malloc(MOST + 64), hvd_alloc(MOST + 64), malloc(MOST + 64)}};
}

static void *buffer(const struct buffers *b, bool out, bool arena, bool odd)
{
    return b->memory[2 * out + !arena] + (odd ? 3 : 0);
}

static void buffers_free(struct buffers *b)
{
    hvd_free(b->memory[0]);
    free(b->memory[1]);
    hvd_free(b->memory[2]);
    free(b->memory[3]);
}

static float get(const void *from, size_t i)
{
    float x;

    memcpy(&x, (const char *)from + i * sizeof x, sizeof x);
    return x;
}

static void put(void *to, size_t i, float x)
{
    memcpy((char *)to + i * sizeof x, &x, sizeof x);
}

job_unwatched static void fill(void *to, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(to, i, value(rank, i));
}

#define GUARD 12345.0f

/* Bits: arena in, arena out, odd in, odd out. Ranks do not do alike. */
static void *choose(const struct buffers *b, bool out, int form, int rank)
{
    return buffer(b, out, (form + rank) >> out & 1, (form + rank) >> (2 + out) & 1);
}

static const size_t sizes[] = {0, 1, 3, 40, 511, 513, 7000, 60001};
#define SIZES (sizeof sizes / sizeof *sizes)

/* ---- allgather ----------------------------------------------------------------------------------------- */

/* Rows of rank r: some have none. */
static size_t rows_of_rank(size_t scale, int rank, int pattern)
{
    return pattern == 0 ? scale : pattern == 1 ? scale * (size_t)rank : rank == 1 ? scale : 0;
}

static void one_allgather(const struct buffers *b, int rank, size_t scale, size_t row, int form)
{
    size_t rows = rows_of_rank(scale, rank, form % 3), total = 0, got[8];
    float *in = choose(b, false, form, rank), *out = choose(b, true, form, rank);
    char name[64];

    for (int r = 0; r < hvd_size(); r++)
        total += rows_of_rank(scale, r, form % 3);
    snprintf(name, sizeof name, "gather-%zu-%zu-%d", scale, row, form);
    fill(in, rank, rows * row);
    put(out, total * row, GUARD);
    job_check(hvd_allgather(name, in, rows, row, HVD_FLOAT32, out, total, form & 1 ? got : NULL, NULL) ==
              HVD_SUCCESS);
    for (int r = 0; r < hvd_size(); r++) {
        size_t n = rows_of_rank(scale, r, form % 3) * row;
        job_check(!(form & 1) || got[r] * row == n);
        for (size_t i = 0; i < n; i++)
            job_check(get(out, i) == value(r, i));
        out = (float *)((char *)out + n * sizeof(float));
    }
    job_check(get(out, 0) == GUARD);
}

static int allgathers(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < SIZES; s++)
        for (int form = 0; form < 16; form++)
            one_allgather(&b, rank, sizes[s], 1 + (size_t)form % 2, form);
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(allgather_is_right)
{
    run(_i, allgathers);
}
END_TEST

/* ---- alltoall ------------------------------------------------------------------------------------------ */

/* Rows that rank i sends to j. */
static size_t sent(size_t scale, int i, int j, int pattern)
{
    return pattern == 0 ? scale : pattern == 1 ? scale * (size_t)((i + 2 * j) % 3) : i == j ? 0 : scale / 2;
}

static void one_alltoall(const struct buffers *b, int rank, size_t scale, int form)
{
    size_t splits[8], received[8], rows = 0, room = 0, row = 1 + (size_t)form % 2;
    float *in = choose(b, false, form, rank), *out = choose(b, true, form, rank);
    char name[64];

    for (int r = 0; r < hvd_size(); r++) {
        splits[r] = sent(scale, rank, r, form % 3);
        rows += splits[r];
        room += sent(scale, r, rank, form % 3);
    }
    snprintf(name, sizeof name, "alltoall-%zu-%d", scale, form);
    fill(in, rank, rows * row);
    put(out, room * row, GUARD);
    job_check(hvd_alltoall(name, in, rows, form % 3 == 0 && (form + rank) & 1 ? NULL : splits, row,
                           HVD_FLOAT32, out, room, received, NULL) == HVD_SUCCESS);
    for (int r = 0; r < hvd_size(); r++) {
        size_t n = sent(scale, r, rank, form % 3), before = 0;
        for (int k = 0; k < rank; k++)
            before += sent(scale, r, k, form % 3);
        job_check(received[r] == n);
        for (size_t i = 0; i < n * row; i++)
            job_check(get(out, i) == value(r, before * row + i));
        out = (float *)((char *)out + n * row * sizeof(float));
    }
    job_check(get(out, 0) == GUARD);
}

static int alltoalls(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < SIZES - 1; s++)
        for (int form = 0; form < 16; form++)
            one_alltoall(&b, rank, sizes[s], form);
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(alltoall_is_right)
{
    run(_i, alltoalls);
}
END_TEST

/* ---- reducescatter ------------------------------------------------------------------------------------- */

static size_t part(size_t rows, int size, int rank)
{
    return rows / (size_t)size + ((size_t)rank < rows % (size_t)size);
}

static float sum_of(int size, size_t i)
{
    float sum = 0;

    for (int r = 0; r < size; r++)
        sum += value(r, i);
    return sum;
}

job_unwatched static void check_part(const void *out, int rank, size_t rows, size_t row, float factor)
{
    size_t before = 0, mine = part(rows, hvd_size(), rank);

    for (int r = 0; r < rank; r++)
        before += part(rows, hvd_size(), r);
    for (size_t i = 0; i < mine * row; i++)
        job_check(get(out, i) == sum_of(hvd_size(), before * row + i) * factor);
}

static void one_reducescatter(const struct buffers *b, int rank, size_t rows, int form)
{
    void *in = choose(b, false, form, rank), *out = choose(b, true, form, rank);
    size_t row = 1 + (size_t)form % 5, mine = part(rows, hvd_size(), rank) * row;
    hvd_options scaled = {.prescale = 0.5, .postscale = 4};
    char name[64];

    snprintf(name, sizeof name, "scatter-%zu-%d", rows, form);
    fill(in, rank, rows * row);
    put(out, mine, GUARD);
    job_check(hvd_reducescatter(name, in, rows, row, HVD_FLOAT32, HVD_SUM, out, form & 1 ? &scaled : NULL) ==
              HVD_SUCCESS);
    check_part(out, rank, rows, row, form & 1 ? 2 : 1);
    job_check(get(out, mine) == GUARD);
}

static int reducescatters(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < SIZES; s++)
        for (int form = 0; form < 16; form++)
            one_reducescatter(&b, rank, sizes[s], form);
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(reducescatter_is_right)
{
    run(_i, reducescatters);
}
END_TEST

/* ---- groups -------------------------------------------------------------------------------------------- */

enum { TENSORS = 5 };

static void grouped(const struct buffers *b, int rank, size_t scale, int form)
{
    size_t count[TENSORS], rows[TENSORS], row[TENSORS], at = 0;
    const void *in[TENSORS];
    void *out[TENSORS];
    char name[64];

    for (size_t t = 0; t < TENSORS; t++) {
        rows[t] = t == 2 ? 0 : scale + t;
        row[t] = 1 + t % 3;
        count[t] = rows[t] * row[t];
        in[t] = (char *)choose(b, false, form, rank) + at;
        out[t] = (char *)choose(b, true, form, rank) + at;
        fill((void *)(uintptr_t)in[t], rank, count[t]);
        at += count[t] * sizeof(float) + 7;
    }
    snprintf(name, sizeof name, "group-%zu-%d", scale, form);
    job_check(hvd_grouped_allreduce(name, TENSORS, in, out, count, HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_SUCCESS);
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < count[t]; i++)
            job_check(get(out[t], i) == sum_of(hvd_size(), i) && get(in[t], i) == value(rank, i));
    job_check(hvd_grouped_reducescatter(name, TENSORS, in, rows, row, HVD_FLOAT32, HVD_SUM, out, NULL) ==
              HVD_SUCCESS);
    for (size_t t = 0; t < TENSORS; t++)
        check_part(out[t], rank, rows[t], row[t], 1);
}

static int groups(const struct job *job, int rank)
{
    static const size_t scales[] = {0, 1, 30, 700, 20000};

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < 5; s++)
        for (int form = 0; form < 16; form++)
            grouped(&b, rank, scales[s], form);
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(groups_are_right)
{
    run(_i, groups);
}
END_TEST

/* ---- shared results, persistent handles ---------------------------------------------------------------- */

static int shared_results(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < 2 * SIZES; s++) { /* one name: its result grows and shrinks */
        size_t count = sizes[(s * 5) % SIZES];
        void *in = choose(&b, false, (int)s, rank);
        const float *result = NULL;
        hvd_handle h;
        fill(in, rank, count);
        if (s % 2)
            job_check(hvd_allreduce_shared("shared", in, count, HVD_FLOAT32, HVD_SUM, NULL,
                                           (const void **)&result) == HVD_SUCCESS);
        else
            job_check(hvd_allreduce_shared_async("shared", in, count, HVD_FLOAT32, HVD_SUM, NULL,
                                                 (const void **)&result, &h) == HVD_SUCCESS &&
                      hvd_wait(h) == HVD_SUCCESS);
        job_check(result != NULL);
        for (size_t i = 0; i < count; i++)
            job_check(result[i] == sum_of(hvd_size(), i) && get(in, i) == value(rank, i));
    }
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(shared_results_are_right)
{
    run(_i, shared_results);
}
END_TEST

static void one_persistent(const struct buffers *b, int rank, size_t count, int form)
{
    void *in = choose(b, false, form, rank), *out = form & 1 ? in : choose(b, true, form, rank);
    bool by_name = rank == 1 && form & 2; /* the others need not know */
    hvd_handle h = 0, other;
    char name[64];

    snprintf(name, sizeof name, "persistent-%zu-%d", count, form);
    if (!by_name)
        job_check(hvd_allreduce_init(name, in, out, count, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS &&
                  h > 0);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            put(in, i, value(rank, i + (size_t)round));
        if (by_name) {
            job_check(hvd_allreduce(name, in, out, count, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        } else {
            job_check(hvd_poll(h) == 1 && hvd_wait(h) == HVD_SUCCESS); /* inactive */
            job_check(hvd_start(h) == HVD_SUCCESS && hvd_start(h) == HVD_ERR_IN_PROGRESS);
            job_check(hvd_handle_free(h) == HVD_ERR_IN_PROGRESS);
            job_check(hvd_allreduce_async(name, in, out, count, HVD_FLOAT32, HVD_SUM, NULL, &other) ==
                      HVD_ERR_IN_PROGRESS);
            job_check(hvd_wait(h) == HVD_SUCCESS);
        }
        for (size_t i = 0; i < count; i++)
            job_check(get(out, i) == sum_of(hvd_size(), i + (size_t)round));
    }
    if (by_name)
        return;
    job_check(hvd_allreduce_init(name, in, out, count, HVD_FLOAT32, HVD_SUM, NULL, &other) ==
              HVD_ERR_IN_PROGRESS);
    job_check(hvd_handle_free(h) == HVD_SUCCESS && hvd_start(h) == HVD_ERR_INVALID &&
              hvd_wait(h) == HVD_ERR_INVALID);
}

static int persistent(const struct job *job, int rank)
{
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    struct buffers b = buffers_new();
    for (size_t s = 0; s < SIZES; s++)
        for (int form = 0; form < 16; form++)
            one_persistent(&b, rank, sizes[s], form);
    hvd_handle left, h;
    float x = 1;
    job_check(hvd_allreduce_init("left", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &left) == HVD_SUCCESS);
    job_check(hvd_allreduce_async("plain", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS);
    job_check(hvd_start(h) == HVD_ERR_INVALID && hvd_wait(h) == HVD_SUCCESS);
    buffers_free(&b);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(persistent_handles_start_again_and_again)
{
    run(_i, persistent);
}
END_TEST

/* ---- scales -------------------------------------------------------------------------------------------- */

static int scales(const struct job *job, int rank)
{
    static const size_t counts[] = {1, 500, 30000};
    hvd_options o = {.prescale = 0.5, .postscale = 3};
    float *x = hvd_init() == HVD_SUCCESS ? hvd_alloc(30000 * 4) : NULL;
    int32_t *k = malloc(30000 * 4);
    char name[32];

    (void)job;
    job_check(x && k);
    for (int c = 0; c < 3; c++) {
        int32_t sum = 0;
        for (size_t i = 0; i < counts[c]; i++) {
            x[i] = value(rank, i);
            k[i] = -3 - 2 * rank;
        }
        snprintf(name, sizeof name, "f%d", c);
        job_check(hvd_allreduce(name, x, x, counts[c], HVD_FLOAT32, HVD_AVERAGE, &o) == HVD_SUCCESS);
        for (size_t i = 0; i < counts[c]; i++) {
            float want = sum_of(hvd_size(), i) * 1.5f / (float)hvd_size(), d = x[i] - want;
            job_check(d < 1e-4f && d > -1e-4f);
        }
        snprintf(name, sizeof name, "i%d", c);
        job_check(hvd_allreduce(name, k, k, counts[c], HVD_INT32, HVD_SUM, &o) == HVD_SUCCESS);
        for (int r = 0; r < hvd_size(); r++)
            sum += (-3 - 2 * r) / 2; /* toward zero */
        for (size_t i = 0; i < counts[c]; i++)
            job_check(k[i] == sum * 3);
    }
    free(k);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(scales_are_applied)
{
    run(_i, scales);
}
END_TEST

/* ---- faults -------------------------------------------------------------------------------------------- */

/* The same sentence on every rank, with this in it. */
static void mismatched(int status, const char *part)
{
    static int number;
    char text[512], all[512] = "";
    unsigned char sum[512], mine[512];
    char name[32];

    snprintf(text, sizeof text, "%s", hvd_last_error());
    if (status != HVD_ERR_MISMATCH || !strstr(text, part))
        fprintf(stderr, "status %d, \"%s\" is not in \"%s\"\n", status, part, text);
    job_check(status == HVD_ERR_MISMATCH && strstr(text, part));
    memset(mine, 0, sizeof mine);
    memcpy(mine, text, strlen(text));
    memcpy(all, mine, sizeof all);
    snprintf(name, sizeof name, "sentence.%d", number++);
    job_check(hvd_broadcast(name, all, sizeof all / 4, HVD_INT32, 0, NULL) == HVD_SUCCESS);
    memcpy(sum, all, sizeof sum);
    job_check(memcmp(sum, mine, sizeof sum) == 0);
}

static void mismatches(int rank, size_t n, float *x, float *y)
{
    bool odd = rank == hvd_size() - 1;
    const void *in[2] = {x, x + n};
    void *out[2] = {y, y + n};
    size_t count[2] = {odd ? n - 1 : n, odd ? n + 1 : n}, splits[8] = {0};
    const void *result;
    char text[64];

    mismatched(hvd_allgather("g", x, n, odd ? 2 : 1, HVD_FLOAT32, y, 8 * n, NULL, NULL), "elements a row");
    mismatched(hvd_allgather("g", x, n, 1, odd ? HVD_INT32 : HVD_FLOAT32, y, 8 * n, NULL, NULL), "int32");
    snprintf(text, sizeof text, "rank %d has room for 1 rows, the result has", hvd_size() - 1);
    mismatched(hvd_allgather("g", x, n, 1, HVD_FLOAT32, y, odd ? 1 : 8 * n, NULL, NULL), text);
    splits[1] = n;
    mismatched(hvd_alltoall("a", x, n, splits, 1, HVD_FLOAT32, y, rank == 1 ? n : 8 * n, NULL, NULL),
               "rank 1 has room for");
    mismatched(odd ? hvd_alltoall("a", x, 0, NULL, 1, HVD_FLOAT32, y, n, NULL, NULL)
                   : hvd_allgather("a", x, 0, 1, HVD_FLOAT32, y, n, NULL, NULL),
               "alltoall");
    mismatched(hvd_reducescatter("r", x, odd ? n + 1 : n, 1, HVD_FLOAT32, HVD_SUM, y, NULL),
               "reducescatter sum of");
    mismatched(hvd_reducescatter("r", x, n, 1, HVD_FLOAT32, odd ? HVD_MAX : HVD_SUM, y, NULL), "max");
    mismatched(hvd_grouped_allreduce("group", 2, in, out, count, HVD_FLOAT32, HVD_SUM, NULL), "with sizes");
    mismatched(
        hvd_grouped_allreduce("group", odd ? 1 : 2, in, out, (size_t[]){n, 0}, HVD_FLOAT32, HVD_SUM, NULL),
        "a group of 1 tensor");
    mismatched(odd ? hvd_allreduce("s", x, y, n, HVD_FLOAT32, HVD_SUM, NULL)
                   : hvd_allreduce_shared("s", x, n, HVD_FLOAT32, HVD_SUM, NULL, &result),
               "shared allreduce");
    mismatched(hvd_allreduce("p", x, y, n, HVD_FLOAT32, HVD_SUM, &(hvd_options){.prescale = odd ? 2 : 0}),
               "prescale 2");
    mismatched(hvd_allreduce("p", x, y, n, HVD_FLOAT32, HVD_SUM, &(hvd_options){.postscale = odd ? 0.1 : 1}),
               "postscale 0.1");
    mismatched(hvd_allreduce("p", x, y, n, HVD_FLOAT32, HVD_SUM,
                             &(hvd_options){.compression = odd ? HVD_COMPRESSION_FLOAT16 : 0}),
               "compression float16");
    mismatched(hvd_allreduce("p", x, y, n, HVD_FLOAT32, HVD_SUM, &(hvd_options){.shape = odd ? 7 : 0}),
               "a shape of its own");
    mismatched(hvd_broadcast("b", x, n, HVD_FLOAT32, 0, &(hvd_options){.shape = odd ? 7 : 8}), "a shape of");
    mismatched(hvd_allgather("g", x, n, 1, HVD_FLOAT32, y, 8 * n, NULL, &(hvd_options){.shape = odd}),
               "a shape of its own");
}

static int disagree(const struct job *job, int rank)
{
    float *x = calloc(1 << 20, 4), *y = calloc(1 << 20, 4);

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    mismatches(rank, 10, x, y);
    mismatches(rank, 5000, x, y);
    job_check(hvd_allgather("g", x, 3, 1, HVD_FLOAT32, y, 100, NULL, NULL) == HVD_SUCCESS); /* it goes on */
    free(x);
    free(y);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(disagreement_is_an_error_on_every_rank)
{
    run(_i, disagree);
}
END_TEST

#define refused(call, part)                                                                                  \
    job_check((call) == HVD_ERR_INVALID &&                                                                   \
              (strstr(hvd_last_error(), part) || !fprintf(stderr, "%s\n", hvd_last_error())))

static void refused_rows(float *x, float *y)
{
    size_t splits[2] = {1, 2};

    refused(hvd_allgather("a", x, 1, 0, HVD_FLOAT32, y, 1, NULL, NULL), "a row must have elements");
    refused(hvd_allgather("a", x, 1, 1, (hvd_dtype)77, y, 1, NULL, NULL), "element type 77");
    refused(hvd_allgather("a", x, SIZE_MAX / 2, 4, HVD_FLOAT32, y, 1, NULL, NULL), "more than there can be");
    refused(hvd_allgather("a", x, 1, 1, HVD_FLOAT32, y, SIZE_MAX / 8, NULL, NULL), "more than there can be");
    refused(hvd_allgather("a", x, 4, 1, HVD_FLOAT32, x + 2, 8, NULL, NULL), "overlap");
    refused(hvd_allgather("a", NULL, 4, 1, HVD_FLOAT32, x, 8, NULL, NULL), "NULL");
    refused(hvd_alltoall("a", x, 3, NULL, 1, HVD_FLOAT32, y, 8, NULL, NULL), "evenly to 2 ranks");
    refused(hvd_alltoall("a", x, 2, splits, 1, HVD_FLOAT32, y, 8, NULL, NULL), "more than the 2 rows");
    refused(hvd_reducescatter("a", x, 2, 1, HVD_FLOAT32, (hvd_op)99, y, NULL), "operation 99");
    refused(hvd_reducescatter("a", x, 2, 1, HVD_FLOAT32, HVD_SUM, x, NULL), "overlap");
    refused(hvd_allgather("a", x, 1, 1, HVD_FLOAT32, y, 2, NULL, &(hvd_options){.prescale = 2}),
            "cannot be scaled");
}

static int bad_arguments(const struct job *job, int rank)
{
    static float x[16], y[16];
    const void *in[2] = {x, NULL}, *result;
    void *out[2] = {y, y + 4};
    size_t count[2] = {2, 2};
    hvd_handle h;

    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    refused_rows(x, y);
    refused(hvd_grouped_allreduce("a", 0, in, out, count, HVD_FLOAT32, HVD_SUM, NULL), "must have tensors");
    refused(hvd_grouped_allreduce("a", 2, NULL, out, count, HVD_FLOAT32, HVD_SUM, NULL), "is NULL");
    refused(hvd_grouped_allreduce("a", 2, in, out, count, HVD_FLOAT32, HVD_SUM, NULL), "a buffer is NULL");
    refused(hvd_grouped_reducescatter("a", 2, in, count, NULL, HVD_FLOAT32, HVD_SUM, out, NULL), "is NULL");
    refused(hvd_allreduce_shared("a", x, 2, HVD_FLOAT32, HVD_SUM, NULL, NULL), "result's address is NULL");
    refused(hvd_allreduce_shared("a", NULL, 2, HVD_FLOAT32, HVD_SUM, NULL, &result), "a buffer is NULL");
    refused(hvd_allreduce_init("a", x, y, 2, HVD_FLOAT32, HVD_SUM, NULL, NULL), "handle is NULL");
    refused(hvd_allreduce_init("", x, y, 2, HVD_FLOAT32, HVD_SUM, NULL, &h), "name");
    refused(hvd_allreduce("a", x, y, 2, HVD_FLOAT32, HVD_SUM, &(hvd_options){.postscale = 1.0 / 0.0}),
            "finite");
    refused(hvd_allreduce("a", x, y, 2, HVD_FLOAT64, HVD_SUM,
                          &(hvd_options){.compression = HVD_COMPRESSION_BFLOAT16}),
            "only float32 can be compressed");
    job_check(hvd_barrier(&(hvd_options){.set = -1}) == HVD_ERR_SET_UNKNOWN);
    job_check(hvd_start(0) == HVD_ERR_INVALID && hvd_handle_free(77) == HVD_ERR_INVALID);
    job_check(hvd_allreduce("a", x, y, 2, HVD_FLOAT32, HVD_SUM, NULL) ==
              HVD_SUCCESS); /* nothing was started */
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(bad_arguments_start_nothing)
{
    run(2, bad_arguments);
}
END_TEST

static int barriers(const struct job *job, int rank)
{
    hvd_handle h, again;

    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    job_check(hvd_barrier_async(NULL, NULL) == HVD_ERR_INVALID);
    for (int round = 0; round < 20; round++) {
        float x = 1;
        if (rank != round % hvd_size()) { /* one is late: until then nobody's has ended */
            job_check(hvd_barrier_async(NULL, &h) == HVD_SUCCESS && hvd_poll(h) == 0);
            job_check(hvd_barrier_async(NULL, &again) == HVD_ERR_IN_PROGRESS && again == 0 &&
                      hvd_barrier(NULL) == HVD_ERR_IN_PROGRESS);
        }
        job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        if (rank != round % hvd_size())
            job_check(hvd_wait(h) == HVD_SUCCESS);
        else
            job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    }
    job_check(hvd_shutdown() == HVD_SUCCESS);
    return 0;
}

START_TEST(barriers_may_be_pending)
{
    run(_i, barriers);
}
END_TEST

static _Atomic int *begun; /* ranks that have started all */

/* Each kind waits for the rank that dies; small and large. */
static int die(const struct job *job, int rank)
{
    enum { ROWS = 100000, KINDS = 6 };
    bool large = job->ctx != NULL;
    size_t n = large ? ROWS : 4, two[2] = {n, n}, one[2] = {1, 1};
    float *x = hvd_init() == HVD_SUCCESS ? calloc(4 * ROWS, 4) : NULL, *y = hvd_alloc(16 * ROWS * 4);
    const void *in[2] = {x, x + n}, *result;
    void *out[2] = {y, y + n};
    hvd_handle h[KINDS];

    job_check(x && y);
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    if (rank == job->per_host - 1) {
        job_await(begun, job->per_host - 1);
        usleep(50000); /* they wait by now, on most machines */
        raise(SIGKILL);
    }
    job_check(!hvd_allgather_async("g", x, n, 1, HVD_FLOAT32, y, 4 * n, NULL, NULL, &h[0]));
    job_check(!hvd_alltoall_async("a", x, 4 * n - 4 * n % 3, (size_t[]){n, 0, n}, 1, HVD_FLOAT32, y, 4 * n,
                                  NULL, NULL, &h[1]));
    job_check(!hvd_reducescatter_async("r", x, n, 1, HVD_FLOAT32, HVD_SUM, y, NULL, &h[2]));
    job_check(!hvd_grouped_allreduce_async("ga", 2, in, out, two, HVD_FLOAT32, HVD_SUM, NULL, &h[3]));
    job_check(
        !hvd_grouped_reducescatter_async("gr", 2, in, two, one, HVD_FLOAT32, HVD_SUM, out, NULL, &h[4]));
    job_check(!hvd_allreduce_shared_async("s", x, n, HVD_FLOAT32, HVD_SUM, NULL, &result, &h[5]));
    atomic_fetch_add(begun, 1);
    for (int k = rank; k < KINDS + rank; k++) {
        job_check(hvd_wait(h[k % KINDS]) == HVD_ERR_PEER);
        job_check(strstr(hvd_last_error(), "rank 2 on node1"));
    }
    job_check(hvd_allgather("later", x, n, 1, HVD_FLOAT32, y, 4 * n, NULL, NULL) == HVD_ERR_PEER);
    job_check(hvd_shutdown() == HVD_ERR_PEER);
    free(x);
    return 0;
}

START_TEST(a_death_ends_every_kind)
{
    struct job job = {.hosts = 1, .per_host = 3, .worker = die};

    begun = job_shared(sizeof *begun);
    job.ctx = _i ? &job : NULL;
    job_run(&job, JOB_SECONDS);
    ck_assert(!job.timed_out);
    ck_assert_int_eq(job.status[0], 0);
    ck_assert_int_eq(job.status[1], 0);
    ck_assert(WIFSIGNALED(job.status[2]));
}
END_TEST

/* The last one finds the mismatch before it does any work: who sleeps hears of it then, not when it looks
 * again. */
static int late_mismatch(const struct job *job, int rank)
{
    enum { COUNT = 5000 };
    float *x = calloc(COUNT, sizeof *x);
    uint64_t least = UINT64_MAX;
    hvd_handle h;

    (void)job;
    job_check(x && hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 3; i++) {
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
        uint64_t since = clock_now();
        if (rank == 1)
            usleep(20000);
        job_check(!hvd_allreduce_async("x", x, x, COUNT - (size_t)rank, HVD_FLOAT32, HVD_SUM, NULL, &h));
        job_check(hvd_wait(h) == HVD_ERR_MISMATCH);
        least = clock_now() - since < least ? clock_now() - since : least;
    }
    job_check(least < 200 * NSEC_PER_MSEC);
    job_check(hvd_shutdown() == HVD_SUCCESS);
    free(x);
    return 0;
}

START_TEST(a_late_mismatch_wakes_who_sleeps)
{
    run(2, late_mismatch);
}
END_TEST

/* A rank that cannot map another one's memory would be waited for: it comes last, so the work is its own. */
static int no_descriptors(const struct job *job, int rank)
{
    enum { COUNT = 1 << 18 };
    float *x = calloc(COUNT, sizeof *x);
    struct rlimit none = {0, 0};
    hvd_handle h;

    (void)job;
    job_check(x && hvd_init() == HVD_SUCCESS);
    hvd_free(hvd_alloc(8 * COUNT)); /* memory for the copies */
    job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    if (rank == 1) {
        usleep(100000);
        job_check(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    job_check(hvd_allreduce_async("x", x, x, COUNT, HVD_FLOAT32, HVD_SUM, NULL, &h) == HVD_SUCCESS);
    job_check(hvd_wait(h) == HVD_ERR_PEER);
    job_check(strstr(hvd_last_error(), "rank 1 on node1") && strstr(hvd_last_error(), "cannot map"));
    free(x);
    return 0;
}

START_TEST(a_rank_that_can_not_go_on_ends_the_job)
{
    struct job job = {.hosts = 1, .per_host = 2, .worker = no_descriptors};

    job_run(&job, 10);
    ck_assert(!job.timed_out);
    ck_assert_int_eq(job.status[0], 0);
    ck_assert_int_eq(job.status[1], 0);
}
END_TEST

/* Without hvdrun: the same calls in a job of one. */
START_TEST(alone)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    const void *in[2] = {x, x + 2}, *result = NULL;
    void *out[2] = {y + 4, y};
    size_t count[2] = {2, 4}, rows = 0;
    hvd_handle h;

    ck_assert_int_eq(hvd_init(), HVD_SUCCESS);
    ck_assert_int_eq(hvd_allgather("g", x, 3, 2, HVD_FLOAT32, y, 3, &rows, NULL), HVD_SUCCESS);
    ck_assert(rows == 3 && y[5] == 6);
    ck_assert_int_eq(hvd_allgather("g", x, 3, 2, HVD_FLOAT32, y, 2, &rows, NULL), HVD_ERR_MISMATCH);
    ck_assert_int_eq(hvd_alltoall("a", x, 3, &(size_t){1}, 2, HVD_FLOAT32, y, 3, &rows, NULL), HVD_SUCCESS);
    ck_assert(rows == 1 && y[1] == 2);
    ck_assert_int_eq(hvd_reducescatter("r", x, 3, 2, HVD_FLOAT32, HVD_SUM, y, &(hvd_options){.prescale = 2}),
                     HVD_SUCCESS);
    ck_assert(y[0] == 2 && y[5] == 12);
    ck_assert_int_eq(hvd_grouped_allreduce("ga", 2, in, out, count, HVD_FLOAT32, HVD_AVERAGE, NULL),
                     HVD_SUCCESS);
    ck_assert(y[4] == 1 && y[5] == 2 && y[0] == 3 && y[3] == 6);
    ck_assert_int_eq(hvd_allreduce_shared("s", x, 6, HVD_FLOAT32, HVD_MAX, NULL, &result), HVD_SUCCESS);
    ck_assert(get(result, 5) == 6);
    ck_assert_int_eq(hvd_allreduce_init("p", x, y, 6, HVD_FLOAT32, HVD_SUM, NULL, &h), HVD_SUCCESS);
    for (int i = 0; i < 3; i++) {
        y[0] = 0;
        ck_assert(hvd_start(h) == HVD_SUCCESS && hvd_wait(h) == HVD_SUCCESS && y[0] == 1);
    }
    ck_assert_int_eq(hvd_handle_free(h), HVD_SUCCESS);
    ck_assert_int_eq(hvd_shutdown(), HVD_SUCCESS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("operations");
    TCase *tc = tcase_create("operations");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 90);
    tcase_add_loop_test(tc, allgather_is_right, 2, 5);
    tcase_add_loop_test(tc, alltoall_is_right, 2, 5);
    tcase_add_loop_test(tc, reducescatter_is_right, 2, 5);
    tcase_add_loop_test(tc, groups_are_right, 2, 5);
    tcase_add_loop_test(tc, shared_results_are_right, 2, 5);
    tcase_add_loop_test(tc, persistent_handles_start_again_and_again, 2, 5);
    tcase_add_loop_test(tc, scales_are_applied, 1, 5);
    tcase_add_loop_test(tc, disagreement_is_an_error_on_every_rank, 2, 5);
    tcase_add_loop_test(tc, barriers_may_be_pending, 2, 5);
    tcase_add_test(tc, bad_arguments_start_nothing);
    tcase_add_loop_test(tc, a_death_ends_every_kind, 0, 2);
    tcase_add_test(tc, a_rank_that_can_not_go_on_ends_the_job);
    tcase_add_test(tc, a_late_mismatch_wakes_who_sleeps);
    tcase_add_test(tc, alone);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
