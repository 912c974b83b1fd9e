/* 16-bit floats between hosts: as what a host's part of a result travels, reductions from and to them, and
 * the backend's reductions whose result is rounded.
 *
 * needs: auth tls algo engine */
#include "tests/unit/backend_job.h"

#include "collectives/kernels/half.h"
#include "collectives/kernels/reduce_kernels.h"
#include "collectives/engine/partial.h"

#define PART 3000 /* more than a block */

static struct tensor_op reduction(hvd_dtype dtype, hvd_op op, double prescale, double postscale)
{
    return (struct tensor_op){.kind = SHM_ALLREDUCE,
                              .dtype = (uint8_t)dtype,
                              .op = (uint8_t)op,
                              .count = 1,
                              .prescale = prescale,
                              .postscale = postscale};
}

static const struct {
    hvd_dtype dtype;
    hvd_op op;
    double prescale, postscale;
    hvd_compression compression;
    struct partial_shape shape;
    hvd_dtype travels;
    double scale;
} rules[] = {
    /* exact as they are */
    {HVD_FLOAT16, HVD_SUM, 1, 1, 0, {4, 4, 1}, HVD_FLOAT16, 1},
    {HVD_FLOAT16, HVD_PRODUCT, 1, 1, 0, {4, 4, 1}, HVD_FLOAT16, 1},
    {HVD_FLOAT16, HVD_MAX, 1, 1, 0, {2, 4, 2}, HVD_FLOAT16, 1},
    {HVD_FLOAT32, HVD_AVERAGE, 1, 1, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    {HVD_INT16, HVD_AVERAGE, 1, 1, 0, {2, 4, 2}, HVD_INT16, 1},
    {HVD_FLOAT16, HVD_ADASUM, 1, 1, 0, {2, 4, 2}, HVD_FLOAT16, 1},
    /* smaller, two bytes */
    {HVD_FLOAT16, HVD_AVERAGE, 1, 1, 0, {2, 4, 2}, HVD_FLOAT16, 0.5},
    {HVD_BFLOAT16, HVD_AVERAGE, 1, 1, 0, {3, 9, 3}, HVD_BFLOAT16, 1 / 3.0},
    {HVD_FLOAT16, HVD_SUM, 1, 0.125, 0, {2, 16, 8}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_SUM, 1, 0.0625, 0, {2, 16, 8}, HVD_FLOAT16, 0.125},
    {HVD_FLOAT16, HVD_AVERAGE, 2, 0.5, 0, {2, 2, 1}, HVD_FLOAT16, 0.5},
    {HVD_FLOAT16, HVD_SUM, 0.25, 1, 0, {2, 4, 2}, HVD_FLOAT16, 2},
    /* wider */
    {HVD_FLOAT16, HVD_SUM, 1, 1, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_PRODUCT, 1, 1, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_MIN, 2, 1, 0, {2, 2, 1}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_AVERAGE, 1, 1, 0, {3, 4, 2}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_AVERAGE, 1e300, 1, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_AVERAGE, 1e-310, 1, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    {HVD_FLOAT16, HVD_SUM, 1e-10, 1e-315, 0, {2, 4, 2}, HVD_FLOAT32, 1},
    /* compressed */
    {HVD_FLOAT32, HVD_SUM, 1, 1, HVD_COMPRESSION_FLOAT16, {2, 4, 2}, HVD_FLOAT16, 1},
    {HVD_FLOAT32, HVD_MAX, 1, 1, HVD_COMPRESSION_BFLOAT16, {2, 4, 2}, HVD_BFLOAT16, 1},
    {HVD_FLOAT32, HVD_AVERAGE, 1, 1, HVD_COMPRESSION_FLOAT16, {3, 4, 2}, HVD_FLOAT16, 0.5},
    {HVD_FLOAT32, HVD_AVERAGE, 1, 1, HVD_COMPRESSION_FLOAT16, {2, 2, 1}, HVD_FLOAT16, 1},
};

START_TEST(what_travels)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct tensor_op op = reduction(rules[i].dtype, rules[i].op, rules[i].prescale, rules[i].postscale);
        op.compression = rules[i].compression & 15;
        struct partial p = partial_of(&op, &rules[i].shape);
        ck_assert_msg(p.dtype == rules[i].travels && p.scale == rules[i].scale,
                      "rule %zu: %s of %s travels as %s times %g", i, op_name(op.op), dtype_name(op.dtype),
                      dtype_name(p.dtype), p.scale);
    }
    struct tensor_op moves = reduction(HVD_FLOAT16, HVD_SUM, 1, 1);
    moves.kind = SHM_ALLGATHER;
    ck_assert_int_eq(partial_of(&moves, &rules[12].shape).dtype, HVD_FLOAT16);
}
END_TEST

