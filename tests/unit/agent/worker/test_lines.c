/* Lines from bytes: whatever the cuts between reads, the bytes stay the same and no frame tears a line that
 * fits. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/line_splitter.h"
#include "tests/unit/processor_time.h"

struct sink {
    uint8_t bytes[1 << 20];
    size_t len;
    struct {
        size_t len;
        uint8_t flags;
    } frame[4096];
    unsigned frames;
};

static struct sink sink;
static struct lines lines;

static int take(void *ctx, uint8_t flags, const uint8_t *bytes, size_t len)
{
    ck_assert_uint_ge(len, 1);
    ck_assert_uint_le(len, FRAME_DATA_MAX);
    ck_assert_uint_le(sink.len + len, sizeof sink.bytes);
    memcpy(sink.bytes + sink.len, bytes, len);
    sink.len += len;
    sink.frame[sink.frames].len = len;
    sink.frame[sink.frames++].flags = flags;
    return 0;
}

static void put(const char *text)
{
    ck_assert_int_eq(lines_put(&lines, (const uint8_t *)text, strlen(text), 1000, take, NULL), 0);
}

static void flush(void)
{
    ck_assert_int_eq(lines_flush(&lines, take, NULL), 0);
}

static void expect(unsigned frame, const char *text, uint8_t flags)
{
    size_t at = 0;
    for (unsigned i = 0; i < frame; i++)
        at += sink.frame[i].len;
    ck_assert_uint_lt(frame, sink.frames);
    ck_assert_uint_eq(sink.frame[frame].len, strlen(text));
    ck_assert_mem_eq(sink.bytes + at, text, strlen(text));
    ck_assert_uint_eq(sink.frame[frame].flags, flags);
}

static void set_up(void)
{
    memset(&sink, 0, sizeof sink);
    lines_free(&lines);
    lines.max = 0;
}

START_TEST(whole_lines_go_at_once)
{
    put("a\nb\nrest");
    ck_assert_uint_eq(sink.frames, 1);
    expect(0, "a\nb\n", FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(lines_due(&lines), 1000 + LINES_PATIENCE);
    put(" of it\nc\n");
    expect(1, "rest of it\n", FRAME_FLAG_LINE_END);
    expect(2, "c\n", FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(lines_due(&lines), UINT64_MAX);
    ck_assert_ptr_null(lines.held);
}
END_TEST

START_TEST(unfinished_is_marked)
{
    put("prompt> ");
    flush();
    expect(0, "prompt> ", FRAME_FLAG_UNFINISHED);
    flush();
    ck_assert_uint_eq(sink.frames, 1);
    put("answer\n");
    expect(1, "answer\n", FRAME_FLAG_LINE_END);
}
END_TEST

START_TEST(a_line_may_advance_in_pieces)
{
    put("a line that goes ");
    ck_assert_int_eq(lines_advance(&lines, take, NULL), 0);
    expect(0, "a line that goes", 0);
    put("on\n");
    expect(1, " on\n", FRAME_FLAG_LINE_END);
    /* One byte is always kept, so that lines_flush can tell that the line is unfinished. */
    put("xy");
    ck_assert_int_eq(lines_advance(&lines, take, NULL), 0);
    ck_assert_int_eq(lines_advance(&lines, take, NULL), 0);
    flush();
    expect(2, "x", 0);
    expect(3, "y", FRAME_FLAG_UNFINISHED);
}
END_TEST

