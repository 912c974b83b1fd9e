/* The file of a timeline: names of files, what stands in it, what happens when the buffer is full, and what a
 * killed process leaves. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/trace.h"
#include "tests/unit/scratch.h"

static char path[64];

static void setup(void)
{
    int fd = scratch_file(path, "trace");
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void teardown(void)
{
    unlink(path);
}

static char *contents(size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    ck_assert(fd >= 0 && fstat(fd, &st) == 0);
    char *text = calloc(1, (size_t)st.st_size + 1);
    ck_assert_int_eq(read(fd, text, (size_t)st.st_size), st.st_size);
    close(fd);
    *size = (size_t)st.st_size;
    return text;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

static void instant(struct trace *t, uint32_t lane)
{
    trace_put(t, &(struct trace_event){TRACE_INSTANT, lane, NULL, "x", clock_now(), 0});
}

/* "[", whole records with commas between them, blanks only at the ends of pages; then, or not, "]". */
static void expect_array(const char *text, size_t size, bool whole)
{
    ck_assert_int_eq(strncmp(text, "[\n{", 3), 0);
    for (size_t i = 2; i < size;) {
        size_t end = i + strcspn(text + i, "\n");
        ck_assert_msg(text[i] == '{' || text[i] == ']', "a line begins with %.20s", text + i);
        if (text[i] == ']')
            break;
        size_t last = end - 1;
        while (text[last] == ' ' || (text[last] == ',' && end < size))
            last--;
        ck_assert_msg(text[last] == '}', "cut: %.*s", (int)(end - i), text + i);
        i = end + 1;
    }
    ck_assert_int_eq(size > 3 && strcmp(text + size - 3, "\n]\n") == 0, whole);
}

START_TEST(everything_put_is_written)
{
    struct err e = ERR_INIT;
    struct trace *t = trace_start(path, 7, "rank \"7\"", TRACE_BYTES, &e);
    ck_assert_msg(t, "%s", e.text);
    trace_lane(t, 3, "weights\n\xff");
    trace_put(t, &(struct trace_event){TRACE_BEGIN, 3, "NEGOTIATE_", "ALLREDUCE", clock_now(), 0});
    trace_put(t, &(struct trace_event){TRACE_COMPLETE, 3, NULL, "COPY", clock_now(), 1234567});
    for (int i = 0; i < 10000; i++)
        instant(t, 4);
    ck_assert_msg(trace_stop(t, &e) == 0, "%s", e.text);
    size_t size;
    char *text = contents(&size);
    expect_array(text, size, true);
    ck_assert_uint_eq(count(text, "\"name\":\"x\",\"ph\":\"i\""), 10000);
    ck_assert_uint_eq(count(text, "{\"name\":\"rank \\\"7\\\"\"}"), 1);
    ck_assert_uint_eq(count(text, "{\"name\":\"weights\\n\xef\xbf\xbd\"}"), 1);
    ck_assert_uint_eq(count(text, "\"name\":\"NEGOTIATE_ALLREDUCE\",\"ph\":\"B\""), 1);
    ck_assert_uint_eq(count(text, "\"dur\":1234.567"), 1);
    ck_assert_uint_eq(count(text, "dropped"), 0);
    free(text);
}
END_TEST

START_TEST(a_file_goes_on)
{
    enum { EVENTS = 500 }; /* some parts end in the middle of a page, and some at its end */
    struct err e = ERR_INIT;
    for (int part = 0; part < 20; part++) {
        struct trace *t = (part ? trace_continue : trace_start)(path, 1, "worker 1", TRACE_BYTES, &e);
        ck_assert_msg(t, "%s", e.text);
        for (int i = 0; i < EVENTS + part; i++)
            instant(t, 1);
        ck_assert_msg(trace_stop(t, &e) == 0, "%s", e.text);
    }
    size_t size;
    char *text = contents(&size);
    expect_array(text, size, true);
    ck_assert_uint_eq(count(text, "\"name\":\"x\",\"ph\":\"i\""), 20 * EVENTS + 190);
    free(text);
    ck_assert_int_eq(truncate(path, 100), 0); /* not whole: nothing is put behind that */
    struct trace *t = trace_continue(path, 1, "worker 1", TRACE_BYTES, &e);
    ck_assert_int_eq(trace_stop(t, &e), 0);
    text = contents(&size);
    expect_array(text, size, true);
    ck_assert_uint_eq(count(text, "\"x\""), 0);
    free(text);
}
END_TEST