/* One float16 of each of `hosts` hosts of `ranks` ranks, all of which give the same. */
static uint16_t average_of(uint16_t element, uint32_t hosts, uint32_t ranks)
{
    const struct partial_shape shape = {hosts, hosts * ranks, ranks};
    struct tensor_op op = reduction(HVD_FLOAT16, HVD_AVERAGE, 1, 1);
    struct partial p = partial_of(&op, &shape);
    const void *in[64], *parts[64];
    uint16_t part, result;
    void *out = &part;
    for (uint32_t i = 0; i < 64; i++) {
        in[i] = &element;
        parts[i] = &part;
    }
    ck_assert_int_eq(p.dtype, HVD_FLOAT16);
    struct reduce_job here = {in, ranks, &out, 1, HVD_FLOAT16, HVD_AVERAGE, 0, 1, p.scale, p.dtype};
    reduce_range(&here, 0, 1);
    out = &result;
    struct reduce_job all = {parts,       hosts,         &out, 1,           HVD_FLOAT16,
                             HVD_AVERAGE, hosts * ranks, 1,    1 / p.scale, 0};
    reduce_range(&all, 0, 1);
    return result;
}

START_TEST(averages_keep_the_range)
{
    for (uint32_t hosts = 2; hosts <= 9; hosts++)
        for (uint32_t ranks = 1; ranks <= 64; ranks++) {
            uint16_t most = average_of(0x7bff, hosts, ranks), least = average_of(1, hosts, ranks);
            ck_assert_msg(most == 0x7bff && least == 1, "%u hosts of %u ranks: %#x, %#x", hosts, ranks, most,
                          least);
        }
}
END_TEST

/* Elements that float16 holds and whose sums it does not. */
static uint16_t half_at(uint32_t k, uint64_t i)
{
    return float16_narrow(k == 0 ? 2048 + 2 * (float)(i % 500) : (float)(i % 7) + 0.25f * (float)k);
}

static void check_kernels(const struct reduce_kernels *k, size_t inputs)
{
    static uint16_t in[3][PART], back[PART];
    static float wide[PART], want[PART];
    const void *from[] = {in[0], in[1], in[2]};
    void *out = wide;
    for (uint32_t j = 0; j < inputs; j++)
        for (size_t i = 0; i < PART; i++) {
            in[j][i] = half_at(j, i);
            want[i] = (j == 0 ? 0 : want[i]) + float16_widen(in[j][i]);
        }
    struct reduce_job job = {from, inputs, &out, 1, HVD_FLOAT16, HVD_SUM, 0, 1, 1, HVD_FLOAT32};
    reduce_range_by(k, &job, 0, PART);
    ck_assert_int_eq(memcmp(wide, want, sizeof wide), 0);
    const void *wides[] = {wide, want, want};
    void *places[] = {wide, back}; /* in place, and elsewhere */
    struct reduce_job down = {wides, inputs, places, 2, HVD_FLOAT32, HVD_SUM, 0, 1, 1, HVD_FLOAT16};
    for (size_t at = 0; at < PART; at += 1000)
        reduce_range_by(k, &down, at, 1000);
    for (size_t i = 0; i < PART; i++) {
        float sum = 0;
        uint16_t here;
        for (size_t j = 0; j < inputs; j++)
            sum += want[i];
        memcpy(&here, (const char *)wide + 2 * i, sizeof here);
        if (here != float16_narrow(sum) || back[i] != here)
            ck_abort_msg("%s, %zu inputs: element %zu is %#x and %#x, not %#x", k->name, inputs, i, here,
                         back[i], float16_narrow(sum));
    }
}

START_TEST(reductions_from_and_to_16_bits)
{
    const struct reduce_kernels *version[REDUCE_VERSIONS_MAX];
    unsigned versions = reduce_versions(version);
    for (unsigned v = 0; v < versions; v++)
        for (size_t inputs = 1; inputs <= 3; inputs++)
            check_kernels(version[v], inputs);
}
END_TEST

