/* The tree of many hosts in one process: messages wait on the edges of the tree and are delivered in a
 * random order that keeps each edge's own (HVD_SEED prints and repeats it). */
#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/tree/tree.h"

#define HOSTS_MAX 200

struct letter {
    struct letter *next;
    uint8_t *bytes;
    size_t len;
};

struct host {
    struct tree *x;
    uint32_t index;
    struct letter *edge[HOSTS_MAX]; /* to that neighbour, oldest first */
    unsigned sent, waits, missed;
    unsigned gathered, failed;
    char text[HOSTS_MAX * 8]; /* of the last gather or answer */
    unsigned told;            /* broadcasts */
    uint32_t last_told[HOSTS_MAX];
    bool refuse;
};

static struct host host[HOSTS_MAX];
static uint32_t hosts;

static void on_send(void *ctx, uint32_t neighbour, uint8_t *bytes, size_t len)
{
    struct host *h = ctx;
    struct letter *l = malloc(sizeof *l), **at = &h->edge[neighbour];
    ck_assert(tree_is_neighbour(h->index, neighbour));
    *l = (struct letter){NULL, bytes, len};
    while (*at)
        at = &(*at)->next;
    *at = l;
    h->sent++;
}

static void on_wait(void *ctx)
{
    struct host *h = ctx;
    h->waits++;
}

static void on_request(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    struct host *h = ctx;
    struct err e = ERR_INIT;
    char text[64];
    int n = snprintf(text, sizeof text, "%.*s of %u", (int)len, (const char *)data, h->index);
    err_set(&e, ERR_NOT_FOUND, "host %u has none", h->index);
    tree_answer(h->x, TREE_PMIX, from, ticket, h->refuse ? &e : NULL, text, (size_t)n);
}

static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    struct host *h = ctx;
    uint32_t n;
    ck_assert_uint_eq(len, sizeof n);
    memcpy(&n, data, sizeof n);
    ck_assert_uint_eq(n, h->last_told[from] + 1); /* in order */
    h->last_told[from] = n;
    h->told++;
}

static const struct tree_handler handler = {on_request, on_broadcast};

static void done(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct host *h = ctx;
    h->failed += why != NULL;
    h->gathered += why == NULL;
    snprintf(h->text, sizeof h->text, "%.*s", why ? 700 : (int)len, why ? why->text : (const char *)data);
}

static void on_missed(void *ctx, const struct err *why)
{
    struct host *h = ctx;
    ck_assert_uint_eq(why->code, ERR_CLOSED);
    h->missed++;
}

static void set_up(uint32_t count)
{
    static const struct tree_events events = {on_send, on_wait, on_missed};
    hosts = count;
    memset(host, 0, sizeof host);
    for (uint32_t i = 0; i < hosts; i++) {
        host[i].index = i;
        host[i].x = tree_new(i, hosts, &events, &host[i]);
        tree_serve(host[i].x, TREE_PMIX, &handler, &host[i]);
    }
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < hosts; i++) {
        tree_free(host[i].x);
        for (uint32_t j = 0; j < hosts; j++)
            while (host[i].edge[j]) {
                struct letter *l = host[i].edge[j];
                host[i].edge[j] = l->next;
                free(l->bytes);
                free(l);
            }
    }
}

/* Delivers the oldest letter of a random edge; false when there is none. */
static bool deliver_one(void)
{
    uint32_t from[HOSTS_MAX * 2], to[HOSTS_MAX * 2], n = 0;
    for (uint32_t i = 0; i < hosts; i++)
        for (uint32_t j = 0; j < hosts; j++)
            if (host[i].edge[j]) {
                from[n] = i;
                to[n++] = j;
            }
    if (n == 0)
        return false;
    uint32_t k = (uint32_t)rand() % n;
    struct letter *l = host[from[k]].edge[to[k]];
    struct err e = ERR_INIT;
    host[from[k]].edge[to[k]] = l->next;
    ck_assert_msg(tree_received(host[to[k]].x, from[k], l->bytes, l->len, &e) == 0, "%s", e.text);
    free(l->bytes);
    free(l);
    return true;
}

