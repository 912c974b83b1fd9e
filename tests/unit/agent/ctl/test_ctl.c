/* hvdctl's words, and what a session keeps for it.
 *
 * needs: ctl agent */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"
#include "agent/guard/job_dir.h"
#include "common/protocol/message.h"
#include "common/status/output_history.h"
#include "common/status/status_address.h"
#include "tests/unit/scratch.h"

static int parse(struct ctl_config *c, struct err *e, const char *line)
{
    static char text[256];
    char *argv[34], *at = text;
    int argc = 0;
    snprintf(text, sizeof text, "hvdctl %s", line);
    for (char *word; argc < 33 && (word = strsep(&at, " "));)
        argv[argc++] = word;
    argv[argc] = NULL;
    return ctl_config_parse(c, argc, argv, e);
}

static const char *const orders[] = {"logs abc -f --rank 0,2", "logs -f abc --rank=0,2",
                                     "-f --rank 0,2 logs abc", "--rank 0,2 logs -f abc"};

START_TEST(words_come_in_any_order)
{
    struct ctl_config c;
    struct err e = ERR_INIT;
    ck_assert_msg(parse(&c, &e, orders[_i]) == 0, "%s", e.text);
    ck_assert_str_eq(c.command, "logs");
    ck_assert_str_eq(c.job, "abc");
    ck_assert_str_eq(c.rank, "0,2");
    ck_assert(c.follow && !c.json);
    ck_assert_int_eq(c.interval_ms, 2000);
}
END_TEST

static const struct {
    const char *line, *text;
} bad[] = {{"ps a b", "unexpected argument: b"},
           {"logs --rank", "--rank needs a value"},
           {"top -n 0", "-n"},
           {"top --interval x", "--interval"},
           {"--jso ps", "unknown option --jso"},
           {"a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8", "more than 32 words"}};

START_TEST(bad_words_are_named)
{
    struct ctl_config c;
    struct err e = ERR_INIT;
    ck_assert_int_eq(parse(&c, &e, bad[_i].line), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad[_i].text), "%s", e.text);
}
END_TEST

static const struct {
    const char *word;
    size_t count, first;
} named[] = {{"1", 4, 0},         {"123-abc", 2, 0},     {"123-abc-0", 1, 0},   {"123-ab", 4, 0},
             {"123-abc-x", 1, 2}, {"123-abc-x-0", 1, 2}, {"123-abc-x-7", 1, 3}, {"", 0, 9},
             {"23", 0, 9},        {"123-abc-00", 0, 9}};

/* A longer name that somebody else chose stands in nobody's way. */
START_TEST(a_job_is_found_by_its_name_or_the_beginning_of_it)
{
    struct ctl_job item[] = {
        {.name = "123-abc-0"}, {.name = "123-abc-1"}, {.name = "123-abc-x-0"}, {.name = "123-abc-x-7-1"}};
    struct ctl_jobs jobs = {item, 4};
    size_t first = 9;
    ck_assert_uint_eq(ctl_jobs_named(&jobs, named[_i].word, &first), named[_i].count);
    ck_assert_uint_eq(first, named[_i].first);
}
END_TEST

/* ---- hvdruns, which stand for the sessions of their jobs ----------------------------------------------- */

static const struct {
    const char *name; /* in /proc/net/unix */
    bool is;
    uid_t uid;
    const char *job;
} addresses[] = {{"@hvdrun-0-train", true, 0, "train"},
                 {"@hvdrun-4294967294-a-b-c", true, 4294967294u, "a-b-c"},
                 {"@hvdrun-4294967295-a", false, 0, ""},
                 {"@hvdrun-18446744073709551617-a", false, 0, ""},
                 {"@hvdrun-7-", false, 0, ""},
                 {"@hvdrun--7-a", false, 0, ""},
                 {"@hvdrun- 7-a", false, 0, ""},
                 {"@hvdrun-7", false, 0, ""},
                 {"@hvdrun-7-a@b", false, 0, ""},
                 {"@hvdrun-7-A", false, 0, ""},
                 {"@hvdrun-7-a\033[2J", false, 0, ""},
                 {"/tmp/hvdrun-7-a", false, 0, ""},
                 {"@hvdru", false, 0, ""}};

