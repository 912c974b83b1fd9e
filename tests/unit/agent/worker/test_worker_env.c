/* The variables of a worker: the ranks are always ours, the user's own settings win where they may. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/worker/worker_env.h"

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
static bool came_later;

static char **build(char **given, size_t count, size_t workers, const Hvd__Worker *worker)
{
    Hvd__Spawn s = HVD__SPAWN__INIT;
    Hvd__Worker w = HVD__WORKER__INIT, *list[8];
    struct worker_env_job job = {.spawn = &s,
                                 .job = "job-1",
                                 .hostname = "node7",
                                 .socket = "/run/x/workers",
                                 .token = "00ff",
                                 .rendezvous = &values,
                                 .wdir = "/home/me",
                                 .directory = "/run/x"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < workers; i++)
        list[i] = &w;
    s.env = given;
    s.n_env = count;
    s.worker = list;
    s.n_worker = workers;
    s.size = 12;
    s.host_index = 3;
    s.n_host = 4;
    s.epoch = 2;
    s.elastic = s.newcomer = came_later;
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
        {"GROUP_WORLD_SIZE", "4"},
        {"ROLE_RANK", "7"},
        {"ROLE_WORLD_SIZE", "12"},
        {"ROLE_NAME", "default"},
        {"TORCHELASTIC_RUN_ID", "job"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCHELASTIC_ERROR_FILE", "/run/x/error-7.json"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
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
        {"OMPI_COMM_WORLD_NODE_RANK", "1"},
        {"OMPI_UNIVERSE_SIZE", "12"},
        {"OMPI_NUM_APP_CTX", "1"},
        {"OMPI_FIRST_RANKS", "0"},
        {"OMPI_APP_CTX_NUM_PROCS", "12"},
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

/* A worker knows that others may have the state of a training before. */
START_TEST(hosts_that_come_later_say_so)
{
    Hvd__Worker w = HVD__WORKER__INIT;
    char **e = build(NULL, 0, 2, &w);
    ck_assert_ptr_null(get(e, "HVD_NEWCOMER"));
    worker_env_free(&env);
    came_later = true;
    e = build(NULL, 0, 2, &w);
    ck_assert_str_eq(get(e, "HVD_ELASTIC"), "1");
    ck_assert_str_eq(get(e, "HVD_NEWCOMER"), "1");
    came_later = false;
    worker_env_free(&env);
}
END_TEST

