/* The variables of a worker: the ranks are always ours, the user's own settings win where they may. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/supervisor/worker_env.h"

static struct worker_env env;

static const char *get(char **envp, const char *name)
{
    const char *value = NULL;
    size_t len = strlen(name);
    unsigned n = 0;
    for (; *envp; envp++) {
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=') {
            value = *envp + len + 1;
            n++;
        }
    }
    ck_assert_msg(n <= 1, "%s is there %u times", name, n);
    return value;
}

static struct rendezvous_values values;

static char **build(char **given, size_t count, size_t workers, const Hvd__Worker *worker)
{
    Hvd__Spawn s = HVD__SPAWN__INIT;
    Hvd__Worker w = HVD__WORKER__INIT, *list[8];
    struct worker_env_job job = {&s, "job-1", "node7", "/run/x/workers", "00ff", &values, 0, NULL};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < workers; i++)
        list[i] = &w;
    s.env = given;
    s.n_env = count;
    s.worker = list;
    s.n_worker = workers;
    s.size = 12;
    s.host_index = 3;
    s.epoch = 2;
    s.max_restarts = 5;
    s.master_address = (char *)"10.0.0.1";
    s.master_port = 29500;
    s.contracts = CONTRACTS_AUTO;
    ck_assert_int_eq(worker_env_init(&env, &job, &e), 0);
    return worker_env_of(&env, worker);
}

START_TEST(all_contracts)
{
    Hvd__Worker w = HVD__WORKER__INIT;
    w.rank = 7;
    w.local_rank = 1;
    w.cross_rank = 3;
    w.cross_size = 4;
    char *given[] = {(char *)"PATH=/bin", (char *)"RANK=99", (char *)"RANKING=1"};
    char **e = build(given, 3, 2, &w);
    static const char *const expected[][2] = {
        {"PATH", "/bin"},
        {"RANKING", "1"},
        {"HVD_RANK", "7"},
        {"HVD_SIZE", "12"},
        {"HVD_LOCAL_RANK", "1"},
        {"HVD_LOCAL_SIZE", "2"},
        {"HVD_CROSS_RANK", "3"},
        {"HVD_CROSS_SIZE", "4"},
        {"HVD_EPOCH", "2"},
        {"HVD_RESTART_COUNT", "2"},
        {"HVD_JOB_TOKEN", "00ff"},
        {"HVD_WORKER_SOCKET", "/run/x/workers"},
        {"HVD_JOB", "job-1"},
        {"HOROVOD_RANK", "7"},
        {"HOROVOD_SIZE", "12"},
        {"HOROVOD_LOCAL_RANK", "1"},
        {"HOROVOD_LOCAL_SIZE", "2"},
        {"HOROVOD_CROSS_RANK", "3"},
        {"HOROVOD_CROSS_SIZE", "4"},
        {"HOROVOD_HOSTNAME", "node7"},
        {"RANK", "7"},
        {"WORLD_SIZE", "12"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "3"},
        {"TORCHELASTIC_RESTART_COUNT", "2"},
        {"TORCHELASTIC_MAX_RESTARTS", "5"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "29500"},
        {"OMP_NUM_THREADS", "1"},
        {"PYTHONUNBUFFERED", "1"},
        {"OMPI_COMM_WORLD_RANK", "7"},
        {"OMPI_COMM_WORLD_SIZE", "12"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *value = get(e, expected[i][0]);
        ck_assert_msg(value && strcmp(value, expected[i][1]) == 0, "%s is %s", expected[i][0],
                      value ? value : "not set");
    }
    worker_env_free(&env);
}
END_TEST

START_TEST(the_users_own_win)
{
    Hvd__Worker w = HVD__WORKER__INIT;
    char *given[] = {(char *)"OMP_NUM_THREADS=8", (char *)"MASTER_PORT=1", (char *)"PYTHONUNBUFFERED="};
    char **e = build(given, 3, 2, &w);
    ck_assert_str_eq(get(e, "OMP_NUM_THREADS"), "8");
    ck_assert_str_eq(get(e, "MASTER_PORT"), "1");
    ck_assert_str_eq(get(e, "PYTHONUNBUFFERED"), "");
    worker_env_free(&env);
}
END_TEST

START_TEST(a_lone_worker_keeps_its_threads)
{
    Hvd__Worker w = HVD__WORKER__INIT;
    char **e = build(NULL, 0, 1, &w);
    ck_assert_ptr_null(get(e, "OMP_NUM_THREADS"));
    worker_env_free(&env);
}
END_TEST

START_TEST(gloo_only_where_it_is_served)
{
    Hvd__Worker w = HVD__WORKER__INIT;
    char *given[] = {(char *)"HOROVOD_CPU_OPERATIONS=mpi", (char *)"GLOO_SOCKET_IFNAME=mine"};
    char **e = build(NULL, 0, 2, &w);
    ck_assert_ptr_null(get(e, "HOROVOD_CONTROLLER"));
    ck_assert_ptr_null(get(e, "HOROVOD_GLOO_RENDEZVOUS_PORT"));
    ck_assert_ptr_null(get(e, "HOROVOD_GLOO_IFACE"));
    ck_assert_ptr_null(get(e, "NCCL_SOCKET_IFNAME"));
    worker_env_free(&env);
    values.gloo_port = 4242;
    snprintf(values.interface, sizeof values.interface, "eth7");
    snprintf(values.chosen_interfaces, sizeof values.chosen_interfaces, "eth7,ib0");
    e = build(given, 2, 2, &w);
    ck_assert_str_eq(get(e, "HOROVOD_GLOO_RENDEZVOUS_ADDR"), "127.0.0.1");
    ck_assert_str_eq(get(e, "HOROVOD_GLOO_RENDEZVOUS_PORT"), "4242");
    ck_assert_str_eq(get(e, "HOROVOD_CONTROLLER"), "gloo");
    ck_assert_str_eq(get(e, "HOROVOD_CPU_OPERATIONS"), "mpi");
    ck_assert_str_eq(get(e, "HOROVOD_GLOO_IFACE"), "eth7");
    ck_assert_str_eq(get(e, "GLOO_SOCKET_IFNAME"), "mine");
    ck_assert_str_eq(get(e, "NCCL_SOCKET_IFNAME"), "eth7,ib0");
    worker_env_free(&env);
}
END_TEST

/* One table serves all ranks; the engine gets it without any. */
START_TEST(ranks_do_not_leak)
{
    Hvd__Worker a = HVD__WORKER__INIT, b = HVD__WORKER__INIT;
    a.rank = 4000000000u;
    b.rank = 5;
    char **e = build(NULL, 0, 2, &a);
    ck_assert_str_eq(get(e, "OMPI_COMM_WORLD_RANK"), "4000000000");
    e = worker_env_of(&env, &b);
    ck_assert_str_eq(get(e, "RANK"), "5");
    e = worker_env_base(&env);
    ck_assert_ptr_null(get(e, "RANK"));
    ck_assert_ptr_null(get(e, "HVD_RANK"));
    ck_assert_str_eq(worker_env_get(&env, "HVD_SIZE"), "12");
    worker_env_free(&env);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("worker_env");
    TCase *t = tcase_create("worker_env");
    tcase_add_test(t, all_contracts);
    tcase_add_test(t, the_users_own_win);
    tcase_add_test(t, a_lone_worker_keeps_its_threads);
    tcase_add_test(t, gloo_only_where_it_is_served);
    tcase_add_test(t, ranks_do_not_leak);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
