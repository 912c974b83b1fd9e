/* A session and an engine or PMIx server that sends what it likes: a process that its clients have brought
 * out of its senses. The session's side of it does not crash or leak. HOSTILE_SEED and HOSTILE_TURNS make
 * other messages and more of them.
 *
 * The servers are this program under their names, in a directory of its own, where module_path finds them. */
/* needs: agent tests/unit/hostile.c */
#include <check.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/session/engine_host.h"
#include "agent/tree/tree.h"
#include "agent/guard/job_dir.h"
#include "agent/rendezvous/pmix_client/pmix_host.h"
#include "common/base/clock.h"
#include "common/protocol/frame.h"
#include "common/base/log.h"
#include "common/process/module.h"
#include "common/base/file.h"
#include "tests/unit/hostile.h"
#include "tests/unit/scratch.h"

#define TURNS   6
#define TIME_MS 10000

extern char **environ;

/* ---- the servers --------------------------------------------------------------------------------------- */

static void put_frame(struct buf *out, const struct buf *message, uint32_t sequence)
{
    struct frame f = {.kind = FRAME_CONTROL, .length = (uint32_t)message->len, .sequence = sequence};
    uint8_t header[FRAME_HEADER_SIZE];
    frame_encode_header(&f, header);
    (void)buf_put(out, header, sizeof header);
    (void)buf_put(out, buf_data(message), message->len);
}

static void put_relayed(struct buf *out, const struct buf *message)
{
    uint8_t header[4];
    put_u32(header, (uint32_t)message->len);
    (void)buf_put(out, header, sizeof header);
    (void)buf_put(out, buf_data(message), message->len);
}

static void say_started(struct buf *out)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    uint8_t bytes[64];
    struct buf message;
    m.kind = HVD__PMIX__KIND__STARTED;
    m.number = 1;
    buf_init(&message, sizeof bytes);
    (void)buf_put(&message, bytes, hvd__pmix__pack(&m, bytes));
    put_relayed(out, &message);
    buf_free(&message);
}

static void fill_pmix(struct hostile *h, size_t which, struct buf *out)
{
    uint8_t kind[2] = {1 << 3, (uint8_t)hvd__pmix__kind__descriptor.values[which].value};
    struct buf message;
    buf_init(&message, FRAME_PAYLOAD_MAX);
    hostile_message(h, &hvd__pmix__descriptor, &message);
    (void)buf_put(&message, kind, sizeof kind); /* the last one counts */
    put_relayed(out, &message);
    buf_free(&message);
}

/* HOSTILE_PLAN: which message, after a good beginning or not. */
static int be_server(bool pmix)
{
    size_t which = 0;
    unsigned begun = 0;
    struct hostile h;
    struct buf out, message;
    char bytes[4096];
    if (sscanf(getenv("HOSTILE_PLAN"), "%zu %u", &which, &begun) != 2)
        return 1;
    hostile_seed(&h, hostile_given_seed(), which * 2 + begun);
    buf_init(&out, 256u << 20);
    if (pmix && begun)
        say_started(&out);
    for (unsigned turn = 0; turn < hostile_turns(TURNS); turn++) {
        if (pmix) {
            fill_pmix(&h, which, &out);
            continue;
        }
        buf_init(&message, FRAME_PAYLOAD_MAX);
        hostile_body(&h, hostile_nth(&hvd__engine__descriptor, which), turn, &message);
        put_frame(&out, &message, 2 * turn);
        put_frame(&out, &message, 2 * turn + 1);
        buf_free(&message);
    }
    (void)write_all(3, buf_data(&out), out.len);
    buf_free(&out);
    shutdown(3, SHUT_WR);
    while (recv(3, bytes, sizeof bytes, 0) > 0)
        ;
    return 0;
}

/* ---- the session's side -------------------------------------------------------------------------------- */

static char directory[4200];
static uv_loop_t loop;
static unsigned warnings;

static void on_line(const char *bytes, size_t len)
{
    (void)bytes, (void)len;
    warnings++;
}

static void take_number(void *ctx, uint32_t number)
{
    (void)ctx, (void)number;
}

