/* The values of the Gloo rendezvous: paths, limits, and rounds in which ranks meet; stores of several hosts
 * that tell each other what happens, in any order that keeps each host's own (HVD_SEED repeats it). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/rendezvous/gloo/gloo_store.h"
#include "tests/unit/processor_time.h"

#define HOSTS 4
#define RANKS 12 /* rank r is on host r % HOSTS */

static struct gloo_limits limits = {.keys = 100, .bytes = 100000, .value = 1000, .ranks = RANKS};

static struct gloo_path path_of(const char *text)
{
    struct gloo_path p;
    ck_assert_msg(gloo_path_parse(text, strlen(text), &p), "%s", text);
    return p;
}

static int put(struct gloo_store *s, const char *path, const char *text)
{
    struct gloo_path p = path_of(path);
    struct gloo_value *v = gloo_value_new(strlen(text));
    struct err e = ERR_INIT;
    memcpy(v->bytes, text, strlen(text));
    int rc = gloo_store_put(s, &p, v, &e);
    ck_assert_int_eq(rc, e.code ? -1 : 0);
    return rc;
}

static bool has(const struct gloo_store *s, const char *path, const char *text)
{
    struct gloo_path p = path_of(path);
    const struct gloo_value *v = gloo_store_get(s, &p);
    return v && v->len == strlen(text) && memcmp(v->bytes, text, v->len) == 0;
}

static bool finish(struct gloo_store *s, const char *path)
{
    struct gloo_path p = path_of(path);
    return gloo_store_delete(s, &p);
}

START_TEST(paths)
{
    static const char *const bad[] = {"",       "/",      "/a",       "/a/",    "//a",         "a/b", "/a/b/",
                                      "/a b/c", "/a/b c", "/a/b\x7f", "/a\n/b", "/\xc3\xa9/b", "//",  "///"};
    char longest[GLOO_PATH_MAX + 2];
    struct gloo_path p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!gloo_path_parse(bad[i], strlen(bad[i]), &p), "%s", bad[i]);
    ck_assert(!gloo_path_parse("/a/\0b", 5, &p));
    p = path_of("/global/rank_3");
    ck_assert(p.scope_len == 6 && memcmp(p.scope, "global", 6) == 0);
    ck_assert(p.key_len == 6 && memcmp(p.key, "rank_3", 6) == 0);
    memset(longest, 'k', sizeof longest);
    memcpy(longest, "/s/", 3);
    ck_assert(gloo_path_parse(longest, GLOO_PATH_MAX, &p));
    ck_assert(!gloo_path_parse(longest, GLOO_PATH_MAX + 1, &p));
}
END_TEST

