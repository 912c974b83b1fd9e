/* Words for the slowness of a rank: what keeps it from its processor, or from what it waits for. */
#include <sched.h>
#include <stdio.h>

#include "common/status/gpu_slow.h"
#include "common/status/why_parts.h"

#define SCARCE_SHARE 0.2 /* of the time without a processor: a reason */
#define SMALL_WEIGHT 50  /* percent of the usual one: with it a cgroup gets a smaller part */
#define RESENT_LEAST 1   /* segments a second */
#define HOT_LEAST    0.01
#define LOW_PERCENT  50 /* of the highest frequency, which no processor has while all of them compute */

void why_add_handicap(struct why_use *use, const Hvd__Handicap *h)
{
    if (!h)
        return;
    use->nice = h->nice;
    use->policy = h->policy;
    use->weight = h->cpu_weight;
    use->frequency = h->frequency;
    use->gpu_slowed = h->gpu_slowed & GPU_SLOW_ALL;
}

/* A thread with a lower priority waits for its processor, and so does a thread whose cgroup has a smaller
 * part. Without a word of that others are just as important. */
static void name_priority(const struct why_use *use, char *text, size_t size)
{
    if (use->policy == SCHED_IDLE)
        snprintf(text, size, "runs under SCHED_IDLE");
    else if (use->nice > 0)
        snprintf(text, size, "runs at nice %d", use->nice);
    else if (use->policy == SCHED_BATCH)
        snprintf(text, size, "runs under SCHED_BATCH");
    else if (use->weight > 0 && use->weight <= SMALL_WEIGHT)
        snprintf(text, size, "has %u %% of the usual weight by its cgroup (cpu.weight or cpu.shares)",
                 use->weight);
    else
        text[0] = '\0';
}

void why_name_scarcity(const struct why_use *use, char *text, size_t size)
{
    double held = use->throttled < 1 ? use->throttled : 1;
    double delayed = use->delayed < 1 ? use->delayed : 1;
    char priority[100];
    name_priority(use, priority, sizeof priority);
    if (held >= SCARCE_SHARE)
        snprintf(text, size, "is held back by a limit of its cgroup (cpu.max) %.0f %% of the time",
                 100 * held);
    else if (delayed >= SCARCE_SHARE && priority[0])
        snprintf(text, size, "%s and waits for a processor %.0f %% of the time", priority, 100 * delayed);
    else if (delayed >= SCARCE_SHARE)
        snprintf(text, size, "is ready and has no processor %.0f %% of the time", 100 * delayed);
    else
        text[0] = '\0';
}

bool why_name_heat(const struct why_use *use, char *text, size_t size)
{
    double hot = use->hot < 1 ? use->hot : 1;
    text[0] = '\0';
    if (hot >= HOT_LEAST)
        snprintf(text, size, "its host's processors are too hot and slower than usual %.0f %% of the time",
                 100 * hot);
    else if (use->hot <= 0 && use->heats > 0) /* an older kernel counts, and has no times */
        snprintf(text, size, "its host's processors are too hot and make themselves slower");
    return text[0] != '\0';
}

bool why_name_slow_device(const struct why_use *use, char *text, size_t size)
{
    char reasons[GPU_SLOW_TEXT];
    text[0] = '\0';
    if (use->gpu_slowed)
        snprintf(text, size, "its GPU makes itself slower (%s)", gpu_slow_text(use->gpu_slowed, reasons));
    else if (use->computes >= WHY_BUSY && use->frequency > 0 && use->frequency <= LOW_PERCENT)
        snprintf(text, size, "its processor has %u %% of its highest frequency", use->frequency);
    return text[0] != '\0';
}

static void explain_computing(const struct why_use *use, char *text, size_t size)
{
    char more[WHY_REASON];
    bool known = why_name_heat(use, more, sizeof more) || why_name_slow_device(use, more, sizeof more);
    snprintf(text, size, "it computes (%.0f %% of a processor)%s%s", 100 * use->computes,
             known ? ", and " : "", more);
}

/* A limit of a cgroup comes first: a thread that is held back is ready and has no processor. */
void why_explain_slowness(const struct why_use *use, char *text, size_t size)
{
    char scarcity[WHY_REASON], heat[WHY_REASON];
    double held = use->throttled < 1 ? use->throttled : 1;
    why_name_scarcity(use, scarcity, sizeof scarcity);
    why_name_heat(use, heat, sizeof heat);
    if (held >= SCARCE_SHARE)
        snprintf(text, size, "a limit of its cgroup (cpu.max) holds it back %.0f %% of the time%s%s",
                 100 * held, heat[0] ? ", and " : "", heat);
    else if (scarcity[0])
        snprintf(text, size, "it %s%s%s", scarcity, heat[0] ? ", and " : "", heat);
    else if (use->computes >= WHY_BUSY)
        explain_computing(use, text, size);
    else if (why_name_slow_device(use, scarcity, sizeof scarcity))
        snprintf(text, size, "%s", scarcity);
    else if (use->resent >= RESENT_LEAST)
        snprintf(text, size, "its host's links lose packets (%.0f a second are sent again)", use->resent);
    else if (use->lost_to >= RESENT_LEAST)
        snprintf(text, size, "links of the job lose packets (another host sends %.0f a second again)",
                 use->lost_to);
    else
        snprintf(text, size, "it waits for something else (%.0f %% of a processor)", 100 * use->computes);
}