START_TEST(carriage_returns)
{
    put("10%\r20%\r");
    expect(0, "10%\r", FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(sink.frames, 1); /* a \n may follow the second one */
    put("\ndone\r\n");
    expect(1, "20%\r\n", FRAME_FLAG_LINE_END);
    expect(2, "done\r\n", FRAME_FLAG_LINE_END);
    put("30%\r");
    put("40%\r");
    expect(3, "30%\r", FRAME_FLAG_LINE_END);
    flush();
    expect(4, "40%\r", FRAME_FLAG_LINE_END);
}
END_TEST

static void put_long(size_t len, bool end)
{
    uint8_t *bytes = malloc(len);
    memset(bytes, 'x', len);
    if (end)
        bytes[len - 1] = '\n';
    ck_assert_int_eq(lines_put(&lines, bytes, len, 1, take, NULL), 0);
    free(bytes);
}

START_TEST(a_long_line_stays_together)
{
    put_long(40000, false);
    ck_assert_uint_eq(sink.frames, 0);
    put_long(20000, true);
    ck_assert_uint_eq(sink.frames, 2);
    ck_assert_uint_eq(sink.frame[0].flags, 0);
    ck_assert_uint_eq(sink.frame[1].flags, FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(sink.len, 60000);
}
END_TEST

START_TEST(a_longer_one_is_split)
{
    for (int i = 0; i < 5; i++)
        put_long(50000, false);
    ck_assert_uint_ge(sink.len, 250000 - LINE_LENGTH_MAX);
    unsigned pieces = 0;
    for (unsigned i = 0; i < sink.frames; i++)
        pieces += sink.frame[i].flags == FRAME_FLAG_UNFINISHED;
    ck_assert_uint_eq(pieces, 3);
    put("\n");
    ck_assert_uint_eq(sink.frame[sink.frames - 1].flags, FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(sink.len, 250001);
}
END_TEST

START_TEST(another_limit)
{
    static const struct {
        uint32_t max;
        unsigned pieces;
    } cases[] = {{1024, 244}, {100000, 2}, {250001, 0}, {1u << 30, 0}};
    lines.max = cases[_i].max;
    for (int i = 0; i < 5; i++)
        put_long(50000, false);
    unsigned pieces = 0;
    for (unsigned i = 0; i < sink.frames; i++)
        pieces += sink.frame[i].flags == FRAME_FLAG_UNFINISHED;
    ck_assert_uint_eq(pieces, cases[_i].pieces);
    put("\n");
    ck_assert_uint_eq(sink.frame[sink.frames - 1].flags, FRAME_FLAG_LINE_END);
    ck_assert_uint_eq(sink.len, 250001);
}
END_TEST

static bool is_end(const uint8_t *text, size_t i, size_t len)
{
    return text[i] == '\n' || (text[i] == '\r' && !(i + 1 < len && text[i + 1] == '\n'));
}

/* Random text in random cuts: nothing lost, every LINE_END is one, and every end of a line short enough is in
 * a frame that says so. */
START_TEST(any_cut)
{
    static uint8_t text[300000];
    srand((unsigned)_i + 1);
    for (size_t i = 0; i < sizeof text; i++) {
        int r = rand() % (_i % 2 ? 40 : 20000);
        text[i] = r == 0 ? '\n' : r == 1 ? '\r' : (uint8_t)('a' + r % 26);
    }
    for (size_t at = 0; at < sizeof text;) {
        size_t len = 1 + (size_t)rand() % (_i % 3 ? 70 : 65536);
        len = len < sizeof text - at ? len : sizeof text - at;
        ck_assert_int_eq(lines_put(&lines, text + at, len, 1, take, NULL), 0);
        ck_assert_uint_le(lines.len, LINE_LENGTH_MAX);
        at += len;
        if (sink.frames > 3000)
            break;
    }
    ck_assert_mem_eq(sink.bytes, text, sink.len);
    size_t end = 0;
    for (unsigned i = 0; i < sink.frames; i++) {
        end += sink.frame[i].len;
        ck_assert(sink.frame[i].flags != FRAME_FLAG_LINE_END || is_end(text, end - 1, sizeof text));
        ck_assert(sink.frame[i].flags == FRAME_FLAG_LINE_END || !is_end(text, end - 1, sizeof text));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lines");
    TCase *t = tcase_create("lines");
    case_computes(t);
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, whole_lines_go_at_once);
    tcase_add_test(t, unfinished_is_marked);
    tcase_add_test(t, a_line_may_advance_in_pieces);
    tcase_add_test(t, carriage_returns);
    tcase_add_test(t, a_long_line_stays_together);
    tcase_add_test(t, a_longer_one_is_split);
    tcase_add_loop_test(t, another_limit, 0, 4);
    tcase_add_loop_test(t, any_cut, 0, 12);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
