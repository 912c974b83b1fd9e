/* From data frames to descriptors 1 and 2: prefixes, whole lines, credit, files. Pipes stand for the
 * terminal. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/io/output.h"
#include "tests/unit/scratch.h"

static uv_loop_t loop;
static struct config config;
static struct plan_rank ranks[2];
static struct plan plan = {.size = 2, .rank = ranks};
static const char *const names[] = {"nodeA"};
static uint64_t consumed;
static int ended, broken, drained;
static int reader, saved[3];
static struct output *output;

static void on_consumed(void *ctx, uint32_t rank, enum frame_stream stream, uint32_t bytes)
{
    (void)ctx, (void)rank, (void)stream;
    consumed += bytes;
}

static void on_ended(void *ctx, uint32_t rank)
{
    (void)ctx, (void)rank;
    ended++;
}

static void on_broken(void *ctx, int fd, int errnum)
{
    (void)ctx, (void)fd;
    broken = errnum;
}

static void on_drained(void *ctx)
{
    (void)ctx;
    drained++;
}

static const struct output_events events = {on_consumed, on_ended, on_broken, on_drained};

/* Both of hvdrun's outputs lead to one pipe. */
static void set_up(void)
{
    int pipe_fds[2];
    consumed = 0;
    ended = broken = drained = 0;
    memset(&config, 0, sizeof config);
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    reader = pipe_fds[0];
    fflush(NULL);
    for (int i = 1; i < 3; i++) {
        saved[i] = dup(i);
        dup2(pipe_fds[1], i);
    }
    close(pipe_fds[1]);
    uv_loop_init(&loop);
}

static void begin(void)
{
    struct err e = ERR_INIT;
    output = output_new(&loop, &config, &plan, plan.size, names, false, &events, NULL, &e);
    ck_assert_msg(output != NULL, "%s", e.text);
}

static void tear_down(void)
{
    output_close(output);
    uv_run(&loop, UV_RUN_DEFAULT);
    output_free(output);
    output = NULL;
    uv_loop_close(&loop);
    for (int i = 1; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    close(reader);
}

static int put(uint32_t rank, enum frame_stream stream, uint8_t flags, const char *text)
{
    struct err e = ERR_INIT;
    struct frame f = {.kind = FRAME_DATA,
                      .flags = flags,
                      .stream = stream,
                      .rank = rank,
                      .length = (uint32_t)strlen(text),
                      .payload = (const uint8_t *)text};
    return output_frame(output, &f, &e);
}

static const char *got(void)
{
    static char text[1 << 16];
    ssize_t n = read(reader, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

START_TEST(lines_get_their_tag)
{
    config.tag = (int[]){CONFIG_TAG_NONE, CONFIG_TAG_RANK, CONFIG_TAG_HOST}[_i];
    begin();
    put(1, STREAM_STDOUT, FRAME_FLAG_LINE_END, "one\ntwo\n");
    put(0, STREAM_STDERR, FRAME_FLAG_LINE_END, "three\n");
    ck_assert_str_eq(
        got(),
        ((const char *[]){"one\ntwo\nthree\n", "[1]<stdout>:one\n[1]<stdout>:two\n[0]<stderr>:three\n",
                          "[1@nodeA]<stdout>:one\n[1@nodeA]<stdout>:two\n[0@nodeA]<stderr>:three\n"})[_i]);
    ck_assert_uint_eq(consumed, 14);
}
END_TEST

START_TEST(a_carriage_return_ends_a_line_too)
{
    config.tag = CONFIG_TAG_RANK;
    begin();
    put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, "10%\r20%\r");
    ck_assert_str_eq(got(), "[0]<stdout>:10%\r[0]<stdout>:20%\r");
}
END_TEST

START_TEST(a_line_in_two_frames_is_not_torn)
{
    begin();
    put(0, STREAM_STDOUT, 0, "first half, ");
    put(1, STREAM_STDOUT, FRAME_FLAG_LINE_END, "other\n");
    put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, "second half\n");
    ck_assert_str_eq(got(), "first half, second half\nother\n");
}
END_TEST

START_TEST(an_unfinished_line_yields)
{
    config.tag = CONFIG_TAG_RANK;
    begin();
    put(0, STREAM_STDOUT, FRAME_FLAG_UNFINISHED, "name? ");
    ck_assert_str_eq(got(), "[0]<stdout>:name? ");
    put(1, STREAM_STDOUT, FRAME_FLAG_LINE_END, "other\n");
    put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, "rest\n");
    ck_assert_str_eq(got(), "\n[1]<stdout>:other\n[0]<stdout>:rest\n");
}
END_TEST

