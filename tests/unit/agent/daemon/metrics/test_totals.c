/* The sums of a node: from sessions that may say anything, through an agent that may be killed at any time.
 *
 * needs: agent */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/metrics/totals.h"
#include "agent/daemon/metrics/metric_table.h"
#include "agent/guard/job_dir.h"
#include "common/base/log.h"
#include "tests/unit/scratch.h"

#define ALICE 1001
#define BOB   1002

static char directory[SCRATCH_MAX];
static struct totals c;
static uint64_t now = 5000;
static struct err e;
static Hvd__SessionReport report;
static Hvd__Collective kind, *kinds[] = {&kind};
static Hvd__PeerTraffic peer, *peers[] = {&peer};

static void begin(const char *job, uid_t uid)
{
    struct lease lease = {.uid = uid, .since = 77};
    snprintf(lease.unit, sizeof lease.unit, "hvd-%s.service", job);
    totals_began(&c, &lease, now);
}

static void set_up(void)
{
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(scratch_dir(directory, "totals"));
    totals_open(&c, directory, now);
    err_clear(&e);
    hvd__session_report__init(&report);
    hvd__collective__init(&kind);
    hvd__peer_traffic__init(&peer);
    report.unit = (char *)"hvd-a.service";
    kind.kind = (char *)"allgather";
    report.collective = kinds;
    report.n_collective = 1;
    begin("a", ALICE);
}

static void tear_down(void)
{
    totals_close(&c);
    (void)remove_tree(AT_FDCWD, directory, 2);
}

static int say(uid_t uid)
{
    err_clear(&e);
    return totals_report(&c, uid, &report, now, &e);
}

static uint64_t operations(void)
{
    return c.sum[SUM_KIND + 2 * SUM_OF_KIND + SUM_OPERATIONS];
}

START_TEST(sums_are_of_all_sessions)
{
    kind.operations = 10;
    report.started = 2;
    ck_assert_int_eq(say(ALICE), 0);
    kind.operations = 15;
    ck_assert_int_eq(say(ALICE), 0);
    begin("b", BOB);
    report.unit = (char *)"hvd-b.service";
    report.epoch = 3;
    kind.operations = 7;
    ck_assert_int_eq(say(BOB), 0);
    ck_assert_uint_eq(operations(), 22);
    ck_assert_uint_eq(c.sum[SUM_STARTED], 4);
    ck_assert_uint_eq(c.sum[SUM_RESTARTS], 1);
}
END_TEST

START_TEST(nobody_speaks_for_another)
{
    kind.operations = 10;
    ck_assert_int_eq(say(BOB), -1);
    ck_assert_str_eq(e.text, "reports what it has no lease for");
    report.unit = (char *)"hvd-none.service";
    ck_assert_int_eq(say(ALICE), -1);
    ck_assert_uint_eq(operations(), 0);
}
END_TEST

START_TEST(sums_only_grow_and_not_without_measure)
{
    kind.operations = 10;
    (void)say(ALICE);
    kind.operations = 3;
    (void)say(ALICE);
    ck_assert_uint_eq(operations(), 10);
    kind.operations = kind.bytes = kind.ns = UINT64_MAX;
    report.heartbeats_missed = report.started = report.epoch = UINT32_MAX;
    for (int i = 0; i < 1000; i++)
        (void)say(ALICE);
    ck_assert_uint_le(operations(), 1000000000);
    ck_assert_uint_le(c.sum[SUM_KIND + 2 * SUM_OF_KIND + SUM_BYTES], UINT64_C(1) << 40);
    ck_assert_uint_eq(c.sum[SUM_MISSED], 1);
    ck_assert_uint_eq(c.sum[SUM_RESTARTS], 1);
    ck_assert_uint_le(c.sum[SUM_STARTED], 65536);
    now += UINT64_C(1000) * 3600 * 24 * 3650;
    (void)say(ALICE);
    for (int i = 0; i < SUMS; i++)
        ck_assert_uint_le(c.sum[i], UINT64_C(1) << 62);
}
END_TEST

START_TEST(words_are_ours)
{
    struct totals before = c;
    kind.kind = (char *)"x\"} 1\nhvd_node_slots";
    kind.operations = 10;
    (void)say(ALICE);
    ck_assert_mem_eq(c.sum, before.sum, sizeof c.sum);
    report.over = true;
    report.cause = 4711;
    (void)say(ALICE);
    ck_assert_uint_eq(c.ended[HVD__CAUSE__CAUSE_FAULT], 1);
    report.cause = 0;
    (void)say(ALICE);
    ck_assert_uint_eq(c.ended[HVD__CAUSE__CAUSE_NONE], 0);
}
END_TEST

static void name_hosts(uid_t uid, const char *unit, const char *form, int count)
{
    char name[200];
    report.unit = (char *)(uintptr_t)unit;
    report.peer = peers;
    report.n_peer = 1;
    peer.host = name;
    peer.sent = 100;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, form, i);
        (void)say(uid);
    }
}

static uint64_t sent_to(const char *host)
{
    for (size_t i = 0; i <= c.peers; i++)
        if (strcmp(c.peer[i].host, host) == 0)
            return c.peer[i].sent;
    return 0;
}

