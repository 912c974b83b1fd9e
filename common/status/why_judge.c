#include "common/status/why_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status/lateness.h"
#include "common/status/why_parts.h"

#define STUCK_MS    1000 /* an operation that is pending for less is on its way */
#define SLOW_MS     10000
#define WORTH_SHARE 0.05 /* of the time in operations: a rank with the least is named */
#define SLOW_SHARE  0.2  /* of the time: in operations it is worth a word */

const char *why_word(enum why_verdict verdict)
{
    static const char *const words[] = {"healthy",  "silent host", "deaf engine", "order",     "missing",
                                        "moving",   "stopped",     "kernel",      "elsewhere", "ended",
                                        "starting", "no waiting",  "unknown"};
    return words[verdict];
}

static void add_remedy(const struct why_job *job, struct why *out)
{
    uint32_t rank = why_first(out->culprit, job->size);
    const struct why_rank *r = rank < job->size ? &job->rank[rank] : NULL;
    const Hvd__WhereProcess *p = r ? why_process(r) : NULL;
    if (r && why_has_state(r, "stopped"))
        snprintf(out->remedy, sizeof out->remedy, "kill -CONT %u on %.64s lets it go on", p ? p->pid : r->pid,
                 r->host);
    else if (r && why_has_state(r, "uninterruptible"))
        snprintf(out->remedy, sizeof out->remedy,
                 "look at the file system or device on %.64s: a process in that state cannot be killed",
                 r->host);
}

/* ---- operations of libhvd ------------------------------------------------------------------------------ */

static void say_duration(uint64_t ms, char *text, size_t size)
{
    if (ms == 0)
        text[0] = '\0';
    else if (ms < 10000)
        snprintf(text, size, " for %.1f s", (double)ms / 1e3);
    else
        snprintf(text, size, " for %llu s", (unsigned long long)(ms / 1000));
}

/* `allreduce "x"`, or the call of hvd.h that has an operation of its own. */
static const char *name_operation(const struct why_operation *o, char *text, size_t size)
{
    static const char opened[] = "hvd.open:";
    if (strcmp(o->tensor, "hvd.sets") == 0)
        snprintf(text, size, "hvd_set_add");
    else if (strcmp(o->tensor, "hvd.join") == 0 || strcmp(o->tensor, "hvd.barrier") == 0)
        snprintf(text, size, "hvd_%s", o->tensor + 4);
    else if (strncmp(o->tensor, opened, sizeof opened - 1) == 0)
        snprintf(text, size, "hvd_set_open \"%.120s\"", o->tensor + sizeof opened - 1);
    else
        snprintf(text, size, "%.40s \"%.120s\"", o->kind, o->tensor);
    return text;
}

/* Of a job that goes on, an operation may wait for a slow rank for longer. */
static bool is_stuck(const struct why_job *job, const struct why_operation *o)
{
    if (job->ended > 0)
        return o->ms >= SLOW_MS;
    return o->ms == 0 || o->ms >= STUCK_MS;
}

static bool wait_crosswise(const struct why_job *job, const struct why_operation *a,
                           const struct why_operation *b)
{
    bool forth = false, back = false;
    for (uint32_t i = 0; i < job->size; i++) {
        forth = forth || (a->arrived[i] && b->missing[i]);
        back = back || (b->arrived[i] && a->missing[i]);
    }
    return forth && back;
}

/* Ranks wait for each other in two operations: they call them in different orders. The fewer are accused. */
static bool judge_order(const struct why_job *job, struct why *out)
{
    const struct why_operation *a = NULL, *b = NULL;
    for (size_t i = 0; i < job->operations && !a; i++)
        for (size_t k = i + 1; k < job->operations && !a; k++)
            if (is_stuck(job, &job->operation[i]) && is_stuck(job, &job->operation[k]) &&
                wait_crosswise(job, &job->operation[i], &job->operation[k])) {
                a = &job->operation[i];
                b = &job->operation[k];
            }
    if (!a)
        return false;
    const struct why_operation *few = a->here < b->here ? a : b, *many = few == a ? b : a;
    char these[300], those[300], time[40], one[200], other[200];
    for (uint32_t i = 0; i < job->size; i++)
        if (few->arrived[i] && many->missing[i])
            why_accuse(out, i);
    why_name_ranks(job, out->culprit, these, sizeof these);
    why_name_ranks(job, many->arrived, those, sizeof those);
    say_duration(many->ms, time, sizeof time);
    out->verdict = WHY_ORDER;
    snprintf(out->sentence, sizeof out->sentence,
             "%s %s in %s, but %s %s in %s%s: the ranks call their operations in different orders", these,
             out->culprits == 1 ? "is" : "are", name_operation(few, one, sizeof one), those,
             many->here == 1 ? "is" : "are", name_operation(many, other, sizeof other), time);
    return true;
}

