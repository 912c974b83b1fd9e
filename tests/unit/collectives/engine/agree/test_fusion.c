/* Fusion: the tensors that the execution list joins into one transfer, and the list as every host reads
 * it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/agree/execution_list.h"
#include "collectives/engine/agree/fusion.h"
#include "collectives/engine/run/run.h"
#include "collectives/engine/agree/tensor_cache.h"
#include "collectives/hvd.h"

#define LIMIT 4096

static struct tensor_cache *cache[2];
static struct execution_list *root, *other;
static uint8_t message[60 << 10];

static void set_up(void)
{
    for (int i = 0; i < 2; i++)
        cache[i] = tensor_cache_new(64);
    root = execution_list_new(1, cache[0], LIMIT, NULL);
    other = execution_list_new(1, cache[1], 0, NULL);
}

static void tear_down(void)
{
    execution_list_free(root);
    execution_list_free(other);
    for (int i = 0; i < 2; i++)
        tensor_cache_free(cache[i]);
}

static struct tensor_desc tensor(const char *name, hvd_dtype dtype, uint64_t count)
{
    struct tensor_desc d = {.what = {.kind = SHM_ALLREDUCE,
                                     .dtype = (uint8_t)dtype,
                                     .op = HVD_SUM,
                                     .count = count,
                                     .prescale = 1,
                                     .postscale = 1}};
    snprintf(d.name, sizeof d.name, "%s", name);
    return d;
}

static void append(const struct tensor_desc *d)
{
    struct err e = ERR_INIT;
    ck_assert_msg(execution_list_append(root, d, NULL, NULL, &e) == 0, "%s", e.text);
}

static void add(const char *name, hvd_dtype dtype, uint64_t count)
{
    struct tensor_desc d = tensor(name, dtype, count);
    append(&d);
}

/* The names on the list, "+" after one that travels with the next; the same on both hosts. */
static const char *listed(void)
{
    static char text[4096];
    struct list_entry entry, same;
    struct err e = ERR_INIT;
    long n;
    text[0] = '\0';
    while ((n = execution_list_encode(root, message, sizeof message, NULL)) > 0)
        ck_assert_msg(execution_list_receive(other, message, (size_t)n, &e) == 1, "%s", e.text);
    while (execution_list_next(root, &entry)) {
        ck_assert(execution_list_next(other, &same));
        ck_assert_str_eq(entry.desc.name, same.desc.name);
        ck_assert_int_eq(entry.joined, same.joined);
        ck_assert_uint_eq(entry.number, same.number);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", entry.desc.name, entry.joined ? "+" : " ");
    }
    ck_assert(!execution_list_next(other, &same));
    return text;
}

START_TEST(alike_ones_are_joined_up_to_the_limit)
{
    add("a", HVD_FLOAT32, 400);
    add("b", HVD_FLOAT32, 400);
    add("c", HVD_FLOAT32, 400); /* 4800 bytes */
    add("d", HVD_FLOAT32, 100);
    add("e", HVD_FLOAT32, 5000);
    ck_assert_str_eq(listed(), "a+b+d c e ");
    add("a", HVD_FLOAT32, 400);
    ck_assert_str_eq(listed(), "a ");
}
END_TEST

START_TEST(others_are_looked_over)
{
    add("a", HVD_FLOAT32, 1);
    add("x", HVD_FLOAT64, 1);
    add("b", HVD_FLOAT32, 2);
    add("y", HVD_FLOAT64, 2);
    add("c", HVD_FLOAT32, 3);
    ck_assert_str_eq(listed(), "a+b+c x+y ");
}
END_TEST

START_TEST(what_differs_is_not_joined)
{
    struct tensor_desc d[7];
    for (int i = 0; i < 7; i++) {
        char name[2] = {(char)('a' + i), 0};
        d[i] = tensor(name, HVD_FLOAT32, 5);
    }
    d[1].what.op = HVD_AVERAGE;
    d[2].what.prescale = 2;
    d[3].what.postscale = 2;
    d[4].what.set = 1;
    d[5].what.compression = HVD_COMPRESSION_FLOAT16;
    d[6].what.kind = SHM_BROADCAST;
    for (int i = 0; i < 7; i++)
        append(&d[i]);
    ck_assert_str_eq(listed(), "a b c d e f g ");
}
END_TEST

START_TEST(what_is_held_is_joined_later)
{
    struct tensor_desc barrier = {.name = "hvd.barrier",
                                  .what = {.kind = SHM_BARRIER, .prescale = 1, .postscale = 1}};
    execution_list_hold(root, true);
    add("a", HVD_FLOAT32, 1);
    ck_assert(!execution_list_wants_more(root));
    ck_assert_str_eq(listed(), "");
    add("large", HVD_FLOAT32, 5000); /* never joined, so nothing to wait for */
    add("b", HVD_FLOAT32, 1);
    ck_assert_str_eq(listed(), "large ");
    execution_list_hold(root, false);
    ck_assert(execution_list_wants_more(root));
    add("c", HVD_FLOAT32, 1);
    ck_assert_str_eq(listed(), "a+b+c ");
    execution_list_hold(root, true);
    add("a", HVD_FLOAT32, 1);
    add("b", HVD_FLOAT32, 1);
    append(&barrier); /* lets them go */
    ck_assert_str_eq(listed(), "a+b hvd.barrier ");
    add("c", HVD_FLOAT32, 1);
    ck_assert_str_eq(listed(), "");
}
END_TEST

