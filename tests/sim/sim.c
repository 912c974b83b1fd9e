/* Runs the simulation: --seeds A..B, or --seed N --verbose for one; with --elastic runs of elastic.c.
 *
 * Seed N runs plan N / 4 with a timing of its own; of the four timings of a plan the first two are without a
 * fault, the others have one. These rules hold in every run:
 *
 *   - Each rank that lives ends all its calls in time, each with the right result or an error.
 *   - Without a fault the only errors are those of ranks that disagree: the same sentence on all ranks.
 *   - Results are the same bits on all ranks, and in all timings of a plan.
 *   - After a death no rank leaves without an error.
 *   - No memory stays allocated. */
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/sim/member.h"

#define TIMINGS 4
#define LIMIT   (100 * SEC) /* of a run; the watchdogs of ranks and engines are shorter */

enum fault { FAULT_NONE, FAULT_MEMBER, FAULT_ENGINE, FAULT_CUT };

static struct fiber *fiber[SIM_HOSTS + SIM_MEMBERS];
static struct plan plan;
static enum fault fault;
static uint32_t victim, cut_a, cut_b;
static uint64_t cut_at, seed, failures, operations, told, deaths;
static uint64_t digest[PLAN_ROUNDS][PLAN_TENSORS][SIM_MEMBERS]; /* of this plan's earlier timings; 0: none */

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void fail(const char *fmt, ...)
{
    va_list args;

    if (failures++ < 20) {
        fprintf(stderr, "seed %llu: ", (unsigned long long)seed);
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fputc('\n', stderr);
    }
}

/* ---- the run ------------------------------------------------------------------------------------------- */

static uint64_t log_uniform(uint64_t most)
{
    uint64_t bits = 1;

    while (1ull << bits < most)
        bits++;
    return 1 + chance_below(&sim_timing, 1ull << (1 + chance_below(&sim_timing, bits)));
}

static void choose_fault(void)
{
    fault = seed % TIMINGS < 2 ? FAULT_NONE : (enum fault)(1 + chance_below(&sim_timing, 3));
    if (fault == FAULT_CUT && plan.hosts == 1)
        fault = FAULT_MEMBER;
    cut_at = 0;
    for (uint32_t i = 0; i < plan.size; i++)
        job.member[i].fiber.die_at = 0;
    for (uint32_t i = 0; i < plan.hosts; i++)
        job.host[i].die_at_wait = 0;
    if (fault == FAULT_MEMBER) {
        victim = (uint32_t)chance_below(&sim_timing, plan.size);
        job.member[victim].fiber.die_at = log_uniform(1 << 15);
    } else if (fault == FAULT_ENGINE) {
        victim = (uint32_t)chance_below(&sim_timing, plan.hosts);
        job.host[victim].die_at_wait = 8 + log_uniform(512);
    } else if (fault == FAULT_CUT) {
        cut_a = (uint32_t)chance_below(&sim_timing, plan.hosts);
        cut_b = (cut_a + 1 + (uint32_t)chance_below(&sim_timing, plan.hosts - 1)) % plan.hosts;
        cut_at = sim_now + log_uniform(64 * MSEC);
    }
}

static bool over(void)
{
    bool all = true;

    if (cut_at && sim_now >= cut_at) {
        cut_at = 0;
        net_cut(cut_a, cut_b);
    }
    for (uint32_t i = 0; i < plan.size; i++)
        all = all && (job.member[i].fiber.state == FIBER_ENDED || job.member[i].fiber.state == FIBER_DEAD);
    return all;
}

static void set_up(void)
{
    uint32_t rank = 0;

    plan = plan_make(seed / TIMINGS);
    member_plan = &plan;
    member_reset();
    system_reset();
    net_reset();
    sim_now = 0;
    sim_timing.state = seed * 0x2545f4914f6cdd1dull + 7;
    sim_pace(1ull << (1 + chance_below(&sim_timing, 12)));
    job.hosts = plan.hosts;
    job.size = plan.size;
    job.flat = plan.flat;
    job.fusion_bytes = plan.fusion_bytes;
    job.crowded = !chance_one_in(&sim_timing, 16);
    for (uint32_t i = 0; i < plan.hosts; i++) {
        job.host[i].first_rank = rank;
        rank += job.host[i].ranks = plan.ranks[i];
        fiber[i] = &job.host[i].fiber;
    }
    for (uint32_t i = 0; i < plan.size; i++)
        fiber[plan.hosts + i] = &job.member[i].fiber;
    choose_fault();
}

/* ---- the rules that hold in every run ------------------------------------------------------------------ */

static bool is_gone(uint32_t rank)
{
    return job.member[rank].fiber.state == FIBER_DEAD;
}

