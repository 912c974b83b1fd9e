/* The server that hvdctl asks, and clients that read late, or that have stopped to send. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/protocol/frame.h"
#include "common/status/status_server.h"
#include "tests/unit/run_test.h"
#include "tests/unit/scratch.h"

#define HOSTS 200 /* their statuses are more than a socket holds */
#define WORD  4000

static char directory[SCRATCH_MAX], word[WORD + 1];
static struct status_server server;
static uv_loop_t loop;

static bool on_refresh(void *ctx, enum status_depth depth)
{
    (void)ctx, (void)depth;
    return false;
}

static void on_status(void *ctx, struct status_client *to)
{
    char *argv[] = {word};
    (void)ctx;
    for (uint32_t i = 0; i < HOSTS; i++) {
        Hvd__JobStatus status = HVD__JOB_STATUS__INIT;
        status.host_index = i;
        status.n_argv = 1;
        status.argv = argv;
        status_server_tell(to, &status);
    }
}

static const struct status_server_events events = {
    .refresh_ms = {500, 500}, .refresh = on_refresh, .status = on_status};

static void start_server(void)
{
    struct status_address at;
    struct err e = ERR_INIT;
    memset(word, 'x', WORD);
    ck_assert_ptr_nonnull(scratch_dir(directory, "status"));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    status_server_init(&server);
    ck_assert_int_eq(status_address_in(&at, directory, &e), 0);
    ck_assert_int_eq(status_server_open(&server, &loop, &at, &events, NULL, &e), 0);
}

static void run_loop(void)
{
    for (int i = 0; i < 50; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void end_server(void)
{
    char path[SCRATCH_MAX + 16];
    status_server_close(&server);
    run_loop();
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    snprintf(path, sizeof path, "%s/" STATUS_SOCKET_NAME, directory);
    unlink(path);
    rmdir(directory);
}

static int ask_status(void)
{
    uint8_t bytes[FRAME_HEADER_SIZE + 64];
    struct status_address at;
    struct err e = ERR_INIT;
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    inquiry.kind = HVD__INQUIRY__KIND__STATUS;
    struct frame f = {.length = (uint32_t)hvd__inquiry__get_packed_size(&inquiry), .kind = FRAME_CONTROL};
    frame_encode_header(&f, bytes);
    hvd__inquiry__pack(&inquiry, bytes + FRAME_HEADER_SIZE);
    ck_assert_int_eq(status_address_in(&at, directory, &e), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at.un, at.size), 0);
    ck_assert_int_eq(send(fd, bytes, FRAME_HEADER_SIZE + f.length, 0), FRAME_HEADER_SIZE + f.length);
    run_loop();
    return fd;
}

START_TEST(a_slow_reader_gets_all)
{
    static char bytes[64 << 10];
    size_t got = 0;
    start_server();
    int fd = ask_status();
    ck_assert_ptr_nonnull(server.first);
    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0; run_loop())
        got += (size_t)n;
    ck_assert_uint_gt(got, (size_t)HOSTS * WORD);
    ck_assert_ptr_null(server.first);
    close(fd);
    end_server();
}
END_TEST

START_TEST(a_client_that_ends_its_side_is_dropped)
{
    start_server();
    int fd = ask_status();
    ck_assert_ptr_nonnull(server.first);
    shutdown(fd, SHUT_WR);
    run_loop();
    ck_assert_ptr_null(server.first);
    close(fd);
    end_server();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status_server");
    TCase *tc = tcase_create("status_server");
    tcase_add_test(tc, a_slow_reader_gets_all);
    tcase_add_test(tc, a_client_that_ends_its_side_is_dropped);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
