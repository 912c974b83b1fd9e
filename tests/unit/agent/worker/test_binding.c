/* From machines that hwloc is told of (HWLOC_SYNTHETIC) to the processors of each rank. */
/* needs: modules */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/binding.h"

#define RANKS_MAX 16

#define SLOT   HVD__BINDING__MAP__BY_SLOT
#define NUMA   HVD__BINDING__MAP__BY_NUMA
#define SOCKET HVD__BINDING__MAP__BY_SOCKET
#define CORE   HVD__BINDING__MAP__BY_CORE

static void machine(const char *synthetic, struct topology *t)
{
    struct err e = ERR_INIT;
    setenv("HWLOC_SYNTHETIC", synthetic, 1);
    ck_assert_msg(topology_find(t, &e) == 0, "%s", e.text);
}

/* "0-1 2-3", or what is wrong. */
static const char *bind(const struct topology *t, Hvd__Binding want, Hvd__Worker *const *worker, size_t ranks)
{
    static char text[1024];
    struct cpus *cpus = calloc(ranks, sizeof *cpus);
    struct err e = ERR_INIT;
    text[0] = '\0';
    if (binding_make(t, &want, worker, ranks, cpus, &e) < 0)
        snprintf(text, sizeof text, "%s", e.text);
    for (size_t i = 0; i < ranks && !e.code; i++) {
        char one[64];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 cpus_text(&cpus[i], one, sizeof one));
    }
    free(cpus);
    return text;
}

static const struct {
    const char *machine;
    Hvd__Binding__Map map_by;
    Hvd__Binding__Bind bind_to;
    uint32_t pe;
    bool overload;
    size_t ranks;
    const char *bound;
    uint32_t per_part;
} cases[] = {
    {"node:2 core:4 pu:2", SLOT, HVD__BINDING__BIND__TO_NONE, 0, false, 2, " ", 0},
    {"node:2 core:4 pu:2", SLOT, HVD__BINDING__BIND__TO_CORE, 0, false, 3, "0-1 2-3 4-5", 0},
    {"node:2 core:4 pu:2", SLOT, HVD__BINDING__BIND__TO_NUMA, 0, false, 3, "0-7 8-15 0-7", 0},
    {"node:2 core:4 pu:2", NUMA, HVD__BINDING__BIND__TO_NUMA, 0, false, 3, "0-7 8-15 0-7", 0},
    {"node:2 core:4 pu:2", NUMA, HVD__BINDING__BIND__TO_CORE, 0, false, 4, "0-1 8-9 2-3 10-11", 0},
    {"node:2 core:4 pu:2", NUMA, HVD__BINDING__BIND__TO_CORE, 2, false, 4, "0-3 8-11 4-7 12-15", 0},
    {"node:2 core:4 pu:2", CORE, HVD__BINDING__BIND__TO_CORE, 2, false, 3, "0-3 4-7 8-11", 0},
    {"node:2 core:4 pu:2", CORE, HVD__BINDING__BIND__TO_NUMA, 0, false, 5, "0-7 0-7 0-7 0-7 8-15", 0},
    {"node:2 core:4 pu:2", SLOT, HVD__BINDING__BIND__TO_SOCKET, 0, false, 2, "0-15 0-15",
     0}, /* no sockets: one */
    {"pack:2 node:2 core:2 pu:1", SOCKET, HVD__BINDING__BIND__TO_SOCKET, 0, false, 3, "0-3 4-7 0-3", 0},
    {"pack:2 node:2 core:2 pu:1", SOCKET, HVD__BINDING__BIND__TO_NUMA, 0, false, 4, "0-1 4-5 2-3 6-7", 0},
    {"pack:2 node:2 core:2 pu:1", NUMA, HVD__BINDING__BIND__TO_SOCKET, 0, false, 4, "0-3 0-3 4-7 4-7", 0},
    {"core:2 pu:1", SLOT, HVD__BINDING__BIND__TO_CORE, 0, false, 3, "rank 2 finds no free core", 0},
    {"core:2 pu:1", SLOT, HVD__BINDING__BIND__TO_CORE, 0, true, 3, "0 1 0", 0},
    {"core:3 pu:1", SLOT, HVD__BINDING__BIND__TO_CORE, 2, true, 3, "0-1 0,2 1-2", 0},
    {"core:2 pu:1", SLOT, HVD__BINDING__BIND__TO_CORE, 3, true, 1, "its place has 2, and each rank takes 3",
     0},
    {"node:2 core:1 pu:1", NUMA, HVD__BINDING__BIND__TO_NUMA, 0, false, 3, "its NUMA node has 1", 0},
    /* --ppr */
    {"pack:2 core:2 pu:1", SOCKET, HVD__BINDING__BIND__TO_SOCKET, 0, false, 4, "0-1 0-1 2-3 2-3", 2},
    {"pack:2 core:4 pu:1", SOCKET, HVD__BINDING__BIND__TO_CORE, 2, false, 4, "0-1 2-3 4-5 6-7", 2},
    {"node:2 core:2 pu:1", NUMA, HVD__BINDING__BIND__TO_CORE, 0, false, 3, "0 1 2", 2},
    {"core:2 pu:2", CORE, HVD__BINDING__BIND__TO_CORE, 0, false, 4, "0-1 0-1 2-3 2-3", 2},
    {"core:2 pu:2", CORE, HVD__BINDING__BIND__TO_CORE, 2, false, 1, "its place has 1, and each rank takes 2",
     2},
    {"pack:2 core:1 pu:1", SOCKET, HVD__BINDING__BIND__TO_SOCKET, 0, false, 4, "its socket has 1", 2},
};

