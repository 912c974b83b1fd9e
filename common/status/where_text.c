#include "common/status/where_text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define LINE_SIZE 1200
#define HOSTS_MAX 3 /* that a line names */

/* Ranks in one place: a part of the sorted array. */
struct group {
    struct where_rank *rank;
    size_t count;
};

struct text {
    void (*line)(void *ctx, const char *text);
    void *ctx;
    size_t left; /* lines */
};

/* ---- texts of others ----------------------------------------------------------------------------------- */

void where_printable(Hvd__Where *where)
{
    for (size_t i = 0; i < where->n_process; i++) {
        Hvd__WhereProcess *p = where->process[i];
        log_printable(p->name);
        log_printable(p->state);
        log_printable(p->waits);
        log_printable(p->no_stack);
        for (char *line = p->stack; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
            char *end = strchr(line, '\n');
            if (end)
                *end = '\0';
            log_printable(line);
            if (end)
                *end = '\n';
        }
    }
}

uint32_t where_quiet_ms(const Hvd__WhereProcess *p)
{
    return p->received_ms < p->sent_ms ? p->received_ms : p->sent_ms;
}

/* ---- groups of ranks ----------------------------------------------------------------------------------- */

static int compare_process(const Hvd__WhereProcess *a, const Hvd__WhereProcess *b)
{
    int order = strcmp(a->stack, b->stack);
    order = order ? order : strcmp(a->name, b->name);
    order = order ? order : strcmp(a->state, b->state);
    order = order ? order : strcmp(a->waits, b->waits);
    return order ? order : strcmp(a->no_stack, b->no_stack);
}

static int compare_place(const struct where_rank *a, const struct where_rank *b)
{
    size_t m = a->where ? a->where->n_process : 0, n = b->where ? b->where->n_process : 0;
    int order = (m > n) - (m < n);
    for (size_t i = 0; i < m && !order; i++)
        order = compare_process(a->where->process[i], b->where->process[i]);
    return order;
}

static int by_place(const void *a, const void *b)
{
    const struct where_rank *x = a, *y = b;
    int order = compare_place(x, y);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_first_rank(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return (x->rank->rank > y->rank->rank) - (x->rank->rank < y->rank->rank);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static void append_text(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void append_text(char *out, size_t size, const char *fmt, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + used, size - used, fmt, args);
    va_end(args);
}

void where_ranges(const uint32_t *ranks, size_t count, char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && ranks[next] == ranks[next - 1] + 1; next++)
            ;
        if (strlen(out) + 48 > size) {
            append_text(out, size, " and %zu others", count - i);
            return;
        }
        append_text(out, size, "%s%u", i ? "," : "", ranks[i]);
        if (next - i > 1)
            append_text(out, size, "%s%u", next - i > 2 ? "-" : ",", ranks[next - 1]);
    }
}

static void put_line(struct text *t, const char *line)
{
    if (t->left > 0) {
        t->left--;
        t->line(t->ctx, line);
    }
}

/* "ranks 0-2,4 on node1, node2" */
static void name_group(const struct group *g, char *out, size_t size)
{
    char ranges[240];
    const char *host[HOSTS_MAX];
    size_t hosts = 0, others = 0;
    const char *last = "";
    uint32_t *numbers = calloc(g->count, sizeof *numbers);
    for (size_t i = 0; i < g->count; i++) {
        bool known = strcmp(g->rank[i].host, last) == 0;
        for (size_t k = 0; k < hosts && !known; k++)
            known = strcmp(g->rank[i].host, host[k]) == 0;
        last = g->rank[i].host;
        if (numbers)
            numbers[i] = g->rank[i].rank;
        if (known)
            continue;
        if (hosts < HOSTS_MAX)
            host[hosts++] = last;
        else
            others++;
    }
    where_ranges(numbers, numbers ? g->count : 0, ranges, sizeof ranges);
    snprintf(out, size, "rank%s %s on ", g->count == 1 ? "" : "s", ranges);
    for (size_t k = 0; k < hosts; k++)
        append_text(out, size, "%s%.60s", k ? ", " : "", host[k]);
    if (others)
        append_text(out, size, " and others");
    free(numbers);
}

