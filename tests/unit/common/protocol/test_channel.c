/* The control channel end to end, without I/O: two ends whose bytes are carried by hand, in pieces of any
 * size. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/protocol/channel.h"

struct end {
    struct channel channel;
    uint32_t controls, last_rank;
    size_t data_bytes;
    uint8_t last_flags;
    char order[64]; /* c, d and a as they came */
    char waiting[64];
};

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct end *end = ctx;
    if (m->body_case == HVD__CONTROL__BODY_SPAWNED)
        end->last_rank = m->spawned->rank;
    if (end->controls + 1 < sizeof end->order)
        strncat(end->order, "c", 2);
    end->controls++;
}

static void on_data(void *ctx, const struct frame *f)
{
    struct end *end = ctx;
    end->data_bytes += f->length;
    end->last_flags = f->flags;
    if (strlen(end->order) + 1 < sizeof end->order)
        strncat(end->order, "d", 2);
}

/* Of hvdagent attach: "a" in the order, and the text. */
static void on_attach(void *ctx, const Hvd__Control *m)
{
    struct end *end = ctx;
    if (m->body_case == HVD__CONTROL__BODY_LEASE_WAITING)
        snprintf(end->waiting, sizeof end->waiting, "%s", m->lease_waiting->text);
    if (strlen(end->order) + 1 < sizeof end->order)
        strncat(end->order, "a", 2);
}

static const struct channel_events events = {on_control, on_data, on_attach};
static struct end launcher, session;

static void set_up(void)
{
    memset(&launcher, 0, sizeof launcher);
    memset(&session, 0, sizeof session);
    channel_init(&launcher.channel, &events, &launcher, true, 1 << 20);
    channel_init(&session.channel, &events, &session, false, 1 << 20);
    channel_set_session(&launcher.channel, 7);
    channel_set_session(&session.channel, 7);
}

static void tear_down(void)
{
    channel_free(&launcher.channel);
    channel_free(&session.channel);
}

/* Carries everything from one end to the other in pieces of `piece` bytes. */
static int carry(struct channel *from, struct channel *to, size_t piece, struct err *e)
{
    const uint8_t *bytes;
    size_t len;
    while ((len = channel_output(from, &bytes)) > 0) {
        size_t n = len < piece ? len : piece;
        if (channel_receive(to, bytes, n, e) < 0)
            return -1;
        channel_written(from, n);
    }
    return 0;
}

static void send_spawned(struct channel *c, uint32_t rank)
{
    Hvd__Spawned body = HVD__SPAWNED__INIT;
    body.rank = rank;
    CONTROL(m, SPAWNED, spawned, &body);
    ck_assert_int_eq(channel_send(c, &m), 0);
}

START_TEST(messages_arrive_in_pieces_of_any_size)
{
    struct err e = ERR_INIT;
    char big[FRAME_DATA_MAX];
    memset(big, 'x', sizeof big);
    for (int i = 0; i < 20; i++) {
        send_spawned(&session.channel, (uint32_t)i);
        ck_assert_int_eq(
            channel_send_data(&session.channel, 1, STREAM_STDOUT, FRAME_FLAG_LINE_END, big, sizeof big), 0);
    }
    ck_assert_msg(carry(&session.channel, &launcher.channel, (size_t[]){1, 7, 4096, 1 << 20}[_i], &e) == 0,
                  "%s", e.text);
    ck_assert_uint_eq(launcher.controls, 20);
    ck_assert_uint_eq(launcher.last_rank, 19);
    ck_assert_uint_eq(launcher.data_bytes, 20 * sizeof big);
    ck_assert_uint_eq(launcher.last_flags, FRAME_FLAG_LINE_END);
}
END_TEST

START_TEST(control_overtakes_bulk)
{
    struct err e = ERR_INIT;
    char big[FRAME_DATA_MAX] = {0};
    const uint8_t *bytes;
    for (int i = 0; i < 10; i++)
        (void)channel_send_data(&session.channel, 0, STREAM_STDOUT, 0, big, sizeof big);
    /* Some bulk is committed to the wire now; what is sent after it may wait for that, and for nothing more.
     */
    ck_assert_uint_le(channel_output(&session.channel, &bytes),
                      CHANNEL_WIRE_MAX + FRAME_DATA_MAX + FRAME_HEADER_SIZE);
    send_spawned(&session.channel, 1);
    ck_assert_int_eq(carry(&session.channel, &launcher.channel, 1 << 20, &e), 0);
    ck_assert_ptr_nonnull(strchr(launcher.order, 'c'));
    ck_assert_int_lt(strchr(launcher.order, 'c') - launcher.order, 4);
}
END_TEST

