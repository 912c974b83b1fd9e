/* hvdrun and a host that sends what it likes: every message of control.proto, at every stage of a job, from a
 * peer that speaks the protocol well. hvdrun does not crash, ends in time, says little, and believes of
 * another host's rank only what that host says.
 *
 * This program is the hosts, too (--rsh): `good` behaves, `evil` does as HOSTILE_PLAN says. HOSTILE_SEED and
 * HOSTILE_TURNS make other messages and more of them. */
/* needs: hvdrun tests/unit/hostile.c tests/unit/fake_agent.c */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/session/session.h"
#include "common/process/module.h"
#include "launcher/host/host_legal.h"
#include "tests/unit/fake_agent.h"
#include "tests/unit/hostile.h"
#include "tests/unit/scratch.h"

#define CONTROL_TYPE (&hvd__control__descriptor)
#define TURNS        5 /* messages of a kind in one job, each of them twice */
#define TIME_MS      20000
#define LINES_MAX    320 /* that a host may say, and what else a job says */
#define FLOOD        20000
#define FINDING      86 /* exit status of a program that a sanitizer has ended */

/* ---- the hosts ----------------------------------------------------------------------------------------- */

/* Behind the bodies of Control: what else evil can send. */
enum other { DATA, NOTICES, LINES, LATE, EMPTY_FRAMES };

/* The attack of the host "evil": at this stage, with this body, by this seed. */
struct evil {
    unsigned stage;
    size_t body;
    uint64_t seed;
    unsigned turns;
};

static struct evil read_plan(void)
{
    struct evil p = {0};
    const char *text = getenv("HOSTILE_PLAN");
    if (!text || sscanf(text, "%u %zu %lu %u", &p.stage, &p.body, &p.seed, &p.turns) != 4)
        abort();
    return p;
}

static void say_data(struct fake_agent *a, struct hostile *h, unsigned turn)
{
    static const uint32_t ranks[] = {0, 1, 2, UINT32_MAX};
    uint8_t bytes[64] = "evil\n";
    uint64_t r = hostile_random(h);
    size_t len = turn == 0 ? 0 : r % sizeof bytes;
    (void)channel_send_data(&a->channel, ranks[r >> 8 & 3], (enum frame_stream)(r >> 16 & 3),
                            (uint8_t)(r >> 24), bytes, len);
}

static void flood(struct fake_agent *a, enum other with)
{
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.level = 4; /* an error */
    notice.text = (char *)(uintptr_t) "evil is there";
    CONTROL(m, NOTICE, notice, &notice);
    for (int i = 0; i < FLOOD; i++)
        if (with == NOTICES)
            fake_agent_send(a, &m);
        else
            fprintf(stderr, "evil is there\n");
}

/* An honest session may say this behind Ended: something that it could not kill has died at last. */
static void say_late(struct fake_agent *a)
{
    Hvd__Exited exited = HVD__EXITED__INIT;
    Hvd__Credit credit = HVD__CREDIT__INIT;
    Hvd__LinkOrder order = HVD__LINK_ORDER__INIT;
    exited.rank = credit.rank = a->rank[0];
    CONTROL(first, CREDIT, credit, &credit);
    CONTROL(second, EXITED, exited, &exited);
    CONTROL(third, LINK_ORDER, link_order, &order);
    fake_agent_send(a, &first);
    fake_agent_send(a, &second);
    fake_agent_send(a, &third);
}

/* Its part of the timeline, which never comes. */
static void say_empty_frames(struct fake_agent *a)
{
    Hvd__TimelinePart part = HVD__TIMELINE_PART__INIT, *list[] = {&part};
    Hvd__TimelineParts parts = HVD__TIMELINE_PARTS__INIT;
    part.number = a->rank[0];
    part.size = 10;
    parts.part = list;
    parts.n_part = 1;
    CONTROL(m, TIMELINE_PARTS, timeline_parts, &parts);
    fake_agent_send(a, &m);
    for (int i = 0; i < 100; i++)
        (void)channel_send_data(&a->channel, 0, STREAM_FILE, 0, NULL, 0);
    fake_agent_send(a, &m); /* sends the frames before Ended, too */
}

