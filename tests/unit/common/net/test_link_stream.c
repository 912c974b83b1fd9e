/* The frames of a link on a socket pair: well-formed ones in any pieces, and everything that a broken peer
 * may send.
 *
 * needs: algo engine */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/link_stream.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"

struct end {
    struct link_stream stream;
    int peer; /* the other end of the pair */
    uint32_t controls, bulks, done, undone;
    size_t control_size;
    uint8_t place[1 << 20];
    bool refuse, close_in_place;
};

static void on_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    struct end *end = ctx;
    end->controls++;
    end->control_size = size;
}

static void *on_place(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct end *end = ctx;
    if (end->close_in_place)
        link_stream_close(&end->stream);
    bool fits = head->offset + head->length <= sizeof end->place;
    return end->refuse || !fits ? NULL : end->place + head->offset;
}

static void on_arrived(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct end *end = ctx;
    end->bulks++;
}

static const struct links_events events = {
    .control = on_control, .bulk_place = on_place, .bulk_arrived = on_arrived};

static void on_sent(struct link_send *send, int status)
{
    struct end *end = send->ctx;
    end->done += status == 0;
    end->undone += status != 0;
}

/* Of the frames that were made for this end: of bulk, and of others. */
static uint64_t frames_made[2];

static void end_new(struct end *end)
{
    int fd[2];
    memset(end, 0, sizeof *end);
    memset(frames_made, 0, sizeof frames_made);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    ck_assert_int_eq(link_stream_init(&end->stream, fd[0], 1, &events, end, "", 0, NULL), 0);
    end->peer = fd[1];
}

static void end_free(struct end *end)
{
    link_stream_close(&end->stream);
    link_stream_deliver(&end->stream, -1);
    link_stream_free(&end->stream);
    close(end->peer);
}

static size_t frame(uint8_t *out, uint8_t type, uint8_t pad, uint64_t offset, uint32_t length, size_t payload)
{
    struct writer w = writer_of(out, LINK_FRAME_HEADER + payload);
    uint8_t *data = out + LINK_FRAME_HEADER, number[8];
    struct writer n = writer_of(number, sizeof number);
    for (size_t i = 0; i < payload; i++)
        data[i] = (uint8_t)(i * 31 + offset);
    write_u32(&w, length);
    write_u8(&w, type);
    write_u8(&w, pad);
    write_u16(&w, 2);
    write_u64(&w, 77);
    write_u64(&w, offset);
    write_u32(&w, crc32c(0, data, length < payload ? length : payload));
    write_u64(&n, frames_made[type != LINK_BULK]++);
    write_u32(&w, crc32c(crc32c(0, out, LINK_FRAME_HEADER - 4), number, sizeof number));
    return LINK_FRAME_HEADER + payload;
}

/* Control, bulk, an empty bulk, a heartbeat, bulk, a control frame larger than the stage: cut after every so
 * many bytes. */
START_TEST(frames_arrive_in_any_pieces)
{
    static const size_t pieces[] = {1, 7, 31, 32, 33, 100, 4095, 4096, 4097, 100000};
    static uint8_t wire[40000];
    static struct end end;
    size_t n = 0;
    end_new(&end);
    n += frame(wire + n, LINK_CONTROL, 0, 0, 10, 10);
    n += frame(wire + n, LINK_BULK, 0, 0, 9000, 9000);
    n += frame(wire + n, LINK_BULK, 0, 0, 0, 0);
    n += frame(wire + n, LINK_HEARTBEAT, 0, 0, 0, 0);
    n += frame(wire + n, LINK_BULK, 0, 9000, 100, 100);
    n += frame(wire + n, LINK_CONTROL, 0, 0, 0, 0);
    n += frame(wire + n, LINK_CONTROL, 0, 0, 20000, 20000);
    for (size_t at = 0; at < n; at += pieces[_i]) {
        struct err e = ERR_INIT;
        size_t m = n - at < pieces[_i] ? n - at : pieces[_i];
        ck_assert_int_eq(send(end.peer, wire + at, m, 0), (ssize_t)m);
        ck_assert_msg(link_stream_read(&end.stream, &e) >= 0, "%s", e.text);
    }
    ck_assert_uint_eq(end.controls, 3);
    ck_assert_uint_eq(end.control_size, 20000);
    ck_assert_uint_eq(end.bulks, 3);
    ck_assert_uint_eq(end.stream.frames, 7);
    size_t wrong = 0;
    for (size_t i = 0; i < 9100; i++)
        wrong += end.place[i] != (uint8_t)(i < 9000 ? i * 31 : (i - 9000) * 31 + 9000);
    ck_assert_uint_eq(wrong, 0);
    end_free(&end);
}
END_TEST