START_TEST(ranks_of_paths)
{
    static const struct {
        const char *path;
        int rank; /* -1: none */
    } cases[] = {{"/global/0", 0},      {"/global/11", 11},        {"/global/12", -1},
                 {"/global/rank_5", 5}, {"/global/05", -1},        {"/global/rank_", -1},
                 {"/global/x", -1},     {"/globally/1", -1},       {"/local_node1/1", 1},
                 {"/local_/1", -1},     {"/cross_0/2", 2},         {"/global_process_set_hash_ab/3", 3},
                 {"/other/1", -1},      {"/global/9999999999", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gloo_path p = path_of(cases[i].path);
        uint32_t rank = 99;
        bool found = gloo_path_rank(&p, RANKS, &rank);
        ck_assert_msg(found == (cases[i].rank >= 0), "%s", cases[i].path);
        ck_assert(!found || rank == (uint32_t)cases[i].rank);
    }
}
END_TEST

START_TEST(keys_are_kept_and_replaced)
{
    struct gloo_store *s = gloo_store_new(&limits);
    ck_assert(!has(s, "/a/b", ""));
    ck_assert(!finish(s, "/a/b"));
    ck_assert_int_eq(put(s, "/a/b", "one"), 0);
    ck_assert_int_eq(put(s, "/b/b", "two"), 0);
    ck_assert_int_eq(put(s, "/a/b", "three!"), 0);
    ck_assert(has(s, "/a/b", "three!"));
    ck_assert(has(s, "/b/b", "two"));
    ck_assert_uint_eq(gloo_store_count(s).keys, 2);
    ck_assert(finish(s, "/a/b"));
    ck_assert(!has(s, "/a/b", "three!"));
    ck_assert(finish(s, "/b/b"));
    ck_assert_uint_eq(gloo_store_count(s).keys, 0);
    ck_assert_uint_eq(gloo_store_count(s).bytes, 0);
    ck_assert_uint_eq(gloo_store_count(s).scopes, 0);
    gloo_store_free(s);
}
END_TEST

START_TEST(limits_are_kept)
{
    struct gloo_store *s = gloo_store_new(&limits);
    char path[64], text[2000];
    memset(text, 'x', sizeof text);
    text[1001] = '\0';
    ck_assert_int_eq(put(s, "/a/long", text), -1);
    text[1000] = '\0';
    ck_assert_int_eq(put(s, "/a/long", text), 0);
    int n = 1;
    for (; n < 200; n++) {
        snprintf(path, sizeof path, "/a/%d", n);
        if (put(s, path, text) < 0)
            break;
    }
    ck_assert_int_ge(n, 80); /* of 100,000 bytes */
    ck_assert_int_lt(n, 100);
    ck_assert_uint_le(gloo_store_count(s).bytes, limits.bytes);
    ck_assert_int_eq(put(s, "/a/long", "short"), 0); /* makes room */
    ck_assert_int_eq(put(s, "/a/1", text), 0);       /* takes no more than before */
    for (int i = 1; i < n; i++) {
        snprintf(path, sizeof path, "/a/%d", i);
        ck_assert(finish(s, path));
    }
    for (n = 1; n < 200 && (snprintf(path, sizeof path, "/b%d/k", n), put(s, path, "") == 0); n++)
        ;
    ck_assert_int_eq(n, 100); /* keys */
    gloo_store_free(s);
}
END_TEST

/* Ranks that begin rounds without end, and take their keys away: what is left of each is counted. */
START_TEST(scopes_without_keys_are_limited)
{
    struct gloo_store *s = gloo_store_new(&limits);
    struct gloo_limits little = limits;
    char path[64];
    int n = 0;
    for (; n < 1000; n++) {
        snprintf(path, sizeof path, "/local_%d/rank_0", n);
        if (put(s, path, "") < 0)
            break;
        ck_assert(finish(s, path));
    }
    ck_assert_int_eq(n, 100);
    ck_assert_uint_eq(gloo_store_count(s).keys, 0);
    ck_assert_int_eq(put(s, "/local_0/rank_0", ""), 0); /* the key is there already */
    gloo_store_free(s);

    little.keys = 10000;
    little.ranks = 5000; /* a byte for each in every scope */
    s = gloo_store_new(&little);
    for (n = 0; n < 1000 && (snprintf(path, sizeof path, "/cross_%d/0", n), put(s, path, "") == 0); n++)
        ;
    ck_assert_int_ge(n, 15);
    ck_assert_int_lt(n, 20);
    ck_assert_uint_le(gloo_store_count(s).bytes, little.bytes);
    gloo_store_free(s);
}
END_TEST

START_TEST(a_value_outlives_its_key)
{
    struct gloo_store *s = gloo_store_new(&limits);
    struct gloo_path p = path_of("/a/b");
    put(s, "/a/b", "still here");
    struct gloo_value *v = gloo_value_share(gloo_store_get(s, &p));
    ck_assert(finish(s, "/a/b"));
    gloo_store_free(s);
    ck_assert(v->len == 10 && memcmp(v->bytes, "still here", 10) == 0);
    gloo_value_release(v);
}
END_TEST

static uint32_t three(void *ctx, const struct gloo_path *path)
{
    (void)ctx, (void)path;
    return 3;
}

START_TEST(a_round_ends_when_all_have_finished)
{
    struct gloo_limits known = limits;
    known.members = three;
    struct gloo_store *s = gloo_store_new(&known);
    put(s, "/global/rank_0", "a");
    put(s, "/global/0", "A");
    ck_assert(finish(s, "/global/0")); /* against the rules: nobody else is there yet */
    ck_assert(has(s, "/global/0", "A"));
    ck_assert(!finish(s, "/global/1"));
    put(s, "/global/1", "B");
    put(s, "/global/2", "C");
    ck_assert(finish(s, "/global/1"));
    ck_assert(finish(s, "/global/1")); /* twice is once */
    ck_assert(has(s, "/global/0", "A"));
    ck_assert(finish(s, "/global/2"));
    ck_assert(!has(s, "/global/0", "A"));
    ck_assert_uint_eq(gloo_store_count(s).scopes, 0);
    ck_assert(!finish(s, "/global/2"));
    gloo_store_free(s);
}
END_TEST

START_TEST(one_alone)
{
    struct gloo_store *s = gloo_store_new(&limits);
    put(s, "/cross_0/0", "");
    ck_assert(has(s, "/cross_0/0", ""));
    ck_assert(finish(s, "/cross_0/0"));
    ck_assert_uint_eq(gloo_store_count(s).keys, 0);
    ck_assert_uint_eq(gloo_store_count(s).scopes, 0);
    gloo_store_free(s);
}
END_TEST

START_TEST(the_end_of_an_earlier_round_comes_late)
{
    struct gloo_store *s = gloo_store_new(&limits);
    put(s, "/global/0", "A");
    put(s, "/global/1", "B");
    ck_assert(finish(s, "/global/0"));
    put(s, "/global/rank_0", "a2"); /* the next round; rank 1's end was not heard yet */
    ck_assert(!has(s, "/global/1", "B"));
    put(s, "/global/0", "A2");
    ck_assert(finish(s, "/global/1")); /* here it is: nothing new */
    ck_assert(has(s, "/global/0", "A2"));
    put(s, "/global/1", "B2");
    ck_assert(finish(s, "/global/1"));
    ck_assert(has(s, "/global/1", "B2"));
    ck_assert(finish(s, "/global/0"));
    ck_assert_uint_eq(gloo_store_count(s).keys, 0);
    ck_assert_uint_eq(gloo_store_count(s).scopes, 0);
    gloo_store_free(s);
}
END_TEST

/* ---- several hosts ------------------------------------------------------------------------------------- */

struct letter {
    struct letter *next;
    uint8_t *bytes;
    size_t len;
};

static struct gloo_store *store[HOSTS];
static struct letter *way[HOSTS][HOSTS]; /* from, to: oldest first */

static void tell(int from, enum gloo_word word, const struct gloo_path *p, const struct gloo_value *v)
{
    for (int to = 0; to < HOSTS; to++) {
        if (to == from)
            continue;
        struct letter *l = calloc(1, sizeof *l), **at = &way[from][to];
        l->bytes = gloo_message_write(word, p, v, &l->len);
        while (*at)
            at = &(*at)->next;
        *at = l;
    }
}

static bool deliver_one(void)
{
    int first = rand() % (HOSTS * HOSTS);
    for (int k = 0; k < HOSTS * HOSTS; k++) {
        int i = (first + k) % (HOSTS * HOSTS), from = i / HOSTS, to = i % HOSTS;
        struct letter *l = way[from][to];
        if (!l)
            continue;
        struct gloo_path p;
        struct gloo_value *v;
        enum gloo_word word;
        struct err e = ERR_INIT;
        way[from][to] = l->next;
        ck_assert_int_eq(gloo_message_read(l->bytes, l->len, &word, &p, &v, &e), 0);
        if (word == GLOO_WORD_PUT)
            ck_assert_int_eq(gloo_store_put(store[to], &p, v, &e), 0);
        else
            (void)gloo_store_delete(store[to], &p);
        free(l->bytes);
        free(l);
        return true;
    }
    return false;
}

/* The next step of a rank in its round; false while it must wait. steps: put rank_r, put r, see all, finish.
 */
static bool step(int rank, int round, int *at)
{
    char path[64], text[32];
    int host = rank % HOSTS;
    struct gloo_store *s = store[host];
    if (*at == 2) {
        for (int i = 0; i < RANKS; i++) {
            snprintf(path, sizeof path, "/global_process_set_hash_1/%d", i);
            snprintf(text, sizeof text, "%d of %d", i, round);
            if (!has(s, path, text))
                return false;
        }
        ++*at;
        return true;
    }
    snprintf(path, sizeof path, "/global_process_set_hash_1/%s%d", *at == 0 ? "rank_" : "", rank);
    struct gloo_path p = path_of(path);
    if (*at == 3) {
        ck_assert(gloo_store_delete(s, &p));
        tell(host, GLOO_WORD_DELETE, &p, NULL);
    } else {
        snprintf(text, sizeof text, "%d of %d", rank, round);
        ck_assert_int_eq(put(s, path, text), 0);
        tell(host, GLOO_WORD_PUT, &p, gloo_store_get(s, &p));
    }
    ++*at;
    return true;
}

/* Rounds follow each other as soon as all ranks have finished one, however late the hosts hear of it. */
START_TEST(many_rounds_in_any_order)
{
    const char *given = getenv("HVD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL) + (unsigned)_i * 7919;
    printf("HVD_SEED=%u\n", seed);
    srand(seed);
    for (int h = 0; h < HOSTS; h++)
        store[h] = gloo_store_new(&limits);
    for (int round = 0; round < 20; round++) {
        int at[RANKS] = {0}, done = 0, idle = 0;
        while (done < RANKS && idle < 100000) {
            int rank = rand() % RANKS;
            bool moved = at[rank] < 4 && step(rank, round, &at[rank]);
            done += moved && at[rank] == 4;
            moved = (rand() % 3 == 0 && deliver_one()) || moved;
            idle = moved ? 0 : idle + 1;
        }
        ck_assert_msg(done == RANKS, "round %d: only %d ranks have finished", round, done);
    }
    while (deliver_one())
        ;
    for (int h = 0; h < HOSTS; h++) {
        ck_assert_uint_eq(gloo_store_count(store[h]).keys, 0);
        ck_assert_uint_eq(gloo_store_count(store[h]).bytes, 0);
        ck_assert_uint_eq(gloo_store_count(store[h]).scopes, 0);
        gloo_store_free(store[h]);
    }
}
END_TEST

START_TEST(wrong_messages)
{
    static const char *const bad[] = {
        "", "\x01", "\x03\x04\x00/a/b", "\x01\x05\x00/a/b", "\x01\x04\x00/abc", "\x02\x04\x00/a/b and more"};
    static const size_t len[] = {0, 1, 7, 7, 7, 16};
    struct gloo_path p;
    struct gloo_value *v;
    enum gloo_word word;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = ERR_INIT;
        ck_assert_int_eq(gloo_message_read((const uint8_t *)bad[i], len[i], &word, &p, &v, &e), -1);
        ck_assert_int_eq(e.code, ERR_PROTOCOL);
        ck_assert_ptr_null(v);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gloo_store");
    TCase *c = tcase_create("gloo_store");
    case_computes(c);
    tcase_add_test(c, paths);
    tcase_add_test(c, ranks_of_paths);
    tcase_add_test(c, keys_are_kept_and_replaced);
    tcase_add_test(c, limits_are_kept);
    tcase_add_test(c, scopes_without_keys_are_limited);
    tcase_add_test(c, a_value_outlives_its_key);
    tcase_add_test(c, a_round_ends_when_all_have_finished);
    tcase_add_test(c, one_alone);
    tcase_add_test(c, the_end_of_an_earlier_round_comes_late);
    tcase_add_loop_test(c, many_rounds_in_any_order, 0, 20);
    tcase_add_test(c, wrong_messages);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
