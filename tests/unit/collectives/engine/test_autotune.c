/* Does the search find what is best, on surfaces whose best is known? Time is made up; noise comes from a
 * seed. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/autotune.h"
#include "tests/unit/processor_time.h"

#define TENSORS 8

/* The share of the best speed that a parameter's distance of `d` powers of two from its best costs. */
struct surface {
    struct autotune_values best;
    double cost[AUTOTUNE_PARAMETERS]; /* of d = 1; it grows with d squared */
    double noise;                     /* a measurement's time is up to so much longer or shorter */
    uint32_t outliers;                /* one in so many measurements takes ten times as long; 0: none */
};

struct run {
    struct autotune *a;
    uint32_t samples, steps;
    struct autotune_values last;
};

static uint64_t state; /* of chance(); set to the seed */

static double chance(void) /* splitmix64; [0, 1) */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static double slowness(const struct surface *s, const struct autotune_values *v)
{
    double sum = 1;

    for (int i = 0; i < AUTOTUNE_PARAMETERS; i++) {
        double d = log2(v->of[i]) - log2(s->best.of[i]);
        sum += s->cost[i] * d * d;
    }
    return sum;
}

static struct autotune *tuner(uint32_t warmup, uint32_t steps, uint32_t samples)
{
    struct autotune_config c = {
        .warmup = warmup, .steps = steps, .samples = samples, .tensors = TENSORS, .first = autotune_standard};
    struct autotune *a = autotune_new(&c, NULL);

    ck_assert_ptr_nonnull(a);
    return a;
}

/* Steps of TENSORS operations until it has ended. */
static struct run run_on(const struct surface *s, uint32_t samples, uint64_t seed)
{
    struct run r = {.a = tuner(3, 4, samples)};
    struct autotune_sample sample;
    uint64_t now = 1;
    double luck = 1;

    state = seed;
    for (; !autotune_ended(r.a); r.steps++) {
        ck_assert(autotune_valid(autotune_wanted(r.a)));
        if (r.steps % 4 == 0) {
            luck = 1 + s->noise * (2 * chance() - 1);
            luck *= s->outliers && (uint64_t)(chance() * s->outliers) == 0 ? 10 : 1;
        }
        for (uint32_t t = 0; t < TENSORS; t++) {
            now += (uint64_t)(100000 * luck * slowness(s, autotune_wanted(r.a)));
            if (autotune_saw(r.a, t, 4096, now, &sample)) {
                ck_assert_uint_eq(sample.number, ++r.samples);
                break; /* later tensors run with other values */
            }
        }
        ck_assert_uint_le(r.samples, samples);
    }
    r.last = *autotune_wanted(r.a);
    ck_assert_mem_eq(&r.last, &autotune_best(r.a)->values, sizeof r.last);
    return r;
}

static const struct autotune_values corners[] = {
    {{16u << 10, 256u << 10, 4, 1u << 20}},  {{1u << 10, 16u << 10, 1, 64u << 10}},
    {{256u << 10, 1u << 20, 16, 64u << 20}}, {{64u << 10, 32u << 10, 8, 4u << 20}},
    {{4u << 10, 512u << 10, 2, 256u << 10}}, {{128u << 10, 64u << 10, 16, 32u << 20}},
};

START_TEST(finds_the_best_within_the_budget)
{
    struct surface s = {.best = corners[_i], .cost = {0.05, 0.08, 0.1, 0.03}};

    for (int noisy = 0; noisy < 2; noisy++)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            s.noise = noisy ? 0.02 : 0;
            struct run r = run_on(&s, 20, seed);
            ck_assert_msg(slowness(&s, &r.last) <= 1.05, "seed %llu: %g times as slow: %u %u %u %u",
                          (unsigned long long)seed, slowness(&s, &r.last), r.last.of[0], r.last.of[1],
                          r.last.of[2], r.last.of[3]);
            autotune_free(r.a);
        }
}
END_TEST

START_TEST(a_flat_surface_keeps_the_defaults)
{
    static const double noises[] = {0, 0.01, 0.1, 0.5};
    struct surface s = {.best = corners[0], .noise = noises[_i]};
    int moved = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct run r = run_on(&s, 20, seed);
        moved += memcmp(&r.last, &autotune_standard, sizeof r.last) != 0;
        autotune_free(r.a);
    }
    ck_assert_int_le(moved, noises[_i] > 0.01 ? 10 : 0); /* one in twenty */
}
END_TEST

START_TEST(outliers_do_not_mislead)
{
    struct surface s = {.best = corners[3], .cost = {0.05, 0.08, 0.1, 0.03}, .noise = 0.01, .outliers = 60};
    struct surface flat = {.best = corners[0], .noise = 0.01, .outliers = 60};

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct run r = run_on(&s, 20, seed);
        ck_assert_msg(slowness(&s, &r.last) <= 1.07, "seed %llu: %g times as slow", (unsigned long long)seed,
                      slowness(&s, &r.last));
        autotune_free(r.a);
        r = run_on(&flat, 20, seed);
        ck_assert_mem_eq(&r.last, &autotune_standard, sizeof r.last);
        autotune_free(r.a);
    }
}
END_TEST

