/* The judgement of programs without libhvd, from outside: the calls on their stacks, the processes that they
 * wait for, and ranks that do not do what most of them do. All of it is a guess. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status/where_text.h"
#include "common/status/why_parts.h"

#define CALL_SIZE 80
#define QUIET_MS  2000

/* ---- programs without libhvd: stacks ------------------------------------------------------------------- */

/* The outermost function that belongs to a library in which ranks wait for each other. */
void why_call_of(const char *stack, char *out, size_t size)
{
    static const char *const prefix[] = {"MPI_",   "PMPI_", "mpi_",   "PMIx_",  "PMI2_", "PMI_", "nccl",
                                         "gloo::", "hvd_",  "c10d::", "shmem_", "ompi_", "MPIR_"};
    size_t line = strcspn(stack, "\n");
    out[0] = '\0';
    for (const char *at = stack; at < stack + line;) {
        const char *end = strstr(at, " < ");
        size_t length = end && end < stack + line ? (size_t)(end - at) : (size_t)(stack + line - at);
        for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
            if (strncmp(at, prefix[i], strlen(prefix[i])) == 0)
                snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1), at);
        at += length + (end && end < stack + line ? 3 : 1);
    }
}

struct calls {
    char (*call)[CALL_SIZE]; /* [size]; empty: elsewhere, or no stack */
    uint8_t *known;          /* the rank has a stack */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The call that most ranks are in, and how many are. */
static uint32_t find_common(const struct why_job *job, const struct calls *c, const char **common)
{
    const char **sorted = calloc(job->size ? job->size : 1, sizeof *sorted);
    uint32_t n = 0, most = 0;
    for (uint32_t i = 0; sorted && i < job->size; i++)
        if (c->call[i][0])
            sorted[n++] = c->call[i];
    if (n > 0)
        qsort(sorted, n, sizeof *sorted, by_text);
    for (uint32_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && strcmp(sorted[i], sorted[next]) == 0; next++)
            ;
        if (next - i > most) {
            most = next - i;
            *common = sorted[i];
        }
    }
    free(sorted);
    return most;
}

/* All ranks with a stack are in one call: some ended before. */
static bool judge_gone(const struct why_job *job, struct why *out, uint32_t most, const char *common)
{
    for (uint32_t i = 0; i < job->size; i++)
        if (job->rank[i].host && job->rank[i].ended)
            why_accuse(out, i);
    if (out->culprits == 0)
        return false;
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = WHY_ENDED;
    out->guess = true;
    snprintf(out->sentence, sizeof out->sentence, "%u rank%s in %s, and %s not: rank %u %s", most,
             most == 1 ? " is" : "s are", common, a.names, a.first, a.does);
    return true;
}

/* Each rank has connections, and data went over them a moment ago. */
static bool has_traffic(const struct why_job *job)
{
    uint32_t moving = 0;
    for (uint32_t i = 0; i < job->size; i++) {
        const Hvd__WhereProcess *p = job->rank[i].ended ? NULL : why_process(&job->rank[i]);
        if (p && (p->connections == 0 || where_quiet_ms(p) >= QUIET_MS))
            return false;
        moving += p != NULL;
    }
    return moving > 1;
}

/* The least time for which the connections of any rank have been quiet, if there are connections. */
static void say_quiet(const struct why_job *job, char *text, size_t size)
{
    uint32_t quiet = UINT32_MAX;
    for (uint32_t i = 0; i < job->size; i++) {
        const Hvd__WhereProcess *p = why_process(&job->rank[i]);
        if (p && p->connections > 0 && where_quiet_ms(p) < quiet)
            quiet = where_quiet_ms(p);
    }
    if (quiet < QUIET_MS)
        snprintf(text, size, "; data goes over their connections");
    else if (quiet < UINT32_MAX)
        snprintf(text, size, "; their connections have been quiet for %.1f s", (double)quiet / 1e3);
}

