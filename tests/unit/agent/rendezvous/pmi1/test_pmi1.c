/* PMI-1's lines, records and store; and the barrier of two hosts in one process, with messages between them
 * delivered when the test says so. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/rendezvous/pmi1/pmi1_message.h"
#include "agent/rendezvous/pmi1/pmi1_store.h"
#include "agent/rendezvous/rendezvous.h"
#include "common/base/clock.h"

/* ---- lines --------------------------------------------------------------------------------------------- */

static struct pmi1_message m;
static char line[PMI1_LINE_MAX];

static int parse(const char *text)
{
    snprintf(line, sizeof line, "%s", text);
    return pmi1_parse(line, strlen(line), &m, NULL);
}

START_TEST(test_lines)
{
    uint32_t n;
    ck_assert_int_eq(parse("cmd=put kvsname=kvs_1 key=a value=b=c"), 0);
    ck_assert_str_eq(m.command, "put");
    ck_assert(!m.multi);
    ck_assert_str_eq(pmi1_get(&m, "value"), "b=c");
    ck_assert_ptr_null(pmi1_get(&m, "valu"));
    ck_assert_int_eq(parse("mcmd=spawn"), 0);
    ck_assert(m.multi);
    ck_assert_int_eq(parse("  cmd=init   pmi_version=1 "), 0);
    ck_assert(pmi1_get_number(&m, "pmi_version", 1, &n) && n == 1);
    ck_assert(!pmi1_get_number(&m, "pmi_version", 0, &n));
    ck_assert_int_eq(parse("cmd= a=4294967296 b=-1 c= d=12x e=4294967295"), 0);
    ck_assert(!pmi1_get_number(&m, "a", UINT32_MAX, &n));
    ck_assert(!pmi1_get_number(&m, "b", UINT32_MAX, &n));
    ck_assert(!pmi1_get_number(&m, "c", UINT32_MAX, &n));
    ck_assert(!pmi1_get_number(&m, "d", UINT32_MAX, &n));
    ck_assert(pmi1_get_number(&m, "e", UINT32_MAX, &n) && n == UINT32_MAX);
}
END_TEST

/* MPICH 4.2 says why a rank aborts, in words. */
START_TEST(test_an_abort_has_a_sentence)
{
    uint32_t n;
    ck_assert_int_eq(parse("cmd=abort exitcode=7 message=application called MPI_Abort(x, 7) - a=b \x01\xc3"),
                     0);
    ck_assert_str_eq(m.command, "abort");
    ck_assert(pmi1_get_number(&m, "exitcode", 255, &n) && n == 7);
    ck_assert_str_eq(pmi1_get(&m, "message"), "application called MPI_Abort(x, 7) - a=b ??");
    ck_assert_int_eq(parse("cmd=abort message="), 0);
    ck_assert_str_eq(pmi1_get(&m, "message"), "");
    ck_assert_int_eq(parse("cmd=abort exit message=a"), -1);
    ck_assert_int_eq(parse("cmd=put message=a b"), -1);
}
END_TEST

START_TEST(test_lines_that_are_none)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "cmd",
                                      "=",
                                      "cmd=a =b",
                                      "cmd=a b",
                                      "key=a cmd=b",
                                      "cmd=a x=1 x=2",
                                      "cmd=a\tb=c",
                                      "cmd=\x7f",
                                      "cmd=1 a= b= c= d= e= f= g= h= i= j= k= l= m= n= o= p="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(parse(bad[i]) < 0, "\"%s\" was taken", bad[i]);
    memcpy(line, "cmd=a\0b=c", 9);
    ck_assert_int_eq(pmi1_parse(line, 9, &m, NULL), -1);
}
END_TEST

START_TEST(test_words)
{
    char out[16];
    ck_assert_str_eq(pmi1_word("rank 1 has\n=", out, sizeof out), "rank_1_has__");
    ck_assert_str_eq(pmi1_word("0123456789abcdefgh", out, sizeof out), "0123456789abcde");
}
END_TEST

static const char *mapping(const uint32_t *ranks, size_t hosts)
{
    static char out[64];
    Hvd__HostRanks h[8], *list[8];
    for (size_t i = 0; i < hosts; i++) {
        hvd__host_ranks__init(&h[i]);
        h[i].first_rank = i ? h[i - 1].first_rank + h[i - 1].ranks : 0;
        h[i].ranks = ranks[i];
        list[i] = &h[i];
    }
    return pmi1_mapping(list, hosts, out, sizeof out) == 0 ? out : "too long";
}