static const struct {
    uint8_t type, pad;
    uint32_t length;
    const char *text;
} broken[] = {
    {0, 0, 0, "unknown type 0"},
    {9, 0, 0, "unknown type 9"},
    {LINK_CONTROL, 1, 0, "unknown type"},
    {LINK_CONTROL, 0, LINKS_CONTROL_MAX + 1, "65537 bytes"},
    {LINK_BULK, 0, LINKS_BULK_MAX + 1, "1048577 bytes"},
    {LINK_BULK, 0, UINT32_MAX, "4294967295 bytes"},
    {LINK_HEARTBEAT, 0, 1, "type 3 with 1 bytes"},
    {LINK_FAREWELL, 0, LINK_FAREWELL_MAX + 1, "type 4"},
    {LINK_FAREWELL, 0, 3, "it gave up"},
};

START_TEST(broken_frames_end_the_link)
{
    static struct end end;
    uint8_t wire[64];
    struct err e = ERR_INIT;
    end_new(&end);
    size_t n = frame(wire, broken[_i].type, broken[_i].pad, 0, broken[_i].length, 8);
    ck_assert_int_eq(send(end.peer, wire, n, 0), (ssize_t)n);
    ck_assert_int_eq(link_stream_read(&end.stream, &e), -1);
    ck_assert_msg(strstr(e.text, broken[_i].text) != NULL, "%s", e.text);
    ck_assert_uint_eq(end.controls + end.bulks, 0);
    end_free(&end);
}
END_TEST

/* One bit of two frames, header and payload, is another one; and a frame of those that is missing or comes
 * twice. The link ends as soon as what is wrong is whole. */
START_TEST(no_bit_may_change)
{
    static struct end end;
    uint8_t wire[2 * (LINK_FRAME_HEADER + 40)];
    uint8_t type = _i ? LINK_CONTROL : LINK_BULK;
    for (size_t bit = 0; bit < 8 * sizeof wire; bit++) {
        struct err e = ERR_INIT;
        end_new(&end);
        size_t n = frame(wire, type, 0, 0, 40, 40);
        n += frame(wire + n, type, 0, 40, 40, 40);
        ck_assert_uint_eq(n, sizeof wire);
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        bool first = bit / 8 < n / 2;
        ck_assert_int_eq(send(end.peer, wire, n, 0), (ssize_t)n);
        if (link_stream_read(&end.stream, &e) != -1 || e.code != ERR_CORRUPTED ||
            end.bulks + end.controls != !first)
            ck_abort_msg("bit %zu: %u frames, '%s'", bit, end.bulks + end.controls, e.text);
        end_free(&end);
    }
}
END_TEST

START_TEST(frames_come_once_and_in_order)
{
    static struct end end;
    uint8_t wire[3][LINK_FRAME_HEADER + 8];
    uint8_t type = _i / 3 ? LINK_CONTROL : LINK_BULK;
    static const uint8_t order[3][2] = {{0, 0}, {0, 2}, {1, 0}};
    struct err e = ERR_INIT;
    end_new(&end);
    for (int k = 0; k < 3; k++)
        frame(wire[k], type, 0, 0, 8, 8);
    for (int k = 0; k < 2; k++)
        ck_assert_int_gt(send(end.peer, wire[order[_i % 3][k]], sizeof wire[0], 0), 0);
    ck_assert_int_eq(link_stream_read(&end.stream, &e), -1);
    ck_assert_int_eq(e.code, ERR_CORRUPTED);
    end_free(&end);
}
END_TEST

START_TEST(data_without_a_place_ends_the_link)
{
    static struct end end;
    uint8_t wire[64];
    struct err e = ERR_INIT;
    end_new(&end);
    end.refuse = _i == 0;
    end.close_in_place = _i == 1;
    size_t n = frame(wire, LINK_BULK, 0, 0, 8, 8);
    ck_assert_int_eq(send(end.peer, wire, n, 0), (ssize_t)n);
    long rc = link_stream_read(&end.stream, &e);
    if (_i == 0)
        ck_assert_ptr_nonnull(
            strstr(e.text, "data that nobody asked for (operation 77, channel 2, offset 0, 8 bytes)"));
    ck_assert(_i == 0 ? rc == -1 : rc > 0);
    ck_assert_uint_eq(end.bulks, 0);
    ck_assert_uint_eq(end.place[0] + end.place[1], 0);
    end_free(&end);
}
END_TEST