/* Most ranks are in one call, and these are not. */
static bool say_elsewhere(const struct why_job *job, struct why *out, const struct calls *c, uint32_t most,
                          const char *common)
{
    for (uint32_t i = 0; i < job->size; i++)
        if (c->known[i] && strcmp(c->call[i], common) != 0)
            why_accuse(out, i);
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = WHY_ELSEWHERE;
    out->guess = true;
    if (c->call[a.first][0])
        snprintf(out->sentence, sizeof out->sentence, "%s %s in %s, and the other %u ranks are in %s",
                 a.names, out->culprits == 1 ? "is" : "are", c->call[a.first], most, common);
    else
        snprintf(out->sentence, sizeof out->sentence, "%u rank%s in %s, and %s %s not: rank %u %.400s", most,
                 most == 1 ? " is" : "s are", common, a.names, out->culprits == 1 ? "is" : "are", a.first,
                 a.does);
    return true;
}

/* Some ranks are in calls of the library, though not in the same one, and the accused are in none. */
static bool judge_callers(const struct why_job *job, struct why *out, const struct calls *c, uint32_t known,
                          uint32_t calls, const char *one)
{
    if (2 * calls < known || calls == known)
        return false;
    for (uint32_t i = 0; i < job->size; i++)
        if (c->known[i] && !c->call[i][0])
            why_accuse(out, i);
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = WHY_ELSEWHERE;
    out->guess = true;
    snprintf(out->sentence, sizeof out->sentence,
             "%u rank%s in calls such as %s, and %s %s in none: rank %u %.400s", calls,
             calls == 1 ? " is" : "s are", one, a.names, out->culprits == 1 ? "is" : "are", a.first, a.does);
    return true;
}

/* The operation of gloo that any thread is in, "gloo::broadcast"; transport and the like are not one. */
static void find_operation(const char *stack, char *out, size_t size)
{
    static const char prefix[] = "gloo::";
    out[0] = '\0';
    for (const char *at = strstr(stack, prefix); at && !out[0]; at = strstr(at + 1, prefix)) {
        size_t length = strcspn(at, " (<\n"), more = strcspn(at + sizeof prefix - 1, ":");
        if (sizeof prefix - 1 + more >= length)
            snprintf(out, size, "%.*s", (int)length, at);
    }
}

/* All main threads wait in one call. A thread that works for them shows the operation: few ranks have another
 * one. */
static bool judge_threads(const struct why_job *job, struct why *out, uint32_t known)
{
    struct calls c = {calloc(job->size ? job->size : 1, sizeof *c.call), NULL};
    const char *common = "";
    uint32_t most = 0, none = 0;
    for (uint32_t i = 0; c.call && i < job->size; i++) {
        const Hvd__WhereProcess *p = why_process(&job->rank[i]);
        if (p)
            find_operation(p->stack, c.call[i], CALL_SIZE);
        none += p && !c.call[i][0];
    }
    if (c.call)
        most = find_common(job, &c, &common);
    if (none >= most) /* most ranks have no thread with an operation */
        common = "";
    most = none >= most ? none : most;
    for (uint32_t i = 0; 2 * most > known && most < known && i < job->size; i++)
        if (why_process(&job->rank[i]) && !job->rank[i].ended && strcmp(c.call[i], common) != 0)
            why_accuse(out, i);
    if (out->culprits > 0) {
        char names[300];
        uint32_t first = why_first(out->culprit, job->size);
        why_name_ranks(job, out->culprit, names, sizeof names);
        out->verdict = WHY_ELSEWHERE;
        out->guess = true;
        snprintf(out->sentence, sizeof out->sentence,
                 "%s %s a thread in %s, and the other %u ranks have %s%s", names,
                 out->culprits == 1 ? "has" : "have", c.call[first][0] ? c.call[first] : "no such call", most,
                 common[0] ? "one in " : "none", common);
    }
    free(c.call);
    return out->culprits > 0;
}

static bool judge_calls(const struct why_job *job, struct why *out, const struct calls *c)
{
    const char *common = "";
    uint32_t known = 0, calls = 0, most = find_common(job, c, &common);
    for (uint32_t i = 0; i < job->size; i++) {
        known += c->known[i];
        calls += c->call[i][0] != '\0';
    }
    if (most == 0)
        return false;
    if (most == known && (judge_gone(job, out, most, common) || judge_threads(job, out, known)))
        return true;
    if (most == known) {
        out->verdict = WHY_UNKNOWN;
        int n = snprintf(out->sentence, sizeof out->sentence,
                         "all %u ranks are in %s: the stacks do not say for whom they wait", most, common);
        say_quiet(job, out->sentence + n, sizeof out->sentence - (size_t)n);
        return true;
    }
    /* Most ranks are there, or nobody is in another call. */
    if (2 * most <= known && most < calls)
        return judge_callers(job, out, c, known, calls, common);
    return say_elsewhere(job, out, c, most, common);
}