static void join(uint32_t i, const char *id, const uint32_t *list, size_t n)
{
    char blob[16];
    int len = snprintf(blob, sizeof blob, "%u,", i);
    tree_gather(host[i].x, TREE_PMIX, id, strlen(id), list, n, blob, (size_t)len, done, &host[i]);
}

static void expect_text(const uint32_t *list, size_t n, char *text)
{
    *text = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), 8, "%u,", list[i]);
}

START_TEST(test_gather_of_some)
{
    static const uint32_t sizes[] = {1, 2, 3, 9, 10, 73, 74, 200};
    for (unsigned round = 0; round < 60; round++) {
        uint32_t list[HOSTS_MAX], n = 0;
        char wanted[HOSTS_MAX * 8];
        set_up(sizes[(unsigned)rand() % 8]);
        unsigned percent = 1 + (unsigned)rand() % 100;
        for (uint32_t i = 0; i < hosts; i++)
            if ((unsigned)rand() % 100 < percent || (i == hosts - 1 && n == 0))
                list[n++] = i;
        expect_text(list, n, wanted);
        for (unsigned again = 1; again <= 3; again++) {
            for (uint32_t i = 0; i < n; i++) { /* some join while messages already travel */
                join(list[i], "fence", list, n);
                if (rand() % 2)
                    (void)deliver_one();
            }
            while (deliver_one())
                ;
            for (uint32_t i = 0; i < n; i++) {
                ck_assert_uint_eq(host[list[i]].gathered, again);
                ck_assert_str_eq(host[list[i]].text, wanted);
            }
        }
        tear_down();
    }
}
END_TEST

static unsigned most_messages(uint32_t count)
{
    uint32_t list[HOSTS_MAX];
    unsigned most = 0;
    set_up(count);
    for (uint32_t i = 0; i < hosts; i++)
        list[i] = i;
    for (uint32_t i = 0; i < hosts; i++)
        join(i, "all", list, hosts);
    while (deliver_one())
        ;
    for (uint32_t i = 0; i < hosts; i++) {
        ck_assert_uint_eq(host[i].gathered, 1);
        most = host[i].sent > most ? host[i].sent : most;
    }
    tear_down();
    return most;
}

/* A link's message up and one down for each gather: from 4 hosts on, however many there are. */
START_TEST(test_messages_a_host)
{
    ck_assert_uint_eq(most_messages(2), 1);
    for (uint32_t count = 4; count <= HOSTS_MAX; count += 7)
        ck_assert_uint_eq(most_messages(count), TREE_RADIX + 1);
}
END_TEST

START_TEST(test_overtaking_rounds)
{
    const uint32_t both[] = {0, 1};
    set_up(2);
    join(1, "f", both, 2); /* a host may be a whole gather ahead */
    join(1, "g", both, 2);
    while (deliver_one())
        ;
    ck_assert_uint_eq(host[1].gathered, 0);
    join(0, "h", both, 2); /* the root sends nothing, but waits */
    ck_assert_uint_eq(host[0].sent, 0);
    ck_assert_uint_eq(host[0].waits, 1);
    join(0, "g", both, 2);
    join(0, "f", both, 2);
    while (deliver_one())
        ;
    ck_assert_uint_eq(host[0].gathered, 2);
    ck_assert_uint_eq(host[1].gathered, 2);
    tear_down();
}
END_TEST

