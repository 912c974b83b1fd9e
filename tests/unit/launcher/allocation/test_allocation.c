/* Allocations: what each batch system says, in its own formats, becomes hosts and slots; what is wrong in it
 * is named. The files are written to a directory of the test's own. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/allocation/allocation.h"
#include "tests/unit/scratch.h"

#define HOSTNAME "node1"

static char file_path[SCRATCH_MAX];

static void make_file(void)
{
    int fd = scratch_file(file_path, "allocation");
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void remove_file(void)
{
    unlink(file_path);
    memcpy(file_path + sizeof file_path - 7, "XXXXXX", 6);
}

/* "NAME=value;NAME=value": an environment. A value FILE is the path of the file. */
struct made_env {
    char *variable[32];
    size_t count;
};

static void make_env(struct made_env *env, const char *text)
{
    env->count = 0;
    while (*text) {
        size_t len = strcspn(text, ";");
        const char *equals = memchr(text, '=', len);
        char *v;
        if (equals && strncmp(equals, "=FILE", len - (size_t)(equals - text)) == 0 &&
            text + len - equals == 5)
            ck_assert(asprintf(&v, "%.*s%s", (int)(equals - text) + 1, text, file_path) > 0);
        else
            v = strndup(text, len);
        env->variable[env->count++] = v;
        text += len;
        text += *text == ';';
    }
    env->variable[env->count] = NULL;
}

static void free_env(struct made_env *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->variable[i]);
}

