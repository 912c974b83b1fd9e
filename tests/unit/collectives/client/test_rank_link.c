/* Jobs of one rank on each of several hosts: small blocking operations over the ranks' own connections, all
 * that sends them back to the engines, and the ends of the connections.
 *
 * needs: hvd-engine client tests/unit/job.c */
#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/linked_ranks.h"

static const hvd_options will_wait = {.will_wait = 1};

/* ---- results ------------------------------------------------------------------------------------------- */

static int exchange_sums(const struct job *job, int rank)
{
    job_check(hvd_init() == HVD_SUCCESS);
    const size_t counts[] = {1,
                             3,
                             1000,
                             LINK_WHOLE_MAX / sizeof(float) + 1,
                             LINK_ROOT_MAX / sizeof(float),
                             link_bytes_max((uint32_t)job->hosts) / sizeof(float)};
    const hvd_options scaled = {.postscale = 3};
    char name[16];
    int n = job->hosts, products[] = {0, 2, 6, 24, 120}; /* of 2, 3, ... */
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        snprintf(name, sizeof name, "sum%zu", k);
        sum_often(name, counts[k]);
        job_check(was_carried(name));
    }
    for (int i = 0; i < OFTEN; i++) {
        double average = rank, least = rank - i;
        int32_t product = rank + 2;
        uint16_t half = rank == 0 ? 0x3c00 : 0x4000; /* 1 and 2 */
        static const uint16_t halves[] = {0, 0, 0x4200, 0x4500, 0x4700};
        job_check(hvd_allreduce("average", &average, &average, 1, HVD_FLOAT64, HVD_AVERAGE, &scaled) == 0);
        job_check(average == 1.5 * (n - 1));
        job_check(hvd_allreduce("least", &least, &least, 1, HVD_FLOAT64, HVD_MIN, NULL) == 0 && least == -i);
        job_check(hvd_allreduce("product", &product, &product, 1, HVD_INT32, HVD_PRODUCT, NULL) == 0);
        job_check(product == products[n]);
        job_check(hvd_allreduce("half", &half, &half, 1, HVD_FLOAT16, HVD_SUM, NULL) == 0);
        job_check(half == halves[n]);
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    }
    job_check(was_carried("average") && was_carried("least") && was_carried("product") &&
              was_carried("half"));
    job_check(count_connections() == n - 1);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(small_tensors_go_from_rank_to_rank, kinds[_i], exchange_sums)