static void take_link(void *ctx, Hvd__Link *link)
{
    (void)ctx, (void)link;
}

static void take_notice(void *ctx, uint32_t level, const char *text)
{
    (void)ctx, (void)level;
    ck_assert_ptr_nonnull(text);
}

static void take_engine_notice(void *ctx, uint32_t level, const char *text, bool stall)
{
    (void)stall;
    take_notice(ctx, level, text);
}

static void take_said(void *ctx, uint32_t rank, bool to_stdout, const char *text, size_t len)
{
    unsigned sum = 0;
    (void)ctx, (void)rank, (void)to_stdout;
    ck_assert_uint_le(len, RENDEZVOUS_SAID_MAX);
    for (size_t i = 0; i < len; i++) /* all of it is there */
        sum += (unsigned char)text[i];
    ck_assert_uint_le(sum, len * 255);
}

static void take_abort(void *ctx, uint32_t rank, uint32_t status, const char *text, uint64_t time)
{
    (void)ctx, (void)rank, (void)status, (void)time;
    ck_assert_ptr_nonnull(text);
}

static void take_signal(void *ctx, uint32_t rank, int number)
{
    (void)ctx, (void)rank, (void)number;
}

static void take_text(void *ctx, const char *text)
{
    (void)ctx;
    ck_assert_ptr_nonnull(text);
}

static void take_rank(void *ctx, Hvd__EngineRank *rank)
{
    (void)ctx;
    ck_assert_ptr_nonnull(rank->why);
}

static void take_fault(void *ctx, Hvd__Fault *fault)
{
    take_text(ctx, fault->text);
}

static void take_host(void *ctx, Hvd__Unreachable *host)
{
    (void)ctx;
    ck_assert_ptr_nonnull(host->text);
}

static void take_counters(void *ctx, const Hvd__Counters *counters)
{
    (void)ctx;
    ck_assert_ptr_nonnull(counters);
}

static void take_start(void *ctx, const struct err *why, uint16_t port, char *const *environment,
                       size_t count)
{
    (void)ctx, (void)environment, (void)count;
    ck_assert(why || port > 0);
}

static void drop_message(void *ctx, uint32_t neighbour, uint8_t *bytes, size_t len)
{
    (void)ctx, (void)len;
    ck_assert_uint_eq(neighbour, 1);
    free(bytes);
}

/* The loop runs until the server's end of the socket was seen. */
static void run_until(const int *state, int ended)
{
    uint64_t end = clock_now() + TIME_MS * NSEC_PER_MSEC;
    while (*state != ended && clock_now() < end)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(*state, ended);
}

static void close_loop(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_uint_le(warnings, 1);
}

static void plan(size_t which, int begun)
{
    char text[64];
    snprintf(text, sizeof text, "%zu %d", which, begun);
    setenv("HOSTILE_PLAN", text, 1);
    warnings = 0;
    uv_loop_init(&loop);
}

static void check_pmix(size_t which, int begun)
{
    static const struct rendezvous_events events = {take_notice, take_abort, take_signal, take_said,
                                                    take_text};
    static const struct pmix_host_events host_events = {take_start, take_text};
    static const struct tree_events tree_events = {drop_message, NULL, NULL};
    Hvd__Spawn spawn = HVD__SPAWN__INIT;
    Hvd__HostRanks host[2] = {HVD__HOST_RANKS__INIT, HVD__HOST_RANKS__INIT}, *list[2] = {&host[0], &host[1]};
    char *end[4] = {NULL};
    struct pmix_host h = {0};
    struct err e = ERR_INIT;
    plan(which, begun);
    spawn.host = list;
    spawn.n_host = 2;
    spawn.size = 4;
    struct rendezvous r = {.loop = &loop,
                           .spawn = &spawn,
                           .job = "test",
                           .host = "a",
                           .directory = directory,
                           .tree = tree_new(0, 2, &tree_events, NULL),
                           .pmix = &h,
                           .cgroup_fd = -1,
                           .silence_ms = TIME_MS,
                           .events = &events,
                           .end = end};
    ck_assert_msg(pmix_host_start(&h, &r, false, &host_events, NULL, &e) == 0, "%s", e.text);
    run_until((int *)&h.state, PMIX_HOST_ENDED);
    ck_assert_int_eq(waitpid(h.child.pid, NULL, 0), h.child.pid);
    (void)pmix_host_reaped(&h, h.child.pid, 0, 0);
    pmix_host_end(&h);
    tree_free(r.tree);
    pmix_host_close(&h);
    close_loop();
}