/* Ranks that others wait for and that wait in no operation themselves: there a chain of waits ends. */
static void find_roots(const struct why_job *job, uint8_t *root)
{
    for (size_t i = 0; i < job->operations; i++)
        for (uint32_t r = 0; is_stuck(job, &job->operation[i]) && r < job->size; r++)
            root[r] = root[r] || job->operation[i].missing[r];
    for (size_t i = 0; i < job->operations; i++)
        for (uint32_t r = 0; is_stuck(job, &job->operation[i]) && r < job->size; r++)
            root[r] = root[r] && !job->operation[i].arrived[r];
}

/* The operation that has waited longest for one of them; one whose missing ranks all are such ones is better.
 */
static const struct why_operation *find_waiting_for(const struct why_job *job, const uint8_t *root)
{
    const struct why_operation *best = NULL;
    bool best_pure = false;
    for (size_t i = 0; i < job->operations; i++) {
        const struct why_operation *o = &job->operation[i];
        bool some = false, pure = true;
        for (uint32_t r = 0; is_stuck(job, o) && r < job->size; r++) {
            some = some || (o->missing[r] && root[r]);
            pure = pure && (!o->missing[r] || root[r]);
        }
        if (some && (!best || (pure && !best_pure))) {
            best = o;
            best_pure = pure;
        }
    }
    return best;
}

/* Of several, one that cannot go on explains more than the others. */
static uint32_t choose_witness(const struct why_job *job, const uint8_t *culprit)
{
    for (uint32_t i = 0; i < job->size; i++)
        if (culprit[i] && (job->rank[i].ended || why_has_state(&job->rank[i], "stopped") ||
                           why_has_state(&job->rank[i], "uninterruptible")))
            return i;
    return why_first(culprit, job->size);
}

static void say_missing(const struct why_job *job, struct why *out, const struct why_operation *o)
{
    char names[300], time[40], does[600], operation[200];
    uint32_t witness = choose_witness(job, out->culprit), others = 0;
    why_name_ranks(job, out->culprit, names, sizeof names);
    say_duration(o->ms, time, sizeof time);
    why_describe(job, &job->rank[witness], does, sizeof does);
    int n = snprintf(out->sentence, sizeof out->sentence, "%u rank%s wait%s%s in %s for %s", o->here,
                     o->here == 1 ? "" : "s", o->here == 1 ? "s" : "", time,
                     name_operation(o, operation, sizeof operation), names);
    if (out->culprits == 1)
        n += snprintf(out->sentence + n, sizeof out->sentence - (size_t)n, ", which %s", does);
    else
        n += snprintf(out->sentence + n, sizeof out->sentence - (size_t)n, "; rank %u %s", witness, does);
    for (size_t i = 0; i < job->operations; i++)
        if (&job->operation[i] != o && is_stuck(job, &job->operation[i]))
            others += job->operation[i].here;
    if (others && (size_t)n < sizeof out->sentence)
        snprintf(out->sentence + n, sizeof out->sentence - (size_t)n, "; %u more rank%s wait%s behind that",
                 others, others == 1 ? "" : "s", others == 1 ? "s" : "");
}

static bool judge_missing(const struct why_job *job, struct why *out)
{
    uint8_t *root = calloc(job->size ? job->size : 1, 1);
    if (root)
        find_roots(job, root);
    const struct why_operation *o = root ? find_waiting_for(job, root) : NULL;
    for (uint32_t i = 0; o && i < job->size; i++)
        if (o->missing[i] && root[i])
            why_accuse(out, i);
    free(root);
    if (!o)
        return false;
    out->verdict =
        why_has_state(&job->rank[choose_witness(job, out->culprit)], "stopped") ? WHY_STOPPED : WHY_MISSING;
    say_missing(job, out, o);
    return true;
}