static bool judge_stacks(const struct why_job *job, struct why *out)
{
    struct calls c = {calloc(job->size ? job->size : 1, sizeof *c.call),
                      calloc(job->size ? job->size : 1, 1)};
    bool found = c.call && c.known;
    for (uint32_t i = 0; found && i < job->size; i++) {
        const Hvd__WhereProcess *p = why_process(&job->rank[i]);
        c.known[i] = p && p->stack[0];
        if (c.known[i])
            why_call_of(p->stack, c.call[i], CALL_SIZE);
    }
    found = found && judge_calls(job, out, &c);
    free(c.call);
    free(c.known);
    return found;
}

/* ---- holders of what others wait for ------------------------------------------------------------------- */

/* The rank that a process of that host belongs to; size: none does. */
static uint32_t find_rank(const struct why_job *job, const char *host, uint32_t pid)
{
    for (uint32_t i = 0; i < job->size; i++) {
        const struct why_rank *r = &job->rank[i];
        if (!r->host || r->ended || strcmp(r->host, host) != 0)
            continue;
        if (r->pid == pid)
            return i;
        for (size_t k = 0; r->where && k < r->where->n_process; k++)
            if (r->where->process[k]->pid == pid)
                return i;
    }
    return job->size;
}

/* The other rank that this one waits for; size: none, or not known. */
static uint32_t find_holder(const struct why_job *job, uint32_t rank)
{
    const struct why_rank *r = &job->rank[rank];
    const Hvd__WhereProcess *p = r->ended ? NULL : why_process(r);
    uint32_t holder = p && p->holder ? find_rank(job, r->host, p->holder) : job->size;
    return holder == rank ? job->size : holder;
}

/* A chain of ranks that wait for one another ends with the one that is accused. */
static bool judge_holders(const struct why_job *job, struct why *out)
{
    uint32_t waiting = 0, last, next, steps = 0;
    while (waiting < job->size && find_holder(job, waiting) == job->size)
        waiting++;
    if (waiting == job->size)
        return false;
    for (last = waiting; steps <= job->size && (next = find_holder(job, last)) < job->size; steps++)
        last = next;
    const Hvd__WhereProcess *p = why_process(&job->rank[waiting]);
    out->verdict = steps > job->size ? WHY_ORDER : WHY_ELSEWHERE;
    out->guess = true;
    why_accuse(out, last);
    struct why_accused a = why_describe_accused(job, out);
    if (steps > job->size)
        snprintf(out->sentence, sizeof out->sentence, "ranks wait for each other in a circle: %s %s", a.names,
                 a.does);
    else
        snprintf(out->sentence, sizeof out->sentence, "rank %u waits in %.300s; that is %s, which %.380s",
                 waiting, p->waits, a.names, a.does);
    return true;
}

/* ---- ranks that do not do what most of them do --------------------------------------------------------- */

/* The call that the rank waits in, "recvfrom of a connection", "nanosleep"; empty: it computes. false: not
 * known. */
static bool name_wait(const struct why_rank *r, char *out, size_t size)
{
    const Hvd__WhereProcess *p = r->host && !r->ended ? why_process(r) : NULL;
    out[0] = '\0';
    if (!p)
        return false;
    const char *connection = strstr(p->waits, " of a connection to ") ? " of a connection" : "";
    if (p->waits[0] && (p->holder || p->pid != r->pid || r->use.computes < WHY_BUSY))
        snprintf(out, size, "%.*s%s", (int)strcspn(p->waits, " "), p->waits, connection);
    return p->waits[0] || r->use.computes >= WHY_BUSY || strcmp(p->state, "running") == 0;
}

/* Is it a wait for another process, perhaps of another host? */
static bool is_wait_for_others(const char *call)
{
    static const char *const begins[] = {"recv", "poll", "ppoll", "select", "pselect6", "epoll_", "send"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(call, begins[i], strlen(begins[i])) == 0)
            return true;
    return strstr(call, " of a connection") != NULL;
}