static bool is_failure(int status)
{
    return status == HVD_ERR_PEER || status == HVD_ERR_ENGINE;
}

static void check_status(uint32_t rank, const char *what, const struct outcome *o, bool odd)
{
    bool fine = odd ? o->status == HVD_ERR_MISMATCH : o->status == HVD_SUCCESS;

    if (fault != FAULT_NONE && is_failure(o->status))
        fine = o->text[0] != '\0';
    told += is_failure(o->status);
    if (!fine)
        fail("rank %u, %s: status %d: %s", rank, what, o->status, o->text);
    if (fault == FAULT_MEMBER && is_gone(victim) && o->status == HVD_ERR_PEER) {
        char name[20];
        snprintf(name, sizeof name, "rank %u ", victim);
        if (!strstr(o->text, name))
            fail("rank %u, %s: the sentence does not name rank %u: %s", rank, what, victim, o->text);
    }
}

static void check_rank(uint32_t rank)
{
    const struct rank_report *r = &member_report[rank];
    char what[40];

    check_status(rank, "hvd_init", &r->init, false);
    if (r->wrong[0])
        fail("rank %u: %s", rank, r->wrong);
    if (r->init.status != HVD_SUCCESS)
        return;
    for (uint32_t i = 0; i < plan.rounds; i++) {
        for (uint32_t t = 0; t < plan.tensors; t++) {
            snprintf(what, sizeof what, "round %u, t%u", i, t);
            if (plan_is_idle(&plan, i, rank))
                continue;
            check_status(rank, what, &r->op[i][t], plan.op[i][t].odd != UINT32_MAX || plan.op[i][t].refused);
            operations++;
        }
        snprintf(what, sizeof what, "join %u", i);
        if (plan.idle[i])
            check_status(rank, what, &r->join[i], false);
        snprintf(what, sizeof what, "barrier %u", i);
        if (plan.barrier[i])
            check_status(rank, what, &r->barrier[i], false);
    }
    check_status(rank, "hvd_shutdown", &r->end, false);
}

/* All ranks hear the same of who was last. */
static void check_join(uint32_t round)
{
    const struct rank_report *first = NULL;

    for (uint32_t rank = 0; rank < plan.size; rank++) {
        const struct rank_report *r = &member_report[rank];
        if (r->join[round].status != HVD_SUCCESS)
            continue;
        first = first ? first : r;
        if (r->last[round] != first->last[round] || r->last[round] < 0 || r->last[round] >= (int)plan.size)
            fail("round %u: rank %u hears that rank %d joined last", round, rank, r->last[round]);
    }
}

/* All ranks' results of one operation: alike, and as in the plan's other timings. */
static void check_results(uint32_t i, uint32_t t)
{
    const struct plan_op *op = &plan.op[i][t];
    const struct outcome *first = NULL, *said = NULL;

    for (uint32_t rank = 0; rank < plan.size; rank++) {
        const struct outcome *o = &member_report[rank].op[i][t];
        uint64_t *before = &digest[i][t][rank];
        if (o->status == HVD_ERR_MISMATCH && said && strcmp(said->text, o->text) != 0)
            fail("round %u, t%u: two sentences: %s; %s", i, t, said->text, o->text);
        if (o->status == HVD_ERR_MISMATCH && !said)
            said = o;
        if (o->status != HVD_SUCCESS || op->odd != UINT32_MAX)
            continue;
        if (first && plan_result_is_common(op) && first->hash != o->hash)
            fail("round %u, t%u: rank %u has other bits than a rank before", i, t, rank);
        if (*before && *before != o->hash)
            fail("round %u, t%u: rank %u has other bits than at another timing", i, t, rank);
        first = first ? first : o;
        *before = o->hash;
    }
}

/* A rank that was not about to leave has died, or an engine has: nobody has left in peace. */
static void check_mourning(void)
{
    bool died = fault == FAULT_MEMBER && is_gone(victim) && !member_report[victim].leaving;

    if (fault == FAULT_ENGINE && !job.host[victim].engine)
        for (uint32_t i = 0; i < plan.size && !died; i++)
            died = job.member[i].fiber.host == victim && !member_report[i].leaving;
    for (uint32_t i = 0; died && fault == FAULT_MEMBER && i < plan.size; i++)
        if (!is_gone(i) && !is_failure(member_report[i].end.status))
            fail("rank %u left in peace although rank %u has died", i, victim);
}

static void check_engines(void)
{
    for (uint32_t i = 0; i < plan.hosts; i++) {
        const struct engine *engine = job.host[i].engine;
        if (job.host[i].failed || (!engine && fault != FAULT_ENGINE))
            fail("engine %u ended by itself", i);
    }
}