START_TEST(gathering_ends_with_a_full_batch)
{
    struct tensor_desc barrier = {.name = "hvd.barrier",
                                  .what = {.kind = SHM_BARRIER, .prescale = 1, .postscale = 1}};
    ck_assert(!execution_list_could_gather(root));
    add("large", HVD_FLOAT32, 5000);
    ck_assert(!execution_list_could_gather(root));
    add("a", HVD_FLOAT32, 1000);
    ck_assert(execution_list_could_gather(root));
    add("b", HVD_FLOAT32, 24);
    ck_assert(!execution_list_could_gather(root)); /* 4096 bytes */
    ck_assert_str_eq(listed(), "large a+b ");
    ck_assert(!execution_list_could_gather(root));
    add("a", HVD_FLOAT32, 1);
    append(&barrier);
    ck_assert(!execution_list_could_gather(root));
}
END_TEST

START_TEST(the_limit_can_change_while_some_wait)
{
    execution_list_hold(root, true);
    add("a", HVD_FLOAT32, 100);
    add("b", HVD_FLOAT32, 2000);
    add("c", HVD_FLOAT32, 100);
    ck_assert_str_eq(listed(), "b ");
    add("b", HVD_FLOAT32, 2000);
    execution_list_fuse(root, 2 * LIMIT + 800);
    ck_assert_str_eq(listed(), ""); /* now all three may wait */
    ck_assert(execution_list_could_gather(root));
    execution_list_fuse(root, 0);
    ck_assert(!execution_list_could_gather(root));
    ck_assert_str_eq(listed(), "a c b "); /* nothing is held, nothing joined */
    execution_list_fuse(root, LIMIT);
    add("a", HVD_FLOAT32, 100);
    add("c", HVD_FLOAT32, 100);
    execution_list_hold(root, false);
    ck_assert_str_eq(listed(), "a+c ");
}
END_TEST

/* More than one message: no operation goes over its end. */
START_TEST(messages_end_with_an_operation)
{
    char name[256];
    uint32_t joined = 0, entries = 0;
    struct list_entry entry;
    struct err e = ERR_INIT;
    long n;
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "%0250d", i);
        add(name, HVD_UINT8, 1);
    }
    while ((n = execution_list_encode(root, message, sizeof message, NULL)) > 0) {
        ck_assert_msg(execution_list_receive(other, message, (size_t)n, &e) == 1, "%s", e.text);
        while (execution_list_next(other, &entry)) {
            entries++;
            joined += entry.joined;
        }
        ck_assert(!entry.joined);
    }
    ck_assert_uint_eq(entries, 600);
    ck_assert_uint_gt(joined, 550);
}
END_TEST

START_TEST(a_part_without_its_operation_is_refused)
{
    struct err e = ERR_INIT;
    add("a", HVD_FLOAT32, 1);
    long n = execution_list_encode(root, message, sizeof message, NULL);
    message[16 + 3] |= 0x20; /* joined, and nothing follows */
    ck_assert_int_eq(execution_list_receive(other, message, (size_t)n, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "does not go on"));
}
END_TEST

/* A list may come from a host that does not keep to the rules. */
START_TEST(in_flat_mode_nothing_travels_as_one)
{
    static struct engine engine;
    static struct run leader, member;
    for (int flat = 0; flat < 2; flat++) {
        engine.options.flat = flat;
        leader =
            (struct run){.engine = &engine, .entry = {.desc = tensor("a", HVD_FLOAT16, 8), .joined = true}};
        member = (struct run){.engine = &engine, .entry = {.desc = tensor("b", HVD_FLOAT16, 8)}};
        ck_assert_int_eq(batch_add(&leader, &member), !flat);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fusion");
    TCase *c = tcase_create("fusion");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, alike_ones_are_joined_up_to_the_limit);
    tcase_add_test(c, others_are_looked_over);
    tcase_add_test(c, what_differs_is_not_joined);
    tcase_add_test(c, what_is_held_is_joined_later);
    tcase_add_test(c, gathering_ends_with_a_full_batch);
    tcase_add_test(c, the_limit_can_change_while_some_wait);
    tcase_add_test(c, messages_end_with_an_operation);
    tcase_add_test(c, a_part_without_its_operation_is_refused);
    tcase_add_test(c, in_flat_mode_nothing_travels_as_one);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
