/* A session and a launcher that sends what it likes: every message of control.proto, in every state. The
 * session does not crash, ends when it is told to or hung up on, says of what it ignores one line, and leaves
 * nothing. HOSTILE_SEED and HOSTILE_TURNS make other messages and more of them. */
/* needs: hvdagent tests/unit/hostile.c tests/unit/fake_launcher.c */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/session/session.h"
#include "common/protocol/agent_exit.h"
#include "tests/unit/fake_launcher.h"
#include "tests/unit/hostile.h"
#include "tests/unit/scratch.h"

#define CONTROL_TYPE (&hvd__control__descriptor)
#define TURNS        5 /* messages of a kind to one session, each of them twice */
#define FINDING      86

enum stage { BEFORE_HELLO, READY, UNUSED, SPAWNING, RUNNING, DONE, ENDING, LEAVING, STAGES };
static const char *const stage_names[] = {"hello",   "ready", "unused", "spawning",
                                          "running", "done",  "ending", "leaving"};

static struct fake f;
static char mark[64];
static int said; /* the session's stderr */

static void spawn(enum stage stage)
{
    static const char *const patient[] = {"sh", "-c", "trap '' TERM; sleep 60", NULL};
    static const char *const lasting[] = {"sleep", "60", NULL}, *const quick[] = {"true", NULL};
    const char *env[] = {mark, NULL};
    struct fake_job job = {.argv = stage == ENDING ? patient
                                   : stage == DONE ? quick
                                                   : lasting,
                           .workers = 2,
                           .has_stdin = true,
                           .env = env};
    fake_spawn(&f, &job);
}

/* Told to end before it was given workers; what follows comes with it. */
static void queue_teardown(void)
{
    Hvd__Teardown t = HVD__TEARDOWN__INIT;
    CONTROL(m, TEARDOWN, teardown, &t);
    ck_assert_int_eq(channel_send(&f.channel, &m), 0);
}

/* Brings the session there. */
static void lead_to(enum stage stage)
{
    memset(mark, 0, sizeof mark);
    snprintf(mark, sizeof mark, "HVD_TEST_MARK=%d", (int)getpid());
    fake_start(&f, NULL);
    if (stage == BEFORE_HELLO)
        return;
    fake_hello(&f, HVD_VERSION, 10000, 1000);
    ck_assert(fake_wait(&f, &f.welcomed, 5000));
    if (stage == UNUSED)
        queue_teardown();
    if (stage >= SPAWNING)
        spawn(stage);
    for (int i = 0; i < 500 && stage >= RUNNING && f.spawned < 2; i++)
        (void)fake_wait(&f, NULL, 1);
    if (stage == DONE)
        ck_assert(fake_wait_exits(&f, 2, 5000));
    if (stage == ENDING)
        fake_teardown(&f, 60000);
    if (stage == LEAVING)
        fake_teardown(&f, 0);
    if (stage == LEAVING)
        ck_assert(fake_wait(&f, &f.ended, 8000));
}

static void attack(enum stage stage, const ProtobufCFieldDescriptor *body, size_t salt)
{
    struct hostile h;
    struct buf bytes;
    unsigned turns = hostile_turns(TURNS);
    hostile_seed(&h, hostile_given_seed(), stage * 1000 + salt);
    buf_init(&bytes, FRAME_PAYLOAD_MAX);
    for (unsigned turn = 0; turn < turns; turn++) {
        buf_consume(&bytes, bytes.len);
        hostile_body(&h, body, turn, &bytes);
        fake_say(&f, buf_data(&bytes), bytes.len);
        fake_say(&f, buf_data(&bytes), bytes.len);
    }
    buf_free(&bytes);
}

/* Ends it as a launcher does that has seen enough; returns its status as waitpid has it. */
static int leave(void)
{
    int status;
    fake_teardown(&f, 0);
    if (f.welcomed)
        (void)fake_wait(&f, &f.ended, 3000);
    fake_bye(&f);
    fake_hang_up(&f);
    status = fake_agent_status(&f, 15000);
    fake_free(&f);
    return status;
}

static size_t occurrences(const char *text, const char *word)
{
    size_t n = 0;
    while ((text = strstr(text, word)))
        n++, text++;
    return n;
}