static void write_file(const char *bytes)
{
    FILE *f = fopen(file_path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(bytes, f);
    fclose(f);
}

static int find(struct allocation *a, const char *env_text, const char *file, uint32_t np, struct err *e)
{
    struct made_env env;
    if (file)
        write_file(file);
    make_env(&env, env_text);
    int rc = allocation_find(a, env.variable, np, HOSTNAME, e);
    free_env(&env);
    return rc;
}

/* "name:slots" of every host; one that is this host has a star. */
static void show(const struct allocation *a, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s:", a->name);
    for (size_t i = 0; i < a->hosts.count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s%s:%u", a->hosts.host[i].name,
                                 a->hosts.host[i].here ? "*" : "", a->hosts.host[i].slots);
}

#define SLURM "SLURM_JOB_ID=7;SLURM_JOB_NODELIST="
#define HET(n)                                                                                               \
    "SLURM_JOB_ID=7;SLURM_HET_SIZE=" n                                                                       \
    ";SLURM_JOB_NODELIST_HET_GROUP_0=node1;SLURM_TASKS_PER_NODE_HET_GROUP_0=2;SLURM_NTASKS_HET_GROUP_0=2;"

static const struct {
    const char *env, *file;
    uint32_t np;
    const char *shown;
} good[] = {
    /* Slurm: names */
    {SLURM "node1", NULL, 0, "Slurm job 7: node1*:0"},
    {SLURM "node[1-3,7-9]", NULL, 0, "Slurm job 7: node1*:0 node2:0 node3:0 node7:0 node8:0 node9:0"},
    {SLURM "n[008-010]-ib", NULL, 0, "Slurm job 7: n008-ib:0 n009-ib:0 n010-ib:0"},
    {SLURM "n[8-11]", NULL, 0, "Slurm job 7: n8:0 n9:0 n10:0 n11:0"},
    {SLURM "r[0-1]n[1,3]", NULL, 0, "Slurm job 7: r0n1:0 r0n3:0 r1n1:0 r1n3:0"},
    {SLURM "login,gpu[2,04],x.y", NULL, 0, "Slurm job 7: login:0 gpu2:0 gpu04:0 x.y:0"},
    /* Slurm: tasks, as sbatch -n 5 -N 3, --ntasks-per-node=2 and without either say it */
    {SLURM "node[1-3];SLURM_NTASKS=5;SLURM_NPROCS=5;SLURM_TASKS_PER_NODE=3,1(x2);SLURM_PROCID=0", NULL, 0,
     "Slurm job 7: node1*:3 node2:1 node3:1"},
    {SLURM "node[1-2];SLURM_NTASKS_PER_NODE=2;SLURM_TASKS_PER_NODE=2(x2)", NULL, 0,
     "Slurm job 7: node1*:2 node2:2"},
    {SLURM "node[1-2];SLURM_TASKS_PER_NODE=8(x2)", NULL, 0, "Slurm job 7: node1*:0 node2:0"},
    {SLURM "node[1-2];SLURM_TASKS_PER_NODE=8(x2)", NULL, 5, "Slurm job 7: node1*:3 node2:3"},
    {SLURM "node[1-2];SLURM_NTASKS=4;SLURM_TASKS_PER_NODE=3,1", NULL, 2, "Slurm job 7: node1*:3 node2:1"},
    /* Slurm: GPUs */
    {SLURM "node[1-2];SLURM_TASKS_PER_NODE=1(x2);SLURM_GPUS_PER_NODE=4;SLURM_GPUS_ON_NODE=4", NULL, 0,
     "Slurm job 7: node1*:4 node2:4"},
    {SLURM "node[1-2];SLURM_GPUS_PER_NODE=a100:2,v100:1", NULL, 0, "Slurm job 7: node1*:3 node2:3"},
    {SLURM "node[1-2];SLURM_GPUS_ON_NODE=2;SLURM_JOB_GPUS=0,1", NULL, 0, "Slurm job 7: node1*:2 node2:2"},
    {SLURM "node[1-2];SLURM_GPUS=5;SLURM_GPUS_ON_NODE=3", NULL, 0, "Slurm job 7: node1*:3 node2:2"},
    {SLURM "node[1-3];SLURM_GPUS=6;SLURM_GPUS_ON_NODE=2", NULL, 9, "Slurm job 7: node1*:2 node2:2 node3:2"},
    {SLURM "node[1-2];SLURM_NTASKS=2;SLURM_TASKS_PER_NODE=1(x2);SLURM_GPUS_PER_NODE=4", NULL, 0,
     "Slurm job 7: node1*:1 node2:1"},
    /* Slurm: a shell that srun --pty started; its one task says nothing */
    {SLURM "node[1-2];SLURM_STEP_ID=0;SLURM_STEP_NUM_TASKS=1;SLURM_NTASKS=1;SLURM_TASKS_PER_NODE=1;"
           "SLURM_GPUS_ON_NODE=2",
     NULL, 0, "Slurm job 7: node1*:2 node2:2"},
    {SLURM "node[1-2];SLURM_STEP_ID=4294967290;SLURM_STEP_NUM_TASKS=1;SLURM_NTASKS=4;"
           "SLURM_TASKS_PER_NODE=2(x2)",
     NULL, 0, "Slurm job 7: node1*:2 node2:2"},
    /* Slurm: heterogeneous; a node's own name for Slurm */
    {HET("2") "SLURM_JOB_NODELIST_HET_GROUP_1=node[1-2];SLURM_TASKS_PER_NODE_HET_GROUP_1=3(x2);SLURM_NTASKS_"
              "HET_GROUP_1=6",
     NULL, 0, "Slurm job 7: node1*:5 node2:3"},
    {HET("2") "SLURM_JOB_NODELIST_HET_GROUP_1=big;SLURM_NTASKS=2;SLURM_GPUS_PER_NODE_HET_GROUP_1=8", NULL, 3,
     "Slurm job 7: node1*:2 big:8"},
    {SLURM "c[1-2];SLURMD_NODENAME=c2", NULL, 0, "Slurm job 7: c1:0 c2*:0"},
    /* LSF: the file, then the counts, then the names */
    {"LSB_JOBID=31;LSB_DJOB_HOSTFILE=FILE;LSB_MCPU_HOSTS=x 9", "node1\nnode1\nnode2\nnode1\n", 0,
     "LSF job 31: node1*:3 node2:1"},
    {"LSB_JOBID=31;LSB_MCPU_HOSTS=hostA 5 hostB 12 ;LSB_HOSTS=x", NULL, 0, "LSF job 31: hostA:5 hostB:12"},
    {"LSB_JOBID=31;LSB_HOSTS=hostA hostA hostB", NULL, 0, "LSF job 31: hostA:2 hostB:1"},
    /* PBS: full names, a host that comes back */
    {"PBS_JOBID=12.srv;PBS_NODEFILE=FILE", "node1.cl.org\nnode1.cl.org\nnode2.cl.org\nnode1.cl.org\n", 0,
     "PBS job 12.srv: node1.cl.org*:3 node2.cl.org:1"},
    {"PBS_NODEFILE=FILE", "node10\n", 0, "PBS job: node10:1"},
    {"PBS_JOBID=1;PBS_NODEFILE=FILE", "node1.a.org\nnode1.b.org\n", 0,
     "PBS job 1: node1.a.org:1 node1.b.org:1"},
    /* Grid Engine: four columns, two queues of one host, tabs */
    {"JOB_ID=5;PE_HOSTFILE=FILE",
     "node1.cl 4 all.q@node1.cl UNDEFINED\nnode2.cl  2 all.q@node2.cl <NULL>\nnode2.cl\t1 big.q@node2.cl "
     "0,1:0,2\n",
     0, "Grid Engine job 5: node1.cl*:4 node2.cl:3"},
    /* the order */
    {"PBS_NODEFILE=FILE;" SLURM "node3", "node1\n", 0, "Slurm job 7: node3:0"},
    {"PE_HOSTFILE=/nowhere;PBS_NODEFILE=FILE", "node1\n", 0, "PBS job: node1*:1"},
};

START_TEST(allocations)
{
    struct allocation a;
    struct err e = ERR_INIT;
    char shown[512];
    ck_assert_msg(find(&a, good[_i].env, good[_i].file, good[_i].np, &e) == 1, "%s: %s", good[_i].env,
                  e.text);
    show(&a, shown, sizeof shown);
    ck_assert_str_eq(shown, good[_i].shown);
    hosts_free(&a.hosts);
}
END_TEST

static const char *const none[] = {
    "",
    "PATH=/bin",
    "SLURM_JOB_ID=7",
    "SLURM_JOB_NODELIST=node1",
    "SLURM_JOB_ID=;SLURM_JOB_NODELIST=node1",
    "LSB_JOBID=3",
    "LSB_HOSTS=a b",
    "PBS_JOBID=3",
    "PBS_NODEFILE=",
    "JOB_ID=4",
};

START_TEST(no_allocation)
{
    struct allocation a;
    struct err e = ERR_INIT;
    ck_assert_int_eq(find(&a, none[_i], NULL, 0, &e), 0);
    ck_assert_int_eq(e.code, ERR_NONE);
    ck_assert_uint_eq(a.hosts.count, 0);
}
END_TEST

static const struct {
    const char *env, *file, *says;
} bad[] = {
    {SLURM "node[1-", NULL, "SLURM_JOB_NODELIST: 'node[1-', byte 5: ']' is missing"},
    {SLURM "node1]", NULL, "byte 6: ']' without '['"},
    {SLURM "node[]", NULL, "byte 6: a number"},
    {SLURM "node[1-2-3]", NULL, "byte 9: ',', '-' or ']'"},
    {SLURM "node[3-1]", NULL, "byte 6: the range runs backwards"},
    {SLURM "node[1234567890]", NULL, "at most 9 digits"},
    {SLURM "a,,b", NULL, "byte 3: the name of a host is empty"},
    {SLURM "a,", NULL, "byte 3: the name of a host is empty"},
    {SLURM "n[1-99999]", NULL, "more than 65536 hosts"},
    {SLURM "a[1][1][1][1][1][1][1][1][1]", NULL, "more than 8 brackets"},
    {SLURM "a b", NULL, "SLURM_JOB_NODELIST: 'a b'"},
    {SLURM "-oX", NULL, "not begin with '-'"},
    {SLURM "a[[1]]", NULL, "']' is missing"},
    {SLURM "a,b;SLURM_NTASKS=3;SLURM_TASKS_PER_NODE=3", NULL,
     "SLURM_TASKS_PER_NODE: '3' is for 1 hosts, the job has 2"},
    {SLURM "a,b;SLURM_NTASKS=3;SLURM_TASKS_PER_NODE=1(x3)", NULL, "more hosts than the 2"},
    {SLURM "a;SLURM_NTASKS=3;SLURM_TASKS_PER_NODE=0", NULL, "byte 1: a number from 1"},
    {SLURM "a,b;SLURM_NTASKS=3;SLURM_TASKS_PER_NODE=3(2)", NULL, "byte 2: ',' is expected"},
    {SLURM "a,b;SLURM_NTASKS=3;SLURM_TASKS_PER_NODE=3(x2", NULL, "how often"},
    {SLURM "a;SLURM_GPUS_PER_NODE=many", NULL, "SLURM_GPUS_PER_NODE: 'many'"},
    {SLURM "a,b,c;SLURM_GPUS=5;SLURM_GPUS_ON_NODE=3", NULL, "SLURM_GPUS is 5 for 3 nodes"},
    {SLURM "a;SLURM_STEP_ID=0;SLURM_STEP_NUM_TASKS=4;SLURM_PROCID=2", NULL, "task 2 of the 4"},
    {HET("2"), NULL, "SLURM_JOB_NODELIST_HET_GROUP_1 is not set"},
    {HET("x"), NULL, "SLURM_HET_SIZE: 'x'"},
    {"LSB_JOBID=1;LSB_MCPU_HOSTS=a 1 b", NULL, "LSB_MCPU_HOSTS: the slots of the last host are missing"},
    {"LSB_JOBID=1;LSB_MCPU_HOSTS=a b c d", NULL, "LSB_MCPU_HOSTS: 'a:b'"},
    {"LSB_JOBID=1;LSB_MCPU_HOSTS= ", NULL, "LSB_MCPU_HOSTS: the list of hosts is empty"},
    {"LSB_JOBID=1;LSB_DJOB_HOSTFILE=/no/such", NULL, "LSB_DJOB_HOSTFILE: cannot read hostfile /no/such"},
    {"PBS_NODEFILE=/no/such", NULL, "PBS_NODEFILE: cannot read hostfile /no/such: No such file"},
    {"PBS_NODEFILE=FILE", "node1\n$(x)\n", ":2: '$(x)'"},
    {"PBS_NODEFILE=FILE", "", "no host is named"},
    {"PE_HOSTFILE=FILE", "node1 4 q\n\nnode2\n", ":3: 'node2:'"},
    {"PE_HOSTFILE=FILE", "node1 four q\n", ":1: 'node1:four'"},
    {"PE_HOSTFILE=/no/such", NULL, "PE_HOSTFILE: cannot read"},
};

START_TEST(bad_allocations)
{
    struct allocation a;
    struct err e = ERR_INIT;
    ck_assert_int_eq(find(&a, bad[_i].env, bad[_i].file, 0, &e), -1);
    ck_assert_int_eq(e.code, ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad[_i].says), "%s: %s", bad[_i].env, e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert(e.hint[0]);
    ck_assert_uint_eq(a.hosts.count, 0);
}
END_TEST

START_TEST(this_host_needs_no_network)
{
    struct allocation a;
    struct err e = ERR_INIT;
    ck_assert_int_eq(find(&a, "PBS_NODEFILE=FILE", "node1.cl.org\nnode2.cl.org\n", 0, &e), 1);
    ck_assert(hosts_is_local(&a.hosts.host[0], HOSTNAME));
    ck_assert(!hosts_is_local(&a.hosts.host[1], HOSTNAME));
    hosts_free(&a.hosts);
}
END_TEST

/* srun when there is one, and all nodes are of one job. */
START_TEST(how_they_are_reached)
{
    struct allocation a;
    struct err e = ERR_INIT;
    char dir[SCRATCH_MAX], program[64], env[256];
    ck_assert_ptr_nonnull(scratch_dir(dir, "allocation-d"));
    snprintf(program, sizeof program, "%s/srun", dir);
    snprintf(env, sizeof env, SLURM "a;PATH=%s", dir);
    ck_assert_int_eq(find(&a, env, NULL, 0, &e), 1);
    ck_assert_ptr_null(a.rsh);
    hosts_free(&a.hosts);
    ck_assert_int_eq(symlink("/bin/true", program), 0);
    ck_assert_int_eq(find(&a, env, NULL, 0, &e), 1);
    ck_assert_str_eq(a.rsh, "srun");
    hosts_free(&a.hosts);
    snprintf(env, sizeof env, HET("1") "PATH=%s", dir);
    ck_assert_int_eq(find(&a, env, NULL, 0, &e), 1);
    ck_assert_ptr_null(a.rsh);
    hosts_free(&a.hosts);
    unlink(program);
    rmdir(dir);
}
END_TEST

START_TEST(description)
{
    struct allocation a;
    struct err e = ERR_INIT;
    char text[800];
    ck_assert_int_eq(find(&a, SLURM "n[1-10];SLURM_NTASKS=10;SLURM_TASKS_PER_NODE=1(x10)", NULL, 0, &e), 1);
    allocation_describe(&a.hosts, text, sizeof text);
    ck_assert_str_eq(text, "n1:1,n2:1,n3:1,n4:1,n5:1,n6:1,n7:1,n8:1 and 2 more hosts");
    hosts_free(&a.hosts);
    ck_assert_int_eq(find(&a, SLURM "n1", NULL, 0, &e), 1);
    allocation_describe(&a.hosts, text, sizeof text);
    ck_assert_str_eq(text, "n1:auto");
    hosts_free(&a.hosts);
}
END_TEST

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

int main(void)
{
    Suite *suite = suite_create("allocation");
    TCase *c = tcase_create("allocation");
    tcase_add_checked_fixture(c, make_file, remove_file);
    tcase_add_loop_test(c, allocations, 0, LENGTH(good));
    tcase_add_loop_test(c, no_allocation, 0, LENGTH(none));
    tcase_add_loop_test(c, bad_allocations, 0, LENGTH(bad));
    tcase_add_test(c, this_host_needs_no_network);
    tcase_add_test(c, how_they_are_reached);
    tcase_add_test(c, description);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
