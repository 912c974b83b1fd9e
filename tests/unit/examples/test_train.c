/* The example's parts: gradients are right, shares add up to the whole, a checkpoint is exact or refused.
 * needs: examples/train/options.c examples/train/corpus.c examples/train/model.c examples/train/checkpoint.c
 * needs: client examples/train/compute_host.c
 */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/train/checkpoint.h"
#include "examples/train/compute.h"
#include "examples/train/corpus.h"
#include "examples/train/model.h"
#include "examples/train/options.h"
#include "tests/unit/scratch.h"

#define CONTEXT 3
#define ROWS    12

static char dir[64], path[128];
static struct corpus corpus;
static struct model model;
static float *param;

static void write_bytes(const char *name, const void *bytes, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static void set_up(void)
{
    static const char text[] = "the quick brown fox jumps over the lazy dog";
    struct fault f = {""};

    ck_assert_ptr_nonnull(scratch_dir(dir, "train"));
    snprintf(path, sizeof path, "%s/text", dir);
    write_bytes(path, text, sizeof text - 1);
    ck_assert_int_eq(corpus_read(&corpus, path, CONTEXT, &f), 0);
    unlink(path);
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    model_shape(&model, CONTEXT, 5, (size_t)corpus.alphabet);
    param = calloc(model.total, sizeof *param);
    model_init(&model, param, 7);
}

static void tear_down(void)
{
    free(param);
    corpus_free(&corpus);
    unlink(path);
    ck_assert_int_eq(rmdir(dir), 0); /* nothing else may be left in it */
}

/* Forward and backward over the samples [first, last) of step 1; returns the loss. */
static double pass(size_t first, size_t last, float *gradient)
{
    struct batch *b = batch_new(&model, last - first);
    double loss;

    ck_assert_ptr_nonnull(b);
    batch_fill(b, &model, &corpus, 7, 1, first, last);
    model_forward(&model, param, b, &loss);
    for (int layer = 0; layer < LAYERS && gradient != NULL; layer++)
        model_backward(&model, param, b, (enum layer)layer, gradient);
    batch_free(b);
    return loss;
}

START_TEST(gradient_is_the_slope_of_the_loss)
{
    float *gradient = calloc(model.total, sizeof *gradient);
    const float step = 0.01f;

    pass(0, ROWS, gradient);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = model.offset[t]; i < model.offset[t] + model.count[t]; i++) {
            const float at = param[i];
            double up, down, slope;

            param[i] = at + step;
            up = pass(0, ROWS, NULL);
            param[i] = at - step;
            down = pass(0, ROWS, NULL);
            param[i] = at;
            slope = (up - down) / (2.0 * step);
            ck_assert_msg(fabs(slope - gradient[i]) < 3e-3 + 0.01 * fabs(slope),
                          "%s %zu: slope %g, gradient %g", model_tensor_name((enum tensor)t),
                          i - model.offset[t], slope, gradient[i]);
        }
    free(gradient);
}
END_TEST

START_TEST(shares_add_up_to_the_whole)
{
    float *whole = calloc(model.total, sizeof *whole), *part = calloc(model.total, sizeof *part);
    double *sum = calloc(model.total, sizeof *sum), loss = 0;
    static const size_t cut[] = {0, 0, 1, 8, ROWS}; /* an empty share, too */

    for (size_t k = 0; k + 1 < sizeof cut / sizeof cut[0]; k++) {
        loss += pass(cut[k], cut[k + 1], part);
        for (size_t i = 0; i < model.total; i++)
            sum[i] += part[i];
    }
    ck_assert_double_eq_tol(loss, pass(0, ROWS, whole), 1e-9);
    for (size_t i = 0; i < model.total; i++)
        ck_assert_double_eq_tol(sum[i], whole[i], 1e-5);
    free(whole);
    free(part);
    free(sum);
}
END_TEST

