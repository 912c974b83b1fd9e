/* The servers beside a launcher's session, and a peer that sends what it likes: the engine and the PMIx
 * server (there the session would have to be hostile), the sessions of other hosts (tree.h) and clients
 * that inquire (status_server.h). Nobody crashes or leaks. HOSTILE_SEED and HOSTILE_TURNS make other
 * messages and more of them. */
/* needs: auth hvd-engine hvd-pmix tests/unit/hostile.c */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/tree/tree.h"
#include "common/status/status_server.h"
#include "agent/guard/job_dir.h"
#include "common/process/module.h"
#include "tests/unit/hostile.h"
#include "tests/unit/scratch.h"

#define TURNS   5
#define TIME_MS 15000
#define FINDING 86

static char directory[SCRATCH_MAX];

/* ---- a server ------------------------------------------------------------------------------------------ */

struct server {
    pid_t pid;
    int fd;
    uint32_t sent; /* frames */
};

static void start_server(struct server *s, const char *program)
{
    char path[4096];
    int pair[2];
    ck_assert_int_eq(module_path(program, path, sizeof path, NULL), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *s = (struct server){.fd = pair[0], .pid = fork()};
    if (s->pid == 0) {
        dup2(pair[1], 3);
        execl(path, path, (char *)NULL);
        _exit(98);
    }
    close(pair[1]);
}

/* As far as it reads them: one that has found the message bad ends. */
static void send_bytes(struct server *s, const struct buf *b, int passed)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {(void *)(uintptr_t)buf_data(b), b->len};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof passed)};
        memcpy(CMSG_DATA(c), &passed, sizeof passed);
    }
    while (part.iov_len > 0) {
        ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        part.iov_base = (char *)part.iov_base + n;
        part.iov_len -= (size_t)n;
        m.msg_control = NULL;
        m.msg_controllen = 0;
    }
}

/* Hangs up on it: it ends by itself, and well enough. */
static void end_server(struct server *s, const char *what, int stage)
{
    int status;
    char bytes[4096];
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, s->pid, 0), .events = POLLIN};
    shutdown(s->fd, SHUT_WR);
    while (recv(s->fd, bytes, sizeof bytes, 0) > 0)
        ;
    close(s->fd);
    bool in_time = poll(&ended, 1, TIME_MS) > 0;
    if (!in_time)
        kill(s->pid, SIGKILL);
    ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
    close(ended.fd);
    ck_assert_msg(in_time && WIFEXITED(status) && WEXITSTATUS(status) < FINDING,
                  "after %s, stage %d: status %x; HOSTILE_SEED=%lu", what, stage, (unsigned)status,
                  hostile_given_seed());
}

static void hosts_of(Hvd__HostRanks *host, Hvd__HostRanks **list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        hvd__host_ranks__init(list[i] = &host[i]);
        host[i].name = (char *)(uintptr_t)(i ? "b" : "a");
        host[i].first_rank = 2 * i;
        host[i].ranks = 2;
    }
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

static void put_frame(struct server *s, struct buf *out, const void *message, size_t len)
{
    struct frame f = {.kind = FRAME_CONTROL, .length = (uint32_t)len, .sequence = s->sent++};
    uint8_t header[FRAME_HEADER_SIZE];
    frame_encode_header(&f, header);
    (void)buf_put(out, header, sizeof header);
    (void)buf_put(out, message, len);
}

static void configure_engine(struct server *s, uint32_t hosts)
{
    static uint8_t key[32], token[16];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    Hvd__Engine m = HVD__ENGINE__INIT;
    Hvd__EngineConfig c = HVD__ENGINE_CONFIG__INIT;
    Hvd__HostRanks host[2], *list[2];
    char *address[] = {(char *)(uintptr_t) "127.0.0.1"};
    uint8_t bytes[1024];
    struct buf b;
    hosts_of(host, list, hosts);
    c.job = (char *)(uintptr_t) "test";
    c.key = (ProtobufCBinaryData){sizeof key, key};
    c.token = (ProtobufCBinaryData){sizeof token, token};
    c.size = 2 * hosts;
    c.host = list;
    c.n_host = hosts;
    c.address = address;
    c.n_address = 1;
    c.heartbeat_ms = 3000;
    c.log_level = 5;
    m.body_case = HVD__ENGINE__BODY_CONFIG;
    m.config = &c;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    buf_init(&b, 1u << 20);
    put_frame(s, &b, bytes, hvd__engine__pack(&m, bytes));
    send_bytes(s, &b, listener);
    close(listener);
    buf_free(&b);
}