/* As hvdagent attach, which has a short word only. */
static void say_attached(struct fake_agent *a, const struct buf *message)
{
    struct err e = ERR_INIT;
    Hvd__Control *m = message_unpack_control(buf_data(message), message->len, &e);
    if (!m)
        abort(); /* a fault of the test */
    for (int i = 0; i < 2; i++)
        (void)fake_agent_attach(a, m);
    message_free(m);
}

static void misbehave(struct fake_agent *a, enum agent_stage stage)
{
    const struct evil *p = a->ctx;
    const ProtobufCFieldDescriptor *body = hostile_nth(CONTROL_TYPE, p->body);
    struct hostile h;
    struct buf bytes;
    if (stage == AGENT_OPENED)
        channel_set_session(&a->channel, 1);
    if (stage != p->stage)
        return;
    if (p->body > hostile_bodies(CONTROL_TYPE)) {
        enum other what = (enum other)(p->body - hostile_bodies(CONTROL_TYPE));
        if (what == EMPTY_FRAMES)
            say_empty_frames(a);
        else if (what == LATE)
            say_late(a);
        else
            flood(a, what);
        return;
    }
    hostile_seed(&h, p->seed, p->stage * 1000 + p->body);
    buf_init(&bytes, FRAME_PAYLOAD_MAX);
    for (unsigned turn = 0; turn < p->turns && (body || stage != AGENT_ATTACHED); turn++) {
        buf_consume(&bytes, bytes.len);
        if (!body) {
            say_data(a, &h, turn);
            continue;
        }
        hostile_body(&h, body, turn, &bytes);
        if (stage == AGENT_ATTACHED) {
            say_attached(a, &bytes);
            continue;
        }
        fake_agent_say(a, buf_data(&bytes), bytes.len);
        fake_agent_say(a, buf_data(&bytes), bytes.len);
    }
    buf_free(&bytes);
}

static int be_agent(const char *host, const char *command)
{
    struct evil plan = read_plan();
    struct fake_agent a = {.at = strcmp(host, "evil") == 0 ? misbehave : NULL,
                           .ctx = &plan,
                           .lingers = plan.stage == AGENT_INSPECT};
    return strstr(command, "sweep") ? 0 : fake_agent_run(&a);
}

/* ---- a job --------------------------------------------------------------------------------------------- */

static char directory[SCRATCH_MAX];

static void in_directory(char *path, size_t size, const char *name)
{
    ck_assert_int_lt(snprintf(path, size, "%s/%s", directory, name), (int)size);
}

static char *read_all(const char *name)
{
    char path[128];
    struct buf b;
    int fd;
    ssize_t n = 0;
    in_directory(path, sizeof path, name);
    buf_init(&b, 64u << 20);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0) {
        uint8_t *room = buf_reserve(&b, 65536);
        ck_assert_ptr_nonnull(room);
        if ((n = read(fd, room, 65536)) <= 0)
            break;
        buf_commit(&b, (size_t)n);
    }
    if (fd >= 0)
        close(fd);
    char *text = strndup((const char *)buf_data(&b), b.len);
    buf_free(&b);
    return text;
}

static void open_as(int fd, const char *name)
{
    char path[128];
    in_directory(path, sizeof path, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0)
        _exit(98);
}

static void be_hvdrun(const struct evil *p, const char *seconds, int input)
{
    char dir[4000], path[4096], rsh[4200], report[128], file[128], timeline[128], plan[128];
    const char *argv[20] = {path, "-np", "2", "-H", "good:1,evil:1", "--rsh", rsh, "--report", report};
    size_t n = 9;
    if (module_program_dir(dir, sizeof dir, NULL) < 0)
        _exit(98);
    snprintf(path, sizeof path, "%s/../hvdrun", dir);
    snprintf(rsh, sizeof rsh, "%s/test_hostile_hosts --agent {host}", dir);
    in_directory(report, sizeof report, "report");
    in_directory(file, sizeof file, "out");
    snprintf(plan, sizeof plan, "%u %zu %lu %u", p->stage, p->body, p->seed, p->turns);
    setenv("HOSTILE_PLAN", plan, 1);
    if (p->stage == AGENT_INSPECT) {
        argv[n++] = "--timeout";
        argv[n++] = seconds;
    } else if (p->stage == AGENT_FILES) {
        argv[n++] = "--preload";
        argv[n++] = file;
    }
    if (p->body == hostile_bodies(CONTROL_TYPE) + EMPTY_FRAMES) {
        in_directory(timeline, sizeof timeline, "timeline.json");
        argv[n++] = "--timeline-filename";
        argv[n++] = timeline;
    }
    argv[n++] = "true";
    dup2(input, STDIN_FILENO);
    open_as(STDOUT_FILENO, "out");
    open_as(STDERR_FILENO, "err");
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(98);
}