START_TEST(a_pmix_server)
{
    for (size_t i = 0; i < hvd__pmix__kind__descriptor.n_values; i++)
        check_pmix(i, _i);
}
END_TEST

static void check_engine(size_t which)
{
    static const struct engine_host_events events = {.link = take_link,
                                                     .initialized = take_rank,
                                                     .shut_down = take_number,
                                                     .poisoned = take_notice,
                                                     .notice = take_engine_notice,
                                                     .fault = take_fault,
                                                     .failed = take_text,
                                                     .counters = take_counters,
                                                     .waits = take_rank,
                                                     .stage = take_rank,
                                                     .unreachable = take_host};
    char place_of_socket[SCRATCH_MAX]; /* short, for its name */
    struct engine_place place = {place_of_socket, environ, -1, -1, TIME_MS};
    Hvd__EngineConfig config = HVD__ENGINE_CONFIG__INIT;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct engine_host h = {0};
    struct err e = ERR_INIT;
    int worker = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    plan(which, 0);
    ck_assert_ptr_nonnull(scratch_dir(place_of_socket, "hostile"));
    ck_assert_msg(engine_host_listen(&h, &loop, &events, NULL, &place, &config, &e) == 0, "%s", e.text);
    snprintf(name.sun_path, sizeof name.sun_path, "%s/%s", place_of_socket, ENGINE_SOCKET_NAME);
    ck_assert_int_eq(connect(worker, (struct sockaddr *)&name, sizeof name), 0);
    run_until((int *)&h.state, ENGINE_ENDED);
    ck_assert_int_eq(waitpid(h.child.pid, NULL, 0), h.child.pid);
    (void)engine_host_reaped(&h, h.child.pid, 0, 0);
    engine_host_close(&h);
    close(worker);
    unlink(name.sun_path);
    rmdir(place_of_socket);
    close_loop();
}

START_TEST(an_engine)
{
    for (size_t i = 0; i < hostile_bodies(&hvd__engine__descriptor); i++)
        check_engine(i);
}
END_TEST

/* ---- the program --------------------------------------------------------------------------------------- */

/* Makes the directory and goes on as the program that lies there. */
static int move_there(char **argv)
{
    static const char *const names[] = {"test", "hvd-pmix", "hvd-engine"};
    char path[4300];
    if (module_program_dir(path, sizeof path - 32, NULL) < 0)
        return 1;
    snprintf(directory, sizeof directory, "%.4000s/hostile-XXXXXX", path);
    if (!mkdtemp(directory))
        return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (linkat(AT_FDCWD, "/proc/self/exe", AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0)
            return 1;
    }
    setenv("HOSTILE_DIRECTORY", directory, 1);
    snprintf(path, sizeof path, "%s/test", directory);
    return execv(path, argv);
}

static int run_tests(void)
{
    Suite *s = suite_create("hostile_children");
    TCase *t = tcase_create("hostile_children");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_pmix_server, 0, 2);
    tcase_add_test(t, an_engine);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    printf("# HOSTILE_SEED=%lu\n", hostile_given_seed());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

int main(int argc, char **argv)
{
    const char *name = basename(argv[0]), *there = getenv("HOSTILE_DIRECTORY");
    (void)argc;
    if (strcmp(name, "hvd-pmix") == 0 || strcmp(name, "hvd-engine") == 0)
        return be_server(strcmp(name, "hvd-pmix") == 0);
    if (!there)
        return move_there(argv);
    snprintf(directory, sizeof directory, "%s", there);
    log_to(on_line);
    int rc = run_tests();
    (void)remove_tree(AT_FDCWD, directory, 2);
    return rc;
}