/* The i-th character of `of` is the host of rank i. */
static const char *mapping_of(const char *of)
{
    static char out[128];
    uint32_t number[8][16];
    Hvd__HostRanks h[8], *list[8];
    size_t hosts = 0;
    for (size_t i = 0; i < 8; i++) {
        hvd__host_ranks__init(&h[i]);
        h[i].rank = number[i];
        list[i] = &h[i];
    }
    for (uint32_t rank = 0; of[rank]; rank++) {
        size_t host = (size_t)(of[rank] - '0');
        h[host].rank[h[host].ranks++] = rank;
        h[host].n_rank = h[host].ranks;
        hosts = host >= hosts ? host + 1 : hosts;
    }
    return pmi1_mapping(list, hosts, out, sizeof out) == 0 ? out : "too long";
}

START_TEST(test_mapping)
{
    ck_assert_str_eq(mapping((uint32_t[]){4}, 1), "(vector,(0,1,4))");
    ck_assert_str_eq(mapping((uint32_t[]){2, 2, 2}, 3), "(vector,(0,3,2))");
    ck_assert_str_eq(mapping((uint32_t[]){3, 1, 1, 2}, 4), "(vector,(0,1,3),(1,2,1),(3,1,2))");
    ck_assert_str_eq(mapping((uint32_t[]){1, 2, 1, 2, 1, 2, 1, 2}, 8), "too long");
    /* Its readers begin again at the end. */
    ck_assert_str_eq(mapping_of("012012012"), "(vector,(0,3,1))");
    ck_assert_str_eq(mapping_of("01201200"), "(vector,(0,3,1),(0,3,1),(0,1,2))");
    ck_assert_str_eq(mapping_of("1100"), "(vector,(1,1,2),(0,1,2))");
    ck_assert_str_eq(mapping_of("20011"), "(vector,(2,1,1),(0,2,2))");
}
END_TEST

START_TEST(test_records)
{
    uint8_t bytes[256];
    struct writer w = writer_of(bytes, sizeof bytes);
    struct pmi1_record record;
    pmi1_write_record(&w, PMI1_PUT, "key", "value");
    pmi1_write_record(&w, PMI1_FAILED, NULL, "why");
    pmi1_write_record(&w, PMI1_PUT, "k", "");
    size_t len = sizeof bytes - w.left;
    struct reader r = reader_of(bytes, len);
    ck_assert(pmi1_read_record(&r, &record) && record.kind == PMI1_PUT);
    ck_assert_str_eq(record.key, "key");
    ck_assert_str_eq(record.value, "value");
    ck_assert(pmi1_read_record(&r, &record) && record.kind == PMI1_FAILED);
    ck_assert_str_eq(record.value, "why");
    ck_assert(pmi1_read_record(&r, &record));
    ck_assert(!pmi1_read_record(&r, &record) && !r.bad);
    for (size_t cut = 1; cut < len; cut++) { /* a piece is good only where a record ends */
        r = reader_of(bytes, cut);
        while (pmi1_read_record(&r, &record)) {
        }
        ck_assert_int_eq(r.bad, cut != 13 && cut != 19);
    }
}
END_TEST

START_TEST(test_store)
{
    struct pmi1_store s;
    struct err e = ERR_INIT;
    char key[32], value[32];
    pmi1_store_init(&s, 1 << 20);
    ck_assert_ptr_null(pmi1_store_get(&s, "a"));
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < 10000; i++) {
            snprintf(key, sizeof key, "key-%u", i);
            snprintf(value, sizeof value, "%u", i + round);
            ck_assert_int_eq(pmi1_store_put(&s, key, value, &e), 0);
        }
    ck_assert_uint_eq(s.pairs, 10000);
    for (unsigned i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        snprintf(value, sizeof value, "%u", i + 1);
        ck_assert_str_eq(pmi1_store_get(&s, key), value);
    }
    unsigned more = 0;
    size_t bytes = 0;
    do {
        bytes = s.bytes;
        snprintf(key, sizeof key, "more-%u", more++);
    } while (pmi1_store_put(&s, key, "x", &e) == 0);
    ck_assert_uint_eq(e.code, ERR_MEMORY);
    ck_assert_uint_eq(s.bytes, bytes);
    ck_assert_ptr_null(pmi1_store_get(&s, key));
    ck_assert_int_eq(pmi1_store_put(&s, "key-7", "", NULL), 0); /* smaller fits */
    pmi1_store_free(&s);
}
END_TEST

