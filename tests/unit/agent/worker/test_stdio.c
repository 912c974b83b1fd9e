/* One outlet on a pipe that the test fills: credits, the end of a dead worker's output, a channel that is
 * full. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/worker/stdio.h"

static uv_loop_t loop;
static struct stdio io;
static struct outlet o;
static int in, out; /* the pipe */
static size_t sent;
static unsigned eofs, settled;
static bool full;
static bool flood; /* whenever something was sent there is more */

static int take(void *ctx, uint32_t rank, enum frame_stream stream, uint8_t flags, const uint8_t *bytes,
                size_t len)
{
    sent += len;
    eofs += (flags & FRAME_FLAG_EOF) != 0;
    if (flood && len > 0)
        ck_assert_int_eq((int)write(in, "more\n", 5), 5);
    return 0;
}

static bool has_room(void *ctx)
{
    return !full;
}

static void on_settled(void *ctx, uint32_t rank)
{
    settled++;
}

static void on_failed(void *ctx, const struct err *e)
{
    ck_abort_msg("%s", e->text);
}

static const struct stdio_events events = {take, has_room, NULL, on_settled, on_failed};

static void set_up(void)
{
    struct err e = ERR_INIT;
    int ends[2];
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(stdio_init(&io, &loop, &events, NULL, &e), 0);
    ck_assert_int_eq(pipe(ends), 0);
    out = ends[0];
    in = ends[1];
    ck_assert_int_eq(outlet_open(&o, &io, out, 7, STREAM_STDOUT, 100, &e), 0);
}

static void tear_down(void)
{
    stdio_close(&io);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    close(in);
}

static void put(size_t len)
{
    char text[1000];
    memset(text, '\n', sizeof text);
    ck_assert_int_eq((int)write(in, text, len), (int)len);
}

static void turn(void)
{
    for (int i = 0; i < 10; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

START_TEST(no_more_than_the_credit)
{
    put(250);
    turn();
    ck_assert_uint_eq(sent, 100);
    outlet_credit(&o, 20);
    turn();
    ck_assert_uint_eq(sent, 120);
    outlet_credit(&o, 1000);
    turn();
    ck_assert_uint_eq(sent, 250);
    ck_assert_uint_eq(settled, 0);
}
END_TEST

START_TEST(a_full_channel_stops_reading)
{
    full = true;
    put(50);
    turn();
    ck_assert_uint_eq(sent, 0);
    full = false;
    stdio_resume(&io);
    turn();
    ck_assert_uint_eq(sent, 50);
}
END_TEST

START_TEST(a_dead_workers_output_waits_for_credit)
{
    put(250);
    outlet_orphan(&o);
    ck_assert_uint_eq(sent, 100);
    ck_assert_uint_eq(settled, 0);
    outlet_credit(&o, 100);
    ck_assert_uint_eq(settled, 0);
    outlet_credit(&o, 50);
    ck_assert_uint_eq(sent, 250);
    ck_assert_uint_eq(settled, 1);
    ck_assert_uint_eq(eofs, 1);
}
END_TEST

START_TEST(an_empty_pipe_needs_no_credit)
{
    put(100);
    turn();
    outlet_orphan(&o);
    ck_assert_uint_eq(settled, 1);
}
END_TEST

/* Somebody else writes whenever we read: the end is what was there at the death. */
START_TEST(a_flood_after_the_death)
{
    put(10);
    flood = true;
    outlet_credit(&o, 1u << 30);
    outlet_orphan(&o);
    ck_assert_uint_eq(settled, 1);
    ck_assert_uint_le(sent, 20);
    turn();
    ck_assert_uint_gt(sent, 20); /* and yet it is passed on */
    ck_assert_uint_eq(eofs, 1);
}
END_TEST

START_TEST(discarded_output_blocks_nobody)
{
    stdio_discard(&io);
    put(1000);
    turn();
    ck_assert_uint_eq(sent, 0);
    put(1000);
    close(in);
    turn();
    ck_assert_uint_eq(settled, 1);
    ck_assert_uint_eq(eofs, 0);
    in = dup(0);
}
END_TEST

/* In the worker's name: between its own bytes, within its credit, and no more than the pipe holds. */
START_TEST(what_is_said_in_its_name)
{
    static char much[200000];
    memset(much, '\n', sizeof much);
    put(10);
    ck_assert_uint_eq(outlet_say(&o, much, 100), 100);
    turn();
    ck_assert_uint_eq(sent, 100);
    outlet_credit(&o, 10);
    turn();
    ck_assert_uint_eq(sent, 110);
    size_t said = outlet_say(&o, much, sizeof much);
    ck_assert_uint_gt(said, 0);
    ck_assert_uint_lt(said, sizeof much);
    ck_assert_int_eq(fcntl(in, F_GETFL) & O_NONBLOCK, 0); /* it would be the worker's */
    outlet_credit(&o, 1u << 30);
    outlet_orphan(&o);
    ck_assert_uint_eq(sent, 110 + said);
    ck_assert_uint_eq(settled, 1);
    ck_assert_uint_eq(outlet_say(&o, much, 10), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stdio");
    TCase *t = tcase_create("stdio");
    tcase_set_timeout(t, 10);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, no_more_than_the_credit);
    tcase_add_test(t, a_full_channel_stops_reading);
    tcase_add_test(t, a_dead_workers_output_waits_for_credit);
    tcase_add_test(t, an_empty_pipe_needs_no_credit);
    tcase_add_test(t, a_flood_after_the_death);
    tcase_add_test(t, discarded_output_blocks_nobody);
    tcase_add_test(t, what_is_said_in_its_name);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
