/* Elastic jobs: workers train a number of steps while workers, engines and links die, and workers and hosts
 * come and go, at any point. These rules hold in every run:
 *
 *   - Each worker that lives ends in time: with the work done, or because it has left.
 *   - A sum over all ranks has the size of the membership, from the first operation on.
 *   - Workers that enter a membership agree about its size, and have different ranks in it.
 *   - Those that finish do so in one membership, unless the launcher has ended the job.
 *   - Memory of hvd_alloc keeps its address and its contents.
 *   - What elastic_sets.c says about process sets, in most runs. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/elastic.h"
#include "tests/sim/member.h"

#define STEPS       12
#define LIMIT       (200 * SEC)
#define EVENTS      6
#define MEMBERSHIPS 64
#define ELEMENTS    700 /* several: in a segment */

enum what { KILL, KILL_ENGINE, CUT, ADD_WORKER, ADD_HOST, LET_GO, WHATS };

struct event {
    enum what what;
    uint64_t at;
    uint32_t a, b;
    bool done;
};

static struct {
    struct event event[EVENTS];
    uint32_t events;
    uint32_t size_of[MEMBERSHIPS];                /* as its ranks say; 0: none has entered it */
    uint32_t worker_of[MEMBERSHIPS][SIM_MEMBERS]; /* 1 + the worker, by rank */
    uint32_t final[SIM_MEMBERS];                  /* the membership in which the worker has finished; 0 */
    bool left[SIM_MEMBERS];
    bool cut;
    bool has_sets;
    int failures;
} run;

static struct fiber *fiber[SIM_HOSTS + SIM_MEMBERS];
static uint64_t seed, memberships;

