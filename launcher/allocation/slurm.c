/* Slurm: the nodes of SLURM_JOB_NODELIST. How many slots each has depends on what the job asked for; the
 * first that was asked counts:
 *
 *   1. tasks (-n, --ntasks-per-node): as many as Slurm placed there, SLURM_TASKS_PER_NODE
 *   2. GPUs (--gpus-per-node, --gres=gpu:4, --gpus): one for each of the node's
 *   3. neither: with -np the nodes share the ranks evenly; without it, what a node's agent reports
 *
 * SLURM_TASKS_PER_NODE is there in any case and then follows from the CPUs: a training job wants no rank for
 * each CPU, so it counts only where tasks were asked for. Variables about GPUs describe the first node
 * (slurmd sets them there) but --gpus-per-node; a total (--gpus) that the first node's share does not explain
 * is an error for more than two nodes.
 *
 * Inside a step Slurm replaces the job's tasks by the step's. One task is the user's shell (srun --pty bash)
 * or hvdrun itself, and says nothing about ranks; of several tasks each would start the whole job, which is
 * refused. A heterogeneous job has the variables once for each component, with _HET_GROUP_n behind; a node in
 * two of them has the slots of both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/process/spawn.h"
#include "launcher/allocation/allocation.h"
#include "launcher/allocation/nodelist.h"

#define GROUPS_MAX 128
#define NO_GROUP   (-1)
#define NODELIST   "SLURM_JOB_NODELIST"

/* One job, or one component of a heterogeneous one. */
struct component {
    char *const *envp;
    int group; /* NO_GROUP: the job is not heterogeneous */
    uint32_t np;
};

static void group_name(const struct component *c, const char *name, char *out, size_t size)
{
    if (c->group == NO_GROUP)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "%s_HET_GROUP_%d", name, c->group);
}

static const char *get_variable(const struct component *c, const char *name)
{
    char full[96];
    group_name(c, name, full, sizeof full);
    return allocation_variable(c->envp, full);
}

static bool is_step(char *const envp[])
{
    return allocation_variable(envp, "SLURM_STEP_ID") || allocation_variable(envp, "SLURM_STEPID");
}

static bool tasks_were_asked(const struct component *c)
{
    const char *tasks = get_variable(c, "SLURM_NTASKS");
    if (is_step(c->envp) && tasks && strcmp(tasks, "1") == 0)
        return false;
    return tasks || get_variable(c, "SLURM_NTASKS_PER_NODE");
}

/* "4", "a100:4", "a100:2,v100:2": the sum. */
static int read_gpus(const char *text, const char *name, uint32_t *gpus, struct err *e)
{
    *gpus = 0;
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        const char *colon = memrchr(at, ':', len), *number = colon ? colon + 1 : at;
        uint64_t value = 0;
        const char *p = number;
        for (; p < at + len && *p >= '0' && *p <= '9' && value <= HOSTS_SLOTS_MAX; p++)
            value = value * 10 + (uint64_t)(*p - '0');
        if (p == number || p < at + len || value + *gpus > HOSTS_SLOTS_MAX)
            return err_set(e, ERR_USAGE, "%s: '%.80s' is not a number of GPUs such as 4 or a100:4", name,
                           text);
        *gpus += (uint32_t)value;
        at += len;
        if (!*at)
            return 0;
    }
}

static void fill_slots(uint32_t *slots, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        slots[i] = value;
}

/* From the GPUs; the slots stay 0 when none were asked for. */
static int slots_from_gpus(const struct component *c, uint32_t *slots, size_t count, struct err *e)
{
    const char *each = get_variable(c, "SLURM_GPUS_PER_NODE"), *total = get_variable(c, "SLURM_GPUS");
    const char *first = c->group <= 0 ? allocation_variable(c->envp, "SLURM_GPUS_ON_NODE") : NULL;
    uint32_t of_each, of_first, of_all;
    if (each) {
        if (read_gpus(each, "SLURM_GPUS_PER_NODE", &of_each, e))
            return -1;
        fill_slots(slots, count, of_each);
        return 0;
    }
    if (!first)
        return 0;
    if (read_gpus(first, "SLURM_GPUS_ON_NODE", &of_first, e))
        return -1;
    fill_slots(slots, count, of_first);
    if (!total || is_step(c->envp))
        return 0;
    if (read_gpus(total, "SLURM_GPUS", &of_all, e))
        return -1;
    if ((uint64_t)of_first * count == of_all)
        return 0;
    if (count == 2 && of_all > of_first) {
        slots[1] = of_all - of_first;
        return 0;
    }
    err_set(e, ERR_USAGE,
            "SLURM_GPUS is %u for %zu nodes and SLURM_GPUS_ON_NODE is %u: how many GPUs each of "
            "the other nodes has is not said",
            of_all, count, of_first);
    return err_hint(e,
                    "ask Slurm for them with --gpus-per-node, or for tasks with --ntasks-per-node, or name "
                    "the hosts with -H");
}