/* NULL, or what is wrong. `legal`: there is a state in which it is heard. */
static const char *wrong_with(enum stage stage, int status, const char *text, bool legal)
{
    size_t ignored = occurrences(text, " was ignored: ");
    /* On a busy machine the launcher's end may be seen before what it has said. */
    bool unheard = stage == BEFORE_HELLO && strstr(text, "the channel to the launcher broke");
    if (status == -1)
        return "it did not end";
    if (!WIFEXITED(status) || WEXITSTATUS(status) >= AGENT_EXIT_SIGNAL ||
        WEXITSTATUS(status) == AGENT_EXIT_STUCK)
        return "the session or its guard was killed";
    if (WEXITSTATUS(status) == FINDING || strstr(text, "AddressSanitizer") || strstr(text, "runtime error"))
        return "a sanitizer has found something";
    if (ignored > 1)
        return "it complains more than once";
    if (!legal && !unheard && (ignored != 1 || WEXITSTATUS(status) != (stage == BEFORE_HELLO ? 125 : 0)))
        return "what no launcher sends was not ignored";
    if (!fake_count_becomes(mark, 0, 2000))
        return "workers are left";
    return fake_traces_become(0, 2000) ? NULL : "a directory or cgroup is left";
}

static bool is_known(unsigned body)
{
    for (size_t i = 0; i < session_legal.count; i++)
        if (session_legal.row[i].message == body)
            return true;
    return false;
}

static const char *read_said(void)
{
    static char text[1 << 20];
    ssize_t n = pread(said, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void check_session(enum stage stage, size_t which)
{
    const ProtobufCFieldDescriptor *body = hostile_nth(CONTROL_TYPE, which);
    ck_assert_int_eq(ftruncate(said, 0), 0);
    lead_to(stage);
    attack(stage, body, which);
    int status = leave();
    const char *text = read_said();
    const char *wrong = wrong_with(stage, status, text, is_known(body->id));
    if (wrong)
        printf("%s (status %x): %s in state %s, HOSTILE_SEED=%lu HOSTILE_TURNS=%u\n%.6000s\n", wrong,
               (unsigned)status, body->name, stage_names[stage], hostile_given_seed(), hostile_turns(TURNS),
               text);
    fflush(stdout);
    ck_assert(!wrong);
}

START_TEST(every_message)
{
    for (size_t i = 0; i < hostile_bodies(CONTROL_TYPE); i++)
        check_session((enum stage)_i, i);
}
END_TEST

/* Hosts that wait for each other's leases have both sent at once; what the Hello was refused for has the last
 * word. */
START_TEST(go_behind_a_refused_hello)
{
    fake_start(&f, NULL);
    fake_hello(&f, _i == 0 ? "0.0.0-other" : HVD_VERSION, _i == 0 ? 10000 : 1, 1000);
    fake_go(&f);
    (void)fake_wait(&f, &f.closed, 500);
    fake_hang_up(&f);
    int status = fake_agent_status(&f, 15000);
    fake_free(&f);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 125);
    ck_assert_msg(!strstr(read_said(), " was ignored: "), "%s", read_said());
}
END_TEST

/* Its files were refused: there are no hosts to which links could lead. */
START_TEST(links_without_a_spawn)
{
    Hvd__PreloadFile file = HVD__PRELOAD_FILE__INIT, *list = &file;
    Hvd__Preload preload = HVD__PRELOAD__INIT;
    Hvd__Links links = HVD__LINKS__INIT;
    lead_to(READY);
    file.name = (char *)(uintptr_t) "../file";
    preload.file = &list;
    preload.n_file = 1;
    CONTROL(files, PRELOAD, preload, &preload);
    ck_assert_int_eq(channel_send(&f.channel, &files), 0);
    ck_assert(fake_wait(&f, &f.refused, 5000));
    CONTROL(m, LINKS, links, &links);
    ck_assert_int_eq(channel_send(&f.channel, &m), 0);
    int status = leave();
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    ck_assert_uint_eq(occurrences(read_said(), " was ignored: "), 1);
}
END_TEST

static void set_up(void)
{
    char path[SCRATCH_MAX];
    setenv("ASAN_OPTIONS", "exitcode=86:detect_leaks=1:handle_segv=1:handle_abort=1", 1);
    setenv("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1:exitcode=86", 1);
    said = mkostemp(scratch_name(path, "hostile"), O_APPEND);
    ck_assert_int_ge(said, 0);
    unlink(path);
    dup2(said, STDERR_FILENO);
}

int main(void)
{
    Suite *s = suite_create("hostile_launcher");
    TCase *t = tcase_create("hostile_launcher");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_loop_test(t, every_message, 0, STAGES);
    suite_add_tcase(s, t);
    TCase *orders = tcase_create("orders");
    tcase_set_timeout(orders, 60);
    tcase_add_checked_fixture(orders, set_up, NULL);
    tcase_add_loop_test(orders, go_behind_a_refused_hello, 0, 2);
    tcase_add_test(orders, links_without_a_spawn);
    suite_add_tcase(s, orders);
    SRunner *r = srunner_create(s);
    printf("# HOSTILE_SEED=%lu\n", hostile_given_seed());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