/* ---- two hosts of two ranks ---------------------------------------------------------------------------- */

struct letter {
    struct letter *next;
    uint8_t *bytes;
    size_t len;
};

static struct host {
    struct rendezvous r;
    Hvd__Spawn spawn;
    struct letter *out; /* to the other one, oldest first */
    unsigned aborts, notices;
} host[2];
static uv_loop_t loop;
static Hvd__HostRanks ranks[2], *plan[2] = {&ranks[0], &ranks[1]};
static int client[4];

static void on_send(void *ctx, uint32_t neighbour, uint8_t *bytes, size_t len)
{
    struct host *h = ctx;
    struct letter *l = malloc(sizeof *l), **at = &h->out;
    (void)neighbour;
    *l = (struct letter){NULL, bytes, len};
    while (*at)
        at = &(*at)->next;
    *at = l;
}

static void on_notice(void *ctx, uint32_t level, const char *text)
{
    (void)level, (void)text;
    ((struct host *)ctx)->notices++;
}

static void on_abort(void *ctx, uint32_t rank, uint32_t status, const char *text, uint64_t time)
{
    (void)rank, (void)status, (void)text, (void)time;
    ((struct host *)ctx)->aborts++;
}

static void turn(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* All that `from` has to say to the other host. */
static void deliver(int from)
{
    turn();
    while (host[from].out) {
        struct letter *l = host[from].out;
        host[from].out = l->next;
        ck_assert_int_eq(tree_received(host[!from].r.tree, (uint32_t)from, l->bytes, l->len, NULL), 0);
        free(l->bytes);
        free(l);
    }
    turn();
}

static void say(int rank, const char *text)
{
    ck_assert_int_eq(send(client[rank], text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    turn();
}

/* The lines that came for the rank up to now; "" when none. */
static const char *heard(int rank)
{
    static char text[4096];
    turn();
    ssize_t n = recv(client[rank], text, sizeof text - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* Bytes on loopback may take a moment. */
static void expect(int rank, const char *wanted)
{
    char all[4096] = "";
    uint64_t end = clock_now() + 2000000000u;
    while (!strstr(all, wanted) && clock_now() < end)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s", heard(rank));
    ck_assert_msg(strstr(all, wanted) != NULL, "rank %d heard \"%s\", not \"%s\"", rank, all, wanted);
}

static void join(int rank)
{
    char text[128];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtoul(host[rank / 2].r.values.pmi_port + 10, NULL, 10));
    client[rank] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(client[rank], (struct sockaddr *)&at, sizeof at), 0);
    snprintf(text, sizeof text, "cmd=initack pmiid=%d\ncmd=init pmi_version=1 pmi_subversion=1\n", rank);
    say(rank, text);
    expect(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
}

static void set_up(void)
{
    static const struct tree_events tree_events = {.send = on_send};
    static const struct rendezvous_events events = {.notice = on_notice, .abort = on_abort};
    uv_loop_init(&loop);
    memset(host, 0, sizeof host);
    for (int i = 0; i < 2; i++) {
        struct host *h = &host[i];
        hvd__host_ranks__init(&ranks[i]);
        ranks[i].first_rank = 2 * (uint32_t)i;
        ranks[i].ranks = 2;
        hvd__spawn__init(&h->spawn);
        h->spawn.size = 4;
        h->spawn.n_worker = h->spawn.n_host = 2;
        h->spawn.host = plan;
        h->spawn.host_index = (uint32_t)i;
        h->spawn.contracts = CONTRACT_PMI1;
        h->r =
            (struct rendezvous){.loop = &loop, .spawn = &h->spawn, .job = "job", .events = &events, .ctx = h};
        h->r.tree = tree_new((uint32_t)i, 2, &tree_events, h);
        ck_assert_int_eq(rendezvous_open(&h->r, NULL), 0);
    }
    for (int rank = 0; rank < 4; rank++)
        join(rank);
}

static void tear_down(void)
{
    for (int i = 0; i < 2; i++) {
        rendezvous_close(&host[i].r);
        tree_free(host[i].r.tree);
        while (host[i].out) {
            struct letter *l = host[i].out;
            host[i].out = l->next;
            free(l->bytes);
            free(l);
        }
    }
    for (int rank = 0; rank < 4; rank++)
        close(client[rank]);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void all_enter(void)
{
    for (int rank = 0; rank < 4; rank++)
        say(rank, "cmd=barrier_in\n");
}

START_TEST(test_barrier_carries_what_was_put)
{
    say(3, "cmd=put kvsname=job key=a value=first\ncmd=put kvsname=job key=a value=second\n");
    expect(3, "cmd=put_result rc=0 msg=success\ncmd=put_result rc=0 msg=success\n");
    say(0, "cmd=get kvsname=job key=a\n");
    expect(0, "cmd=get_result rc=-1");
    all_enter();
    deliver(1);
    expect(0, "cmd=barrier_out rc=0\n");
    ck_assert_str_eq(heard(3), "");
    deliver(0);
    expect(3, "cmd=barrier_out rc=0\n");
    say(0, "cmd=get kvsname=job key=a\n");
    expect(0, "cmd=get_result rc=0 msg=success value=second\n");
}
END_TEST

/* Rank 3 took part in the barrier and ended; that word is faster than the barrier's end. */
START_TEST(test_an_end_overtakes_the_barrier)
{
    all_enter();
    deliver(1);
    rendezvous_rank_ended(&host[1].r, 1, "exit status 0");
    rendezvous_rank_ended(&host[0].r, 3, "exit status 0");
    rendezvous_rank_ended(&host[1].r, 3, "exit status 0");
    for (int i = 0; i < 4; i++)
        deliver(i % 2);
    for (int rank = 0; rank < 4; rank++)
        expect(rank, "cmd=barrier_out rc=0\n");
}
END_TEST

START_TEST(test_a_rank_of_the_other_host_has_ended)
{
    say(0, "cmd=barrier_in\n");
    rendezvous_rank_ended(&host[1].r, 3, "exit status 0");
    rendezvous_rank_ended(&host[0].r, 3, "exit status 0");
    for (int i = 0; i < 4; i++)
        deliver(i % 2);
    expect(0, "cmd=barrier_failed rc=-1 msg=rank_3_has_ended_(exit_status_0)\n");
    say(1, "cmd=barrier_in\n"); /* those that come later */
    say(2, "cmd=barrier_in\n");
    expect(1, "cmd=barrier_failed rc=-1 msg=rank_3_has_ended_(exit_status_0)\n");
    expect(2, "cmd=barrier_failed rc=-1 msg=rank_3_has_ended_(exit_status_0)\n");
    ck_assert_uint_eq(host[1].notices, 1);
}
END_TEST

START_TEST(test_a_rank_here_has_ended_before)
{
    rendezvous_rank_ended(&host[0].r, 1, "exit status 0");
    rendezvous_rank_ended(&host[1].r, 1, "exit status 0");
    say(2, "cmd=barrier_in\n");
    say(3, "cmd=barrier_in\n");
    for (int i = 0; i < 4; i++)
        deliver(i % 2);
    expect(2, "cmd=barrier_failed");
    expect(3, "cmd=barrier_failed");
    ck_assert_uint_eq(host[0].aborts, 1); /* it had not said cmd=finalize */
}
END_TEST

START_TEST(test_a_reason_crosses_with_the_gather)
{
    say(2, "cmd=barrier_in\n");
    say(3, "cmd=barrier_in\n");
    say(0, "cmd=barrier_in\n");
    rendezvous_rank_ended(&host[0].r, 1, "killed by signal 11");
    expect(0, "cmd=barrier_failed");
    deliver(1);
    deliver(0);
    expect(2, "cmd=barrier_failed rc=-1 msg=rank_1_has_ended_(killed_by_signal_11)\n");
    expect(3, "cmd=barrier_failed");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("pmi1");
    TCase *pure = tcase_create("pure"), *barrier = tcase_create("barrier");
    tcase_add_test(pure, test_an_abort_has_a_sentence);
    tcase_add_test(pure, test_lines);
    tcase_add_test(pure, test_lines_that_are_none);
    tcase_add_test(pure, test_words);
    tcase_add_test(pure, test_mapping);
    tcase_add_test(pure, test_records);
    tcase_add_test(pure, test_store);
    tcase_add_checked_fixture(barrier, set_up, tear_down);
    tcase_set_timeout(barrier, 20);
    tcase_add_test(barrier, test_barrier_carries_what_was_put);
    tcase_add_test(barrier, test_an_end_overtakes_the_barrier);
    tcase_add_test(barrier, test_a_rank_of_the_other_host_has_ended);
    tcase_add_test(barrier, test_a_rank_here_has_ended_before);
    tcase_add_test(barrier, test_a_reason_crosses_with_the_gather);
    suite_add_tcase(s, pure);
    suite_add_tcase(s, barrier);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(make_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