START_TEST(test_requests)
{
    set_up(100);
    for (unsigned k = 0; k < 300; k++) {
        uint32_t from = (uint32_t)rand() % hosts, to = (from + 1 + (uint32_t)rand() % (hosts - 1)) % hosts;
        char wanted[64];
        host[to].refuse = rand() % 3 == 0;
        host[from].gathered = host[from].failed = 0;
        tree_request(host[from].x, TREE_PMIX, to, "key", 3, done, &host[from]);
        while (deliver_one())
            ;
        snprintf(wanted, sizeof wanted, host[to].refuse ? "host %u has none" : "key of %u", to);
        ck_assert_uint_eq(host[from].failed, host[to].refuse);
        ck_assert_uint_eq(host[from].gathered, !host[to].refuse);
        ck_assert_str_eq(host[from].text, wanted);
    }
    tree_request(host[3].x, TREE_GLOO, 4, "key", 3, done, &host[3]);
    while (deliver_one())
        ;
    ck_assert_str_eq(host[3].text, "the service does not run there");
    tear_down();
}
END_TEST

START_TEST(test_broadcasts)
{
    uint32_t said[HOSTS_MAX] = {0};
    unsigned all = 0;
    set_up(100);
    for (unsigned k = 0; k < 200; k++, all++) {
        uint32_t from = (uint32_t)rand() % hosts, n = ++said[from];
        tree_broadcast(host[from].x, TREE_PMIX, &n, sizeof n);
        (void)deliver_one();
    }
    while (deliver_one())
        ;
    unsigned received = 0;
    for (uint32_t i = 0; i < hosts; i++) {
        ck_assert_uint_eq(host[i].told, all - said[i]);
        received += host[i].told;
    }
    unsigned sent = 0;
    for (uint32_t i = 0; i < hosts; i++)
        sent += host[i].sent;
    ck_assert_uint_eq(sent, received); /* each crosses to a host once */
    tear_down();
}
END_TEST

START_TEST(test_cancel_and_break)
{
    const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct err why = ERR_INIT;
    err_set(&why, ERR_CLOSED, "rank 3 has gone");
    set_up(10);
    for (uint32_t i = 0; i < 9; i++)
        join(i, "fence", all, 10);
    uint64_t handle = tree_gather(host[9].x, TREE_PMIX, "other", 5, all, 10, "x", 1, done, &host[9]);
    ck_assert_uint_ne(handle, 0);
    tree_cancel(host[9].x, handle, &why);
    ck_assert_str_eq(host[9].text, "rank 3 has gone");
    tree_cancel(host[9].x, handle, &why);
    ck_assert_uint_eq(host[9].failed, 1);
    while (deliver_one())
        ;
    tree_break(host[0].x, &why);
    ck_assert_uint_eq(host[0].failed, 1);
    join(0, "later", all, 10);
    ck_assert_uint_eq(host[0].failed, 2);
    tear_down();
}
END_TEST

/* One host alone knows that a gather has ended: all that take part end with its reason, also those that come
 * later, and the next gather of the same id is as good as any. */
START_TEST(test_cancel_ends_on_all)
{
    static const uint32_t sizes[] = {2, 3, 9, 10, 74, 200};
    struct err why = ERR_INIT;
    err_set(&why, ERR_TIMEOUT, "too late");
    for (unsigned round = 0; round < 120; round++) {
        uint32_t list[HOSTS_MAX], n = 0;
        char wanted[HOSTS_MAX * 8];
        uint64_t handle;
        set_up(sizes[(unsigned)rand() % 6]);
        unsigned percent = 1 + (unsigned)rand() % 100;
        for (uint32_t i = 0; i < hosts; i++)
            if ((unsigned)rand() % 100 < percent || i + 2 >= hosts)
                list[n++] = i;
        uint32_t who = (uint32_t)rand() % n, early = (uint32_t)rand() % (n + 1);
        uint32_t late = (who + 1) % n, also = (who + 2) % n; /* without one of them it cannot end well */
        bool came[HOSTS_MAX] = {false};
        expect_text(list, n, wanted);
        for (uint32_t i = 0; i < early; i++)
            if (i != who && i != late && i != also) {
                join(list[i], "fence", list, n);
                came[i] = true;
            }
        while (rand() % 4 && deliver_one())
            ;
        struct host *h = &host[list[who]];
        handle = tree_gather(h->x, TREE_PMIX, "fence", 5, list, n, "x", 1, done, h);
        ck_assert_uint_ne(handle, 0);
        tree_cancel(h->x, handle, &why);
        came[who] = true;
        if (round % 2 && also != who) { /* two at once */
            h = &host[list[also]];
            handle = tree_gather(h->x, TREE_PMIX, "fence", 5, list, n, "x", 1, done, h);
            tree_cancel(h->x, handle, &why);
            came[also] = true;
        }
        while (rand() % 2 && deliver_one())
            ;
        for (uint32_t i = 0; i < n; i++) /* before the news, or after */
            if (!came[i] && i != late)
                join(list[i], "fence", list, n);
        while (deliver_one())
            ;
        join(list[late], "fence", list, n);
        while (deliver_one())
            ;
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(host[list[i]].failed, 1);
            ck_assert_uint_eq(host[list[i]].gathered, 0);
            ck_assert_str_eq(host[list[i]].text, "too late");
            join(list[i], "fence", list, n);
        }
        while (deliver_one())
            ;
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(host[list[i]].gathered, 1);
            ck_assert_str_eq(host[list[i]].text, wanted);
        }
        tear_down();
    }
}
END_TEST