static void check(bool in_time)
{
    uint64_t told_before = told;

    for (uint32_t i = 0; i < plan.size && !in_time; i++)
        if (job.member[i].fiber.state != FIBER_ENDED && !is_gone(i))
            fail("rank %u waits for ever", i);
    for (uint32_t i = 0; i < plan.size && in_time; i++)
        if (!is_gone(i))
            check_rank(i);
    for (uint32_t i = 0; i < plan.rounds; i++) {
        check_join(i);
        for (uint32_t t = 0; t < plan.tensors; t++)
            check_results(i, t);
    }
    if (in_time)
        check_mourning();
    check_engines();
    deaths += told_before != told;
}

static bool quiet(void)
{
    return false;
}

static void run(void)
{
    static size_t memory;
    static unsigned files;
    bool in_time;

    if (seed % TIMINGS == 0)
        memset(digest, 0, sizeof digest);
    set_up();
    if (sim_verbose)
        plan_print(&plan);
    sim_say("-- fault %d, victim %u", (int)fault, victim);
    job_start();
    job_start_members(member_run);
    in_time = sim_run(fiber, plan.hosts + plan.size, over, sim_now + LIMIT);
    if (in_time)
        sim_run(fiber, plan.hosts, quiet, sim_now + 50 * MSEC); /* messages under way arrive */
    check(in_time);
    job_free();
    unsigned left = system_reset();
    if (left && in_time)
        fail("%u pieces of shared memory are still mapped", left);
    unsigned files_now = system_open_files();
    if (files && files_now > files)
        fail("%u descriptors were left open", files_now - files);
    files = files_now;
    if (fault == FAULT_NONE && in_time && seed % TIMINGS == 1) {
        member_reset();
        size_t now = mallinfo2().uordblks;
        if (memory && now > memory + 512)
            fail("%zu bytes were not freed", now - memory);
        memory = now;
    } else {
        memory = 0;
    }
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* A crash is a finding like any other, so it says which seed it was. */
static void crashed(int number)
{
    char text[80];
    int n = snprintf(text, sizeof text, "not ok - seed %llu: signal %d\n", (unsigned long long)seed, number);

    if (write(STDOUT_FILENO, text, (size_t)n) == n)
        signal(number, SIG_DFL);
    raise(number);
}

static void catch_crashes(void)
{
    static uint8_t stack[64 << 10];
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = crashed,
                               .sa_flags = SA_ONSTACK | (int)SA_RESETHAND | SA_NODEFER};

    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

static int usage(const char *program)
{
    fprintf(stderr,
            "Usage: %s [--elastic] --seeds A..B | --seed N [--verbose]\n"
            "       %s --agreement HOSTS\n",
            program, program);
    return 2;
}

int main(int argc, char **argv)
{
    unsigned long long first = 1, last = 0;
    bool is_elastic = false;
    unsigned hosts = 0;
    char path[4096];
    const char *slash = strrchr(argv[0], '/');

    snprintf(path, sizeof path, "%.*slibhvd-sim.so", slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0)
            sim_verbose = true;
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc &&
                 sscanf(argv[i + 1], "%llu..%llu", &first, &last) == 2)
            i++;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc && sscanf(argv[i + 1], "%llu", &first) == 1)
            last = first, i++;
        else if (strcmp(argv[i], "--agreement") == 0 && i + 1 < argc &&
                 sscanf(argv[i + 1], "%u", &hosts) == 1 && hosts > 1 && hosts <= SIM_HOSTS)
            last = first, i++;
        else if (strcmp(argv[i], "--elastic") == 0)
            is_elastic = true;
        else
            return usage(argv[0]);
    }
    if (last < first)
        return usage(argv[0]);
    mallopt(M_MMAP_THRESHOLD, 1 << 20); /* fresh pages for an engine: nothing to clear */
    log_init("sim", sim_verbose ? LOG_DEBUG : LOG_FATAL);
    catch_crashes();
    if (member_open_libraries(path) != 0)
        return 2;
    if (hosts > 0)
        return agreement_run(hosts) != 0;
    for (seed = first; seed <= last && is_elastic; seed++)
        failures += elastic_run(seed) != 0;
    for (seed = first; seed <= last && !is_elastic; seed++)
        run();
    if (is_elastic)
        printf("%s - elastic seeds %llu to %llu: up to %llu memberships; %llu failures\n",
               failures ? "not ok" : "ok", first, last, (unsigned long long)elastic_memberships(),
               (unsigned long long)failures);
    else
        printf("%s - seeds %llu to %llu: %llu operations, %llu runs ended early, %llu errors told; %llu "
               "failures\n",
               failures ? "not ok" : "ok", first, last, (unsigned long long)operations,
               (unsigned long long)deaths, (unsigned long long)told, (unsigned long long)failures);
    member_close_libraries();
    return failures ? 1 : 0;
}