START_TEST(the_same_input_gives_the_same_end)
{
    struct surface s = {.best = corners[5], .cost = {0.03, 0.02, 0.1, 0.03}, .noise = 0.05};
    struct run r[2];

    for (int i = 0; i < 2; i++) {
        r[i] = run_on(&s, 20, 7);
        autotune_free(r[i].a);
    }
    ck_assert_mem_eq(&r[0].last, &r[1].last, sizeof r[0].last);
    ck_assert_uint_eq(r[0].samples, r[1].samples);
    ck_assert_uint_eq(r[0].steps, r[1].steps);
}
END_TEST

START_TEST(few_samples_are_never_exceeded)
{
    struct surface s = {.best = corners[2], .cost = {0.05, 0.08, 0.1, 0.03}};

    for (uint32_t most = 1; most < 30; most++) {
        struct run r = run_on(&s, most, 0);
        ck_assert_uint_le(r.samples, most);
        if (most < 4)
            ck_assert_mem_eq(&r.last, &autotune_standard, sizeof r.last);
        autotune_free(r.a);
    }
}
END_TEST

/* A value that the user has set never changes. The other values are tuned as without it. */
START_TEST(what_is_fixed_stays)
{
    struct surface s = {.best = corners[3], .cost = {0.05, 0.08, 0.1, 0.03}};
    struct autotune_config c = {.steps = 1, .samples = 20, .tensors = TENSORS, .first = autotune_standard};
    struct autotune_sample sample;
    uint64_t now = 1;

    c.first.of[AUTOTUNE_FUSION_BYTES] = 3000000;
    c.fixed[AUTOTUNE_FUSION_BYTES] = true;
    struct autotune *a = autotune_new(&c, NULL);
    while (!autotune_ended(a)) {
        ck_assert_uint_eq(autotune_wanted(a)->of[AUTOTUNE_FUSION_BYTES], 3000000);
        now += (uint64_t)(100000 * slowness(&s, autotune_wanted(a)));
        autotune_saw(a, 0, 4096, now, &sample);
    }
    s.best.of[AUTOTUNE_FUSION_BYTES] = 3000000;
    ck_assert_double_le(slowness(&s, autotune_wanted(a)), 1.05);
    autotune_free(a);
}
END_TEST

/* 2 steps of one tensor, 1000 bytes in 10 us each; the warm-up was far slower. */
START_TEST(a_score_is_bytes_in_a_microsecond)
{
    struct autotune *a = tuner(1, 2, 5);
    struct autotune_sample s = {0};
    uint64_t now = 5;
    int seen = 0;

    for (int i = 0; i < 2; i++, now += 1000000)
        ck_assert(!autotune_saw(a, 0, 1000, now, &s));
    while (!autotune_saw(a, 0, 1000, now, &s)) {
        now += 10000;
        ck_assert_int_lt(++seen, 100);
    }
    ck_assert_int_eq(seen, 2 * AUTOTUNE_MEASUREMENTS);
    ck_assert_uint_eq(s.number, 1);
    ck_assert_double_eq_tol(s.score, 100, 1e-6);
    ck_assert_double_eq_tol(s.noise, 0, 1e-6);
    ck_assert_mem_eq(&s.values, &autotune_standard, sizeof s.values);
    ck_assert(!autotune_saw(a, TENSORS, 1000, now, &s)); /* no such tensor */
    autotune_free(a);
}
END_TEST

START_TEST(values_outside_are_not_valid)
{
    struct autotune_values v = autotune_standard;

    ck_assert(autotune_valid(&v));
    for (int i = 0; i < AUTOTUNE_SHARED; i++) {
        const struct autotune_range *r = &autotune_range[i];
        const uint32_t wrong[] = {0, r->least / 2, r->most * 2, r->least + 1, UINT32_MAX};
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            v = autotune_standard;
            v.of[i] = wrong[k];
            ck_assert(!autotune_valid(&v) || wrong[k] == 2 * r->least);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("autotune");
    TCase *t = tcase_create("autotune");
    case_computes(t);
    tcase_add_loop_test(t, finds_the_best_within_the_budget, 0, (int)(sizeof corners / sizeof *corners));
    tcase_add_loop_test(t, a_flat_surface_keeps_the_defaults, 0, 4);
    tcase_add_test(t, outliers_do_not_mislead);
    tcase_add_test(t, the_same_input_gives_the_same_end);
    tcase_add_test(t, few_samples_are_never_exceeded);
    tcase_add_test(t, what_is_fixed_stays);
    tcase_add_test(t, a_score_is_bytes_in_a_microsecond);
    tcase_add_test(t, values_outside_are_not_valid);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