START_TEST(hosts_have_a_number)
{
    begin("b", BOB);
    name_hosts(ALICE, "hvd-a.service", "node%d", 60);
    ck_assert_uint_eq(c.peers, SUM_PEERS_OF);
    ck_assert_uint_eq(c.peer[0].sent, 100 * (60 - SUM_PEERS_OF));
    name_hosts(BOB, "hvd-b.service", "b%d", 1);
    ck_assert_uint_eq(sent_to("b0"), 100);
    name_hosts(BOB, "hvd-b.service", "node%d", 1);
    ck_assert_uint_eq(sent_to("node0"), 200);
    for (int i = 0; i < 100; i++)
        name_hosts(BOB, "hvd-b.service", "more%d", 100);
    ck_assert_uint_le(c.peers, SUM_PEERS);
    ck_assert_uint_le(c.session[1].peers, SUM_PEERS + 1);
}
END_TEST

/* Two names that look the same as a label must not become two series. */
START_TEST(names_are_labels)
{
    struct totals_message told;
    char *text = NULL;
    size_t size;
    name_hosts(ALICE, "hvd-a.service", "x\n\xff%d", 1);
    name_hosts(ALICE, "hvd-a.service", "x\t\xfe%d", 1);
    name_hosts(ALICE, "hvd-a.service", SUM_PEER_OTHER, 1);
    name_hosts(ALICE, "hvd-a.service", "q\"\\%d", 1);
    ck_assert_uint_eq(sent_to("x??0"), 100);
    totals_tell(&c, 0, now, &told);
    FILE *out = open_memstream(&text, &size);
    render_jobs(out, &told.sums, &told.now);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "hvd_node_link_sent_bytes_total{peer=\"(others)\"} 100\n"
                                       "hvd_node_link_sent_bytes_total{peer=\"x??0\"} 100\n"
                                       "hvd_node_link_sent_bytes_total{peer=\"q\\\"\\\\0\"} 100\n# HELP "));
    free(text);
}
END_TEST

static void kill_the_agent(void)
{
    totals_close(&c);
    totals_open(&c, directory, now);
}

START_TEST(a_killed_agent_counts_nothing_twice)
{
    kind.operations = 10;
    name_hosts(ALICE, "hvd-a.service", "node%d", 2);
    ck_assert_uint_eq(operations(), 10);
    totals_save(&c);
    kind.operations = 12;
    (void)say(ALICE);
    kill_the_agent(); /* nobody was told of 12 */
    ck_assert_uint_eq(operations(), 10);
    begin("a", ALICE);
    kind.operations = 13;
    name_hosts(ALICE, "hvd-a.service", "node%d", 2);
    ck_assert_uint_eq(operations(), 13);
    ck_assert_uint_eq(sent_to("node1"), 100);
    ck_assert_uint_eq(c.sessions, 1);
}
END_TEST

START_TEST(a_file_is_whole_or_none)
{
    char path[64];
    kind.operations = 10;
    name_hosts(ALICE, "hvd-a.service", "node%d", 2);
    totals_save(&c);
    snprintf(path, sizeof path, "%s/" SUMS_FILE, directory);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    ck_assert_int_gt(size, 40);
    log_init("hvd", LOG_ERROR);
    for (off_t len = size - 1; len >= 0; len--) {
        ck_assert_int_eq(ftruncate(fd, len), 0);
        kill_the_agent();
        ck_assert_uint_eq(operations(), 0);
        ck_assert_uint_eq(c.peers + c.sessions, 0);
    }
    close(fd);
}
END_TEST

START_TEST(last_words_may_be_late)
{
    totals_left(&c, "hvd-a.service", now);
    ck_assert_uint_eq(totals_settle(&c, now + 400), 600);
    report.over = true;
    ck_assert_int_eq(say(ALICE), 0);
    ck_assert_uint_eq(totals_settle(&c, now + 500), 0);
    ck_assert_uint_eq(c.ended[HVD__CAUSE__CAUSE_NONE], 1);
    ck_assert_uint_eq(c.sessions, 0);
    begin("a", ALICE);
    totals_left(&c, "hvd-a.service", now);
    ck_assert_uint_eq(totals_settle(&c, now + TOTALS_LAST_MS), 0);
    ck_assert_uint_eq(c.ended[HVD__CAUSE__CAUSE_SESSION_LOST], 1);
    ck_assert_int_eq(say(ALICE), -1);
}
END_TEST

START_TEST(a_job_of_the_same_name_is_another)
{
    struct lease again = {.unit = "hvd-a.service", .uid = BOB, .since = 78};
    kind.operations = 10;
    (void)say(ALICE);
    totals_left(&c, "hvd-a.service", now);
    totals_began(&c, &again, now);
    ck_assert_uint_eq(c.ended[HVD__CAUSE__CAUSE_SESSION_LOST], 1);
    ck_assert_int_eq(say(ALICE), -1);
    ck_assert_int_eq(say(BOB), 0);
    ck_assert_uint_eq(operations(), 20);
    totals_save(&c);
    kill_the_agent();
    again.since++; /* the one before ended and this one began while nobody looked */
    totals_began(&c, &again, now);
    ck_assert_int_eq(say(BOB), 0);
    ck_assert_uint_eq(operations(), 30);
    ck_assert_uint_eq(c.sessions, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("totals");
    TCase *t = tcase_create("totals");
    SRunner *runner = srunner_create(suite);

    suite_add_tcase(suite, t);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, sums_are_of_all_sessions);
    tcase_add_test(t, nobody_speaks_for_another);
    tcase_add_test(t, sums_only_grow_and_not_without_measure);
    tcase_add_test(t, words_are_ours);
    tcase_add_test(t, hosts_have_a_number);
    tcase_add_test(t, names_are_labels);
    tcase_add_test(t, a_killed_agent_counts_nothing_twice);
    tcase_add_test(t, a_file_is_whole_or_none);
    tcase_add_test(t, last_words_may_be_late);
    tcase_add_test(t, a_job_of_the_same_name_is_another);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