static int find_slots(const struct component *c, uint32_t *slots, size_t count, struct err *e)
{
    char name[96];
    const char *tasks = get_variable(c, "SLURM_TASKS_PER_NODE");
    group_name(c, "SLURM_TASKS_PER_NODE", name, sizeof name);
    if (tasks && tasks_were_asked(c))
        return nodelist_counts(tasks, name, slots, count, e);
    fill_slots(slots, count, 0);
    if (slots_from_gpus(c, slots, count, e))
        return -1;
    if (!slots[0] && c->np && c->group == NO_GROUP)
        fill_slots(slots, count, (uint32_t)((c->np + count - 1) / count));
    return 0;
}

/* Behind what stands in `text` already: the names and slots as -H has them. */
static int write_hosts(const struct buf *names, const uint32_t *slots, size_t count, struct buf *text,
                       struct err *e)
{
    const char *name = (const char *)buf_data(names);
    for (size_t i = 0; i < count; i++, name += strlen(name) + 1) {
        char entry[HOSTS_NAME_MAX + 16];
        int n = snprintf(entry, sizeof entry, slots[i] ? "%s%s:%u" : "%s%s", text->len ? "," : "", name,
                         slots[i]);
        if (buf_put(text, entry, (size_t)n) < 0)
            return err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    return 0;
}

static int read_component(const struct component *c, struct buf *text, struct err *e)
{
    char from[96];
    struct buf names;
    size_t count = 0;
    const char *nodes = get_variable(c, NODELIST);
    group_name(c, NODELIST, from, sizeof from);
    if (!nodes)
        return err_set(e, ERR_USAGE, "%s is not set", from);
    buf_init(&names, NODELIST_BYTES_MAX);
    int rc = nodelist_expand(nodes, from, &names, &count, e);
    uint32_t *slots = rc ? NULL : calloc(count, sizeof *slots);
    if (!rc && !slots)
        rc = err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    if (!rc)
        rc = find_slots(c, slots, count, e);
    if (!rc)
        rc = write_hosts(&names, slots, count, text, e);
    free(slots);
    buf_free(&names);
    return rc;
}

/* 0: not heterogeneous; -1 with *e. */
static int read_groups(char *const envp[], struct err *e)
{
    const char *text = allocation_variable(envp, "SLURM_HET_SIZE");
    if (!text)
        return 0;
    char *end;
    long groups = strtol(text, &end, 10);
    if (*end || groups < 1 || groups > GROUPS_MAX)
        return err_set(e, ERR_USAGE, "SLURM_HET_SIZE: '%.80s' is not a number from 1 to %d", text,
                       GROUPS_MAX);
    return (int)groups;
}

/* One of several tasks: all of them are hvdrun. */
static int check_alone(char *const envp[], struct err *e)
{
    const char *tasks = allocation_variable(envp, "SLURM_STEP_NUM_TASKS");
    const char *rank = allocation_variable(envp, "SLURM_PROCID");
    if (!is_step(envp) || !tasks || strcmp(tasks, "1") == 0)
        return 0;
    err_set(e, ERR_USAGE,
            "this is task %.20s of the %.20s that srun started: each of them would start the whole job",
            rank ? rank : "?", tasks);
    return err_hint(e, "run hvdrun without srun in front of it: it starts the ranks on all nodes itself");
}

static bool is_inside_slurm(char *const envp[])
{
    return allocation_variable(envp, "SLURM_JOB_ID") &&
           (allocation_variable(envp, NODELIST) || allocation_variable(envp, NODELIST "_HET_GROUP_0"));
}

static int read_hosts(struct host_list *hosts, char *const envp[], uint32_t np, struct err *e)
{
    struct buf text;
    int groups = read_groups(envp, e), rc = groups < 0 ? -1 : check_alone(envp, e);
    *hosts = (struct host_list){0};
    buf_init(&text, NODELIST_BYTES_MAX);
    struct component c = {.envp = envp, .group = groups ? 0 : NO_GROUP, .np = np};
    do
        rc = rc ? rc : read_component(&c, &text, e);
    while (!rc && ++c.group < groups);
    if (!rc && buf_put(&text, "", 1) < 0)
        rc = err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    if (!rc)
        rc = hosts_parse(hosts, (const char *)buf_data(&text), NODELIST, e);
    /* A node's name for Slurm need not be its host name. */
    const char *node = allocation_variable(envp, "SLURMD_NODENAME");
    for (size_t i = 0; node && i < hosts->count; i++)
        hosts->host[i].here = strcmp(hosts->host[i].name, node) == 0;
    buf_free(&text);
    return rc;
}

/* Steps are always allowed, are counted and bound to the job's GPUs, and end with it; logging in to a node is
 * forbidden at many sites. A step of one job does not reach the nodes of another component. */
static const char *choose_rsh(char *const envp[])
{
    char path[4096];
    struct err ignored = ERR_INIT;
    const char *search = allocation_variable(envp, "PATH");
    if (allocation_variable(envp, "SLURM_HET_SIZE") ||
        spawn_find("srun", search, NULL, path, sizeof path, &ignored) < 0)
        return NULL;
    return "srun";
}

const struct scheduler allocation_slurm = {"Slurm", "SLURM_JOB_ID", is_inside_slurm, read_hosts, choose_rsh};