START_TEST(samples_depend_on_seed_step_and_index_only)
{
    int differ[3] = {0};

    for (uint64_t i = 0; i < 1000; i++) {
        size_t at = corpus_sample(&corpus, CONTEXT, 1, 2, i);

        ck_assert_uint_ge(at, CONTEXT);
        ck_assert_uint_lt(at, corpus.len);
        ck_assert_uint_eq(at, corpus_sample(&corpus, CONTEXT, 1, 2, i));
        differ[0] += at != corpus_sample(&corpus, CONTEXT, 2, 2, i);
        differ[1] += at != corpus_sample(&corpus, CONTEXT, 1, 3, i);
        differ[2] += at != corpus_sample(&corpus, CONTEXT, 1, 2, i + 1);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_gt(differ[i], 900);
}
END_TEST

/* ---- checkpoint ---------------------------------------------------------------------------------------- */

static const struct run_identity run = {
    .context = 3, .hidden = 5, .alphabet = 27, .global_batch = 8, .seed = 7, .data = 99, .lr = 0.1};

static float stored[3][4], loaded[3][4];

static void state_of(struct run_state *s, float part[3][4])
{
    *s = (struct run_state){.step = 0, .count = 4, .part = {part[0], part[1], part[2]}};
}

static void store(void)
{
    struct run_state s;
    struct fault f = {""};

    for (int i = 0; i < 12; i++)
        stored[i / 4][i % 4] = (float)(i + 1) / 3;
    state_of(&s, stored);
    s.step = 41;
    ck_assert_int_eq(checkpoint_write(path, &run, &s, &f), 0);
}

/* Reads the checkpoint into a state of zeros. A refusal must leave it so. */
static int load(const struct run_identity *as, int64_t *step, struct fault *f)
{
    struct run_state s;
    int status;

    memset(loaded, 0, sizeof loaded);
    state_of(&s, loaded);
    f->text[0] = '\0';
    status = checkpoint_read(path, as, &s, f);
    *step = s.step;
    if (status != 1) {
        static const float zero[3][4];

        ck_assert_int_eq(s.step, 0);
        ck_assert_mem_eq(loaded, zero, sizeof zero);
    }
    ck_assert_int_eq(status == -1, f->text[0] != '\0');
    return status;
}

START_TEST(checkpoint_comes_back_exactly)
{
    struct fault f;
    int64_t step;

    ck_assert_int_eq(load(&run, &step, &f), 0); /* none yet */
    store();
    store(); /* over an old one */
    ck_assert_int_eq(load(&run, &step, &f), 1);
    ck_assert_int_eq(step, 41);
    ck_assert_mem_eq(loaded, stored, sizeof stored);
}
END_TEST

START_TEST(checkpoint_of_another_run_is_refused)
{
    struct run_identity other[7];
    static const char *const word[7] = {"--context", "--hidden", "--global-batch", "--seed",
                                        "--lr",      "--data",   "--data"};
    struct fault f;
    int64_t step;

    store();
    for (int i = 0; i < 7; i++)
        other[i] = run;
    other[0].context++;
    other[1].hidden++;
    other[2].global_batch++;
    other[3].seed++;
    other[4].lr *= 2;
    other[5].data++;
    other[6].alphabet++;
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(load(&other[i], &step, &f), -1);
        ck_assert_msg(strstr(f.text, word[i]) != NULL, "%s: %s", word[i], f.text);
    }
}
END_TEST

START_TEST(damaged_checkpoint_is_refused)
{
    uint8_t bytes[1024];
    struct fault f;
    int64_t step;
    ssize_t len;
    int fd;

    store();
    fd = open(path, O_RDONLY);
    len = read(fd, bytes, sizeof bytes);
    close(fd);
    ck_assert_int_gt(len, 100);
    for (ssize_t i = 0; i < len; i++) {
        write_bytes(path, bytes, (size_t)i);
        ck_assert_int_eq(load(&run, &step, &f), -1);
    }
    for (ssize_t i = 0; i < len * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        write_bytes(path, bytes, (size_t)len);
        ck_assert_int_eq(load(&run, &step, &f), -1);
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    write_bytes(path, bytes, (size_t)len);
    ck_assert_int_eq(load(&run, &step, &f), 1);
}
END_TEST

/* ---- options ------------------------------------------------------------------------------------------- */

START_TEST(bad_options_are_named)
{
    static char *bad[][3] = {{"--steps", "0", "--steps"},       {"--steps", "1e3", "--steps"},
                             {"--steps", "", "--steps"},        {"--global-batch", "-1", "batch"},
                             {"--lr", "nan", "--lr"},           {"--lr", "0", "--lr"},
                             {"--nonsense", "1", "--nonsense"}, {"--seed", "99999999999999999999", "--seed"},
                             {"--data", "", "--data"},          {"train.txt", NULL, "train.txt"},
                             {"--steps", NULL, "--steps"}};
    struct options o;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *argv[] = {"train", bad[i][0], bad[i][1], NULL};
        struct fault f = {""};

        ck_assert_int_eq(train_options_parse(bad[i][1] != NULL ? 3 : 2, argv, &o, &f), -1);
        ck_assert_msg(strstr(f.text, bad[i][2]) != NULL, "%s: %s", bad[i][2], f.text);
    }
}
END_TEST

START_TEST(options_take_both_spellings)
{
    char *argv[] = {"train", "--steps", "12", "--lr=0.5", "--checkpoint=x=y", NULL};
    struct options o;
    struct fault f = {""};

    ck_assert_int_eq(train_options_parse(5, argv, &o, &f), 0);
    ck_assert_int_eq(o.steps, 12);
    ck_assert_double_eq(o.lr, 0.5);
    ck_assert_str_eq(o.checkpoint, "x=y");
    ck_assert_int_eq(o.global_batch, 256);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("train");
    TCase *c = tcase_create("train");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, gradient_is_the_slope_of_the_loss);
    tcase_add_test(c, shares_add_up_to_the_whole);
    tcase_add_test(c, samples_depend_on_seed_step_and_index_only);
    tcase_add_test(c, checkpoint_comes_back_exactly);
    tcase_add_test(c, checkpoint_of_another_run_is_refused);
    tcase_set_timeout(c, 60); /* thousands of small files, on a machine that may have other work */
    tcase_add_test(c, damaged_checkpoint_is_refused);
    tcase_add_test(c, bad_options_are_named);
    tcase_add_test(c, options_take_both_spellings);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