/* The stuck operation that the rank is in and that others have yet to come to. */
static const struct why_operation *find_wait(const struct why_job *job, uint32_t rank)
{
    for (size_t i = 0; i < job->operations; i++) {
        const struct why_operation *o = &job->operation[i];
        if (is_stuck(job, o) && o->arrived[rank] && why_first(o->missing, job->size) < job->size)
            return o;
    }
    return NULL;
}

/* A rank that the operation waits for, and that waits itself; size: there is none. */
static uint32_t find_next(const struct why_job *job, const struct why_operation *o)
{
    uint32_t next = 0;
    while (next < job->size && (!o->missing[next] || !find_wait(job, next)))
        next++;
    return next;
}

/* Each of some ranks waits for the next one, and the last for the first: all of them are accused. */
static bool judge_circle(const struct why_job *job, struct why *out)
{
    char names[300], operation[200];
    uint32_t at = 0, steps;
    while (at < job->size && !find_wait(job, at))
        at++;
    for (steps = 0; at < job->size && steps < job->size;
         steps++) /* then it is in the circle, if there is one */
        at = find_next(job, find_wait(job, at));
    if (at >= job->size)
        return false;
    for (; !out->culprit[at]; at = find_next(job, find_wait(job, at)))
        why_accuse(out, at);
    uint32_t next = find_next(job, find_wait(job, at));
    why_name_ranks(job, out->culprit, names, sizeof names);
    out->verdict = WHY_ORDER;
    snprintf(out->sentence, sizeof out->sentence,
             "%s wait for each other in a circle: rank %u is in %s and waits for rank %u, and so on", names,
             at, name_operation(find_wait(job, at), operation, sizeof operation), next);
    return true;
}

/* All ranks of an operation are in it. */
static bool judge_moving(const struct why_job *job, struct why *out)
{
    const struct why_operation *o = NULL;
    char time[40], operation[200];
    for (size_t i = 0; i < job->operations && !o; i++)
        if (is_stuck(job, &job->operation[i]) && why_first(job->operation[i].missing, job->size) == job->size)
            o = &job->operation[i];
    if (!o)
        return false;
    say_duration(o->ms, time, sizeof time);
    out->verdict = WHY_MOVING;
    snprintf(out->sentence, sizeof out->sentence,
             "all %u ranks are in %s%s; %.1f MB went between hosts in the last %.1f s%s", o->here,
             name_operation(o, operation, sizeof operation), time, (double)job->bytes / 1e6,
             (double)job->interval_ms / 1e3, job->bytes ? ": the operation is under way" : "");
    return true;
}

/* ---- processes ----------------------------------------------------------------------------------------- */

static bool judge_start(const struct why_job *job, struct why *out)
{
    uint32_t started = 0;
    for (uint32_t i = 0; i < job->size; i++)
        started += job->rank[i].initialized;
    if (started == 0 || started == job->size)
        return false;
    for (uint32_t i = 0; i < job->size; i++)
        if (!job->rank[i].initialized && job->rank[i].host)
            why_accuse(out, i);
    if (out->culprits == 0)
        return false;
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = WHY_STARTING;
    snprintf(out->sentence, sizeof out->sentence, "%u of %u ranks wait in hvd_init for %s; rank %u %s",
             started, job->size, a.names, a.first, a.does);
    return true;
}

/* Has the rank come to its end? All ranks are in hvd_shutdown together. */
static bool has_finished(const struct why_rank *r)
{
    return r->host && r->ended;
}