static void *put_many(void *t)
{
    for (unsigned i = 0; i < 4 * TRACE_EVENTS; i++)
        instant(t, 1);
    return NULL;
}

START_TEST(what_is_dropped_is_counted)
{
    enum { THREADS = 3 };
    struct err e = ERR_INIT;
    pthread_t thread[THREADS];
    struct trace *t = trace_start(path, 0, "rank 0", TRACE_BYTES, &e);
    ck_assert_msg(t, "%s", e.text);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, put_many, t), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_eq(trace_stop(t, &e), 0);
    size_t size, dropped = 0;
    char *text = contents(&size);
    expect_array(text, size, true);
    for (const char *at = text; (at = strstr(at, "\"number\":")); at++)
        dropped += strtoul(at + 9, NULL, 10);
    ck_assert_uint_gt(dropped, 0);
    ck_assert_uint_eq(count(text, "\"name\":\"x\"") + dropped, (size_t)THREADS * 4 * TRACE_EVENTS);
    free(text);
}
END_TEST

START_TEST(a_file_has_an_end)
{
    enum { EVENTS = 20000, MOST = 64 << 10 };
    struct err e = ERR_INIT;
    struct trace *t = trace_start(path, 0, "rank 0", MOST, &e);
    ck_assert_msg(t, "%s", e.text);
    for (int i = 0; i < EVENTS; i++)
        instant(t, 1);
    ck_assert_int_eq(trace_stop(t, &e), 0);
    size_t size;
    char *text = contents(&size);
    expect_array(text, size, true);
    ck_assert_uint_ge(size, MOST);
    ck_assert_uint_lt(size, 2 * MOST);
    ck_assert_uint_eq(count(text, "dropped events"), 1);
    const char *number = strstr(text, "\"number\":");
    ck_assert_uint_eq(count(text, "\"name\":\"x\"") + strtoul(number + 9, NULL, 10), EVENTS);
    free(text);
}
END_TEST

/* A busy machine may not run the child at once. The test's own limit ends this wait. */
static void await_events(void)
{
    struct stat st;
    do
        usleep(1000);
    while (stat(path, &st) == 0 && st.st_size == 0);
}

START_TEST(a_killed_process_leaves_whole_events)
{
    for (int again = 0; again < 20; again++) {
        ck_assert_int_eq(truncate(path, 0), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct trace *t = trace_start(path, 0, "rank 0", TRACE_BYTES, NULL);
            while (t)
                instant(t, 1);
            _exit(1);
        }
        await_events();
        usleep((useconds_t)(again * 3137));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        size_t size;
        char *text = contents(&size);
        ck_assert_uint_gt(size, 0);
        expect_array(text, size, false);
        free(text);
    }
}
END_TEST

START_TEST(a_full_disk_is_told)
{
    struct err e = ERR_INIT;
    struct trace *t = trace_start("/dev/full", 0, "rank 0", TRACE_BYTES, &e);
    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(trace_stop(t, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "No space left"));
    err_clear(&e);
    ck_assert_ptr_null(trace_start("/no/such/directory/x", 0, "rank 0", TRACE_BYTES, &e));
    ck_assert_ptr_nonnull(strstr(e.text, "/no/such/directory/x"));
}
END_TEST

START_TEST(every_rank_has_its_own_file)
{
    static const char *const names[][2] = {
        {"t.json", "t.12.json"},        {"t", "t.12"},
        {"a.b/t", "a.b/t.12"},          {"/x/.hidden", "/x/.hidden.12"},
        {"%r.json", "12.json"},         {"/x/t-%r.a.b", "/x/t-12.a.b"},
        {"a.%r/t.json", "a.12/t.json"}, {"t.tar.gz", "t.tar.12.gz"},
    };
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_int_eq(trace_path(names[i][0], "12", name, sizeof name, NULL), 0);
        ck_assert_str_eq(name, names[i][1]);
    }
    ck_assert_int_eq(trace_path("a-name-that-is-too-long", "12", name, 20, NULL), -1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trace");
    TCase *c = tcase_create("trace");
    tcase_set_timeout(c, 30);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, everything_put_is_written);
    tcase_add_test(c, a_file_goes_on);
    tcase_add_test(c, what_is_dropped_is_counted);
    tcase_add_test(c, a_file_has_an_end);
    tcase_add_test(c, a_killed_process_leaves_whole_events);
    tcase_add_test(c, a_full_disk_is_told);
    tcase_add_test(c, every_rank_has_its_own_file);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