START_TEST(addresses_name_a_user_and_a_job)
{
    uid_t uid;
    const char *job;
    ck_assert_int_eq(status_address_parse(addresses[_i].name, &uid, &job), addresses[_i].is);
    if (!addresses[_i].is)
        return;
    ck_assert_uint_eq(uid, addresses[_i].uid);
    ck_assert_str_eq(job, addresses[_i].job);
    struct status_address a;
    status_address_of(&a, uid, job);
    ck_assert_uint_eq(a.size, offsetof(struct sockaddr_un, sun_path) + strlen(addresses[_i].name));
    ck_assert_mem_eq(a.un.sun_path + 1, addresses[_i].name + 1, strlen(addresses[_i].name) - 1);
}
END_TEST

static const struct {
    enum ctl_kind kind;
    const char *word, *left;
} kept[] = {{CTL_HVDRUNS, NULL, "0 a 1000 a-0 0 a-b-0 0 c-0 "},
            {CTL_HVDRUNS, "a-1", "0 a 0 a-1 1000 a-0 0 a-b-0 0 c-0 "},
            {CTL_HVDRUNS, "a", "0 a 1000 a-0 0 a-b-0 0 c-0 "},
            {CTL_SESSIONS, "a", "0 a-0 0 a-1 1000 a-0 0 a-b-0 0 c-0 "},
            {CTL_SESSIONS, NULL, "0 a-0 0 a-1 1000 a-0 0 a-b-0 0 c-0 "}};

START_TEST(of_a_job_either_hvdrun_or_the_sessions_are_kept)
{
    static const struct ctl_job all[] = {{"a", 0, -1},     {"a-0", 0, 0},   {"a-1", 0, 0},
                                         {"a-0", 1000, 0}, {"a-b-0", 0, 0}, {"c-0", 0, 0}};
    struct ctl_jobs jobs = {malloc(sizeof all), sizeof all / sizeof *all};
    char left[200] = "";
    memcpy(jobs.item, all, sizeof all);
    for (size_t i = 0; i < jobs.count; i++)
        if (jobs.item[i].directory >= 0)
            jobs.item[i].directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ctl_jobs_keep(&jobs, kept[_i].kind, kept[_i].word);
    for (size_t i = 0; i < jobs.count; i++)
        snprintf(left + strlen(left), sizeof left - strlen(left), "%u %s ", (unsigned)jobs.item[i].uid,
                 jobs.item[i].name);
    ck_assert_str_eq(left, kept[_i].left);
    ctl_jobs_free(&jobs);
}
END_TEST