/* Stage 0: at once; 1 and 2: configured, for as many hosts. */
START_TEST(an_engine)
{
    for (size_t i = 0; i < hostile_bodies(&hvd__engine__descriptor); i++) {
        const ProtobufCFieldDescriptor *body = hostile_nth(&hvd__engine__descriptor, i);
        for (unsigned turn = 0; turn < hostile_turns(TURNS); turn++) {
            struct server s;
            struct hostile h;
            struct buf b, message;
            hostile_seed(&h, hostile_given_seed(), (uint64_t)_i * 10000 + i * 100 + turn);
            buf_init(&b, FRAME_PAYLOAD_MAX);
            buf_init(&message, FRAME_PAYLOAD_MAX);
            start_server(&s, "hvd-engine");
            if (_i > 0)
                configure_engine(&s, (uint32_t)_i);
            hostile_body(&h, body, turn, &message);
            put_frame(&s, &b, buf_data(&message), message.len);
            put_frame(&s, &b, buf_data(&message), message.len);
            send_bytes(&s, &b, -1);
            buf_free(&b);
            buf_free(&message);
            end_server(&s, body->name, _i);
        }
    }
}
END_TEST

/* ---- the PMIx server ----------------------------------------------------------------------------------- */

static void put_relayed(struct buf *out, const void *message, size_t len)
{
    uint8_t header[4];
    put_u32(header, (uint32_t)len);
    (void)buf_put(out, header, sizeof header);
    (void)buf_put(out, message, len);
}

static void configure_pmix(struct server *s, bool well)
{
    Hvd__Pmix m = HVD__PMIX__INIT;
    Hvd__PmixConfig c = HVD__PMIX_CONFIG__INIT;
    Hvd__Spawn spawn = HVD__SPAWN__INIT;
    Hvd__HostRanks host[2], *list[2];
    Hvd__Worker worker[2], *workers[2];
    uint8_t bytes[2048], answer[4096];
    char path[200];
    struct buf b;
    hosts_of(host, list, 2);
    for (uint32_t i = 0; i < 2; i++) {
        hvd__worker__init(workers[i] = &worker[i]);
        worker[i].rank = worker[i].local_rank = i;
        worker[i].cross_size = 2;
    }
    spawn.size = spawn.universe = 4;
    spawn.host = list;
    spawn.worker = workers;
    spawn.n_host = spawn.n_worker = 2;
    spawn.namespace_ = (char *)(uintptr_t) "hvd-test";
    c.spawn = &spawn;
    c.job = (char *)(uintptr_t) "test";
    c.host = (char *)(uintptr_t) "a";
    c.directory = directory;
    c.log_level = 5;
    c.ping_ms = 1000;
    m.kind = HVD__PMIX__KIND__CONFIG;
    m.config = &c;
    snprintf(path, sizeof path, "%s/pmix", directory);
    if (well)
        (void)mkdir(path, 0700);
    buf_init(&b, 1u << 20);
    put_relayed(&b, bytes, hvd__pmix__pack(&m, bytes));
    send_bytes(s, &b, -1);
    buf_free(&b);
    ck_assert_int_gt(recv(s->fd, answer, sizeof answer, 0), 0); /* it has started, or says why not */
}

/* A Pmix of that kind, whatever its fields are. */
static void put_kind(struct hostile *h, int kind, struct buf *out)
{
    uint8_t last[2] = {1 << 3, (uint8_t)kind};
    struct buf message;
    buf_init(&message, FRAME_PAYLOAD_MAX);
    hostile_message(h, &hvd__pmix__descriptor, &message);
    (void)buf_put(&message, last, sizeof last);
    put_relayed(out, buf_data(&message), message.len);
    buf_free(&message);
}

