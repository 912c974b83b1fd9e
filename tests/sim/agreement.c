/* How long the ranks of an elastic job take to agree about the next membership, and with how many messages.
 *
 * Each host has one rank, the last one has two. Each message takes 1 ms, from the launcher and between
 * hosts; work takes hardly any time. The last rank dies when all have trained. The others have come to
 * hvd_reset when the launcher names the next membership. Messages are those of an engine to other engines,
 * from the death until all ranks have entered. */
#include <stdlib.h>

#include "collectives/engine/agree/host_tree.h"
#include "tests/sim/member.h"

#define LIMIT_MS 100 /* from the name to the last rank's entry */
/* Messages to an engine beside it in the tree of hosts: the operation that the death ends, the failure, the
 * fence, and the two agreements of hvd_init, a barrier and the most sets. */
#define LIMIT_EACH 5

static struct fiber *fiber[SIM_HOSTS + SIM_MEMBERS];
static uint64_t entered_at, named_at;
static uint32_t trained, entered, wrong;

static void train(void *arg)
{
    struct sim_member *m = arg;
    struct library *l = member_library();
    int32_t one = 1, sum;
    int status = l->hvd_init();

    if (status == HVD_SUCCESS)
        status = l->hvd_allreduce("sum", &one, &sum, 1, HVD_INT32, HVD_SUM, NULL);
    trained += status == HVD_SUCCESS;
    while (status == HVD_SUCCESS && l->hvd_membership() == 1) /* one of the ranks does not come */
        if (m->rank + 1 == job.size)
            fiber_wait(sim_now + MSEC);
        else
            status = l->hvd_allreduce("sum", &one, &sum, 1, HVD_INT32, HVD_SUM, NULL);
    if (status == HVD_ERR_PEER)
        status = l->hvd_reset();
    if (status == HVD_SUCCESS) {
        entered++;
        entered_at = sim_now;
        while (entered + 1 < job.size) /* later messages are not counted */
            fiber_wait(sim_now + MSEC);
        status = l->hvd_allreduce("sum", &one, &sum, 1, HVD_INT32, HVD_SUM, NULL);
        wrong += status != HVD_SUCCESS || sum != l->hvd_size();
    }
    if (status == HVD_SUCCESS)
        status = l->hvd_shutdown();
    wrong += status != HVD_SUCCESS;
    m->ends_at = sim_now + 1;
    launcher_rank_gone(m->rank, true);
}

static bool have_trained(void)
{
    return trained == job.size;
}

static bool have_entered(void)
{
    return entered + 1 == job.size;
}

static bool are_over(void)
{
    for (uint32_t i = 0; i + 1 < job.size; i++)
        if (job.member[i].fiber.state != FIBER_ENDED)
            return false;
    return true;
}

static void set_up(uint32_t hosts)
{
    member_reset();
    system_reset();
    net_reset();
    sim_now = entered_at = named_at = 0;
    trained = entered = wrong = 0;
    sim_steady = true;
    sim_timing.state = hosts;
    sim_pace(1ull << 20);
    job.elastic = true;
    job.fusion_bytes = 1u << 20;
    job.hosts = hosts;
    job.size = hosts + 1;
    for (uint32_t i = 0; i < SIM_HOSTS; i++) {
        job.host[i].first_rank = i;
        job.host[i].ranks = i + 1 == hosts ? 2 : 1;
        job.host[i].die_at_wait = 0;
        fiber[i] = &job.host[i].fiber;
    }
    for (uint32_t i = 0; i < SIM_MEMBERS; i++) {
        job.member[i].fiber.die_at = 0;
        job.member[i].fiber.state = FIBER_NONE;
        fiber[SIM_HOSTS + i] = &job.member[i].fiber;
    }
}

static bool run_steps(void)
{
    const size_t fibers = SIM_HOSTS + SIM_MEMBERS;

    if (!sim_run(fiber, fibers, have_trained, sim_now + 10 * SEC))
        return false;
    net_count_anew();
    job_kill(&job.member[job.size - 1]);
    if (!sim_run(fiber, fibers, have_entered, sim_now + 10 * SEC))
        return false;
    named_at = launcher_named_at();
    return true;
}

/* Of the tree of hosts. */
static uint32_t count_neighbours(uint32_t host)
{
    uint64_t first = (uint64_t)host * HOST_TREE_RADIX + 1, end = first + HOST_TREE_RADIX;

    end = end < job.hosts ? end : job.hosts;
    return (host > 0) + (uint32_t)(first < end ? end - first : 0);
}

static bool are_few(void)
{
    for (uint32_t i = 0; i < job.hosts; i++)
        if (net_sent(i) > LIMIT_EACH * count_neighbours(i))
            return false;
    return true;
}

/* Prints the figures; -1: they are over the limits. */
int agreement_run(uint32_t hosts)
{
    set_up(hosts);
    job_start();
    launcher_begin();
    job_start_members(train);
    bool done = run_steps(), few = are_few();
    uint32_t root = net_sent(0), last = net_sent(hosts - 1);
    double ms = (double)(entered_at - named_at) / MSEC;
    bool well = done && few && ms <= LIMIT_MS &&
                sim_run(fiber, SIM_HOSTS + SIM_MEMBERS, are_over, sim_now + 10 * SEC) && wrong == 0;
    printf("%s - agreement of %u hosts: %.1f ms from the name of a membership to the last rank's entry; "
           "messages of the first host: %u, of the last host: %u\n",
           well ? "ok" : "not ok", hosts, ms, root, last);
    launcher_end();
    job_free();
    system_reset();
    job.elastic = sim_steady = false;
    return well ? 0 : -1;
}
