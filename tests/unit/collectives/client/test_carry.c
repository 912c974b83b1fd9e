/* Sets that are carried over a change of the ranks: by their workers, to their new ranks.
 *
 * needs: client */
#include <string.h>
#include <unistd.h>

#include "collectives/client/carry.h"
#include "collectives/client/sets.h"

#include <check.h> /* behind: it has a macro fail() */

#define SIZE 6

/* The present ranks are these workers; this process is rank 0. */
static void enter(const uint32_t *worker, uint32_t size, uint32_t membership)
{
    struct region_shape shape = {
        .members = 1, .hosts = 1, .size = size, .epoch = membership, .elastic = true};
    struct err e = ERR_INIT;
    int fd = region_create(&client.region, &shape, &e);

    ck_assert_msg(fd >= 0, "%s", e.text);
    memcpy(region_workers(&client.region), worker, size * sizeof *worker);
    region_unmap(&client.region);
    ck_assert_msg(region_map(&client.region, fd, &e) == 0, "%s", e.text);
    close(fd);
    client.size = (int)size;
    client.local_size = 1;
    client.epochs = membership;
    ck_assert_int_eq(set_table_open(), HVD_SUCCESS);
    ck_assert_int_eq(carry_meet(), HVD_SUCCESS);
}

static void leave(void)
{
    set_table_save();
    set_table_close();
    region_unmap(&client.region);
}

static void add(hvd_set id, const uint32_t *rank, uint32_t n)
{
    ck_assert_int_eq(set_make(id, rank, n), HVD_SUCCESS);
    client.sets = (uint32_t)id + 1;
}

static void setup(void)
{
    static const uint32_t first[SIZE] = {0, 1, 2, 3, 4, 5};

    enter(first, SIZE, 1);
}

static void teardown(void)
{
    leave();
    carry_drop_all();
}

START_TEST(ranks_follow_their_workers)
{
    uint32_t now[] = {0, 2, 5, 9, 7}, rank[SIZE];

    add(1, (uint32_t[]){1, 2, 5}, 3);
    add(2, (uint32_t[]){0, 1, 2, 3, 4, 5}, 6);
    add(3, (uint32_t[]){1, 3}, 2);
    leave();
    enter(now, 5, 2);
    ck_assert_uint_eq(carry_count()->next, 4);
    ck_assert_uint_eq(carry_ranks(carry_find(1), rank), 2);
    ck_assert(rank[0] == 1 && rank[1] == 2);
    ck_assert_uint_eq(carry_ranks(carry_find(2), rank), 3);
    ck_assert(rank[0] == 0 && rank[1] == 1 && rank[2] == 2);
    ck_assert_uint_eq(carry_ranks(carry_find(3), rank), 0);
    ck_assert_ptr_null(carry_find(4));
}
END_TEST

START_TEST(a_set_that_is_over_is_named)
{
    uint32_t now[] = {0, 2};

    add(1, (uint32_t[]){1, 3, 4}, 3);
    ck_assert_ptr_nonnull(set_find(1));
    leave();
    for (uint32_t membership = 2; membership < 4; membership++) {
        enter(now, 2, membership);
        carry_find(1)->over = true;
        ck_assert_ptr_null(set_find(1));
        ck_assert_int_eq(last_failure(), HVD_ERR_SET_UNKNOWN);
        ck_assert_str_eq(hvd_last_error(),
                         "process set 1 (ranks 1, 3 to 4 of membership 1) has no rank that is left");
        ck_assert_ptr_null(set_find(2));
        ck_assert_str_eq(hvd_last_error(), "there is no process set 2");
        leave();
    }
    enter(now, 2, 4);
}
END_TEST

START_TEST(a_removed_set_is_not_carried)
{
    uint32_t now[] = {0, 1};

    add(1, (uint32_t[]){0, 1}, 2);
    atomic_store(&client.removed[1], true);
    leave();
    enter(now, 2, 2);
    ck_assert_ptr_null(carry_find(1));
}
END_TEST

/* All ranks of a set have one key, through all memberships; a later set of the same name has another one, if
 * its workers are others. */
START_TEST(an_opened_set_keeps_its_key)
{
    const uint32_t both[] = {0, 1}, three[] = {0, 1, 2};
    uint32_t now[] = {0, 2, 3};
    hvd_set a, b;

    ck_assert_int_eq(set_make_opened("x", SHM_SETS_MAX, three, 3, &a), HVD_SUCCESS);
    ck_assert_int_eq(set_make_opened("x", SHM_SETS_MAX + SIZE, both, 2, &b), HVD_SUCCESS);
    leave();
    uint64_t key = carry_find(a)->key;
    ck_assert_uint_ne(key, carry_find(b)->key);
    enter(now, 3, 2);
    carry_find(b)->over = true;
    ck_assert_int_eq(set_make_again(a, carry_find(a)->name, SHM_SETS_MAX, both, 2), HVD_SUCCESS);
    ck_assert_str_eq(set_opened_name(a), "x");
    hvd_set c;
    ck_assert_int_eq(set_make_opened("y", SHM_SETS_MAX + 3, both, 2, &c), HVD_SUCCESS);
    ck_assert_int_ne(c, b); /* its number stays for the sentence */
    set_free_opened(c);
    leave();
    ck_assert_uint_eq(carry_find(a)->key, key);
    ck_assert_ptr_null(carry_find(c));
    enter(now, 3, 3);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("carry");
    TCase *tc = tcase_create("carry");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, ranks_follow_their_workers);
    tcase_add_test(tc, a_set_that_is_over_is_named);
    tcase_add_test(tc, a_removed_set_is_not_carried);
    tcase_add_test(tc, an_opened_set_keeps_its_key);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