/* Only where they have too few processors, and never against the user. */
START_TEST(crowded_workers_give_their_processor_away)
{
    static const char throttle[] = "MPIR_CVAR_CH4_PROGRESS_THROTTLE";
    Hvd__Worker w = HVD__WORKER__INIT;
    char *given[] = {(char *)"MPIR_CVAR_CH4_PROGRESS_THROTTLE=0", (char *)"MPIR_CVAR_PMI_VERSION=2"};
    char **e = build(NULL, 0, 2, &w);
    ck_assert_ptr_null(get(e, throttle));
    ck_assert_str_eq(get(e, "MPIR_CVAR_PMI_VERSION"), "1");
    worker_env_free(&env);
    values.crowded = true;
    e = build(NULL, 0, 2, &w);
    ck_assert_str_eq(get(e, throttle), "1");
    ck_assert_str_eq(get(e, "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT"), "1");
    worker_env_free(&env);
    e = build(given, 2, 2, &w);
    ck_assert_str_eq(get(e, throttle), "0");
    ck_assert_str_eq(get(e, "MPIR_CVAR_PMI_VERSION"), "2");
    values.crowded = false;
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

static uint32_t gpus;
static Hvd__Binding__Gpu gpu_bind;
static const char *visible, *uuids, *mps;

/* Ranks 0 and 2 here, 1 on a host with IPv6. */
static char **build_endpoints(char **given, size_t count, uint32_t rank, const char *address, struct err *e)
{
    static uint32_t here_rank[] = {0, 2}, here_port[] = {9001, 9002}, there_port[] = {9001};
    Hvd__Spawn s = HVD__SPAWN__INIT;
    Hvd__Worker w = HVD__WORKER__INIT, *list[] = {&w, &w};
    Hvd__HostRanks here = HVD__HOST_RANKS__INIT, there = HVD__HOST_RANKS__INIT, *host[] = {&here, &there};
    struct worker_env_job job = {.spawn = &s,
                                 .job = "job-1",
                                 .hostname = "node7",
                                 .socket = "/run/x/workers",
                                 .token = "00ff",
                                 .rendezvous = &values,
                                 .gpus = gpus,
                                 .visible_gpus = visible,
                                 .gpu_uuids = uuids,
                                 .mps = mps,
                                 .mps_log = mps ? "/run/x/mps-log" : NULL};
    Hvd__Binding binding = HVD__BINDING__INIT;
    here.name = (char *)"node7";
    here.ranks = here.n_rank = here.n_worker_port = 2;
    here.rank = here_rank;
    here.worker_port = here_port;
    here.address = (char *)(uintptr_t)address;
    there.name = (char *)"node8";
    there.first_rank = there.ranks = there.n_worker_port = 1;
    there.worker_port = there_port;
    there.address = (char *)"fd00::8";
    s.host = host;
    s.n_host = s.n_worker = 2;
    s.worker = list;
    s.size = 3;
    s.env = given;
    s.n_env = count;
    s.master_address = (char *)"fd00::7";
    s.coordinator_port = 9000;
    s.contracts = CONTRACT_TF | CONTRACT_PADDLE | CONTRACT_JAX;
    binding.gpu = gpu_bind;
    s.binding = &binding;
    w.rank = rank;
    w.local_rank = rank ? 1 : 0;
    return worker_env_init(&env, &job, e) < 0 ? NULL : worker_env_of(&env, &w);
}

#define LIST "10.0.0.7:9001,[fd00::8]:9001,10.0.0.7:9002"
#define TF(index)                                                                                            \
    "{\"cluster\":{\"worker\":[\"10.0.0.7:9001\",\"[fd00::8]:9001\",\"10.0.0.7:9002\"]},"                    \
    "\"task\":{\"type\":\"worker\",\"index\":" index "}}"

START_TEST(endpoints)
{
    struct err err = ERR_INIT;
    Hvd__Worker second = HVD__WORKER__INIT;
    char **e = build_endpoints(NULL, 0, 0, "10.0.0.7", &err);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(get(e, "TF_CONFIG"), TF("0"));
    second.rank = 2;
    e = worker_env_of(&env, &second);
    ck_assert_str_eq(get(e, "TF_CONFIG"), TF("2"));
    ck_assert_str_eq(get(e, "PADDLE_TRAINER_ID"), "2");
    ck_assert_str_eq(get(e, "PADDLE_TRAINERS_NUM"), "3");
    ck_assert_str_eq(get(e, "PADDLE_TRAINER_ENDPOINTS"), LIST);
    ck_assert_str_eq(get(e, "PADDLE_CURRENT_ENDPOINT"), "10.0.0.7:9002");
    ck_assert_str_eq(get(e, "JAX_COORDINATOR_ADDRESS"), "[fd00::7]:9000");
    ck_assert_str_eq(get(e, "JAX_NUM_PROCESSES"), "3");
    ck_assert_str_eq(get(e, "JAX_PROCESS_ID"), "2");
    ck_assert_ptr_null(get(e, "JAX_LOCAL_DEVICE_IDS"));
    ck_assert_ptr_null(get(e, "RANK"));
    worker_env_free(&env);
}
END_TEST

/* A rank is told its GPU only if the choice is clear, and by the number that the rank sees. */
START_TEST(devices)
{
    static const struct {
        uint32_t gpus;
        Hvd__Binding__Gpu bind;
        const char *list, *wanted;
    } at[] = {
        {0, HVD__BINDING__GPU__GPU_LIST, NULL, NULL}, {1, HVD__BINDING__GPU__GPU_LIST, NULL, NULL},
        {2, HVD__BINDING__GPU__GPU_LIST, NULL, "1"},  {4, HVD__BINDING__GPU__GPU_LIST, "3", NULL},
        {4, HVD__BINDING__GPU__GPU_LIST, "3,1", "1"}, {2, HVD__BINDING__GPU__GPU_SINGLE, NULL, "0"},
    };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct err err = ERR_INIT;
        gpus = at[i].gpus;
        gpu_bind = at[i].bind;
        visible = at[i].list;
        char **e = build_endpoints(NULL, 0, 2, "10.0.0.7", &err);
        const char *jax = get(e, "JAX_LOCAL_DEVICE_IDS"), *paddle = get(e, "FLAGS_selected_gpus");
        ck_assert_pstr_eq(jax, at[i].wanted);
        ck_assert_pstr_eq(paddle, at[i].wanted);
        worker_env_free(&env);
    }
    gpus = 0;
    visible = NULL;
}
END_TEST

