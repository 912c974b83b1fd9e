/* Links among several engines in one process.
 *
 * needs: auth tls algo engine */
#include <sys/mman.h>

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

/* A host says why and leaves, while this one still sends to it: the send fails before the words were read. */
START_TEST(last_words_are_read_after_a_send_has_failed)
{
    struct job job;
    job_new(&job, 2, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 2);
    struct links *alpha = job.host[0].links, *beta = job.host[1].links;
    ck_assert_int_eq(links_send_control(alpha, 1, "unread", 6, NULL), 0); /* so that the close is a reset */
    ck_assert_int_eq(links_send_control(beta, 0, "rank 0 has died", 15, NULL), 0);
    links_free(beta);
    job.host[1].links = NULL;
    int sends = 0;
    while (sends < 100 && links_ready(alpha, 1))
        sends += links_send_control(alpha, 1, "more", 4, NULL) == 0;
    ck_assert_int_lt(sends, 100);
    ck_assert(!job.host[0].lost[1]);
    RUN_UNTIL(&job, job.host[0].lost[1]);
    ck_assert_uint_eq(job.host[0].controls, 1);
    ck_assert_str_eq(job.host[0].last, "rank 0 has died");
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

/* ---- the next epoch ------------------------------------------------------------------------------------ */

#define FRAMES 24

static uint32_t ended[2]; /* bulk frames that ended well, and the others */

static void on_done(struct link_send *send, int status)
{
    (void)send;
    ended[status != 0]++;
}

/* The host goes on as `self` of these hosts of the job; `was`: the hosts as they were numbered there. */
static void regroup_links(struct job *job, uint32_t host, uint32_t self, const uint32_t *was,
                          const char *const *name, uint32_t hosts)
{
    struct links_group group = {.epoch = 4,
                                .self = self,
                                .hosts = hosts,
                                .from = was,
                                .name = name,
                                .fence = "fence",
                                .fence_size = 5};
    struct host *h = &job->host[host];
    struct err e = ERR_INIT;
    ck_assert_msg(links_regroup(h->links, &group, links_time, &e) == 0, "%s", e.text);
    ck_assert_int_eq(watch_for(h, self, links_fd(h->links), EPOLLIN), 0);
}

/* Beta leaves while alpha's frames to gamma are half sent and half received, and delta comes. */
START_TEST(links_are_kept_for_the_next_epoch)
{
    static const uint32_t alpha_was[] = {0, 2, UINT32_MAX}, delta_was[] = {UINT32_MAX, UINT32_MAX, 0};
    static const char *const name[] = {"alpha", "gamma", "delta"};
    static const char *const loopback[] = {"127.0.0.1"};
    static const uint8_t hundred[100];
    struct job job;
    struct link_send send[FRAMES];
    links_last = true;
    job_new(&job, 3, 2000, 5000);
    connect_all(&job);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 6);
    if (links_tls) { /* its handshake comes before all data */
        ck_assert_int_eq(links_send_control(job.host[0].links, 2, "x", 1, NULL), 0);
        RUN_UNTIL(&job, job.host[2].controls == 1);
    }

    uint8_t *data = mmap(NULL, LINKS_BULK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            *place = job.host[2].place = malloc(LINKS_BULK_MAX);
    memset(data, 7, LINKS_BULK_MAX);
    ended[0] = ended[1] = 0;
    for (uint32_t i = 0; i < FRAMES; i++) {
        send[i] = (struct link_send){
            .head = {.sequence = i, .length = LINKS_BULK_MAX}, .data = data, .done = on_done};
        ck_assert_int_eq(links_send_bulk(job.host[0].links, 2, &send[i], NULL), 0);
    }
    while (job.host[2].arrived_bytes < 3 * LINKS_BULK_MAX) {
        links_event(job.host[2].links, 0, EPOLLIN);
        links_progress(job.host[2].links, links_time);
        links_event(job.host[0].links, 2, EPOLLOUT);
        links_progress(job.host[0].links, links_time);
    }
    links_free(job.host[1].links);
    job.host[1].links = NULL;

    regroup_links(&job, 0, 0, alpha_was, name, 3);
    ck_assert_uint_eq(ended[0] + ended[1], FRAMES);
    ck_assert_uint_gt(ended[1], 0);
    munmap(data, LINKS_BULK_MAX); /* a frame that has begun goes on from a copy */
    ck_assert(links_ready(job.host[0].links, 1) && !links_ready(job.host[0].links, 2));
    regroup_links(&job, 2, 1, alpha_was, name, 3);
    memset(place, 5, LINKS_BULK_MAX);
    job.host[2].place = malloc(LINKS_BULK_MAX); /* of frames that come behind the one that is cut */

    job.host[3].index = 3;
    job.host[3].epoll = job.epoll;
    job.hosts = 1;
    job.host[3].links = new_links_at(&job, 3, 0, job.key, 2000, 5000);
    job.hosts = 4;
    regroup_links(&job, 3, 2, delta_was, name, 3);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(links_connect(job.host[3].links, i, loopback, 1, links_port(job.host[2 * i].links),
                                       links_time, NULL),
                         0);
    uint32_t before = job.host[2].controls;
    ck_assert_int_eq(links_send_control(job.host[0].links, 1, "the next epoch", 14, NULL), 0);
    RUN_UNTIL(&job, strcmp(job.host[2].last, "the next epoch") == 0 && job.host[3].ready == 2);
    for (uint32_t i = 0; i < LINKS_BULK_MAX; i++)
        ck_assert_uint_eq(place[i], 5);
    ck_assert_int_eq(links_send_control(job.host[3].links, 1, "new", 3, NULL), 0);
    RUN_UNTIL(&job, strcmp(job.host[2].last, "new") == 0);
    ck_assert_uint_eq(job.host[2].controls, before + 3); /* a fence before alpha's, none on a new link */
    uint64_t arrived = job.host[2].arrived_bytes;
    send[0] = (struct link_send){.head.length = sizeof hundred, .data = hundred, .done = on_done};
    ck_assert_int_eq(links_send_bulk(job.host[0].links, 1, &send[0], NULL), 0);
    RUN_UNTIL(&job, job.host[2].arrived_bytes == arrived + 100 || job.host[2].why.code);
    ck_assert_str_eq(job.host[2].why.text, "");
    ck_assert(!job.host[0].lost[1] && !job.host[2].lost[0]);
    free(job.host[2].place);
    free(place);
    job_down(&job);
}
END_TEST

/* Host `place` was alone until now, and is one of three hosts. */
static void join_three(struct job *job, uint32_t place, bool patient)
{
    static const char *const loopback[] = {"127.0.0.1"};
    static const uint32_t new[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    struct links_group group = {.epoch = 4, .self = place, .hosts = 3, .from = new, .name = names};
    struct host *h = &job->host[place];
    group.patient = patient;
    ck_assert_int_eq(links_regroup(h->links, &group, links_time, NULL), 0);
    ck_assert_int_eq(watch_for(h, place, links_fd(h->links), EPOLLIN), 0);
    for (uint32_t i = 0; i < 3; i++)
        if (i != place)
            ck_assert_int_eq(
                links_connect(h->links, i, loopback, 1, links_port(job->host[i].links), links_time, NULL), 0);
}

/* Two hosts come, and are linked to one another at once. Alpha comes to that epoch long after their limit. */
START_TEST(newcomers_wait_for_a_far_commit)
{
    struct job job;
    links_last = true;
    job_new(&job, 1, 2000, 400);
    for (uint32_t i = 1; i < 3; i++) {
        job.host[i].index = i;
        job.host[i].epoll = job.epoll;
        job.host[i].links = new_links_at(&job, i, 0, job.key, 2000, 400);
    }
    job.hosts = 3;
    join_three(&job, 1, true);
    join_three(&job, 2, true);
    uint64_t begin = links_time;
    while (links_time < begin + 1500 * NSEC_PER_MSEC)
        turn(&job);
    ck_assert_uint_eq(TOTAL(&job, ready), 2);
    ck_assert_str_eq(job.host[1].why.text, "");
    ck_assert_str_eq(job.host[2].why.text, "");
    join_three(&job, 0, false);
    RUN_UNTIL(&job, TOTAL(&job, ready) == 6);
    job_down(&job);
}
END_TEST

/* The limit begins with the link to the first host, where rank 0 is. */
START_TEST(newcomers_do_not_wait_for_one_another)
{
    struct job job;
    links_last = true;
    job_new(&job, 1, 2000, 400);
    job.host[1].index = 1;
    job.host[2].index = 2;
    job.host[1].epoll = job.host[2].epoll = job.epoll;
    job.host[1].links = new_links_at(&job, 1, 0, job.key, 2000, 400);
    job.host[2].links = new_links_at(&job, 2, 0, job.key, 2000, 400);
    job.hosts = 3;
    join_three(&job, 0, false);
    join_three(&job, 1, true);
    RUN_UNTIL(&job, job.host[1].lost[2]);
    ck_assert(job.host[0].why.code);
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
    tcase_add_test(c, last_words_are_read_after_a_send_has_failed);
    tcase_add_test(c, silence_ends_a_link);
    tcase_add_test(c, links_are_kept_for_the_next_epoch);
    tcase_add_test(c, newcomers_wait_for_a_far_commit);
    tcase_add_test(c, newcomers_do_not_wait_for_one_another);
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
    tcase_add_test(c, links_are_kept_for_the_next_epoch);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
