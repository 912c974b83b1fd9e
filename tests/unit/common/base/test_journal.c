/* Lines for the journal, as they arrive at a socket like its own. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/journal.h"
#include "tests/unit/scratch.h"

static char directory[SCRATCH_MAX];
static char path[64], got[32768];
static const char *const always[] = {"JOB=7-abc", "HOST=node1", NULL};
static struct journal j;
static int fd;

static void set_up(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int size = 4 << 20;
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(directory, "journal"));
    snprintf(path, sizeof path, "%s/socket", directory);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    j = (struct journal)JOURNAL_INIT;
    j.socket = path;
    j.fields = always;
}

static void tear_down(void)
{
    close(fd);
    close(j.fd);
    (void)unlink(path);
    (void)rmdir(directory);
}

static const char *next(void)
{
    ssize_t n = recv(fd, got, sizeof got - 1, 0);
    got[n > 0 ? n : 0] = '\0';
    return n > 0 ? got : NULL;
}

START_TEST(a_line_and_its_fields)
{
    const char *fields[] = {"RANK=3", NULL};
    ck_assert(journal_line(&j, JOURNAL_WARN, "rank 3 ended", fields));
    ck_assert_str_eq(next(), "MESSAGE=rank 3 ended\nPRIORITY=4\nSYSLOG_IDENTIFIER=hvdagent\nJOB=7-abc\n"
                             "HOST=node1\nRANK=3\n");
}
END_TEST

/* A text of a rank or of another host cannot become a field or a second line. */
START_TEST(values_make_no_fields)
{
    static char longest[100000];
    const char *fields[] = {"WHY=x\nPRIORITY=0\n\nMESSAGE=y", longest, NULL};
    memset(longest, 'v', sizeof longest - 1);
    memcpy(longest, "LONG=", 5);
    ck_assert(journal_line(&j, JOURNAL_INFO, "bad\nJOB=other\033[2J", fields));
    ck_assert_ptr_nonnull(next());
    ck_assert_int_eq(strncmp(got, "MESSAGE=bad?JOB=other?[2J\nPRIORITY=6\n", 36), 0);
    ck_assert_ptr_nonnull(strstr(got, "\nWHY=x?PRIORITY=0??MESSAGE=y\nLONG=vvv"));
    ck_assert_uint_lt(strlen(got), 3000);
    ck_assert_ptr_null(next());
}
END_TEST

static int come(void)
{
    int count = 0;
    while (next())
        count++;
    return count;
}

/* A second may end in between: at most twice as many are let through. */
START_TEST(a_flood_of_news_hides_no_failure)
{
    int news = 0;
    for (int i = 0; i < 5000; i++) {
        (void)journal_line(&j, JOURNAL_INFO, "news", NULL);
        news += come();
    }
    ck_assert_int_ge(news, JOURNAL_BURST);
    ck_assert_int_le(news, 2 * JOURNAL_BURST);
    (void)journal_line(&j, JOURNAL_WARN, "rank 0 failed", NULL);
    ck_assert_ptr_nonnull(next());
    ck_assert_ptr_nonnull(strstr(got, "MESSAGE=rank 0 failed (4"));
    ck_assert_ptr_nonnull(strstr(got, " lines before were left out)\n"));
    (void)journal_line(&j, JOURNAL_WARN, "rank 1 failed", NULL);
    ck_assert_ptr_nonnull(next());
    ck_assert_ptr_nonnull(strstr(got, "MESSAGE=rank 1 failed\n"));
    j.since -= NSEC_PER_SEC;
    (void)journal_line(&j, JOURNAL_INFO, "more", NULL);
    ck_assert_int_eq(come(), 1);
}
END_TEST

START_TEST(what_a_busy_journal_does_not_take_is_counted)
{
    for (int i = 0; i < JOURNAL_BURST - 1; i++)
        (void)journal_line(&j, JOURNAL_INFO, "news", NULL);
    int taken = come();
    ck_assert_int_lt(taken, JOURNAL_BURST - 1);
    (void)journal_line(&j, JOURNAL_WARN, "bad", NULL);
    snprintf(got, sizeof got, "MESSAGE=bad (%d lines before were left out)\n", JOURNAL_BURST - 1 - taken);
    char *want = strdup(got);
    ck_assert_ptr_nonnull(next());
    ck_assert_int_eq(strncmp(got, want, strlen(want)), 0);
    free(want);
}
END_TEST

/* Nobody reads it: a node whose 50 ranks fail at once still says so in time. */
START_TEST(a_journal_that_hangs_is_waited_for_once)
{
    for (int i = 0; i < JOURNAL_BURST; i++)
        (void)journal_line(&j, JOURNAL_INFO, "news", NULL);
    uint64_t begin = clock_now();
    for (int i = 0; i < JOURNAL_BURST; i++)
        ck_assert(journal_line(&j, JOURNAL_WARN, "rank failed", NULL));
    ck_assert_uint_lt(clock_now() - begin, 900 * NSEC_PER_MSEC);
    come();
    ck_assert(journal_line(&j, JOURNAL_INFO, "more", NULL));
}
END_TEST

START_TEST(a_journal_that_is_started_anew)
{
    ck_assert(journal_line(&j, JOURNAL_INFO, "before", NULL));
    tear_down();
    int old = j.fd = dup(STDERR_FILENO); /* as the socket of one that has gone */
    set_up();
    j.fd = old;
    ck_assert(journal_line(&j, JOURNAL_INFO, "after", NULL));
    ck_assert_ptr_nonnull(next());
    j.socket = "/nowhere";
    close(j.fd);
    j.fd = -1;
    ck_assert(!journal_line(&j, JOURNAL_INFO, "lost", NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *t = tcase_create("journal");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, t);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_line_and_its_fields);
    tcase_add_test(t, values_make_no_fields);
    tcase_add_test(t, a_flood_of_news_hides_no_failure);
    tcase_add_test(t, what_a_busy_journal_does_not_take_is_counted);
    tcase_add_test(t, a_journal_that_hangs_is_waited_for_once);
    tcase_add_test(t, a_journal_that_is_started_anew);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