static void put_stack(struct text *t, const Hvd__WhereProcess *p)
{
    char line[LINE_SIZE];
    for (const char *at = p->stack; *at;) {
        int len = (int)strcspn(at, "\n");
        snprintf(line, sizeof line, "    %.*s", len < 1000 ? len : 1000, at);
        put_line(t, line);
        at += len + (at[len] == '\n');
    }
    if (!p->stack[0] && p->no_stack[0]) {
        snprintf(line, sizeof line, "    no stack: %.200s", p->no_stack);
        put_line(t, line);
    }
}

/* The least time that the connections of any of them have been quiet. */
static void add_network(char *line, size_t size, const struct group *g, size_t which)
{
    uint32_t connections = 0, quiet = UINT32_MAX;
    for (size_t i = 0; i < g->count; i++) {
        const Hvd__WhereProcess *p = g->rank[i].where->process[which];
        connections += p->connections;
        if (p->connections > 0)
            quiet = where_quiet_ms(p) < quiet ? where_quiet_ms(p) : quiet;
    }
    if (connections > 0)
        append_text(line, size, ", %u connection%s of TCP, quiet for %.1f s", connections,
                    connections == 1 ? "" : "s", (double)quiet / 1e3);
}

static void put_process(struct text *t, const struct group *g, size_t which)
{
    char line[LINE_SIZE] = "  also ";
    const Hvd__WhereProcess *p = g->rank->where->process[which];
    uint64_t least = p->cpu_ms, most = p->cpu_ms;
    for (size_t i = 0; i < g->count; i++) {
        uint64_t ms = g->rank[i].where->process[which]->cpu_ms;
        least = ms < least ? ms : least;
        most = ms > most ? ms : most;
    }
    if (which == 0) {
        name_group(g, line, sizeof line);
        append_text(line, sizeof line, ": ");
    }
    append_text(line, sizeof line, "%.32s ", p->name);
    if (g->count == 1)
        append_text(line, sizeof line, "(pid %u) ", p->pid);
    append_text(line, sizeof line, "is %.32s", p->state);
    if (p->waits[0])
        append_text(line, sizeof line, " in %.360s", p->waits);
    append_text(line, sizeof line, ", CPU time %.2f", (double)least / 1e3);
    if (most > least)
        append_text(line, sizeof line, " to %.2f", (double)most / 1e3);
    append_text(line, sizeof line, " s");
    add_network(line, sizeof line, g, which);
    if (p->swapped_kib >= WHERE_SWAPPED_KIB)
        append_text(line, sizeof line, ", %.1f GB swapped out", (double)p->swapped_kib * 1024 / 1e9);
    put_line(t, line);
    put_stack(t, p);
}

static void put_group(struct text *t, const struct group *g)
{
    char line[LINE_SIZE];
    size_t processes = g->rank->where ? g->rank->where->n_process : 0;
    for (size_t i = 0; i < processes; i++)
        put_process(t, g, i);
    if (processes > 0)
        return;
    name_group(g, line, sizeof line);
    append_text(line, sizeof line, ": no answer");
    put_line(t, line);
}

void where_text(struct where_rank *ranks, size_t count, size_t max_lines,
                void (*line)(void *ctx, const char *text), void *ctx)
{
    struct text t = {line, ctx, max_lines};
    struct group *group = calloc(count ? count : 1, sizeof *group);
    size_t groups = 0, shown = 0, left_out = 0;
    qsort(ranks, count, sizeof *ranks, by_place);
    for (size_t i = 0; group && i < count; i++) {
        if (i == 0 || compare_place(&ranks[i - 1], &ranks[i]) != 0)
            group[groups++] = (struct group){&ranks[i], 0};
        group[groups - 1].count++;
    }
    if (groups > 0)
        qsort(group, groups, sizeof *group, by_first_rank);
    for (; shown < groups && t.left > 0; shown++)
        put_group(&t, &group[shown]);
    for (size_t i = shown; i < groups; i++)
        left_out += group[i].count;
    if (left_out > 0) {
        char rest[120];
        snprintf(rest, sizeof rest, "and %zu rank%s in %zu other place%s", left_out, left_out == 1 ? "" : "s",
                 groups - shown, groups - shown == 1 ? "" : "s");
        line(ctx, rest);
    }
    free(group);
}