/* The engines make the first result of a name, and the ranks the last one. */
static int compare_ways(const struct job *job, int rank)
{
    enum { BYTES = 48000 };
    static const hvd_dtype types[] = {HVD_FLOAT32, HVD_FLOAT64, HVD_FLOAT16, HVD_BFLOAT16};
    static const hvd_op ops[] = {HVD_SUM, HVD_AVERAGE, HVD_PRODUCT, HVD_MIN};
    static double in[BYTES / 8], out[BYTES / 8], first[BYTES / 8];
    const hvd_options scaled = {.postscale = 0.3};
    char name[16];
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < 32; k++) { /* the second half goes in parts, when there are more than two ranks */
        int type = k / 4 % 4;
        size_t bytes = k < 16 ? 4000 : BYTES, count = bytes / (type == 0 ? 4 : type == 1 ? 8 : 2);
        for (int i = 0; i < BYTES / 8; i++) { /* below 1 in each type, and of all signs and sizes */
            uint32_t x = (uint32_t)(i + 1) * 2654435761u * (uint32_t)(rank + 3);
            ((uint32_t *)in)[2 * i] = x & 0xbcffbcff, ((uint32_t *)in)[2 * i + 1] = ~x & 0xbcffbcff;
        }
        snprintf(name, sizeof name, "way%d", k);
        for (int i = 0; i < OFTEN; i++) {
            job_check(hvd_allreduce(name, in, out, count, types[type], ops[k % 4], &scaled) == HVD_SUCCESS);
            if (i == 0)
                memcpy(first, out, bytes);
        }
        job_check(was_carried(name) && memcmp(first, out, bytes) == 0);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(both_ways_give_the_same_bits, kinds[_i], compare_ways)

static int leave_link(const struct job *job, int rank)
{
    const hvd_options compressed = {.compression = HVD_COMPRESSION_FLOAT16}, twice = {.prescale = 2};
    float x = 1, from = (float)rank;
    hvd_handle handle;
    const float n = (float)job->hosts;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int way = 0; way < (job->hosts == 2 ? 5 : 4);
         way++) { /* 2 ranks leave a middle size to the engines */
        char name[16];
        snprintf(name, sizeof name, "way%d", way);
        sum_often(name, 2);
        x = 1, from = (float)rank;
        if (way == 0) { /* one rank alone does it so */
            job_check(rank == 0
                          ? hvd_allreduce_async(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL, &handle) == 0 &&
                                hvd_wait(handle) == HVD_SUCCESS
                          : hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
            job_check(x == n);
        } else if (way == 1) {
            job_check(hvd_broadcast(name, &from, 1, HVD_FLOAT32, 1, NULL) == HVD_SUCCESS && from == 1);
        } else if (way == 2) {
            job_check(hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, &compressed) == 0 && x == n);
        } else if (way == 3) {
            job_check(hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, &twice) == HVD_SUCCESS &&
                      x == 2 * n);
        } else {
            sum_once(name, LINK_BYTES_MAX / sizeof(float) + 1);
        }
        job_check(!was_carried(name));
        sum_often(name, 2);
        job_check(!was_carried(name));
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(other_operations_go_to_the_engines, kinds[_i], leave_link)

static int ask_differently(const struct job *job, int rank)
{
    static float x[LINK_BYTES_MAX], out[6];
    job_check(hvd_init() == HVD_SUCCESS);
    for (int turn = 0; turn < 5; turn++) {
        char name[16];
        int status;
        snprintf(name, sizeof name, "turn%d", turn);
        sum_often(name, 2);
        if (turn == 3 && rank == 1)
            status = hvd_allgather(name, x, 1, 1, HVD_FLOAT32, out, 2, NULL, NULL);
        else if ((turn == 2 && rank == 1) || (turn == 4 && rank != 1))
            status = hvd_allreduce(name, x, x, LINK_BYTES_MAX, HVD_FLOAT32, HVD_SUM, NULL);
        else
            status = hvd_allreduce(name, x, x, turn == 1 ? 2 : 2 + (size_t)(rank == 1), HVD_FLOAT32,
                                   turn == 1 && rank == 1 ? HVD_MAX : HVD_SUM, NULL);
        job_check(status == HVD_ERR_MISMATCH);
        job_check(strstr(hvd_last_error(), "rank 1 ") || (turn == 4 && job->hosts > 2));
        job_check(strstr(hvd_last_error(), job->hosts == 2 ? "rank 0 " : "rank "));
        sum_often(name, 2);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(ranks_that_disagree_hear_of_both, kinds[_i], ask_differently)

static int wait_short(const struct job *job, int rank)
{
    float x = 1;
    hvd_handle handle;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < OFTEN; i++) {
        x = 1;
        if (i == OFTEN - 1 && rank == 1)
            usleep(200000);
        job_check(hvd_allreduce_async("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, &will_wait, &handle) == 0);
        if (i == OFTEN - 1 && rank == 0)
            job_check(hvd_wait_for(handle, 20) == HVD_ERR_TIMEOUT);
        job_check(hvd_wait(handle) == HVD_SUCCESS && x == (float)job->hosts);
    }
    job_check(was_carried("x"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_wait_may_end_before_its_operation, kinds[_i], wait_short)

/* How many bytes have come from rank 2 to rank 1; an emulator may not know. */
static uint64_t count_bytes(void)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    int fd = next_connection(own_connection() + 1);
    job_check(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    return info.tcpi_bytes_received;
}

static int count_messages(const struct job *job, int rank)
{
    enum {
        MESSAGE = sizeof(struct link_message) + 2 * LINK_ALIGNED
    }; /* a name and elements that are short */
    bool by_root = job->processors == 1 && job->elsewhere == 0;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    uint64_t before = rank == 1 ? count_bytes() : 0, bytes;
    sum_often("x", 2);
    bytes = rank == 1 ? count_bytes() - before : 0;
    /* Each time; or when one of the two is the root: 2 of 3 times. */
    job_check(rank != 1 || is_emulated() || (bytes / MESSAGE < OFTEN * 5 / 6) == by_root);
    job_check(was_carried("x"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

/* One rank sums for all if the hosts are one machine that has fewer processors than hosts. */
START_TEST(ranks_that_share_processors_send_to_one)
{
    struct job job = job_of_kind(_i == 0 ? three : three_crowded, count_messages);
    job.elsewhere = _i == 2 ? 3 : 0;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

/* Some ranks have promised to wait, and may come back late. The others go the way with a root, if they are
 * crowded: each rank is the root of one name. */
static int mix_calls(const struct job *job, int rank)
{
    static const int promises[] = {1, 2, 4, 3, 5, 6}; /* a bit each rank */
    bool by_root = job->processors == 1;
    hvd_handle handle;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < 18; k++) {
        char name[16];
        float x = 1;
        snprintf(name, sizeof name, "x%d", k);
        for (int i = 0; i < (int)LINK_FIRST + k % 3; i++)
            sum_once(name, 2);
        if (promises[k / 3] & 1 << rank)
            job_check(hvd_allreduce_async(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, &will_wait, &handle) == 0 &&
                      hvd_wait(handle) == HVD_SUCCESS);
        else
            job_check(hvd_allreduce(name, &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(x == 3 && was_carried(name) == !by_root);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(ranks_may_block_or_promise_to_wait)
{
    run_way(_i == 0 ? three : three_crowded, mix_calls, 0);
}
END_TEST

/* ---- messages that a test sends ------------------------------------------------------------------------ */

struct raw {
    uint8_t bytes[2 * LINK_BYTES_MAX];
    size_t size;
};

/* The message that this rank would send when it begins the operation. */
static struct raw record_message(struct linked_name **linked, const struct link_operation *o, bool fits)
{
    struct raw raw;
    int fd = own_connection(), saved = dup(fd), pair[2];
    job_check(saved >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && dup2(pair[0], fd) == fd);
    job_check(rank_link_begin(linked, o, fits) == fits);
    ssize_t n = recv(pair[1], raw.bytes, sizeof raw.bytes, 0);
    job_check(n > 0 && dup2(saved, fd) == fd);
    raw.size = (size_t)n;
    close(saved);
    close(pair[0]);
    close(pair[1]);
    return raw;
}

static void send_raw(const struct raw *raw)
{
    job_check(send(own_connection(), raw->bytes, raw->size, 0) == (ssize_t)raw->size);
}

static int leave_while_sending(const struct job *job, int rank)
{
    static float x[LINK_BYTES_MAX / sizeof(float)];
    struct link_operation o = raw_operation("raw", x, sizeof x / sizeof *x);
    struct linked_name *linked = NULL;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    shrink_buffers(2048);
    if (rank == 1) {
        struct raw leaves = record_message(&linked, &o, false);
        usleep(100000); /* the other rank fills the buffers and waits for room */
        send_raw(&leaves);
        usleep(200000);
        rank_link_drain();
    } else {
        job_check(rank_link_begin(&linked, &o, true));
        job_check(step_until_decided(linked, &o) == LINK_TO_ENGINE);
    }
    sum_once("x", 2);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_name_may_leave_while_its_elements_are_sent, two, leave_while_sending)

static int repeat_elements(const struct job *job, int rank)
{
    float x[2] = {1, (float)rank};
    struct link_operation o = raw_operation("raw", x, 2);
    struct linked_name *linked = NULL;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (rank == 1) {
        struct raw elements = record_message(&linked, &o, true), twice = elements;
        memcpy(twice.bytes + elements.size, elements.bytes, elements.size);
        twice.size *= 2;
        usleep(50000); /* the other rank reads both at once */
        send_raw(&twice);
        send_raw(&elements);
    } else {
        job_check(rank_link_begin(&linked, &o, true));
        job_check(step_until_decided(linked, &o) == LINK_ENDED);
        usleep(50000);
        rank_link_drain();
        job_check(rank_link_step(linked, &o) == LINK_ENDED);
        job_check(x[0] == 2 && x[1] == 1);
    }
    sum_once("x", 2);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(elements_that_come_again_change_nothing, two, repeat_elements)

/* Rank 1 has all elements, and leaves: by name (way 0) or for all names. Those of rank 2 come to rank 0
 * later. Way 2: in parts, so rank 1 leaves before it has the results. */
static int leave_behind_elements(const struct job *job, int rank)
{
    static float x[LINK_WHOLE_MAX] = {1};
    int way = *(int *)job->ctx;
    uint32_t count = way == 2 ? LINK_WHOLE_MAX / sizeof(float) + 1 : 2;
    struct link_operation o = raw_operation("raw", x, count);
    struct linked_name *linked = NULL;
    struct raw late = {.size = 0};
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    x[count - 1] = (float)rank;
    usleep(rank == 1 ? 50000 : 0);
    if (rank == 2)
        late = record_message(&linked, &o, true); /* to rank 0, its first connection */
    else
        job_check(rank_link_begin(&linked, &o, true));
    usleep(rank == 1 ? 50000 : rank == 2 ? 1000000 : 200000);
    if (rank == 2)
        send_raw(&late);
    bool waits = rank == 0 || way == 2;
    enum link_step step = waits ? rank_link_step(linked, &o) : step_until_decided(linked, &o);
    job_check(step == (waits ? LINK_WAITS : LINK_ENDED) || rank == 2);
    if (rank == 1 && way > 0)
        rank_link_stop();
    o.sequence += rank == 1 && way == 0;
    if (rank == 1 && way == 0)
        job_check(!rank_link_begin(&linked, &o, false));
    job_check(step == LINK_ENDED || step_until_decided(linked, &o) == LINK_ENDED);
    job_check(x[0] == 3 && x[count - 1] == 3);
    sum_often("y", 2);
    job_check(was_carried("y") == (way == 0));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(elements_count_before_their_rank_leaves)
{
    run_way(three, leave_behind_elements, _i);
}
END_TEST

/* Rank 0 is the root, and has the elements of rank 1. Rank 1 stops before those of rank 2 come (way 0), or
 * before it reads the result (1). Or it leaves with the name (2), or asks for something else (3), and only
 * rank 0 hears of that. */
static int follow_the_root(const struct job *job, int rank)
{
    float x[3] = {1, 1, 1};
    int way = *(int *)job->ctx;
    bool fits = way != 2 || rank != 1;
    struct link_operation o = raw_operation("raw", x, way == 3 && rank == 1 ? 3 : 2);
    struct linked_name *linked = NULL;
    struct raw late = {.size = 0};
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (way == 0 && rank == 2)
        late = record_message(&linked, &o, true); /* to rank 0, its first connection */
    else
        job_check(rank_link_begin(&linked, &o, fits) == fits);
    usleep(way == 0 ? 200000 : way == 1 && rank == 1 ? 200000 : 0);
    if (rank == 1 && way < 2)
        rank_link_stop();
    usleep(way > 0 ? 0 : rank == 0 ? 100000 : 200000);
    if (way == 0 && rank == 0)
        rank_link_drain();
    if (way == 0 && rank == 2)
        send_raw(&late);
    job_check(!fits || step_until_decided(linked, &o) == (way == 1 ? LINK_ENDED : LINK_TO_ENGINE));
    job_check(x[0] == (way == 1 ? 3 : 1));
    sum_often("y", 2);
    job_check(was_carried("y") == (way > 1));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(the_rank_that_sums_decides_for_all)
{
    run_way(three_crowded, follow_the_root, _i);
}
END_TEST

/* ---- sockets that are full ----------------------------------------------------------------------------- */

enum { NAMES = 8, COUNT = LINK_BYTES_MAX / sizeof(float), MANY = 100 };
static float many[MANY][COUNT];

static const char *name_many(int k)
{
    static char name[16];
    snprintf(name, sizeof name, "many%d", k);
    return name;
}

static void begin_many(int names, hvd_handle *handle)
{
    for (int k = 0; k < names; k++) {
        many[k][COUNT - 1] = 1;
        job_check(hvd_allreduce_async(name_many(k), many[k], many[k], COUNT, HVD_FLOAT32, HVD_SUM, &will_wait,
                                      &handle[k]) == HVD_SUCCESS);
    }
}

static void wait_for_many(int names, const hvd_handle *handle, float sum)
{
    for (int k = 0; k < names; k++)
        job_check(hvd_wait(handle[k]) == HVD_SUCCESS && many[k][COUNT - 1] == sum);
}

static void broadcast_from_one(bool polls)
{
    float from = (float)client.rank;
    hvd_handle handle;
    job_check(hvd_broadcast_async("from", &from, 1, HVD_FLOAT32, 1, NULL, &handle) == HVD_SUCCESS);
    while (polls && hvd_poll(handle) == 0)
        usleep(100);
    job_check(hvd_wait(handle) == HVD_SUCCESS && from == 1);
}

/* Rank 1 cannot send more before rank 0 reads, and rank 0 waits for rank 1 elsewhere: for an operation, in
 * hvd_poll, in hvd_join. */
static int send_without_waiting(const struct job *job, int rank)
{
    int way = *(int *)job->ctx;
    hvd_handle handle[NAMES];
    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < NAMES; k++)
        sum_often(name_many(k), COUNT);
    shrink_buffers(64 << 10);
    if (rank == 1)
        begin_many(NAMES, handle);
    else
        usleep(100000); /* rank 1 sends meanwhile */
    if (way == 2)
        job_check(rank == 1 || hvd_join(NULL) == HVD_SUCCESS);
    else
        broadcast_from_one(rank == 0 && way == 1);
    if (rank == 0 && way != 2)
        begin_many(NAMES, handle);
    if (rank == 1 || way != 2)
        wait_for_many(NAMES, handle, way == 2 ? 1 : 2);
    for (int k = 0; k < NAMES && way != 2; k++)
        job_check(was_carried(name_many(k)));
    if (rank == 1 && way == 2)
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(a_rank_that_waits_elsewhere_lets_the_other_one_send)
{
    run_way(two, send_without_waiting, _i);
}
END_TEST

/* The last rank has not asked for its connections when the others fill them. */
static int send_to_a_newcomer(const struct job *job, int rank)
{
    static hvd_handle handle[MANY];
    bool is_last = rank == job->hosts - 1;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 1; i < (int)LINK_FIRST; i++) {
        begin_many(MANY, handle);
        wait_for_many(MANY, handle, (float)job->hosts);
    }
    if (!is_last)
        begin_many(MANY, handle);
    broadcast_from_one(false);
    if (is_last)
        begin_many(MANY, handle);
    wait_for_many(MANY, handle, (float)job->hosts);
    job_check(was_carried(name_many(0)) && was_carried(name_many(MANY - 1)));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_rank_that_comes_later_takes_what_was_sent, two, send_to_a_newcomer)

/* Parts would need a second step of each rank for both names. */
static int wait_in_any_order(const struct job *job, int rank)
{
    enum { PARTS = LINK_WHOLE_MAX / sizeof(float) + 1 };
    hvd_handle handle[2];
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int k = 0; k < 2; k++) {
        sum_often(name_many(k), PARTS);
        job_check(was_carried(name_many(k)));
    }
    for (int k = 0; k < 2; k++)
        job_check(hvd_allreduce_async(name_many(k), many[k], many[k], PARTS, HVD_FLOAT32, HVD_SUM, &will_wait,
                                      &handle[k]) == HVD_SUCCESS);
    for (int k = 0; k < 2; k++)
        job_check(hvd_wait(handle[(k + rank) % 2]) == HVD_SUCCESS);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(handles_are_waited_for_in_any_order, kinds[_i], wait_in_any_order)

/* ---- its end for all names ----------------------------------------------------------------------------- */

static int join_later(const struct job *job, int rank)
{
    float x = 1;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int epoch = 0; epoch < 2; epoch++) {
        sum_often("x", 2);
        for (int i = 0; rank == 0 && i < OFTEN; i++, x = 1)
            job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS && x == 1);
        usleep(rank == 1 ? 20000 : 0);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        sum_often("x", 2);
        sum_often("y", 2);
        job_check(!was_carried("x") && !was_carried("y"));
        job_check(hvd_shutdown() == HVD_SUCCESS && hvd_init() == HVD_SUCCESS);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

START_TEST(a_rank_that_joins_is_found_by_the_engines)
{
    struct job job = job_of_kind(kinds[_i], join_later);
    job_run(&job, JOB_SECONDS);
    ck_assert(job_succeeded(&job));
}
END_TEST

static int sum_by_engines(const struct job *job, int rank)
{
    (void)job, (void)rank;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    job_check(!was_carried("x") && count_connections() == 0);
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

/* As with an engine of release 0.1.0. */
START_TEST(an_engine_without_connections_is_met)
{
    struct job job = job_of_kind(kinds[_i], sum_by_engines);
    job.without_links = job.hosts;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}
END_TEST

static void stand_still(int number)
{
    (void)number;
    usleep(300000);
}

static void *sum_in_thread(void *name)
{
    sum_once(name, 2);
    return NULL;
}

/* A thread of rank 1 stands still in its wait: rank 1 joins before it sees the end of the operation. */
static int join_beside_a_wait(const struct job *job, int rank)
{
    float x = 1;
    pthread_t thread;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (rank == 1) {
        signal(SIGUSR1, stand_still);
        job_check(pthread_create(&thread, NULL, sum_in_thread, "x") == 0);
        usleep(50000);
        job_check(pthread_kill(thread, SIGUSR1) == 0);
        usleep(100000);
        job_check(hvd_join(NULL) == HVD_SUCCESS);
        pthread_join(thread, NULL);
    } else {
        usleep(100000);
        sum_once("x", 2);
        usleep(100000);
        job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
        job_check(x == (float)(job->hosts - 1));
        job_check(hvd_join(NULL) == HVD_SUCCESS);
    }
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_rank_may_join_beside_its_last_operation, kinds[_i], join_beside_a_wait)

static int forget_names(const struct job *job, int rank)
{
    char name[16];
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    for (int i = 0; i < 2 * OFTEN; i++) {
        sum_once("x", 2);
        snprintf(name, sizeof name, "%d", i);
        sum_once(name, 2);
        sum_once("later", 2);
        if (rank == 1 && i == OFTEN / 4)
            forget_idle();
    }
    job_check(!was_carried("x") && !was_carried("later"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(names_may_be_forgotten, kinds[_i], forget_names)

static void *barrier_in_thread(void *arg)
{
    for (int i = 0; i < OFTEN; i++)
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
    return arg;
}

static int stop_in_threads(const struct job *job, int rank)
{
    pthread_t thread;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    for (int turn = 0; turn < 20; turn++) {
        job_check(pthread_create(&thread, NULL, barrier_in_thread, NULL) == 0);
        sum_often("x", 2);
        if (turn == 7 && rank == 1)
            rank_link_stop();
        pthread_join(thread, NULL);
    }
    job_check(!was_carried("x"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(it_ends_while_another_thread_waits, kinds[_i], stop_in_threads)

/* Rank 0 hears of the end before it comes to what rank 1 waits for. */
static int stop_beside_a_wait(const struct job *job, int rank)
{
    pthread_t thread;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    barrier_in_thread(NULL);
    if (rank == 1) {
        job_check(pthread_create(&thread, NULL, sum_in_thread, "x") == 0);
        usleep(50000);
        rank_link_stop();
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
        pthread_join(thread, NULL);
    } else {
        usleep(100000);
        job_check(hvd_barrier(NULL) == HVD_SUCCESS);
        sum_once("x", 2);
    }
    job_check(!was_carried("x"));
    return hvd_shutdown() == HVD_SUCCESS ? 0 : 1;
}

SUCCEEDS(a_wait_that_is_left_goes_to_the_engines, kinds[_i], stop_beside_a_wait)

/* ---- failures ------------------------------------------------------------------------------------------ */

static const char *end_in_pieces; /* rank 1 writes this before its end */
static size_t pieces_size;
static bool lives_on;

static int end_in_between(const struct job *job, int rank)
{
    float x = 1;
    (void)job;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (rank == 1) {
        usleep(300000); /* the others have the results of the sums */
        for (int fd = next_connection(3); fd >= 0; fd = next_connection(fd + 1))
            job_check(send(fd, end_in_pieces, pieces_size, 0) == (ssize_t)pieces_size);
        while (lives_on && hvd_allreduce("z", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS)
            ;
        usleep(lives_on ? 300000 : 0); /* the others hear of the first reason */
        _exit(7);
    }
    uint64_t before = clock_now();
    job_check(hvd_allreduce("x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_PEER);
    job_check(clock_now() - before < 3 * NSEC_PER_SEC);
    if (lives_on)
        job_check(strstr(hvd_last_error(), "rank ") && strstr(hvd_last_error(), "something else"));
    else
        job_check(strstr(hvd_last_error(), "rank 1"));
    usleep(300000);
    hvd_shutdown();
    return 7;
}

static void must_end(struct kind kind, const char *pieces, size_t size, bool lives)
{
    end_in_pieces = pieces;
    pieces_size = size;
    lives_on = lives;
    struct job job = job_of_kind(kind, end_in_between);
    job_must_end(&job, 7);
}

START_TEST(a_rank_that_dies_in_a_message_is_named)
{
    static const char begin[] = "1lnk";
    must_end(kinds[_i], begin, 4, false);
}
END_TEST

START_TEST(what_is_no_message_ends_the_job)
{
    static char noise[4096];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 7919 >> 3);
    must_end(kinds[_i], noise, sizeof noise, true);
    memcpy(noise, "1lnk", 4); /* with the right first word */
    must_end(kinds[_i], noise, sizeof noise, true);
    memset(noise + 4, 0xff, 92);
    must_end(kinds[_i], noise, 96, true);
}
END_TEST

/* Rank 0 is stopped when it has begun an operation, and the others begin it later. Way 1: the engines have
 * the elements of rank 0, and rank 2 does not come. */
static int stop_in_an_operation(const struct job *job, int rank)
{
    int way = *(int *)job->ctx;
    float x = 1;
    job_check(hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (rank == 0)
        stop_soon();
    else
        usleep(way == 1 && rank == 2 ? 3000000 : 500000);
    job_check(hvd_allreduce(way == 1 ? "y" : "x", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL) == HVD_ERR_PEER);
    job_check(strstr(hvd_last_error(), way == 1 ? "it still waited for rank 2 on node3"
                                                : "it still waited for rank 0 on node1"));
    hvd_shutdown();
    return 3;
}

START_TEST(a_stopped_rank_is_what_the_others_wait_for)
{
    struct job job = job_of_kind(three_crowded, stop_in_an_operation);
    job.ctx = &_i;
    job.stall_ms = 1000;
    job_must_end(&job, 3);
}
END_TEST

START_TEST(a_lost_engine_ends_the_waits)
{
    lose_an_engine(kinds[_i], 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rank link");
    TCase *results = tcase_create("results"), *messages = tcase_create("messages"),
          *ends = tcase_create("ends"), *failures = tcase_create("failures");
    tcase_add_loop_test(results, small_tensors_go_from_rank_to_rank, 0, KINDS);
    tcase_add_loop_test(results, both_ways_give_the_same_bits, 0, KINDS);
    tcase_add_loop_test(results, an_engine_without_connections_is_met, 0, KINDS);
    tcase_add_loop_test(results, other_operations_go_to_the_engines, 0, KINDS);
    tcase_add_loop_test(results, ranks_that_disagree_hear_of_both, 0, KINDS);
    tcase_add_loop_test(results, ranks_that_share_processors_send_to_one, 0, 3);
    tcase_add_loop_test(results, ranks_may_block_or_promise_to_wait, 0, 2);
    tcase_add_loop_test(results, a_wait_may_end_before_its_operation, 0, KINDS);
    tcase_add_test(messages, a_name_may_leave_while_its_elements_are_sent);
    tcase_add_test(messages, elements_that_come_again_change_nothing);
    tcase_add_loop_test(messages, elements_count_before_their_rank_leaves, 0, 3);
    tcase_add_loop_test(messages, the_rank_that_sums_decides_for_all, 0, 4);
    tcase_add_loop_test(messages, a_rank_that_waits_elsewhere_lets_the_other_one_send, 0, 3);
    tcase_add_test(messages, a_rank_that_comes_later_takes_what_was_sent);
    tcase_add_loop_test(messages, handles_are_waited_for_in_any_order, 0, KINDS);
    tcase_add_loop_test(ends, a_rank_may_join_beside_its_last_operation, 0, KINDS);
    tcase_add_loop_test(ends, a_rank_that_joins_is_found_by_the_engines, 0, KINDS);
    tcase_add_loop_test(ends, names_may_be_forgotten, 0, KINDS);
    tcase_add_loop_test(ends, it_ends_while_another_thread_waits, 0, KINDS);
    tcase_add_loop_test(ends, a_wait_that_is_left_goes_to_the_engines, 0, KINDS);
    tcase_add_loop_test(failures, a_rank_that_dies_in_a_message_is_named, 0, KINDS);
    tcase_add_loop_test(failures, what_is_no_message_ends_the_job, 0, KINDS);
    tcase_add_loop_test(failures, a_stopped_rank_is_what_the_others_wait_for, 0, 2);
    tcase_add_loop_test(failures, a_lost_engine_ends_the_waits, 0, KINDS);
    TCase *all[] = {results, messages, ends, failures};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_set_timeout(all[i], 90);
        suite_add_tcase(suite, all[i]);
    }
    return run_suite(suite);
}