static void say_unlike(const struct why_job *job, struct why *out, uint32_t most, const char *call)
{
    struct why_accused a = why_describe_accused(job, out);
    out->verdict = job->rank[a.first].ended ? WHY_ENDED : WHY_ELSEWHERE;
    out->guess = true;
    snprintf(out->sentence, sizeof out->sentence, "%u rank%s in %s, and %s %s not: rank %u %.500s", most,
             most == 1 ? " waits" : "s wait", call, a.names, out->culprits == 1 ? "does" : "do", a.first,
             a.does);
}

/* One half of the ranks, or more, wait for others in such calls; the rest does not, or has ended. *all: the
 * rest is empty. */
static bool judge_waits_for_others(const struct why_job *job, struct why *out, const struct calls *c,
                                   bool *all)
{
    const char *call = "";
    uint32_t known = 0, waiting = 0;
    for (uint32_t i = 0; i < job->size; i++) {
        bool waits = c->known[i] && is_wait_for_others(c->call[i]);
        known += c->known[i];
        waiting += waits;
        call = waits ? c->call[i] : call;
    }
    *all = waiting == known;
    for (uint32_t i = 0; waiting > 0 && 2 * waiting >= known && i < job->size; i++) {
        bool ended = job->rank[i].host && job->rank[i].ended;
        if (ended || (c->known[i] && !is_wait_for_others(c->call[i])))
            why_accuse(out, i);
    }
    if (out->culprits > 0)
        say_unlike(job, out, waiting, call);
    return out->culprits > 0;
}

/* Most ranks wait in one call, and few do not. While many compute, the job goes on for all that is seen. */
static bool judge_few(const struct why_job *job, struct why *out, const struct calls *c)
{
    const char *call = "";
    uint32_t known = 0, most = find_common(job, c, &call);
    for (uint32_t i = 0; i < job->size; i++)
        known += c->known[i];
    for (uint32_t i = 0; 2 * most > known && i < job->size; i++)
        if (c->known[i] && strcmp(c->call[i], call) != 0)
            why_accuse(out, i);
    if (out->culprits > 0)
        say_unlike(job, out, most, call);
    return out->culprits > 0;
}

static bool judge_unlike(const struct why_job *job, struct why *out)
{
    struct calls c = {calloc(job->size ? job->size : 1, sizeof *c.call),
                      calloc(job->size ? job->size : 1, 1)};
    bool all = false, found = c.call && c.known;
    for (uint32_t i = 0; found && i < job->size; i++)
        c.known[i] = name_wait(&job->rank[i], c.call[i], CALL_SIZE);
    found = found && (judge_waits_for_others(job, out, &c, &all) || (!all && judge_few(job, out, &c)));
    free(c.call);
    free(c.known);
    return found;
}

/* Nobody is accused while each rank moves data: a rank may be slow, and the others wait for it at each
 * step. */
static void pardon_movers(const struct why_job *job, struct why *out)
{
    char found[WHY_SENTENCE];
    if (!out->guess || !has_traffic(job))
        return;
    snprintf(found, sizeof found, "%s", out->sentence);
    memset(out->culprit, 0, job->size);
    out->culprits = 0;
    out->guess = false;
    out->verdict = WHY_HEALTHY;
    snprintf(out->sentence, sizeof out->sentence,
             "the ranks seem to go on, since data goes over their connections; at this moment %.900s", found);
}

/* Calls that ranks wait in say little about a job that moves data. */
static bool judge_traffic(const struct why_job *job, struct why *out)
{
    if (!has_traffic(job))
        return false;
    out->verdict = WHY_HEALTHY;
    snprintf(out->sentence, sizeof out->sentence,
             "the ranks seem to go on: a moment ago data went over the connections of each of them");
    return true;
}

/* A rank that writes a file is in the kernel now and then, too. */
static bool judge_kernel(const struct why_job *job, struct why *out)
{
    out->guess = why_judge_state(job, out, "uninterruptible", WHY_KERNEL);
    return out->guess;
}

bool why_judge_outside(const struct why_job *job, struct why *out)
{
    bool by_stacks = judge_stacks(job, out);
    if (by_stacks)
        pardon_movers(job, out);
    return by_stacks || judge_holders(job, out) || judge_traffic(job, out) || judge_kernel(job, out) ||
           judge_unlike(job, out);
}