/* Of a service that counts only those that it was given. */
START_TEST(gpus_by_uuid)
{
    struct err err = ERR_INIT;
    char *given[] = {(char *)"CUDA_VISIBLE_DEVICES=3,0,9,1", (char *)"CUDA_MPS_LOG_DIRECTORY=/mine"};
    gpus = 4;
    gpu_bind = HVD__BINDING__GPU__GPU_LIST;
    uuids = "GPU-0a,GPU-1b,GPU-2c,GPU-3d";
    mps = "/run/x/mps";
    char **e = build_endpoints(NULL, 0, 2, "10.0.0.7", &err);
    ck_assert_str_eq(get(e, "CUDA_VISIBLE_DEVICES"), uuids);
    ck_assert_str_eq(get(e, "CUDA_MPS_PIPE_DIRECTORY"), mps);
    ck_assert_str_eq(get(e, "CUDA_MPS_LOG_DIRECTORY"), "/run/x/mps-log");
    ck_assert_str_eq(get(e, "JAX_LOCAL_DEVICE_IDS"), "1");
    worker_env_free(&env);
    e = build_endpoints(given, 2, 2, "10.0.0.7", &err);
    ck_assert_str_eq(get(e, "CUDA_VISIBLE_DEVICES"), "GPU-3d,GPU-0a");
    ck_assert_str_eq(get(e, "CUDA_MPS_LOG_DIRECTORY"), "/mine");
    worker_env_free(&env);
    gpu_bind = HVD__BINDING__GPU__GPU_SINGLE;
    visible = "2,GPU-1";
    e = build_endpoints(NULL, 0, 0, "10.0.0.7", &err);
    ck_assert_str_eq(get(e, "CUDA_VISIBLE_DEVICES"), "GPU-2c");
    worker_env_free(&env);
    e = build_endpoints(NULL, 0, 2, "10.0.0.7", &err);
    ck_assert_str_eq(get(e, "CUDA_VISIBLE_DEVICES"), "GPU-1");
    worker_env_free(&env);
    gpus = 0;
    visible = uuids = mps = NULL;
}
END_TEST

START_TEST(the_users_own_endpoints_win)
{
    struct err err = ERR_INIT;
    char *given[] = {(char *)"TF_CONFIG={}", (char *)"PADDLE_TRAINER_ENDPOINTS=a:1,b:2,c:3",
                     (char *)"JAX_COORDINATOR_ADDRESS=a:5", (char *)"PADDLE_TRAINER_ID=77"};
    char *shorter[] = {(char *)"PADDLE_TRAINER_ENDPOINTS=a:1,b:2"};
    char **e = build_endpoints(given, 4, 2, "10.0.0.7", &err);
    ck_assert_str_eq(get(e, "TF_CONFIG"), "{}");
    ck_assert_str_eq(get(e, "PADDLE_TRAINER_ENDPOINTS"), "a:1,b:2,c:3");
    ck_assert_str_eq(get(e, "PADDLE_CURRENT_ENDPOINT"), "c:3");
    ck_assert_str_eq(get(e, "PADDLE_TRAINER_ID"), "2");
    ck_assert_str_eq(get(e, "JAX_COORDINATOR_ADDRESS"), "a:5");
    worker_env_free(&env);
    e = build_endpoints(shorter, 1, 2, "10.0.0.7", &err);
    ck_assert_ptr_null(get(e, "PADDLE_CURRENT_ENDPOINT"));
    worker_env_free(&env);
}
END_TEST

/* A text that JSON would have to quote is no address. */
START_TEST(endpoints_are_checked)
{
    static const char *const bad[] = {"", "node7", "10.0.0.7\"", "10.0.0.7:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = ERR_INIT;
        ck_assert_ptr_null(build_endpoints(NULL, 0, 0, bad[i], &err));
        ck_assert_int_eq(err.code, ERR_PROTOCOL);
    }
}
END_TEST

/* More ranks than one variable has room for; a page less does. */
START_TEST(endpoints_have_a_limit)
{
    static uint32_t port[8000];
    static const uint32_t sizes[] = {5900, 8000};
    for (size_t i = 0; i < 2; i++) {
        Hvd__Spawn s = HVD__SPAWN__INIT;
        Hvd__HostRanks host = HVD__HOST_RANKS__INIT, *hosts[] = {&host};
        struct endpoints n;
        struct err err = ERR_INIT;
        for (size_t k = 0; k < 8000; k++)
            port[k] = 12345;
        s.contracts = CONTRACT_TF;
        s.host = hosts;
        s.n_host = 1;
        s.size = host.ranks = sizes[i];
        host.name = (char *)"node7";
        host.address = (char *)"10.100.100.7";
        host.worker_port = port;
        host.n_worker_port = sizes[i];
        ck_assert_int_eq(endpoints_init(&n, &s, &err), i == 0 ? 0 : -1);
        ck_assert_int_eq(err.code, i == 0 ? 0 : ERR_USAGE);
        if (i == 0)
            ck_assert_uint_lt(strlen(endpoints_tf_config(&n, 4000000000u)), 128 * 1024);
        endpoints_free(&n);
    }
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
    tcase_add_test(t, hosts_that_come_later_say_so);
    tcase_add_test(t, crowded_workers_give_their_processor_away);
    tcase_add_test(t, a_lone_worker_keeps_its_threads);
    tcase_add_test(t, endpoints);
    tcase_add_test(t, devices);
    tcase_add_test(t, gpus_by_uuid);
    tcase_add_test(t, the_users_own_endpoints_win);
    tcase_add_test(t, endpoints_are_checked);
    tcase_add_test(t, endpoints_have_a_limit);
    tcase_add_test(t, gloo_only_where_it_is_served);
    tcase_add_test(t, ranks_do_not_leak);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