START_TEST(ranks_are_bound)
{
    Hvd__Binding want = HVD__BINDING__INIT;
    Hvd__Worker worker[RANKS_MAX], *list[RANKS_MAX];
    struct topology t;
    for (uint32_t i = 0; i < RANKS_MAX; i++) {
        hvd__worker__init(&worker[i]);
        worker[i].rank = i;
        list[i] = &worker[i];
    }
    machine(cases[_i].machine, &t);
    want.map_by = cases[_i].map_by;
    want.bind_to = cases[_i].bind_to;
    want.pe = cases[_i].pe;
    want.overload = cases[_i].overload;
    want.per_part = cases[_i].per_part;
    const char *bound = bind(&t, want, list, cases[_i].ranks);
    if (strchr(cases[_i].bound, 'k') || strstr(cases[_i].bound, "has"))
        ck_assert_msg(strstr(bound, cases[_i].bound) != NULL, "%s", bound);
    else
        ck_assert_str_eq(bound, cases[_i].bound);
    topology_free(&t);
}
END_TEST

START_TEST(a_rankfile_is_stronger)
{
    static const struct {
        bool in_socket;
        uint32_t socket, first, last;
        const char *bound;
    } lists[] = {{false, 0, 1, 2, "2-5"},
                 {true, 1, 0, 1, "8-11"},
                 {true, 1, 0, UINT32_MAX, "8-15"},
                 {false, 0, 7, 8, "rank 5: line 3 of the rankfile wants core 8, and this host has 8"},
                 {true, 1, 4, 4, "rank 5: line 3 of the rankfile wants core 4 of socket 1, which has 4"},
                 {true, 2, 0, UINT32_MAX, "wants core 0 of socket 2, which has 0"}};
    Hvd__Binding want = HVD__BINDING__INIT;
    struct topology t;
    machine("pack:2 core:4 pu:2", &t);
    want.bind_to = HVD__BINDING__BIND__TO_CORE;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        Hvd__CoreRange range = HVD__CORE_RANGE__INIT, *ranges = &range;
        Hvd__Worker worker = HVD__WORKER__INIT, *list = &worker;
        range.in_socket = lists[i].in_socket;
        range.socket = lists[i].socket;
        range.first = lists[i].first;
        range.last = lists[i].last;
        worker.rank = 5;
        worker.rankfile_line = 3;
        worker.cores = &ranges;
        worker.n_cores = 1;
        const char *bound = bind(&t, want, &list, 1);
        ck_assert_msg(strstr(bound, lists[i].bound) != NULL, "%s", bound);
    }
    topology_free(&t);
}
END_TEST

START_TEST(what_may_not_be_used_is_not_there)
{
    Hvd__Binding want = HVD__BINDING__INIT;
    Hvd__Worker worker = HVD__WORKER__INIT, *list[] = {&worker, &worker, &worker};
    struct cpus allowed = {0};
    struct topology t;
    machine("pack:2 node:2 core:2 pu:2", &t);
    for (uint32_t cpu = 6; cpu < 11; cpu++) /* half of a core, a node, and a core */
        cpus_add(&allowed, cpu);
    ck_assert(topology_keep(&t, &allowed));
    ck_assert_uint_eq(t.cores, 3);
    ck_assert_uint_eq(t.sockets, 2);
    ck_assert_uint_eq(t.numas, 2);
    want.bind_to = HVD__BINDING__BIND__TO_CORE;
    ck_assert_str_eq(bind(&t, want, list, 3), "6-7 8-9 10");
    want.bind_to = HVD__BINDING__BIND__TO_NUMA;
    want.map_by = NUMA;
    ck_assert_str_eq(bind(&t, want, list, 2), "6-7 8-10");
    allowed = (struct cpus){0};
    ck_assert(!topology_keep(&t, &allowed));
    topology_free(&t);
}
END_TEST

START_TEST(lists_of_processors)
{
    struct cpus set = {0};
    char text[64], small[12];
    ck_assert_str_eq(cpus_text(&set, text, sizeof text), "");
    cpus_add(&set, 0);
    cpus_add(&set, 63);
    cpus_add(&set, 64);
    cpus_add(&set, CPUS_MAX - 1);
    cpus_add(&set, CPUS_MAX); /* there is none such */
    ck_assert_str_eq(cpus_text(&set, text, sizeof text), "0,63-64,8191");
    ck_assert_str_eq(cpus_text(&set, small, sizeof small), "0,63-64,...");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("binding");
    TCase *c = tcase_create("binding");
    tcase_add_loop_test(c, ranks_are_bound, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(c, a_rankfile_is_stronger);
    tcase_add_test(c, what_may_not_be_used_is_not_there);
    tcase_add_test(c, lists_of_processors);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