/* Its status as waitpid has it; -1: it had to be killed. */
static int run_job_for(const struct evil *p, const char *seconds)
{
    int input[2], status = -1;
    ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        be_hvdrun(p, seconds, input[0]);
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    bool in_time = poll(&ended, 1, TIME_MS) > 0;
    if (!in_time)
        kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(ended.fd);
    close(input[0]);
    close(input[1]);
    return in_time ? status : -1;
}

/* --timeout is over when the ranks run: where that takes longer than a moment, it gets longer. */
static int run_job(const struct evil *p)
{
    static const char *const seconds[] = {"0.1", "0.5", "3"};
    int status = -1;
    bool came = false;
    for (size_t i = 0; i < 3 && !came; i++) {
        status = run_job_for(p, seconds[i]);
        char *err = read_all("err");
        came = p->stage != AGENT_INSPECT || strstr(err, "where the ranks are");
        free(err);
    }
    return status;
}

/* ---- checks of the outcome ----------------------------------------------------------------------------- */

static size_t lines_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static size_t occurrences(const char *text, const char *word)
{
    size_t n = 0;
    while ((text = strstr(text, word)))
        n++, text++;
    return n;
}

static bool is_in(const struct legal_table *t, unsigned message)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->row[i].message == message)
            return true;
    return false;
}

/* Messages that only a launcher may send are ignored at every stage, counted and told once. The job ends as
 * it would have without them. */
static bool was_ignored(const struct evil *p, const char *name, int status, const char *err)
{
    char first[120], all[120];
    snprintf(first, sizeof first, "hvdrun: warning: evil: its message '%s' was ignored: ", name);
    snprintf(all, sizeof all, "hvdrun: warning: evil: %u messages of it were ignored\n", 2 * p->turns);
    if (p->stage == AGENT_ATTACHED) /* long ones are not among them */
        snprintf(all, sizeof all, " messages of it were ignored\n");
    return WEXITSTATUS(status) == (p->stage == AGENT_INSPECT ? 124 : 0) && occurrences(err, first) == 1 &&
           occurrences(err, " was ignored: ") == 1 && occurrences(err, all) == 1;
}

/* NULL, or what is wrong. */
static const char *wrong_with(int status, const char *out, const char *err, const char *report)
{
    const char *ranks = strstr(report, "\"ranks\":"), *other;
    if (status < 0)
        return "hvdrun had to be killed";
    if (!WIFEXITED(status))
        return "hvdrun was killed by a signal";
    if (WEXITSTATUS(status) == FINDING || strstr(err, "AddressSanitizer") || strstr(err, "runtime error"))
        return "a sanitizer has found something";
    if (lines_of(err) > LINES_MAX)
        return "too many lines of stderr";
    if (strchr(err, '\033') || strchr(out, '\033'))
        return "what evil says is shown as it is";
    if (!*report || strcmp(report + strlen(report) - 2, "}\n") != 0)
        return "there is no report";
    /* Rank 0 is good's: it has not started, was lost when the job ended before, or is as good says. */
    ranks = ranks ? strstr(ranks, "\"rank\": 0") : NULL;
    other = ranks ? strstr(ranks, "\"rank\": 1") : NULL;
    if (ranks && other) {
        char *rank0 = strndup(ranks, (size_t)(other - ranks));
        bool ended = !strstr(rank0, "\"end\": null"), mine = strstr(rank0, "\"peak_kib\": 777") != NULL;
        bool good = !strstr(rank0, "\"where\": [") && (!ended || mine);
        free(rank0);
        if (!good)
            return "the report has of rank 0 what evil says";
    }
    return NULL;
}

