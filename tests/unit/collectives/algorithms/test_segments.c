/* How tensors are cut among hosts, and who sends a broadcast to whom. */
#include <check.h>
#include <stdlib.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/segments.h"

#define HOSTS_MAX 130

START_TEST(segments_cover_a_tensor_once)
{
    static const uint64_t counts[] = {0, 1, 15, 16, 17, 1000, 12345, 1u << 20, 123456789};
    for (size_t size = 4; size <= 8; size += 4)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (uint32_t hosts = 1; hosts <= HOSTS_MAX; hosts++) {
                uint64_t end = 0, most = 0;
                for (uint32_t i = 0; i < hosts; i++) {
                    struct segment s = segment_of(counts[c], size, hosts, i);
                    ck_assert(s.offset == end && s.size % size == 0 && (s.offset % 64 == 0 || s.size == 0));
                    end += s.size;
                    most = s.size > most ? s.size : most;
                }
                ck_assert(end == counts[c] * size && most <= counts[c] * size / hosts + 64 + size);
            }
}
END_TEST

START_TEST(pieces_cover_a_segment_once)
{
    static const uint64_t sizes[] = {4, 64, 100, 16384, 16388, 1u << 20, (1u << 20) + 4, 100000004};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t piece = segment_piece(sizes[i], i % 2 ? SEGMENT_PIECE_DEFAULT : 1 << 20);
        uint64_t at = 0, n = 0;
        ck_assert(piece > 0 && piece % 64 == 0);
        for (; at < sizes[i]; n++)
            at += segment_piece_at(sizes[i], piece, at);
        ck_assert(at == sizes[i]);
        for (uint32_t peers = 0; peers < HOSTS_MAX; peers++) {
            uint32_t window = segment_window(sizes[i], piece, peers, 1 << 20);
            ck_assert(window >= 1 && window <= n && window <= 8);
        }
    }
    ck_assert_uint_eq(segment_window(0, segment_piece(0, SEGMENT_PIECE_DEFAULT), 3, 1 << 20), 0);
}
END_TEST

START_TEST(pieces_fit_packets)
{
    const uint32_t fit = SEGMENT_PIECE_DEFAULT / SEGMENT_PACKET_MAX * SEGMENT_PACKET;
    for (uint64_t size = 64; size < 100u << 20; size += size / 3 / 64 * 64 + 64) {
        uint32_t piece = segment_piece(size, fit);
        uint32_t before = segment_piece(size, SEGMENT_PIECE_DEFAULT);
        ck_assert(piece <= before && piece > before / 2 && piece % 64 == 0);
        ck_assert(piece <= SEGMENT_PACKET || piece % SEGMENT_PACKET == 0);
    }
    ck_assert_uint_eq(segment_piece(512 << 10, fit), SEGMENT_PACKET);
    ck_assert_uint_eq(segment_piece(512 << 10, SEGMENT_PIECE_DEFAULT), 64 << 10); /* as release 0.1.0 cuts */
    ck_assert_uint_eq(segment_piece(1u << 30, fit), fit);
}
END_TEST

/* Every host has one parent that counts it among its children, and the root is above all. */
START_TEST(broadcast_trees_reach_everyone)
{
    static const uint64_t bytes[] = {4, 100u << 20};
    for (int b = 0; b < 2; b++)
        for (uint32_t hosts = 1; hosts <= HOSTS_MAX; hosts++)
            for (uint32_t root = 0; root<hosts; root += hosts> 4 ? hosts / 4 : 1) {
                uint32_t children = 0, deepest = 0;
                for (uint32_t h = 0; h < hosts; h++) {
                    struct broadcast_tree t = broadcast_tree_of(h, hosts, root, bytes[b]);
                    children += t.children;
                    for (uint32_t i = 0; i < t.children; i++)
                        ck_assert(broadcast_tree_of(t.child[i], hosts, root, bytes[b]).parent == h);
                    uint32_t depth = 0, at = h;
                    for (; at != root && depth <= hosts; depth++)
                        at = broadcast_tree_of(at, hosts, root, bytes[b]).parent;
                    ck_assert(at == root);
                    deepest = depth > deepest ? depth : deepest;
                }
                ck_assert(children == hosts - 1);
                ck_assert(b == 1 ? deepest == hosts - 1 : deepest <= 8);
            }
}
END_TEST

/* The largest allreduce that goes in one trip, with 16 KiB of eager_bytes. */
static const struct {
    uint32_t hosts;
    uint64_t most;
} eager[] = {{2, 1u << 20}, {3, 147457}, {4, 65536}, {9, 15799}, {64, 1610}};

START_TEST(one_trip_while_few_bytes_are_sent_in_vain)
{
    struct exchange x = {.hosts = eager[_i].hosts, .eager_bytes = 16u << 10};
    ck_assert(eager_allreduce_fits(0, &x));
    ck_assert(eager_allreduce_fits(eager[_i].most, &x));
    ck_assert(!eager_allreduce_fits(eager[_i].most + 4, &x));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("segments");
    TCase *c = tcase_create("segments");
    tcase_set_timeout(c, 20);
    tcase_add_test(c, segments_cover_a_tensor_once);
    tcase_add_loop_test(c, one_trip_while_few_bytes_are_sent_in_vain, 0, sizeof eager / sizeof *eager);
    tcase_add_test(c, pieces_cover_a_segment_once);
    tcase_add_test(c, pieces_fit_packets);
    tcase_add_test(c, broadcast_trees_reach_everyone);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