static void check_rounded(struct job *job, enum backend_kind kind, uint64_t sequence, const uint64_t *part,
                          uint32_t piece_bytes)
{
    float *data[HOSTS_MAX];
    uint16_t *out[HOSTS_MAX];
    uint64_t count = 0, first = 0;
    uint32_t before = TOTAL(job, done);
    struct err e = ERR_INIT;
    for (uint32_t h = 0; h < job->hosts; h++)
        count += part[h];
    for (uint32_t h = 0; h < job->hosts; h++) {
        data[h] = malloc(count * 4 + 1);
        out[h] = malloc(count * 2 + 2);
        memset(out[h], 0xee, count * 2 + 2);
        for (uint64_t i = 0; i < count; i++)
            data[h][i] = value(h, i);
        job->host[h].final_bytes = 0;
        struct backend_request r = {.kind = kind,
                                    .sequence = sequence,
                                    .data = data[h],
                                    .out = out[h],
                                    .count = count,
                                    .part = part,
                                    .dtype = HVD_FLOAT32,
                                    .rounded = sequence % 2 ? HVD_FLOAT16 : HVD_BFLOAT16,
                                    .op = HVD_AVERAGE,
                                    .divisor = job->hosts,
                                    .piece_bytes = piece_bytes,
                                    .range = on_range,
                                    .done = on_done,
                                    .ctx = &job->host[h]};
        ck_assert_msg(job->host[h].backend->ops->start(job->host[h].backend, &r, &e) == 0, "%s", e.text);
    }
    RUN_UNTIL(job, TOTAL(job, done) == before + job->hosts);
    all_went_well(job);
    for (uint32_t h = 0; h < job->hosts; first += part[h++]) {
        bool scatter = kind == BACKEND_REDUCESCATTER;
        uint64_t from = scatter ? first : 0, to = scatter ? first + part[h] : count;
        ck_assert_uint_eq(job->host[h].final_bytes, 2 * (to - from));
        for (uint64_t i = 0; i <= count; i++) {
            float sum = i < count ? expected(job->hosts, i, HVD_AVERAGE) : 0;
            uint16_t want = i < from || i >= to ? 0xeeee
                            : sequence % 2      ? float16_narrow(sum)
                                                : bfloat16_narrow(sum);
            if (out[h][i] != want)
                ck_abort_msg("kind %d of %u hosts: element %llu of %llu at %u is %#x, not %#x", kind,
                             job->hosts, (unsigned long long)i, (unsigned long long)count, h, out[h][i],
                             want);
        }
        free(data[h]);
        free(out[h]);
    }
}

START_TEST(rounded_results)
{
    static const uint64_t sizes[] = {0, 1, 33, 1700, 4097, 20001, 300007};
    struct job job;
    uint64_t sequence = 0;
    job_up(&job, (uint32_t)_i, 0);
    for (size_t s = 0; s < 7; s++)
        for (uint32_t k = 0; k < 2; k++) {
            uint64_t part[HOSTS_MAX];
            for (uint32_t h = 0; h < job.hosts; h++)
                part[h] = sizes[(s + h * k) % 7];
            check_rounded(&job, k ? BACKEND_REDUCESCATTER : BACKEND_ALLREDUCE, ++sequence, part,
                          s % 2 ? 0 : 64 << 10);
        }
    job_down(&job);
}
END_TEST

START_TEST(only_float32_is_rounded)
{
    struct job job;
    uint64_t part[2] = {1, 1};
    float data[2] = {0};
    struct err e = ERR_INIT;
    job_up(&job, 2, 0);
    const struct backend_request good = {.kind = BACKEND_ALLREDUCE,
                                         .sequence = 1,
                                         .data = data,
                                         .out = data,
                                         .count = 2,
                                         .part = part,
                                         .dtype = HVD_FLOAT32,
                                         .rounded = HVD_FLOAT16,
                                         .op = HVD_SUM};
    struct backend_request bad[] = {good, good, good};
    bad[0].dtype = HVD_INT32;
    bad[1].rounded = HVD_INT16;
    bad[2].kind = BACKEND_ALLGATHER;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(job.host[0].backend->ops->start(job.host[0].backend, &bad[i], &e), -1);
    job_down(&job);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("partial");
    TCase *c = tcase_create("partial");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, what_travels);
    tcase_add_test(c, averages_keep_the_range);
    tcase_add_test(c, reductions_from_and_to_16_bits);
    tcase_add_loop_test(c, rounded_results, 1, 6);
    tcase_add_test(c, only_float32_is_rounded);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
