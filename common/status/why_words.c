#include "common/status/why_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status/where_text.h"

#define STACK_QUOTED 160 /* bytes, and the function that goes beyond */

void why_accuse(struct why *out, uint32_t rank)
{
    if (!out->culprit[rank]++)
        out->culprits++;
}

uint32_t why_first(const uint8_t *ranks, uint32_t size)
{
    uint32_t i = 0;
    while (i < size && !ranks[i])
        i++;
    return i;
}

/* "rank 3 on b", "ranks 2,3 on b", "ranks 0,3". */
void why_name_ranks(const struct why_job *job, const uint8_t *which, char *text, size_t size)
{
    uint32_t *list = calloc(job->size ? job->size : 1, sizeof *list), count = 0;
    const char *host = NULL;
    bool one_host = true;
    char ranges[200] = "";
    for (uint32_t i = 0; list && i < job->size; i++) {
        if (!which[i])
            continue;
        one_host = one_host && job->rank[i].host && (count == 0 || strcmp(host, job->rank[i].host) == 0);
        host = job->rank[i].host;
        list[count++] = i;
    }
    if (list)
        where_ranges(list, count, ranges, sizeof ranges);
    snprintf(text, size, "rank%s %s%s%.64s", count == 1 ? "" : "s", ranges, count && one_host ? " on " : "",
             count && one_host ? host : "");
    free(list);
}

const Hvd__WhereProcess *why_process(const struct why_rank *r)
{
    return r->where && r->where->n_process > 0 ? r->where->process[0] : NULL;
}

/* Functions that say nothing: those of an interpreter between the program's own, and those before main. */
static bool is_noise(const char *frame, size_t length)
{
    static const char *const begins[] = {"? in ",        "_Py",        "Py",          "run_mod",
                                         "pyrun_",       "method_vec", "cfunction_",  "vectorcall",
                                         "__libc_start", "_start",     "sock_call_ex"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(frame, begins[i], strlen(begins[i])) == 0)
            return true;
    return length == 0 || (length == 1 && *frame == '?');
}

/* The first line of the stack is that of the main thread. */
static void quote_stack(const struct why_rank *r, char *text, size_t size)
{
    const Hvd__WhereProcess *p = why_process(r);
    const char *at = p ? p->stack : "", *end = at + strcspn(at, "\n");
    size_t used = 0;
    text[0] = '\0';
    for (const char *next; at < end; at = next) {
        const char *stop = strstr(at, " < ");
        size_t length = stop && stop < end ? (size_t)(stop - at) : (size_t)(end - at);
        next = stop && stop < end ? stop + 3 : end;
        if (is_noise(at, length))
            continue;
        if (used + length + 8 > size || used > STACK_QUOTED) {
            snprintf(text + used, size - used, " < ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? " < " : ", at ", (int)length, at);
    }
}

/* The rank's own process at both looks, since a process is in the kernel for a moment now and then. */
bool why_has_state(const struct why_rank *r, const char *word)
{
    const Hvd__WhereProcess *p = why_process(r);
    if (!r->host || r->ended)
        return false;
    bool before = strcmp(r->state, word) == 0, now = p && strcmp(p->state, word) == 0;
    return !p ? before : p->pid != r->pid ? now : before && now;
}

/* Beside the word that the rank computes: begins with a comma, or is empty. */
static void name_hindrance(const struct why_use *use, char *text, size_t size)
{
    char words[WHY_REASON];
    text[0] = '\0';
    why_name_scarcity(use, words, sizeof words);
    if (words[0])
        snprintf(text, size, ", %s", words);
    size_t used = strlen(text);
    if (why_name_heat(use, words, sizeof words) || why_name_slow_device(use, words, sizeof words))
        snprintf(text + used, size - used, ", while %s", words);
}

/* The state of a rank that is not where others are: "is stopped", "computes (98 % of a processor), at f < g".
 */
void why_describe(const struct why_job *job, const struct why_rank *r, char *text, size_t size)
{
    const Hvd__WhereProcess *p = why_process(r);
    char stack[256], pid[24] = "", swapped[80] = "", scarce[WHY_REASON];
    char slower[2 * WHY_REASON];
    quote_stack(r, stack, sizeof stack);
    why_name_scarcity(&r->use, scarce, sizeof scarce);
    name_hindrance(&r->use, slower, sizeof slower);
    if (!p || p->pid == r->pid)
        snprintf(pid, sizeof pid, " (pid %u)", r->pid);
    if (r->host && !r->ended && p && p->pid != r->pid) {
        int n = snprintf(text, size, "has a process %.32s (pid %u) that ", p->name, p->pid);
        text += n;
        size -= (size_t)n;
    }
    if (p && p->swapped_kib >= WHERE_SWAPPED_KIB)
        snprintf(swapped, sizeof swapped, ", with %.1f GB of its memory swapped out",
                 (double)p->swapped_kib * 1024 / 1e9);
    if (!r->host)
        snprintf(text, size, "is on a host that has told nothing of it");
    else if (r->ended)
        snprintf(text, size, "has ended (%.100s)", r->state);
    else if (why_has_state(r, "stopped"))
        snprintf(text, size, "is stopped%s", pid);
    else if (why_has_state(r, "traced"))
        snprintf(text, size, "is held by a debugger%s", pid);
    else if (why_has_state(r, "uninterruptible"))
        snprintf(text, size, "waits in the kernel%s%.360s%s%s", p && *p->waits ? " in " : "",
                 p ? p->waits : "", pid, swapped);
    else if (r->use.computes >= WHY_BUSY && p && *p->waits && !p->holder)
        snprintf(text, size,
                 "computes (%.0f %% of a processor) beside its main thread, which waits in %.200s%s%s",
                 100 * r->use.computes, p->waits, swapped, stack);
    else if (r->use.computes >= WHY_BUSY && !(p && p->holder))
        snprintf(text, size, "computes (%.0f %% of a processor)%s%s%s%s", 100 * r->use.computes, slower,
                 swapped, r->initialized || !job->counted ? "" : " and has not called hvd_init", stack);
    else if (*scarce && !(p && *p->waits))
        snprintf(text, size, "%s%s%s%s",
                 r->initialized || !job->counted ? "" : "has not called hvd_init; it ", slower + 2, swapped,
                 stack);
    else
        snprintf(text, size, "%s%s%.360s%s%s",
                 r->initialized || !job->counted ? "" : "has not called hvd_init; it ",
                 p && *p->waits ? "waits in " : "is ",
                 p && *p->waits          ? p->waits
                 : p && p->pid != r->pid ? p->state
                                         : r->state,
                 swapped, stack);
}

struct why_accused why_describe_accused(const struct why_job *job, const struct why *out)
{
    struct why_accused a = {.first = why_first(out->culprit, job->size)};
    why_name_ranks(job, out->culprit, a.names, sizeof a.names);
    why_describe(job, &job->rank[a.first], a.does, sizeof a.does);
    return a;
}

bool why_judge_state(const struct why_job *job, struct why *out, const char *state, enum why_verdict verdict)
{
    for (uint32_t i = 0; i < job->size; i++)
        if (why_has_state(&job->rank[i], state))
            why_accuse(out, i);
    if (out->culprits == 0)
        return false;
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = verdict;
    if (out->culprits == 1)
        snprintf(out->sentence, sizeof out->sentence, "%s %s", a.names, a.does);
    else
        snprintf(out->sentence, sizeof out->sentence, "%s cannot go on: rank %u %s", a.names, a.first,
                 a.does);
    return true;
}