START_TEST(shell_noise_is_skipped)
{
    struct err e = ERR_INIT;
    static char noise[60000];
    memset(noise, 'n', sizeof noise);
    ck_assert_int_eq(channel_receive(&launcher.channel, (const uint8_t *)"motd\n", 5, &e), 0);
    ck_assert_int_eq(channel_receive(&launcher.channel, (const uint8_t *)noise, sizeof noise, &e), 0);
    ck_assert(!channel_is_open(&launcher.channel));
    send_spawned(&session.channel, 3);
    ck_assert_int_eq(carry(&session.channel, &launcher.channel, 5, &e), 0);
    ck_assert(channel_is_open(&launcher.channel));
    ck_assert_uint_eq(launcher.last_rank, 3);
}
END_TEST

START_TEST(endless_noise_is_an_error)
{
    struct err e = ERR_INIT;
    static char noise[FRAME_NOISE_MAX + 100];
    memset(noise, 'n', sizeof noise);
    ck_assert_int_eq(channel_receive(&launcher.channel, (const uint8_t *)noise, sizeof noise, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
}
END_TEST

static void put_waiting(struct buf *b, const char *text)
{
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    CONTROL(m, LEASE_WAITING, lease_waiting, &waiting);
    waiting.text = (char *)(uintptr_t)text;
    ck_assert_int_eq(channel_pack_attach(&m, b), 0);
}

/* Gives the launcher's end what is in `b`, in pieces. */
static int give_launcher(struct buf *b, size_t piece, struct err *e)
{
    while (b->len > 0) {
        size_t n = b->len < piece ? b->len : piece;
        if (channel_receive(&launcher.channel, buf_data(b), n, e) < 0)
            return -1;
        buf_consume(b, n);
    }
    return 0;
}

/* Between the lines that a shell prints, and with the session right behind them. */
START_TEST(attach_speaks_before_the_session)
{
    struct err e = ERR_INIT;
    struct buf b;
    const uint8_t *bytes;
    buf_init(&b, 1 << 20);
    ck_assert_int_eq(buf_put(&b, "motd\177hvd-\n", 11), 0);
    put_waiting(&b, "place 2 of 2");
    put_waiting(&b, "place 1 of 2");
    ck_assert_int_eq(buf_put(&b, "more\n", 5), 0);
    put_waiting(&b, FRAME_MAGIC "in a text"); /* begins no session */
    send_spawned(&session.channel, 5);
    size_t len = channel_output(&session.channel, &bytes);
    ck_assert_int_eq(buf_put(&b, bytes, len), 0);
    ck_assert_msg(give_launcher(&b, (size_t[]){1, 7, 4096, 1 << 20}[_i], &e) == 0, "%s", e.text);
    ck_assert_str_eq(launcher.order, "aaac");
    ck_assert_str_eq(launcher.waiting, FRAME_MAGIC "in a text");
    ck_assert_uint_eq(launcher.last_rank, 5);
    buf_free(&b);
}
END_TEST

START_TEST(attach_may_speak_for_long)
{
    struct err e = ERR_INIT;
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 4000; i++) { /* more bytes than noise may have */
        put_waiting(&b, "waiting for 2 slots: place 1 of 1");
        ck_assert_msg(give_launcher(&b, 4096, &e) == 0, "%s", e.text);
    }
    ck_assert(!channel_is_open(&launcher.channel));
    buf_free(&b);
}
END_TEST

START_TEST(a_broken_frame_of_attach_is_refused)
{
    static const struct frame bad[] = {
        {.length = FRAME_ATTACH_MAX + 1, .kind = FRAME_CONTROL}, /* nothing of it is awaited */
        {.length = UINT32_MAX, .kind = FRAME_CONTROL},
        {.length = 0, .kind = FRAME_DATA},
        {.length = 0, .kind = 3},
        {.length = 4, .kind = FRAME_CONTROL}, /* no message */
    };
    struct err e = ERR_INIT;
    uint8_t frame[FRAME_HEADER_SIZE + 4];
    frame_encode_header(&bad[_i], frame);
    memset(frame + FRAME_HEADER_SIZE, 0xff, 4);
    ck_assert_int_eq(
        channel_receive(&launcher.channel, (const uint8_t *)FRAME_ATTACH_MAGIC, FRAME_MAGIC_SIZE, &e), 0);
    ck_assert_int_eq(channel_receive(&launcher.channel, frame, sizeof frame, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    ck_assert_str_eq(launcher.order, "");
}
END_TEST

START_TEST(a_message_of_attach_has_a_ceiling)
{
    char text[FRAME_ATTACH_MAX + 1];
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    CONTROL(m, LEASE_WAITING, lease_waiting, &waiting);
    struct buf b;
    buf_init(&b, 1 << 20);
    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    waiting.text = text;
    ck_assert_int_eq(channel_pack_attach(&m, &b), -1);
    ck_assert_uint_eq(b.len, 0);
    buf_free(&b);
}
END_TEST

/* A frame made by hand: header fields may be wrong. */
static int receive_raw(uint32_t length, uint8_t kind, uint8_t stream, uint32_t id, uint32_t sequence,
                       struct err *e)
{
    uint8_t header[FRAME_HEADER_SIZE];
    struct frame f = {length, kind, 0, stream, id, sequence, 0, NULL};
    frame_encode_header(&f, header);
    return channel_receive(&session.channel, header, sizeof header, e);
}

START_TEST(broken_frames_are_refused)
{
    static const struct {
        uint32_t length;
        uint8_t kind, stream;
        uint32_t id, sequence;
    } bad[] = {
        {0, 3, 0, 7, 0},                                 /* kind */
        {FRAME_PAYLOAD_MAX + 1, FRAME_CONTROL, 0, 7, 0}, /* length */
        {FRAME_DATA_MAX + 1, FRAME_DATA, 0, 7, 0},       /* length of data */
        {0, FRAME_DATA, 9, 7, 0},                        /* stream */
        {0, FRAME_DATA, 1, 8, 0},                        /* session */
        {0, FRAME_DATA, 1, 7, 1},                        /* a gap */
    };
    struct err e = ERR_INIT;
    ck_assert_int_eq(
        receive_raw(bad[_i].length, bad[_i].kind, bad[_i].stream, bad[_i].id, bad[_i].sequence, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    /* A channel that failed stays so. */
    struct err again = ERR_INIT;
    ck_assert_int_eq(receive_raw(0, FRAME_DATA, 1, 7, 0, &again), -1);
}
END_TEST

START_TEST(a_repeated_frame_is_refused)
{
    struct err e = ERR_INIT;
    ck_assert_int_eq(receive_raw(0, FRAME_DATA, 1, 7, 0, &e), 0);
    ck_assert_int_eq(receive_raw(0, FRAME_DATA, 1, 7, 0, &e), -1);
}
END_TEST

START_TEST(garbage_in_a_control_frame_is_refused)
{
    struct err e = ERR_INIT;
    uint8_t frame[FRAME_HEADER_SIZE + 4];
    struct frame f = {4, FRAME_CONTROL, 0, 0, 7, 0, 0, NULL};
    frame_encode_header(&f, frame);
    memset(frame + FRAME_HEADER_SIZE, 0xff, 4);
    ck_assert_int_eq(channel_receive(&session.channel, frame, sizeof frame, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
}
END_TEST

START_TEST(the_bulk_queue_has_a_ceiling)
{
    char big[FRAME_DATA_MAX] = {0};
    int sent = 0;
    while (channel_send_data(&session.channel, 0, STREAM_STDOUT, 0, big, sizeof big) == 0)
        ck_assert_int_lt(sent++, 1000);
    ck_assert_uint_le(channel_bulk_waiting(&session.channel), 1 << 20);
    /* The control queue is another one. */
    send_spawned(&session.channel, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("channel");
    TCase *t = tcase_create("channel");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, messages_arrive_in_pieces_of_any_size, 0, 4);
    tcase_add_test(t, control_overtakes_bulk);
    tcase_add_test(t, shell_noise_is_skipped);
    tcase_add_test(t, endless_noise_is_an_error);
    tcase_add_loop_test(t, attach_speaks_before_the_session, 0, 4);
    tcase_add_test(t, attach_may_speak_for_long);
    tcase_add_loop_test(t, a_broken_frame_of_attach_is_refused, 0, 5);
    tcase_add_test(t, a_message_of_attach_has_a_ceiling);
    tcase_add_loop_test(t, broken_frames_are_refused, 0, 6);
    tcase_add_test(t, a_repeated_frame_is_refused);
    tcase_add_test(t, garbage_in_a_control_frame_is_refused);
    tcase_add_test(t, the_bulk_queue_has_a_ceiling);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