/* Stage 0: at once; 1: it could not start, without its directory; 2: it serves. */
START_TEST(a_pmix_server)
{
    char path[4096];
    struct err none = ERR_INIT;
    const ProtobufCEnumDescriptor *kinds = &hvd__pmix__kind__descriptor;
    if (module_path("hvd-pmix", path, sizeof path, &none) < 0)
        return; /* built without it */
    for (unsigned i = 0; i < kinds->n_values; i++) {
        struct server s;
        struct hostile h;
        struct buf b;
        hostile_seed(&h, hostile_given_seed(), (uint64_t)_i * 10000 + i);
        buf_init(&b, 256u << 20);
        start_server(&s, "hvd-pmix");
        if (_i > 0)
            configure_pmix(&s, _i == 2);
        for (unsigned turn = 0; turn < hostile_turns(TURNS); turn++)
            put_kind(&h, kinds->values[i].value, &b);
        send_bytes(&s, &b, -1);
        buf_free(&b);
        end_server(&s, kinds->values[i].name, _i);
    }
}
END_TEST

/* ---- other hosts --------------------------------------------------------------------------------------- */

#define HOSTS 8

static void on_send(void *ctx, uint32_t neighbour, uint8_t *bytes, size_t len)
{
    (void)ctx, (void)len;
    ck_assert_uint_lt(neighbour, HOSTS);
    free(bytes);
}

static void on_request(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    tree_answer(ctx, TREE_PMIX, from, ticket, NULL, data, len);
}

static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    (void)ctx, (void)data, (void)len;
    ck_assert_uint_lt(from, HOSTS);
}

static void on_done(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    (void)ctx, (void)why, (void)data, (void)len;
}

static const struct tree_events tree_events = {on_send, NULL, NULL};
static const struct tree_handler tree_handler = {on_request, on_broadcast};