START_TEST(the_dead_hosts_line_yields)
{
    begin();
    put(0, STREAM_STDOUT, 0, "half");
    put(1, STREAM_STDOUT, FRAME_FLAG_LINE_END, "other\n");
    output_abandon(output, (const uint32_t[]){0}, 1);
    ck_assert_str_eq(got(), "half\nother\n");
    ck_assert_int_eq(ended, 1);
}
END_TEST

START_TEST(a_rank_has_ended_after_both_its_streams)
{
    begin();
    put(0, STREAM_STDOUT, FRAME_FLAG_EOF, "");
    ck_assert_int_eq(ended, 0);
    put(0, STREAM_STDERR, FRAME_FLAG_EOF, "");
    ck_assert_int_eq(ended, 1);
    ck_assert(output_is_idle(output));
}
END_TEST

START_TEST(more_than_the_credit_is_refused)
{
    begin();
    static char big[FRAME_DATA_MAX + 1];
    memset(big, 'x', FRAME_DATA_MAX);
    /* Nobody reads the pipe: credit is not given back for what is in the queue. */
    uint32_t window = output_window(2), sent = 0;
    while (put(0, STREAM_STDOUT, 0, big) == 0) {
        sent += FRAME_DATA_MAX;
        ck_assert_uint_le(sent, window + consumed);
    }
    ck_assert_uint_gt(sent + FRAME_DATA_MAX, window);
    ck_assert_int_eq(put(5, STREAM_STDOUT, 0, "x"), -1);
}
END_TEST

/* Credit does not limit them. */
START_TEST(empty_frames_are_refused)
{
    begin();
    ck_assert_int_eq(put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, ""), -1);
    ck_assert_int_eq(put(0, STREAM_STDOUT, FRAME_FLAG_EOF, ""), 0);
    ck_assert_int_eq(put(0, STREAM_STDOUT, FRAME_FLAG_EOF, ""), -1);
    ck_assert_int_eq(put(0, STREAM_STDERR, FRAME_FLAG_EOF, ""), 0);
    ck_assert_int_eq(ended, 1);
}
END_TEST

START_TEST(a_slow_reader_gets_every_byte)
{
    begin();
    char line[1001];
    size_t total = 0;
    memset(line, 'x', 999);
    line[999] = '\n';
    line[1000] = '\0';
    for (int i = 0; i < 200; i++)
        ck_assert_int_eq(put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, line), 0);
    ck_assert(!output_is_idle(output));
    for (int i = 0; i < 1000 && !output_is_idle(output); i++) {
        total += strlen(got());
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    total += strlen(got());
    ck_assert_uint_eq(total, 200 * 1000);
    ck_assert_int_ge(drained, 1);
    ck_assert_uint_eq(consumed, 200 * 1000);
}
END_TEST

START_TEST(a_closed_reader_is_told_once)
{
    begin();
    close(reader);
    put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, "x\n");
    ck_assert_int_eq(broken, EPIPE);
    broken = 0;
    put(0, STREAM_STDOUT, FRAME_FLAG_LINE_END, "y\n");
    ck_assert_int_eq(broken, 0);
    ck_assert_uint_eq(consumed, 4);
    reader = open("/dev/null", O_RDONLY);
}
END_TEST

START_TEST(files_get_the_bytes_as_they_were)
{
    char dir[SCRATCH_MAX], path[64], text[64] = "";
    ck_assert_ptr_nonnull(scratch_dir(dir, "output"));
    config.output_filename = dir;
    config.tag = CONFIG_TAG_RANK;
    begin();
    put(1, STREAM_STDERR, FRAME_FLAG_LINE_END, "oops\n");
    snprintf(path, sizeof path, "%s/rank.1/stderr", dir);
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(read(fd, text, sizeof text), 5);
    ck_assert_str_eq(text, "oops\n");
    close(fd);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/rank.%d/stdout", dir, i);
        ck_assert_int_eq(unlink(path), 0);
        snprintf(path, sizeof path, "%s/rank.%d/stderr", dir, i);
        ck_assert_int_eq(unlink(path), 0);
        snprintf(path, sizeof path, "%s/rank.%d", dir, i);
        ck_assert_int_eq(rmdir(path), 0);
    }
    rmdir(dir);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("output");
    TCase *t = tcase_create("output");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, lines_get_their_tag, 0, 3);
    tcase_add_test(t, a_carriage_return_ends_a_line_too);
    tcase_add_test(t, a_line_in_two_frames_is_not_torn);
    tcase_add_test(t, an_unfinished_line_yields);
    tcase_add_test(t, the_dead_hosts_line_yields);
    tcase_add_test(t, a_rank_has_ended_after_both_its_streams);
    tcase_add_test(t, more_than_the_credit_is_refused);
    tcase_add_test(t, empty_frames_are_refused);
    tcase_add_test(t, a_slow_reader_gets_every_byte);
    tcase_add_test(t, a_closed_reader_is_told_once);
    tcase_add_test(t, files_get_the_bytes_as_they_were);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