/* Some ranks have finished, and nobody waits for the others in an operation. */
static bool judge_ended(const struct why_job *job, struct why *out)
{
    uint32_t finished = 0;
    for (uint32_t i = 0; i < job->size; i++)
        finished += has_finished(&job->rank[i]);
    if (finished == 0 || finished == job->size)
        return false;
    for (uint32_t i = 0; i < job->size; i++)
        if (!has_finished(&job->rank[i]))
            why_accuse(out, i);
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = WHY_ENDED;
    snprintf(out->sentence, sizeof out->sentence, "%u of %u ranks ha%s finished, and %s ha%s not: rank %u %s",
             finished, job->size, finished == 1 ? "s" : "ve", a.names, out->culprits == 1 ? "s" : "ve",
             a.first, a.does);
    return true;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static int by_share(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Is it known how long the rank was in operations? */
static bool is_timed(const struct why_rank *r)
{
    return r->host && !r->ended && r->in_operations >= 0;
}

/* The share that the rank in the middle spends in operations; of two, the one with more. Negative: too few
 * ranks are timed, or no memory. */
static double find_middle(const struct why_job *job)
{
    double *share = calloc(job->size ? job->size : 1, sizeof *share), middle = -1;
    uint32_t n = 0;
    for (uint32_t i = 0; share && i < job->size; i++)
        if (is_timed(&job->rank[i]))
            share[n++] = job->rank[i].in_operations;
    if (n > 1) {
        qsort(share, n, sizeof *share, by_share);
        middle = share[n / 2] < 1 ? share[n / 2] : 1;
    }
    free(share);
    return middle;
}

/* The live rank with the least time in operations; there is one. */
static const struct why_rank *find_slowest(const struct why_job *job)
{
    const struct why_rank *least = NULL;
    for (uint32_t i = 0; i < job->size; i++) {
        const struct why_rank *r = &job->rank[i];
        if (is_timed(r) && (!least || r->in_operations < least->in_operations))
            least = r;
    }
    return least;
}

/* Ranks that spend much less time in operations than the one in the middle are waited for. They are no
 * culprits: the job goes on. */
static void name_slow_ranks(const struct why_job *job, struct why *out, bool accuses)
{
    uint8_t *slow = calloc(job->size ? job->size : 1, 1);
    double middle = find_middle(job), most = 0;
    uint32_t count = 0, slowest = 0;
    char names[300];
    for (uint32_t i = 0; slow && middle >= SLOW_SHARE && i < job->size; i++) {
        const struct why_rank *r = &job->rank[i];
        slow[i] = accuses && is_timed(r) && r->in_operations < middle / 2;
        count += slow[i];
        if (slow[i] && middle - r->in_operations > most) {
            most = middle - r->in_operations;
            slowest = i;
        }
    }
    size_t n = strlen(out->sentence);
    if (count > 0) {
        const struct why_rank *r = &job->rank[slowest];
        char reason[WHY_REASON];
        why_name_ranks(job, slow, names, sizeof names);
        why_explain_slowness(&r->use, reason, sizeof reason);
        snprintf(
            out->sentence + n, sizeof out->sentence - n,
            "; the others wait for %s: rank %u is in operations %.0f %% of the time, the rank in the middle "
            "%.0f %%; %s",
            names, slowest, 100 * r->in_operations, 100 * middle, reason);
    } else if (middle >= 0) {
        const struct why_rank *r = find_slowest(job);
        n += (size_t)snprintf(out->sentence + n, sizeof out->sentence - n,
                              "; no rank is much slower than the others, which are in operations %.0f %% of "
                              "the time",
                              100 * middle);
        if (middle >= WORTH_SHARE && n < sizeof out->sentence)
            snprintf(out->sentence + n, sizeof out->sentence - n, ", rank %u on %.64s the least: %.0f %%",
                     r->rank, r->host, 100 * r->in_operations);
    }
    free(slow);
}

/* From the comparison of arrivals, if there was one: it has seen the job from its start. true: it was, and it
 * may have named a rank. */
static bool name_late_ranks(const struct why_job *job, struct why *out)
{
    const struct why_rank *worst = NULL;
    size_t n = strlen(out->sentence);
    bool known = false;
    char device[WHY_REASON];
    for (uint32_t i = 0; i < job->size; i++) {
        const struct why_rank *r = &job->rank[i];
        if (!r->host || r->ended || !r->lateness)
            continue;
        known = true;
        bool late = strcmp(r->lateness->word, "always") == 0 || strcmp(r->lateness->word, "often") == 0;
        if (late && (!worst || r->lateness->share_ppm > worst->lateness->share_ppm))
            worst = r;
    }
    if (!worst)
        return known;
    n += (size_t)snprintf(out->sentence + n, sizeof out->sentence - n, "; ");
    lateness_describe(worst->lateness, worst->rank, worst->host, out->sentence + n, sizeof out->sentence - n);
    n = strlen(out->sentence);
    if (why_name_slow_device(&worst->use, device, sizeof device))
        snprintf(out->sentence + n, sizeof out->sentence - n, ", and %s", device);
    return true;
}

static bool judge_progress(const struct why_job *job, struct why *out)
{
    if (job->ended == 0)
        return false;
    out->verdict = WHY_HEALTHY;
    snprintf(out->sentence, sizeof out->sentence,
             "the job goes on: %llu operation%s ended in the last %.1f s", (unsigned long long)job->ended,
             job->ended == 1 ? "" : "s", (double)job->interval_ms / 1e3);
    size_t length = strlen(out->sentence);
    bool compared = name_late_ranks(job, out);
    if (strlen(out->sentence) == length)
        name_slow_ranks(job, out, !compared);
    return true;
}

static bool judge_silence(const struct why_job *job, struct why *out)
{
    if (job->silents == 0)
        return false;
    for (uint32_t i = 0; i < job->size; i++)
        if (job->rank[i].host && strcmp(job->rank[i].host, job->silent[0]) == 0)
            why_accuse(out, i);
    out->verdict = WHY_SILENT_HOST;
    snprintf(out->sentence, sizeof out->sentence, "host %.64s%s does not answer%s", job->silent[0],
             job->silents > 1 ? " and others" : "",
             job->silents > 1 ? "" : ": it is cut off, or its session is stopped");
    return true;
}

/* Nothing has ended meanwhile, and an engine has not said what its ranks wait in. */
static bool judge_deaf(const struct why_job *job, struct why *out)
{
    if (!job->deaf || job->ended > 0)
        return false;
    for (uint32_t i = 0; i < job->size; i++)
        if (job->rank[i].host && strcmp(job->rank[i].host, job->deaf) == 0)
            why_accuse(out, i);
    out->verdict = WHY_DEAF_ENGINE;
    snprintf(out->sentence, sizeof out->sentence,
             "the engine of host %.64s does not answer: it is stopped, or has no processor", job->deaf);
    return true;
}

/* Perhaps the others wait for what these ranks should have done. */
static void add_ended(const struct why_job *job, char *text, size_t size)
{
    uint8_t *ended = calloc(job->size ? job->size : 1, 1);
    uint32_t count = 0;
    char names[300];
    for (uint32_t i = 0; ended && i < job->size; i++)
        count += ended[i] = job->rank[i].host && job->rank[i].ended;
    if (count > 0) {
        why_name_ranks(job, ended, names, sizeof names);
        snprintf(text, size, "; %s ha%s ended", names, count == 1 ? "s" : "ve");
    }
    free(ended);
}

static void judge_rest(const struct why_job *job, struct why *out)
{
    uint32_t busy = 0, live = 0;
    for (uint32_t i = 0; i < job->size; i++) {
        live += job->rank[i].host && !job->rank[i].ended;
        busy += !job->rank[i].ended && job->rank[i].use.computes >= WHY_BUSY;
    }
    out->verdict = busy > 0 && job->counted ? WHY_WORKING : WHY_UNKNOWN;
    snprintf(out->sentence, sizeof out->sentence, "%s: %u of %u ranks compute%s",
             job->counted ? "no rank waits for another in libhvd" : "no reason is seen from outside", busy,
             live, job->has_stacks || job->counted ? "" : ", and there are no stacks");
    add_ended(job, out->sentence + strlen(out->sentence), sizeof out->sentence - strlen(out->sentence));
    if (!job->has_stacks)
        snprintf(out->remedy, sizeof out->remedy,
                 "with elfutils (eu-stack) or gdb on the hosts, stacks say more");
}

void why_judge(const struct why_job *job, struct why *out)
{
    bool found = judge_silence(job, out) || judge_deaf(job, out) || judge_missing(job, out) ||
                 judge_order(job, out) || judge_circle(job, out) || judge_moving(job, out) ||
                 why_judge_state(job, out, "stopped", WHY_STOPPED) ||
                 why_judge_state(job, out, "traced", WHY_STOPPED) || judge_progress(job, out) ||
                 (job->counted && why_judge_state(job, out, "uninterruptible", WHY_KERNEL)) ||
                 judge_start(job, out) || (job->counted && judge_ended(job, out)) ||
                 (!job->counted && why_judge_outside(job, out));
    if (!found)
        judge_rest(job, out);
    if (out->verdict != WHY_ORDER)
        add_remedy(job, out);
}