START_TEST(the_peers_end_is_seen)
{
    static struct end end;
    struct err e = ERR_INIT;
    end_new(&end);
    ck_assert_int_eq(link_stream_read(&end.stream, &e), 0);
    close(end.peer);
    ck_assert_int_eq(link_stream_read(&end.stream, &e), -1);
    ck_assert_int_eq(e.code, ERR_CLOSED);
    ck_assert_int_eq(link_stream_send(&end.stream, LINK_CONTROL, "x", 1, NULL), -1);
    end.peer = -1;
    end_free(&end);
}
END_TEST

/* A full socket: a bulk frame that has begun is finished first, then control frames, then the other bulk
 * frames. */
START_TEST(control_overtakes_bulk_that_has_not_begun)
{
    static struct end end, other;
    static uint8_t data[1 << 19];
    struct link_send send[3];
    struct err e = ERR_INIT;
    end_new(&end);
    end_new(&other);
    for (int i = 0; i < 3; i++) {
        send[i] = (struct link_send){.head = {.sequence = 1, .length = sizeof data, .channel = 1},
                                     .data = data,
                                     .done = on_sent,
                                     .ctx = &end};
        link_stream_queue(&end.stream, &send[i]);
    }
    ck_assert_int_eq(link_stream_flush(&end.stream, &e), 0);
    ck_assert(end.stream.blocked && end.stream.bulk_sent > 0);
    ck_assert_int_eq(link_stream_send(&end.stream, LINK_CONTROL, "hello", 5, &e), 0);
    close(other.stream.fd);
    other.stream.fd = dup(end.peer);
    fcntl(other.stream.fd, F_SETFL, O_NONBLOCK);
    uint32_t before_control = 0;
    while (!link_stream_idle(&end.stream) || other.bulks < 3) {
        ck_assert_int_ge(link_stream_read(&other.stream, &e), 0);
        before_control = other.controls ? before_control : other.bulks;
        ck_assert_int_eq(link_stream_flush(&end.stream, &e), 0);
        link_stream_deliver(&end.stream, 0);
    }
    ck_assert_uint_eq(other.controls, 1);
    ck_assert_uint_lt(before_control, 2);
    ck_assert_uint_eq(end.done, 3);
    end_free(&end);
    end_free(&other);
}
END_TEST

START_TEST(what_was_queued_is_given_back)
{
    static struct end end;
    static uint8_t data[1 << 19];
    struct link_send send[3];
    end_new(&end);
    for (int i = 0; i < 3; i++) {
        send[i] =
            (struct link_send){.head = {.length = sizeof data}, .data = data, .done = on_sent, .ctx = &end};
        link_stream_queue(&end.stream, &send[i]);
    }
    ck_assert_int_eq(link_stream_flush(&end.stream, NULL), 0);
    link_stream_deliver(&end.stream, 0);
    link_stream_close(&end.stream);
    link_stream_deliver(&end.stream, -1);
    ck_assert_uint_eq(end.done + end.undone, 3);
    ck_assert_uint_ge(end.undone, 1);
    end_free(&end);
}
END_TEST

/* A peer that does not read is given up, with bounded memory. */
START_TEST(the_control_queue_has_an_end)
{
    static struct end end;
    static uint8_t data[LINKS_CONTROL_MAX];
    struct err e = ERR_INIT;
    uint32_t n = 0;
    end_new(&end);
    while (link_stream_send(&end.stream, LINK_CONTROL, data, sizeof data, &e) == 0)
        ck_assert_uint_lt(++n, 1000);
    ck_assert_int_eq(e.code, ERR_MEMORY);
    ck_assert_uint_le(end.stream.control.len, LINKS_CONTROL_QUEUE_MAX);
    end_free(&end);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("link_stream");
    TCase *c = tcase_create("link_stream");
    tcase_set_timeout(c, 20);
    tcase_add_loop_test(c, frames_arrive_in_any_pieces, 0, 10);
    tcase_add_loop_test(c, broken_frames_end_the_link, 0, sizeof broken / sizeof *broken);
    tcase_add_loop_test(c, no_bit_may_change, 0, 2);
    tcase_add_loop_test(c, frames_come_once_and_in_order, 0, 6);
    tcase_add_loop_test(c, data_without_a_place_ends_the_link, 0, 2);
    tcase_add_test(c, the_peers_end_is_seen);
    tcase_add_test(c, control_overtakes_bulk_that_has_not_begun);
    tcase_add_test(c, what_was_queued_is_given_back);
    tcase_add_test(c, the_control_queue_has_an_end);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