static struct tree *new_tree(uint32_t self)
{
    static const uint32_t all[HOSTS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct tree *x = tree_new(self, HOSTS, &tree_events, NULL);
    ck_assert_ptr_nonnull(x);
    tree_serve(x, TREE_PMIX, &tree_handler, x);
    (void)tree_gather(x, TREE_PMIX, "a", 1, all, HOSTS, "blob", 4, on_done, NULL);
    (void)tree_gather(x, TREE_PMIX, "", 0, all, HOSTS, "", 0, on_done, NULL);
    (void)tree_request(x, TREE_PMIX, self == 1 ? 0 : 1, "ask", 3, on_done, NULL);
    return x;
}

/* A message that hangs together but for one thing or the other, of a gather that there is. */
static void put_likely(struct hostile *h, struct buf *out)
{
    Hvd__Exchange m = HVD__EXCHANGE__INIT;
    Hvd__ExchangePart part[6], *parts[6];
    uint32_t all[HOSTS + 2];
    uint8_t bytes[1024];
    for (uint32_t i = 0; i < HOSTS + 2; i++)
        all[i] = hostile_random(h) % 40 ? i : (uint32_t)hostile_random(h);
    m.kind = (Hvd__Exchange__Kind)(1 + hostile_random(h) % 6);
    m.service = hostile_random(h) % 20 == 0;
    m.origin = (uint32_t)(hostile_random(h) % (HOSTS + 1));
    m.target = (uint32_t)(hostile_random(h) % (HOSTS + 1));
    m.ticket = hostile_random(h) % 4;
    m.id = (ProtobufCBinaryData){hostile_random(h) % 2, (uint8_t *)(uintptr_t) "a"};
    m.round = hostile_random(h) % 8 == 0;
    m.host = all;
    m.n_host = hostile_random(h) % 10 ? HOSTS : hostile_random(h) % (HOSTS + 2);
    m.code = m.kind == HVD__EXCHANGE__KIND__CANCEL ? 1 + hostile_random(h) % 99 : 0;
    m.n_part = hostile_random(h) % 6;
    m.part = parts;
    for (size_t i = 0; i < m.n_part; i++) {
        hvd__exchange_part__init(parts[i] = &part[i]);
        part[i].host = (uint32_t)(hostile_random(h) % (HOSTS + 1));
    }
    (void)buf_put(out, bytes, hvd__exchange__pack(&m, bytes));
}

START_TEST(other_hosts)
{
    uint32_t self = (uint32_t)_i;
    struct tree *x = new_tree(self);
    struct hostile h;
    hostile_seed(&h, hostile_given_seed(), self);
    for (unsigned turn = 0; turn < 400 * hostile_turns(TURNS); turn++) {
        uint32_t neighbour = (uint32_t)(hostile_random(&h) % HOSTS);
        struct err e = ERR_INIT;
        struct buf b;
        if (!tree_is_neighbour(self, neighbour))
            continue;
        buf_init(&b, FRAME_PAYLOAD_MAX);
        if (turn % 2)
            put_likely(&h, &b);
        else
            hostile_message(&h, &hvd__exchange__descriptor, &b);
        int rc = tree_received(x, neighbour, buf_data(&b), b.len, &e);
        buf_free(&b);
        if (rc == 0)
            continue;
        tree_break(x, &e);
        tree_free(x);
        x = new_tree(self);
    }
    tree_free(x);
}
END_TEST

/* ---- inquiries ----------------------------------------------------------------------------------------- */

static bool on_refresh(void *ctx, enum status_depth depth)
{
    (void)depth;
    (void)ctx;
    return false;
}

static void on_status(void *ctx, struct status_client *to)
{
    Hvd__JobStatus status = HVD__JOB_STATUS__INIT;
    (void)ctx;
    status_server_tell(to, &status);
}

static const char *on_resize(void *ctx, uid_t uid, uint32_t ranks)
{
    (void)ctx;
    return ranks % 2 ? "not that many" : NULL;
}

static const char *on_leave(void *ctx, uid_t uid, const char *reason)
{
    (void)ctx;
    return *reason ? reason : NULL;
}

static void on_end(void *ctx, uid_t uid)
{
    (void)ctx, (void)uid;
}

static int connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void inquire(struct hostile *h, uv_loop_t *loop)
{
    struct server s = {.fd = connect_to(STATUS_SOCKET_NAME)};
    struct buf b, message;
    char bytes[4096];
    buf_init(&b, 1u << 20);
    buf_init(&message, 1u << 20);
    hostile_message(h, &hvd__inquiry__descriptor, &message);
    put_frame(&s, &b, buf_data(&message), message.len);
    put_frame(&s, &b, buf_data(&message), message.len);
    send_bytes(&s, &b, -1);
    for (int i = 0; i < 6; i++)
        uv_run(loop, UV_RUN_NOWAIT);
    (void)recv(s.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    close(s.fd);
    for (int i = 0; i < 6; i++)
        uv_run(loop, UV_RUN_NOWAIT);
    buf_free(&b);
    buf_free(&message);
}

START_TEST(inquiries)
{
    static const struct status_server_events events = {{500, 500}, on_refresh, on_status, on_resize,
                                                       on_leave,   NULL,       on_end};
    static struct status_server q;
    struct status_address at;
    struct hostile h;
    struct err e = ERR_INIT;
    uv_loop_t loop;
    uv_loop_init(&loop);
    status_server_init(&q);
    ck_assert_int_eq(status_address_in(&at, directory, &e), 0);
    ck_assert_int_eq(status_server_open(&q, &loop, &at, &events, NULL, &e), 0);
    hostile_seed(&h, hostile_given_seed(), 0);
    for (unsigned turn = 0; turn < 40 * hostile_turns(TURNS); turn++)
        inquire(&h, &loop);
    status_server_close(&q);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
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
    (void)remove_tree(AT_FDCWD, directory, 8);
}

int main(void)
{
    Suite *s = suite_create("hostile_servers");
    TCase *t = tcase_create("hostile_servers");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, an_engine, 0, 3);
    tcase_add_loop_test(t, a_pmix_server, 0, 3);
    tcase_add_loop_test(t, other_hosts, 0, HOSTS);
    tcase_add_test(t, inquiries);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    printf("# HOSTILE_SEED=%lu\n", hostile_given_seed());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