void elastic_failure(const char *fmt, ...)
{
    va_list args;

    if (run.failures++ >= 5)
        return;
    fprintf(stderr, "elastic seed %llu: ", (unsigned long long)seed);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- a worker ------------------------------------------------------------------------------------------ */

static void note_entry(void)
{
    struct library *l = member_library();
    uint32_t number = (uint32_t)l->hvd_membership(), rank = (uint32_t)l->hvd_rank();
    uint32_t size = (uint32_t)l->hvd_size(), worker = sim_current->index;

    if (number == 0 || number >= MEMBERSHIPS || rank >= size || size > SIM_MEMBERS) {
        elastic_failure("worker %u is rank %u of %u in membership %u", worker, rank, size, number);
        return;
    }
    memberships = number > memberships ? number : memberships;
    if (run.size_of[number] && run.size_of[number] != size)
        elastic_failure("membership %u has %u ranks, or %u", number, run.size_of[number], size);
    if (run.worker_of[number][rank] && run.worker_of[number][rank] != worker + 1)
        elastic_failure("rank %u of membership %u is worker %u, or %u", rank, number,
                        run.worker_of[number][rank] - 1, worker);
    run.size_of[number] = size;
    run.worker_of[number][rank] = worker + 1;
}

static int take_step(int32_t *step, bool first, float *sum, int *changed)
{
    struct library *l = member_library();
    int32_t now = *step, flag;
    int status = run.has_sets && first ? elastic_sets_enter() : HVD_SUCCESS;

    if (status == HVD_SUCCESS)
        status = l->hvd_broadcast("step", &now, 1, HVD_INT32, 0, NULL);
    if (status != HVD_SUCCESS)
        return status;
    *step = now; /* newcomers go on where the others are */
    if (now >= STEPS)
        return HVD_SUCCESS;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        sum[i] = 1;
    status = l->hvd_allreduce("sum", sum, sum, ELEMENTS, HVD_FLOAT32, HVD_SUM, NULL);
    if (status != HVD_SUCCESS)
        return status;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if (sum[i] != (float)l->hvd_size()) {
            elastic_failure("worker %u: element %u of a sum of %d ranks is %g", sim_current->index, i,
                            l->hvd_size(), (double)sum[i]);
            break;
        }
    status = run.has_sets ? elastic_sets_step(seed, now) : HVD_SUCCESS;
    if (status != HVD_SUCCESS)
        return status;
    *step = now + 1;
    flag = l->hvd_membership_changed();
    status = l->hvd_allreduce("changed", &flag, changed, 1, HVD_INT32, HVD_MAX, NULL);
    return status;
}

/* Returns the status of the end. */
static int train_steps(void)
{
    struct library *l = member_library();
    int32_t step = 0;
    float *sum = l->hvd_alloc(ELEMENTS * sizeof *sum), *kept = l->hvd_alloc(sizeof *kept);

    if (!sum || !kept)
        return HVD_ERR_MEMORY;
    *kept = 7;
    for (bool over = false, first = true; !over;) {
        int changed = 0;
        int status = take_step(&step, first, sum, &changed);
        first = status == HVD_ERR_PEER || changed;
        if (status != HVD_SUCCESS && status != HVD_ERR_PEER)
            return status;
        over = step >= STEPS && status == HVD_SUCCESS && !changed;
        if (first) {
            status = l->hvd_reset();
            if (status != HVD_SUCCESS)
                return status;
            if (*kept != 7)
                elastic_failure("worker %u: memory of hvd_alloc has changed", sim_current->index);
            note_entry();
        }
        if (chance_one_in(&sim_timing, 2))
            fiber_wait(sim_now + chance_below(&sim_timing, 4 * MSEC));
    }
    uint32_t final = (uint32_t)l->hvd_membership();
    int status = l->hvd_shutdown();
    if (status == HVD_SUCCESS)
        run.final[sim_current->index] = final;
    return status;
}

void elastic_member_run(void *arg)
{
    struct sim_member *m = arg;
    struct library *l = member_library();
    int status;

    fiber_wait(sim_now + chance_below(&sim_timing, 2 * MSEC));
    status = l->hvd_init();
    if (status == HVD_SUCCESS) {
        note_entry();
        status = train_steps();
    }
    run.left[m->rank] = status == HVD_ERR_LEFT;
    sim_say("ends with %d%s%s", status, status ? ": " : "", status ? l->hvd_last_error() : "");
    bool well = status == HVD_SUCCESS || status == HVD_ERR_LEFT;
    bool stranded = !job.host[m->fiber.host].engine; /* the session is about to end the worker */
    if (!well && status != HVD_ERR_PEER && status != HVD_ERR_ENGINE && !stranded)
        elastic_failure("worker %u ends with %d: %s", m->rank, status, l->hvd_last_error());
    m->ends_at = sim_now + 1;
    if (well)
        launcher_rank_gone(m->rank, true);
    else
        m->told_at = sim_now + 1 + chance_below(&sim_timing, 5 * MSEC);
}

/* ---- the events ---------------------------------------------------------------------------------------- */

static void choose_events(void)
{
    run.events = (uint32_t)chance_below(&sim_timing, EVENTS + 1);
    for (uint32_t i = 0; i < run.events; i++)
        run.event[i] = (struct event){.what = (enum what)chance_below(&sim_timing, WHATS),
                                      .at = sim_now + chance_below(&sim_timing, 60 * MSEC),
                                      .a = (uint32_t)chance_next(&sim_timing),
                                      .b = (uint32_t)chance_next(&sim_timing)};
}

static bool is_over(uint32_t worker)
{
    enum fiber_state state = job.member[worker].fiber.state;

    return state == FIBER_ENDED || state == FIBER_DEAD;
}

static void add_worker(uint32_t host)
{
    if (job.size == SIM_MEMBERS || !job.host[host].engine)
        return;
    sim_say("-- worker %u comes to host %u", job.size, host);
    launcher_worker_added(job.size, host);
    job_add_member(host, elastic_member_run);
}

static void cause_event(const struct event *e)
{
    uint32_t host = e->a % job.hosts;

    if (launcher_gave_up() && (e->what == ADD_WORKER || e->what == ADD_HOST))
        return; /* nobody is started any more */
    switch (e->what) {
    case KILL: /* at a point of its own */
        if (!is_over(e->a % job.size))
            job.member[e->a % job.size].fiber.die_at =
                job.member[e->a % job.size].fiber.points + 1 + e->b % 400;
        break;
    case KILL_ENGINE:
        job.host[host].die_at_wait = job.host[host].waits + 1 + e->b % 20;
        break;
    case CUT:
        if (job.hosts > 1 && host != e->b % job.hosts) {
            run.cut = true;
            net_cut(host, e->b % job.hosts);
        }
        break;
    case ADD_WORKER:
        add_worker(host);
        break;
    case ADD_HOST:
        if (job.hosts == SIM_HOSTS)
            break;
        job_add_host(1);
        add_worker(job.hosts - 1);
        break;
    default:
        sim_say("-- host %u is to leave", host);
        launcher_let_go(host);
    }
}

static bool are_all_over(void)
{
    bool all = true;

    for (uint32_t i = 0; i < run.events; i++)
        if (!run.event[i].done && sim_now >= run.event[i].at) {
            run.event[i].done = true;
            cause_event(&run.event[i]);
        }
    for (uint32_t i = 0; i < job.size; i++)
        all = all && is_over(i);
    return all;
}

/* ---- a run --------------------------------------------------------------------------------------------- */

static void set_up(void)
{
    uint32_t rank = 0;

    memset(&run, 0, sizeof run);
    elastic_sets_reset();
    member_reset();
    system_reset();
    net_reset();
    sim_now = 0;
    sim_timing.state = seed * 0x2545f4914f6cdd1dull + 11;
    sim_pace(1ull << (1 + chance_below(&sim_timing, 12)));
    job.elastic = true;
    job.flat = false;
    job.fusion_bytes = 1u << 20;
    job.crowded = !chance_one_in(&sim_timing, 16);
    run.has_sets = !chance_one_in(&sim_timing, 4);
    job.hosts = 1 + (uint32_t)chance_below(&sim_timing, 4);
    for (uint32_t i = 0; i < job.hosts; i++) {
        job.host[i].first_rank = rank;
        rank += job.host[i].ranks = 1 + (uint32_t)chance_below(&sim_timing, 3);
        job.host[i].die_at_wait = 0;
    }
    job.size = rank;
    for (uint32_t i = 0; i < SIM_MEMBERS; i++) {
        job.member[i].fiber.die_at = 0;
        job.member[i].fiber.state = FIBER_NONE;
        fiber[SIM_HOSTS + i] = &job.member[i].fiber;
    }
    for (uint32_t i = 0; i < SIM_HOSTS; i++)
        fiber[i] = &job.host[i].fiber;
    choose_events();
}

static void check_rules(bool in_time)
{
    uint32_t final = 0;

    for (uint32_t i = 0; i < job.size; i++) {
        if (!is_over(i))
            elastic_failure("worker %u does not end", i);
        if (!run.final[i] || launcher_gave_up())
            continue;
        if (final && final != run.final[i])
            elastic_failure("workers finish in memberships %u and %u", final, run.final[i]);
        final = run.final[i];
    }
    if (in_time && !final && !launcher_gave_up())
        elastic_failure("no worker has finished, and the launcher has not given up");
    for (uint32_t i = 0; i < job.hosts; i++)
        if (job.host[i].failed)
            elastic_failure("engine %u ended by itself", i);
}

static bool is_quiet(void)
{
    return false;
}

int elastic_run(uint64_t which)
{
    static unsigned files;

    seed = which;
    set_up();
    job_start();
    launcher_begin();
    job_start_members(elastic_member_run);
    bool in_time = sim_run(fiber, SIM_HOSTS + SIM_MEMBERS, are_all_over, sim_now + LIMIT);
    if (in_time)
        sim_run(fiber, SIM_HOSTS, is_quiet, sim_now + 200 * MSEC); /* the launcher hears of all ends */
    check_rules(in_time);
    launcher_end();
    job_free();
    system_reset();
    unsigned now = system_open_files();
    if (files && now > files)
        elastic_failure("%u descriptors were left open", now - files);
    files = now;
    job.elastic = false;
    return run.failures ? -1 : 0;
}

uint64_t elastic_memberships(void)
{
    return memberships;
}
