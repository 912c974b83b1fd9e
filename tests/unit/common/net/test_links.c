/* Links among several engines in one process.
 *
 * needs: auth tls algo engine */
#include "tests/unit/links_job.h"

START_TEST(one_link_per_pair)
{
    struct job job;
    job_new(&job, (uint32_t)_i, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == job.hosts * (job.hosts - 1));
    for (uint32_t i = 0; i < job.hosts; i++)
        for (uint32_t j = 0; j < job.hosts; j++) {
            char text[32];
            snprintf(text, sizeof text, "from %u", i);
            if (i != j)
                ck_assert_int_eq(links_send_control(job.host[i].links, j, text, strlen(text), NULL), 0);
        }
    RUN_UNTIL(&job, TOTAL(&job, controls) == job.hosts * (job.hosts - 1));
    for (int i = 0; i < 5; i++)
        turn_within(&job, 1);
    ck_assert_uint_eq(TOTAL(&job, ready), job.hosts * (job.hosts - 1));
    ck_assert_str_eq(job.host[0].last, job.hosts == 2 ? "from 1" : job.host[0].last);
    job_down(&job);
}
END_TEST

START_TEST(large_control_frames_stay_whole_and_in_order)
{
    struct job job;
    job_new(&job, 2, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 2);
    char *text = malloc(LINKS_CONTROL_MAX);
    for (uint32_t i = 0; i < 100; i++) {
        size_t size = i % 3 == 0 ? LINKS_CONTROL_MAX : i % 3 == 1 ? 5000 : 20;
        memset(text, 'a', size);
        snprintf(text, 20, "%u:", i);
        ck_assert_int_eq(links_send_control(job.host[0].links, 1, text, size, NULL), 0);
    }
    RUN_UNTIL(&job, job.host[1].controls == 100);
    ck_assert_int_eq(strncmp(job.host[1].last, "99:", 3), 0);
    ck_assert_int_eq(links_send_control(job.host[0].links, 1, text, LINKS_CONTROL_MAX + 1, NULL), -1);
    free(text);
    job_down(&job);
}
END_TEST

START_TEST(no_link_without_the_key)
{
    struct job job;
    uint8_t other[AUTH_KEY_SIZE] = {1};
    job_new(&job, 2, 2000, 400);
    links_free(job.host[1].links);
    job.host[1].links = new_links(&job, 1, other, 2000, 400);
    connect_all(&job);
    RUN_UNTIL(&job, job.host[0].lost[1] && job.host[1].lost[0]);
    ck_assert_uint_eq(TOTAL(&job, ready), 0);
    ck_assert_ptr_nonnull(strstr(job.host[1].why.text, "host alpha"));
    ck_assert_ptr_nonnull(strstr(job.host[1].why.text, "does not have this job's key"));
    ck_assert_ptr_nonnull(strstr(job.host[0].why.text, "host beta"));
    job_down(&job);
}
END_TEST

/* Nobody is there any more when the time is up. */
START_TEST(an_answer_is_remembered)
{
    static const char *const loopback[] = {"127.0.0.1"};
    struct job job;
    uint8_t other[AUTH_KEY_SIZE] = {1};
    job_new(&job, 2, 2000, 1000);
    links_free(job.host[1].links);
    job.host[1].links = new_links(&job, 1, other, 2000, 1000);
    ck_assert_int_eq(
        links_connect(job.host[1].links, 0, loopback, 1, links_port(job.host[0].links), links_time, NULL), 0);
    uint64_t begin = links_time;
    while (links_time < begin + 500 * NSEC_PER_MSEC)
        turn(&job);
    links_free(job.host[0].links);
    job.host[0].links = NULL;
    RUN_UNTIL(&job, job.host[1].lost[0]);
    ck_assert_ptr_nonnull(strstr(job.host[1].why.text, "does not have this job's key"));
    job_down(&job);
}
END_TEST

START_TEST(a_host_that_gives_up_says_why)
{
    struct job job;
    job_new(&job, 3, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 6);
    for (uint32_t i = 0; i < 2; i++) /* an encrypted link has words when its TLS handshake has ended */
        ck_assert_int_eq(links_send_control(job.host[i].links, 2, "x", 1, NULL), 0);
    RUN_UNTIL(&job, job.host[2].controls == 2);
    links_shutdown(job.host[2].links, "rank 5 was killed");
    RUN_UNTIL(&job, job.host[0].lost[2] && job.host[1].why.code);
    ck_assert_str_eq(job.host[0].why.text, "host gamma: it gave up: rank 5 was killed");
    ck_assert_ptr_nonnull(
        strstr(job.host[1].why.text, "rank 5 was killed")); /* of gamma, or of alpha, which gave up for it */
    ck_assert_int_eq(links_send_control(job.host[0].links, 2, "x", 1, NULL), -1);
    job_down(&job);
}
END_TEST

/* A frozen host: its kernel acknowledges, its engine does nothing. */
START_TEST(silence_ends_a_link)
{
    struct job job;
    job_new(&job, 2, 300, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 2);
    uint64_t begin = links_time;
    while (links_time < begin + 600 * NSEC_PER_MSEC) /* both beat: nobody is lost */
        turn(&job);
    ck_assert(!job.host[0].lost[1] && !job.host[1].lost[0]);
    struct links *frozen = job.host[1].links;
    job.host[1].links = NULL;
    begin = links_time;
    RUN_UNTIL(&job, job.host[0].lost[1]);
    ck_assert_ptr_nonnull(strstr(job.host[0].why.text, "nothing was heard"));
    ck_assert_uint_lt(links_time - begin, 450 * NSEC_PER_MSEC);
    job.host[1].links = frozen;
    job_down(&job);
}
END_TEST

START_TEST(no_link_when_only_one_end_encrypts)
{
    struct job job;
    job_new(&job, 2, 2000, 400);
    links_free(job.host[0].links);
    links_tls = NULL;
    job.host[0].links = new_links(&job, 0, job.key, 2000, 400);
    connect_all(&job);
    RUN_UNTIL(&job, job.host[0].lost[1] && job.host[1].lost[0]);
    ck_assert_uint_eq(TOTAL(&job, ready), 0);
    job_down(&job);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("links");
    TCase *c = tcase_create("links");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, one_link_per_pair, 2, HOSTS_MAX + 1);
    tcase_add_test(c, large_control_frames_stay_whole_and_in_order);
    tcase_add_test(c, no_link_without_the_key);
    tcase_add_test(c, an_answer_is_remembered);
    tcase_add_test(c, a_host_that_gives_up_says_why);
    tcase_add_test(c, silence_ends_a_link);
    suite_add_tcase(s, c);
    c = tcase_create("encrypted");
    tcase_set_timeout(c, 20);
    tcase_add_checked_fixture(c, encrypt_links, NULL);
    tcase_add_loop_test(c, one_link_per_pair, 2, 5);
    tcase_add_test(c, large_control_frames_stay_whole_and_in_order);
    tcase_add_test(c, no_link_without_the_key);
    tcase_add_test(c, a_host_that_gives_up_says_why);
    tcase_add_test(c, silence_ends_a_link);
    tcase_add_test(c, no_link_when_only_one_end_encrypts);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