/* An id that is forgotten on all hosts begins again on all hosts, and needs no memory. */
START_TEST(test_forget)
{
    const uint32_t all[] = {0, 1, 2};
    set_up(3);
    size_t before = 0;
    for (unsigned k = 0; k < 20000; k++) {
        char id[32];
        snprintf(id, sizeof id, "group %u", k % 10000);
        for (uint32_t i = 0; i < 3; i++)
            join(i, id, all, 3);
        while (deliver_one())
            ;
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(host[i].gathered, k + 1);
            tree_forget(host[i].x, TREE_PMIX, id, strlen(id));
        }
        if (k == 1000)
            before = mallinfo2().uordblks;
    }
    ck_assert_uint_le(mallinfo2().uordblks, before + 4096);
    tear_down();
}
END_TEST

/* A break is told of once, and only when somebody here needs what is broken. */
START_TEST(test_who_misses_the_links)
{
    const uint32_t all[] = {0, 1};
    struct err why = ERR_INIT;
    err_set(&why, ERR_CLOSED, "the link broke");
    set_up(2);
    tree_break(host[1].x, &why);
    ck_assert_uint_eq(host[1].missed, 0);
    join(1, "later", all, 2);
    join(1, "later", all, 2);
    ck_assert_uint_eq(host[1].missed, 1);
    join(0, "waits", all, 2);
    tree_break(host[0].x, &why);
    ck_assert_uint_eq(host[0].missed, 1);
    tree_request(host[0].x, TREE_PMIX, 1, "key", 3, done, &host[0]);
    ck_assert_uint_eq(host[0].missed, 1);
    tear_down();
}
END_TEST

START_TEST(test_bad_messages)
{
    struct err e = ERR_INIT;
    uint8_t noise[64];
    set_up(3);
    for (unsigned k = 0; k < 20000; k++) {
        size_t len = (size_t)rand() % sizeof noise;
        for (size_t i = 0; i < len; i++)
            noise[i] = (uint8_t)rand();
        (void)tree_received(host[0].x, 1, noise, len, &e);
    }
    ck_assert_uint_eq(host[0].gathered, 0);
    tear_down();
}
END_TEST

int main(void)
{
    const char *given = getenv("HVD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("HVD_SEED=%u\n", seed);
    srand(seed);
    Suite *suite = suite_create("tree");
    TCase *c = tcase_create("tree");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_gather_of_some);
    tcase_add_test(c, test_messages_a_host);
    tcase_add_test(c, test_overtaking_rounds);
    tcase_add_test(c, test_requests);
    tcase_add_test(c, test_broadcasts);
    tcase_add_test(c, test_cancel_and_break);
    tcase_add_test(c, test_cancel_ends_on_all);
    tcase_add_test(c, test_forget);
    tcase_add_test(c, test_who_misses_the_links);
    tcase_add_test(c, test_bad_messages);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