/* A process of user `uid` that listens as the hvdrun of root's job; returns its pid. */
static pid_t listen_as_hvdrun(const char *job, uid_t uid)
{
    struct status_address a;
    int ready[2];
    char byte = 0;
    status_address_of(&a, geteuid(), job);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = setuid(uid) == 0 ? socket(AF_UNIX, SOCK_STREAM, 0) : -1;
        byte = bind(fd, (struct sockaddr *)&a.un, a.size) == 0 && listen(fd, 4) == 0;
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Nothing is sent to it. */
START_TEST(another_users_process_is_no_hvdrun_of_ours)
{
    struct ctl_answers all;
    struct err e = ERR_INIT;
    struct ctl_job job = {"forged-7", geteuid(), -1};
    if (geteuid() != 0)
        return; /* nobody can become another user */
    pid_t pid = listen_as_hvdrun(job.name, 65534);
    struct ctl_jobs jobs;
    size_t at;
    ck_assert_int_eq(ctl_jobs_find(&jobs, &e), 0);
    ck_assert_uint_eq(ctl_jobs_named(&jobs, job.name, &at), 0);
    ctl_jobs_free(&jobs);
    ck_assert_int_eq(ctl_ask_status(&job, false, 300, &all, &e), -1);
    ck_assert_msg(e.code == ERR_CLOSED && strstr(e.text, "is not its user's"), "%s", e.text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(an_hvdrun_is_found_and_one_that_is_silent_is_named)
{
    struct ctl_jobs jobs;
    struct ctl_answers all;
    struct err e = ERR_INIT;
    pid_t pid = listen_as_hvdrun("silent-7", geteuid());
    ck_assert_int_eq(ctl_jobs_find(&jobs, &e), 0);
    size_t at, count = ctl_jobs_named(&jobs, "silent-7", &at);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(ctl_ask_status(&jobs.item[at], false, 300, &all, &e), -1);
    ck_assert_msg(e.code == ERR_TIMEOUT && strcmp(e.text, "hvdrun does not answer") == 0, "%s", e.text);
    ctl_jobs_free(&jobs);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
END_TEST

/* ---- files of other users ------------------------------------------------------------------------------ */

static char runtime[SCRATCH_MAX], own[64];

static void trap(const char *name, struct sockaddr_un *address, int *fd)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", own, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "%.80s/" STATUS_SOCKET_NAME, path);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(*fd, (struct sockaddr *)address, sizeof *address), 0);
}

static void set_up(void)
{
    memcpy(runtime + sizeof runtime - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(runtime, "ctl"));
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    snprintf(own, sizeof own, "%s/hvd-%u", runtime, (unsigned)geteuid());
    ck_assert_int_eq(mkdir(own, 0700), 0);
}

static void tear_down(void)
{
    ck_assert_int_eq(remove_tree(AT_FDCWD, runtime, 4), 0);
}

static const struct ctl_job *found(const struct ctl_jobs *jobs, const char *name)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (strcmp(jobs->item[i].name, name) == 0)
            return &jobs->item[i];
    return NULL;
}

START_TEST(names_are_those_of_jobs)
{
    static const char *const odd[] = {"7-a\033[2J-0", "7-a\",\"ending-0", "7-A-0", "7 a-0"};
    struct sockaddr_un address;
    struct ctl_jobs jobs;
    struct err e = ERR_INIT;
    int fd[5];
    for (int i = 0; i < 4; i++)
        trap(odd[i], &address, &fd[i]);
    trap("7-a-0", &address, &fd[4]);
    ck_assert_int_eq(ctl_jobs_find(&jobs, &e), 0);
    ck_assert_ptr_nonnull(found(&jobs, "7-a-0"));
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_null(found(&jobs, odd[i]));
    ctl_jobs_free(&jobs);
    for (int i = 0; i < 5; i++)
        close(fd[i]);
}
END_TEST

/* A socket whose queue is full, and which nobody empties. */
START_TEST(a_listener_that_accepts_nothing_is_waited_for_with_an_end)
{
    struct sockaddr_un address;
    struct ctl_jobs jobs;
    struct ctl_answers all;
    struct err e = ERR_INIT;
    int fd, full = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    trap("7-a-0", &address, &fd);
    ck_assert_int_eq(listen(fd, 0), 0);
    ck_assert_int_eq(connect(full, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(ctl_jobs_find(&jobs, &e), 0);
    ck_assert_int_eq(ctl_ask_status(found(&jobs, "7-a-0"), false, 200, &all, &e), -1);
    ck_assert_int_eq(e.code, ERR_TIMEOUT);
    ctl_jobs_free(&jobs);
    close(full);
    close(fd);
}
END_TEST

START_TEST(nobody_has_more_than_so_many)
{
    char path[160];
    struct sockaddr_un address;
    struct ctl_jobs jobs;
    struct err e = ERR_INIT;
    struct rlimit limit = {4096, 4096};
    int fd;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    trap("7-a-0", &address, &fd);
    for (int i = 0; i < CTL_JOBS_OF_USER + 8; i++) {
        snprintf(path, sizeof path, "%s/7-b-%d", own, i);
        ck_assert_int_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/7-b-%d/" STATUS_SOCKET_NAME, own, i);
        ck_assert_int_eq(link(address.sun_path, path), 0);
    }
    ck_assert_int_eq(ctl_jobs_find(&jobs, &e), 0);
    size_t mine = 0;
    for (size_t i = 0; i < jobs.count; i++)
        mine += strncmp(jobs.item[i].name, "7-b-", 4) == 0 || strcmp(jobs.item[i].name, "7-a-0") == 0;
    ck_assert_uint_eq(mine, CTL_JOBS_OF_USER);
    ctl_jobs_free(&jobs);
    close(fd);
}
END_TEST

START_TEST(what_a_session_says_steers_no_terminal)
{
    char job[] = "7\033[2J", argv[] = "a\nb\302\233c\303\244", state[] = "x\r";
    char *words[] = {argv};
    Hvd__RankStatus rank = HVD__RANK_STATUS__INIT, *ranks[] = {&rank};
    Hvd__JobStatus s = HVD__JOB_STATUS__INIT;
    s.job = job;
    s.argv = words;
    s.n_argv = 1;
    rank.state = state;
    s.rank = ranks;
    s.n_rank = 1;
    message_printable(&s.base);
    ck_assert_str_eq(job, "7?[2J");
    ck_assert_str_eq(argv, "a?b??c\303\244");
    ck_assert_str_eq(state, "x?");
}
END_TEST

/* ---- the last output of ranks -------------------------------------------------------------------------- */

struct seen {
    size_t pieces, bytes;
    uint32_t first, last; /* numbers in the pieces */
};

static void see(void *ctx, const struct output_piece *p)
{
    struct seen *s = ctx;
    uint32_t number;
    memcpy(&number, p->bytes, sizeof number);
    if (s->pieces == 0)
        s->first = number;
    else
        ck_assert_uint_eq(number, s->last + 1);
    s->last = number;
    s->pieces++;
    s->bytes += p->size;
    ck_assert_uint_eq(p->rank, number % 5);
    ck_assert_int_eq(p->stream, number % 2 ? STREAM_STDERR : STREAM_STDOUT);
    for (size_t i = sizeof number; i < p->size; i++)
        ck_assert_uint_eq(p->bytes[i], (uint8_t)(number + i));
}

/* Pieces of all sizes, many times around the ring: what is left is the last ones, whole and in order. */
START_TEST(the_last_pieces_stay)
{
    struct output_history r = {.ring = NULL};
    static uint8_t bytes[FRAME_DATA_MAX];
    for (uint32_t number = 0; number < 400; number++) {
        size_t size = _i ? (size_t)_i : 4 + (size_t)number * 7919 % (FRAME_DATA_MAX - 4);
        memcpy(bytes, &number, sizeof number);
        for (size_t i = sizeof number; i < size; i++)
            bytes[i] = (uint8_t)(number + i);
        output_history_add(&r, number % 5, number % 2 ? STREAM_STDERR : STREAM_STDOUT, bytes, size);
        if (number % 97 == 0 || number == 399) {
            struct seen s = {0};
            output_history_each(&r, see, &s);
            ck_assert_uint_eq(s.last, number);
            ck_assert(s.first == 0 || s.bytes + s.pieces * 12 > OUTPUT_HISTORY_SIZE - FRAME_DATA_MAX - 12);
        }
    }
    output_history_free(&r);
}
END_TEST

START_TEST(what_does_not_fit_is_not_kept)
{
    struct output_history r = {.ring = NULL};
    static uint8_t bytes[FRAME_DATA_MAX + 1];
    struct seen s = {0};
    output_history_each(&r, see, &s);
    output_history_add(&r, 0, STREAM_STDOUT, bytes, 0);
    output_history_add(&r, 0, STREAM_STDOUT, bytes, sizeof bytes);
    output_history_each(&r, see, &s);
    ck_assert_uint_eq(s.pieces, 0);
    output_history_free(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctl");
    TCase *words = tcase_create("words"), *recent = tcase_create("recent"), *traps = tcase_create("traps");
    suite_add_tcase(suite, words);
    suite_add_tcase(suite, recent);
    tcase_add_loop_test(words, words_come_in_any_order, 0, sizeof orders / sizeof *orders);
    tcase_add_loop_test(words, bad_words_are_named, 0, sizeof bad / sizeof *bad);
    tcase_add_loop_test(words, a_job_is_found_by_its_name_or_the_beginning_of_it, 0,
                        sizeof named / sizeof *named);
    tcase_add_test(words, what_a_session_says_steers_no_terminal);
    tcase_add_loop_test(words, addresses_name_a_user_and_a_job, 0, sizeof addresses / sizeof *addresses);
    tcase_add_loop_test(words, of_a_job_either_hvdrun_or_the_sessions_are_kept, 0,
                        sizeof kept / sizeof *kept);
    tcase_add_test(words, another_users_process_is_no_hvdrun_of_ours);
    tcase_add_test(words, an_hvdrun_is_found_and_one_that_is_silent_is_named);
    suite_add_tcase(suite, traps);
    tcase_add_checked_fixture(traps, set_up, tear_down);
    tcase_set_timeout(traps, 20);
    tcase_add_test(traps, names_are_those_of_jobs);
    tcase_add_test(traps, a_listener_that_accepts_nothing_is_waited_for_with_an_end);
    tcase_add_test(traps, nobody_has_more_than_so_many);
    tcase_add_loop_test(recent, the_last_pieces_stay, 0, 1);
    tcase_add_loop_test(recent, the_last_pieces_stay, 4, 6);
    tcase_add_test(recent, what_does_not_fit_is_not_kept);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