static void check_job(const struct evil *p)
{
    const ProtobufCFieldDescriptor *body = hostile_nth(CONTROL_TYPE, p->body);
    int status = run_job(p);
    char *out = read_all("out"), *err = read_all("err"), *report = read_all("report");
    const char *wrong = wrong_with(status, out, err, report);
    bool is_legal =
        body && is_in(&host_legal, body->id) && (p->stage != AGENT_ATTACHED || host_legal_is_lease(body->id));
    if (!wrong && body && !is_legal && !was_ignored(p, body->name, status, err))
        wrong = "what no host may send was not ignored";
    ck_assert_msg(!wrong, "%s (status %x): %s at stage %u, HOSTILE_SEED=%lu HOSTILE_TURNS=%u\n%.6000s", wrong,
                  (unsigned)status, body ? body->name : "data", p->stage, p->seed, p->turns, err);
    free(out);
    free(err);
    free(report);
}

START_TEST(every_message)
{
    struct evil p = {.stage = (unsigned)_i, .seed = hostile_given_seed(), .turns = hostile_turns(TURNS)};
    for (p.body = 0; p.body <= hostile_bodies(CONTROL_TYPE); p.body++)
        check_job(&p);
}
END_TEST

START_TEST(every_message_has_a_row)
{
    for (size_t i = 0; i < hostile_bodies(CONTROL_TYPE); i++) {
        const ProtobufCFieldDescriptor *body = hostile_nth(CONTROL_TYPE, i);
        ck_assert_msg(is_in(&host_legal, body->id) || is_in(&session_legal, body->id),
                      "%s is in the table of neither host_legal.c nor session/channel.c", body->name);
    }
}
END_TEST

START_TEST(what_a_host_may_say)
{
    struct evil p = {.stage = AGENT_SPAWNED, .body = hostile_bodies(CONTROL_TYPE) + (size_t)_i};
    int status = run_job(&p);
    char *out = read_all("out"), *err = read_all("err"), *report = read_all("report");
    const char *wrong = wrong_with(status, out, err, report);
    ck_assert_msg(!wrong, "%s (status %x)", wrong, (unsigned)status);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(occurrences(err, "evil is there\n"), 300);
    ck_assert_uint_eq(occurrences(err, "hvdrun: warning: evil: 19700 lines of what it says were left out\n"),
                      1);
    ck_assert_uint_lt(strlen(report), 8192);
    free(out);
    free(err);
    free(report);
}
END_TEST

START_TEST(what_an_honest_host_says_late)
{
    struct evil p = {.stage = AGENT_ENDED, .body = hostile_bodies(CONTROL_TYPE) + LATE};
    int status = run_job(&p);
    char *err = read_all("err");
    ck_assert_msg(status == 0 && !*err, "status %x: %s", (unsigned)status, err);
    free(err);
}
END_TEST

/* Each of them would count as progress, for as long as the host likes. */
START_TEST(empty_frames_of_a_timeline_are_no_progress)
{
    struct evil p = {.stage = AGENT_TEARDOWN, .body = hostile_bodies(CONTROL_TYPE) + EMPTY_FRAMES};
    int status = run_job(&p);
    char *err = read_all("err");
    ck_assert_msg(WIFEXITED(status) && strstr(err, "evil") &&
                      strstr(err, "it sent bytes of a timeline that it has not told"),
                  "status %x: %s", (unsigned)status, err);
    free(err);
}
END_TEST

static void set_up(void)
{
    setenv("ASAN_OPTIONS", "exitcode=86:detect_leaks=1:handle_segv=1:handle_abort=1", 1);
    setenv("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1:exitcode=86", 1);
    ck_assert_ptr_nonnull(scratch_dir(directory, "hostile"));
}

static void tear_down(void)
{
    static const char *const names[] = {"out", "err", "report"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_directory(path, sizeof path, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--agent") == 0)
        return be_agent(argv[2], argv[3]);
    Suite *s = suite_create("hostile_hosts");
    TCase *t = tcase_create("hostile_hosts");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, every_message_has_a_row);
    tcase_add_loop_test(t, every_message, 0, AGENT_STAGES);
    tcase_add_loop_test(t, what_a_host_may_say, NOTICES, LINES + 1);
    suite_add_tcase(s, t);
    TCase *late = tcase_create("late");
    tcase_set_timeout(late, 60);
    tcase_add_checked_fixture(late, set_up, tear_down);
    tcase_add_test(late, what_an_honest_host_says_late);
    tcase_add_test(late, empty_frames_of_a_timeline_are_no_progress);
    suite_add_tcase(s, late);
    SRunner *r = srunner_create(s);
    printf("# HOSTILE_SEED=%lu\n", hostile_given_seed());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
