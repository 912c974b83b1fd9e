#include "agent/ctl/show.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "common/protocol/message.h"
#include "common/status/lateness.h"

/* ---- words and numbers --------------------------------------------------------------------------------- */

const char *show_user(uid_t uid, char *text, size_t size)
{
    const struct passwd *p = getpwuid(uid);
    snprintf(text, size, "%.32s", p ? p->pw_name : "");
    if (!p)
        snprintf(text, size, "%u", (unsigned)uid);
    return text;
}

static const char *format_age(uint64_t ms, char *text, size_t size)
{
    uint64_t s = ms / 1000;
    if (s < 60)
        snprintf(text, size, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(text, size, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, size, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(text, size, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
    return text;
}

static const char *format_memory(uint64_t kib, char *text, size_t size)
{
    if (kib < 10 * 1024)
        snprintf(text, size, "%" PRIu64 "K", kib);
    else if (kib < (uint64_t)10 * 1024 * 1024)
        snprintf(text, size, "%" PRIu64 "M", kib / 1024);
    else
        snprintf(text, size, "%" PRIu64 "G", kib / 1024 / 1024);
    return text;
}

static const char *format_percent(double value, char *text, size_t size)
{
    if (value < 0)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.0f%%", value);
    return text;
}

static const char *format_command(const Hvd__JobStatus *s, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < s->n_argv && n < size; i++) {
        int k = snprintf(text + n, size - n, "%s%s", i ? " " : "", s->argv[i]);
        n += k > 0 ? (size_t)k : 0;
    }
    return text;
}

static const char *format_bytes(double n, char *text, size_t size)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t u = 0;
    for (; n >= 1024 && u + 1 < sizeof unit / sizeof *unit; u++)
        n /= 1024;
    snprintf(text, size, u && n < 100 ? "%.1f %s" : "%.0f %s", n, unit[u]);
    return text;
}

static const char *format_duration(double ns, char *text, size_t size)
{
    if (ns < 1e5)
        snprintf(text, size, "%.1f us", ns / 1e3);
    else if (ns < 1e8)
        snprintf(text, size, "%.1f ms", ns / 1e6);
    else
        snprintf(text, size, "%.1f s", ns / 1e9);
    return text;
}

unsigned show_live_ranks(const Hvd__JobStatus *s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s->n_rank; i++)
        n += !s->rank[i]->ended;
    return n;
}

/* ---- for people ---------------------------------------------------------------------------------------- */

#define NARROW 100 /* columns: a screen with fewer shows no users, and narrower columns */

/* Widths of columns; `user` 0: there is no such column. */
struct widths {
    int job, user, host, ranks, phase, state;
};

static const struct widths wide = {22, 10, 14, 9, 9, 28};

/* "94% always"; "-": nothing is known. */
static const char *format_lateness(const Hvd__Lateness *l, char *text, size_t size)
{
    snprintf(text, size, "-");
    if (l)
        snprintf(text, size, "%.0f%%%s%.10s", l->share_ppm / 1e4, lateness_is_known(l) ? " " : "",
                 lateness_is_known(l) ? l->word : "");
    return text;
}

static struct widths fit_widths(const struct ctl_seen *seen, size_t count, int columns)
{
    struct widths w = {3, 0, 12, 7, 8, 20};
    for (size_t i = 0; i < count; i++) {
        int len = (int)strlen(seen[i].answer->status->job);
        w.job = len > w.job ? len : w.job;
    }
    w.job = w.job > wide.job ? wide.job : w.job;
    return columns < NARROW ? w : wide;
}

static void job_heading(FILE *out, const struct widths *w)
{
    fprintf(out, "%-*s %-*s%s%-*s %*s %-*s %7s %6s %6s %5s %s\n", w->job, "JOB", w->user,
            w->user ? "USER" : "", w->user ? " " : "", w->host, "HOST", w->ranks, "RANKS", w->phase, "PHASE",
            "TIME", "CPU", "MEM", "LATE", "COMMAND");
}

/* Of the waiting of all ranks for others, the percentage that was for ranks of this host; negative: nothing
 * is known, or there is no other host. */
static double share_of_host(const Hvd__JobStatus *s)
{
    for (size_t i = 0; s->hosts > 1 && i < s->n_rank; i++)
        if (s->rank[i]->lateness)
            return 100 * lateness_sum_shares(s->rank, s->n_rank);
    return -1;
}

static void job_line(FILE *out, const struct ctl_seen *seen, const struct widths *w)
{
    const Hvd__JobStatus *s = seen->answer->status;
    char user[40], time[24], mem[24], cpu[24], words[256], ranks[32], late[24];
    message_printable(&seen->answer->status->base); /* root reads texts of a user's session */
    snprintf(ranks, sizeof ranks, "%u/%u", show_live_ranks(s), s->size);
    fprintf(out, "%-*.80s %-*s%s%-*.60s %*s %-*.40s %7s %6s %6s %5s %.60s\n", w->job, s->job, w->user,
            w->user ? show_user(seen->uid, user, sizeof user) : "", w->user ? " " : "", w->host, s->host,
            w->ranks, ranks, w->phase, s->phase, format_age(s->run_ms, time, sizeof time),
            format_percent(seen->cpu_percent, cpu, sizeof cpu), format_memory(s->memory_kib, mem, sizeof mem),
            format_percent(share_of_host(s), late, sizeof late), format_command(s, words, sizeof words));
}

static void rank_heading(FILE *out, const struct widths *w)
{
    fprintf(out, "%8s %8s %-*s %8s %9s %7s %-11s %s\n", "RANK", "PID", w->state, "STATE", "TIME", "CPU TIME",
            "MEM", "LATE", w->user ? "LIBHVD" : "");
}

/* Of an elastic job: a worker keeps its number, and has another rank in each membership. */
static const char *format_rank(const Hvd__RankStatus *r, bool elastic, char *text, size_t size)
{
    if (elastic && r->member == UINT32_MAX)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%u", elastic ? r->member : r->rank);
    return text;
}

static void rank_line(FILE *out, const Hvd__RankStatus *r, bool elastic, const struct widths *w)
{
    char time[24], mem[24], cpu[32], rank[16], late[32];
    snprintf(cpu, sizeof cpu, "%.1fs", (double)r->cpu_ms / 1e3);
    fprintf(out, "%8s %8u %-*.60s %8s %9s %7s %-11s %s\n", format_rank(r, elastic, rank, sizeof rank), r->pid,
            w->state, r->state, format_age(r->run_ms, time, sizeof time), cpu,
            format_memory(r->memory_kib, mem, sizeof mem), format_lateness(r->lateness, late, sizeof late),
            !w->user         ? ""
            : r->shut_down   ? "shut down"
            : r->initialized ? "initialized"
                             : "-");
}

void show_jobs(FILE *out, const struct ctl_seen *seen, size_t count)
{
    job_heading(out, &wide);
    for (size_t i = 0; i < count; i++)
        job_line(out, &seen[i], &wide);
}

static double divide_or_0(uint64_t what, uint64_t of)
{
    return of ? (double)what / (double)of : 0;
}

static void show_counters(FILE *out, const Hvd__Counters *c)
{
    char bytes[24], more[24], mean[24];
    if (c->n_collective)
        fprintf(out, "%-14s %12s %12s %12s %14s\n", "COLLECTIVE", "OPERATIONS", "BYTES", "MEAN TIME", "RATE");
    for (size_t i = 0; i < c->n_collective; i++) {
        const Hvd__Collective *k = c->collective[i];
        fprintf(out, "%-14.40s %12" PRIu64 " %12s %12s %12s/s\n", k->kind, k->most,
                format_bytes((double)k->bytes, bytes, sizeof bytes),
                format_duration(divide_or_0(k->ns, k->operations), mean, sizeof mean),
                format_bytes(divide_or_0(k->bytes, k->ns) * 1e9, more, sizeof more));
    }
    if (c->sent || c->received)
        fprintf(out, "links to other hosts: %s sent, %s received\n",
                format_bytes((double)c->sent, bytes, sizeof bytes),
                format_bytes((double)c->received, more, sizeof more));
    for (size_t i = 0; i < c->n_stall; i++) {
        const Hvd__Stall *s = c->stall[i];
        fprintf(out, "stall: tensor \"%.100s\": %.40s has waited %.1f s for %.300s\n", s->tensor, s->kind,
                (double)s->ms / 1e3, s->missing[0] ? s->missing : "ranks of other hosts");
    }
    if (c->stalls > c->n_stall)
        fprintf(out, "stall: %zu more tensors wait for other ranks\n", c->stalls - c->n_stall);
}

/* "; state after 5.0 ms"; nothing when nobody has said so. */
static void show_stage(FILE *out, const char *what, const Hvd__MembershipStatus *m, uint64_t ns)
{
    char time[24];
    if (ns)
        fprintf(out, ", %s after %s", what, format_duration((double)(m->decided_ns + ns), time, sizeof time));
}

static void show_memberships(FILE *out, const Hvd__JobStatus *s)
{
    char age[24], decided[24];
    fprintf(out, "elastic: membership %u of %u rank%s\n", s->membership, s->size, s->size == 1 ? "" : "s");
    for (size_t i = 0; i < s->n_change; i++) {
        const Hvd__MembershipStatus *m = s->change[i];
        fprintf(out, "membership %u, %s ago: %u rank%s, %u left, %u came; decided after %s", m->number,
                format_age(m->age_ms, age, sizeof age), m->size, m->size == 1 ? "" : "s", m->left, m->came,
                format_duration((double)m->decided_ns, decided, sizeof decided));
        show_stage(out, "entered", m, m->entered_ns);
        show_stage(out, "state", m, m->state_ns);
        show_stage(out, "first step", m, m->step_ns);
        fprintf(out, "%s%s\n", *m->reason ? ": " : "", m->reason);
    }
}

static void show_late_ranks(FILE *out, const Hvd__JobStatus *s)
{
    char text[600];
    for (size_t i = 0; i < s->n_rank; i++) {
        const Hvd__RankStatus *r = s->rank[i];
        if (!lateness_is_known(r->lateness) || r->ended || (s->elastic && r->member == UINT32_MAX))
            continue;
        lateness_describe(r->lateness, s->elastic ? r->member : r->rank, s->host, text, sizeof text);
        fprintf(out, "late: %s\n", text);
    }
}

static void show_host(FILE *out, const Hvd__JobStatus *s)
{
    fprintf(out, "processes: session %u, guard %u", s->session_pid, s->guard_pid);
    if (s->engine_pid)
        fprintf(out, ", engine %u", s->engine_pid);
    fprintf(out, "%s%s\n", *s->containment ? "; held together by " : "", s->containment);
    if (s->elastic)
        show_memberships(out, s);
    if (s->gpus[0])
        fprintf(out, "GPUs: %s%s\n", s->gpus, s->leased ? ", leased to it" : "");
    if (s->heat)
        fprintf(out, "heat: processors of this host have made themselves slower %" PRIu64 " time%s, %.1f s\n",
                s->heat->events, s->heat->events == 1 ? "" : "s", (double)s->heat->ms / 1e3);
    rank_heading(out, &wide);
    for (size_t i = 0; i < s->n_rank; i++)
        rank_line(out, s->rank[i], s->elastic, &wide);
    show_late_ranks(out, s);
    if (s->counters)
        show_counters(out, s->counters);
}

void show_status(FILE *out, const struct ctl_seen *seen, size_t count)
{
    const Hvd__JobStatus *first = seen[0].answer->status;
    char words[4096], text[40];
    for (size_t i = 0; i < count; i++)
        message_printable(&seen[i].answer->status->base);
    fprintf(out, "job %s of %s: %s\n", first->job, show_user(seen[0].uid, text, sizeof text), first->phase);
    fprintf(out, "command: %s\n", format_command(first, words, sizeof words));
    for (size_t i = 0; i < count; i++) {
        const Hvd__JobStatus *s = seen[i].answer->status;
        fprintf(out, "%shost: %s, number %u of %u; %u of the job's %u ranks run here%s", i ? "\n" : "",
                s->host, s->host_index, s->hosts, show_live_ranks(s), s->size, s->epoch ? "" : "\n");
        if (s->epoch)
            fprintf(out, "; restart %u\n", s->epoch);
        if (count > 1 && strcmp(s->phase, first->phase) != 0)
            fprintf(out, "phase: %s\n", s->phase);
        show_host(out, s);
    }
}

static int compare_ranks(const void *x, const void *y)
{
    const Hvd__RankStatus *const *a = x, *const *b = y;
    int64_t first = (*a)->lateness ? (int64_t)(*a)->lateness->share_ppm : -1;
    int64_t second = (*b)->lateness ? (int64_t)(*b)->lateness->share_ppm : -1;
    if (first != second)
        return first > second ? -1 : 1;
    return ((*a)->rank > (*b)->rank) - ((*a)->rank < (*b)->rank);
}

/* Hosts of one job by their part of the waiting, the largest first; jobs stay in their order. */
static void sort_hosts(struct ctl_seen *seen, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct ctl_seen moved = seen[i];
        size_t at = i;
        for (; at > 0 && strcmp(seen[at - 1].answer->status->job, moved.answer->status->job) == 0 &&
               share_of_host(seen[at - 1].answer->status) < share_of_host(moved.answer->status);
             at--)
            seen[at] = seen[at - 1];
        seen[at] = moved;
    }
}

/* A line in colours begins with the sequence and ends with another before its newline. */
static void late_line(FILE *out, const Hvd__RankStatus *r, bool elastic, const struct widths *w, bool colours)
{
    char *text = NULL;
    size_t size = 0;
    FILE *line = colours && lateness_is_known(r->lateness) ? open_memstream(&text, &size) : NULL;
    rank_line(line ? line : out, r, elastic, w);
    if (line && fclose(line) == 0)
        fprintf(out, "\033[1;33m%.*s\033[0m\n", (int)strcspn(text, "\n"), text);
    free(text);
}

void show_top(FILE *out, struct ctl_seen *seen, size_t count, const struct show_screen *screen)
{
    int left = screen->lines - 1;
    struct widths w = fit_widths(seen, count, screen->columns);
    sort_hosts(seen, count);
    job_heading(out, &w);
    for (size_t i = 0; i < count && left > 0; i++, left--)
        job_line(out, &seen[i], &w);
    for (size_t i = 0; i < count; i++) {
        const Hvd__JobStatus *s = seen[i].answer->status;
        if (left < 4)
            break;
        fprintf(out, "\n%s%s%s\n", s->job, s->hosts > 1 ? " on " : "", s->hosts > 1 ? s->host : "");
        rank_heading(out, &w);
        left -= 3;
        if (s->n_rank > 0)
            qsort(s->rank, s->n_rank, sizeof *s->rank, compare_ranks);
        for (size_t r = 0; r < s->n_rank && left > 0; r++, left--)
            late_line(out, s->rank[r], s->elastic, &w, screen->colours);
    }
}

/* ---- for programs -------------------------------------------------------------------------------------- */

static void lateness_json(struct json *j, const Hvd__Lateness *l)
{
    json_object(j, "lateness");
    lateness_put(l, j);
    json_end(j);
}

static void rank_json(struct json *j, const Hvd__RankStatus *r, bool elastic)
{
    json_object(j, NULL);
    json_unsigned(j, elastic ? "worker" : "rank", r->rank);
    if (elastic && r->member == UINT32_MAX)
        json_null(j, "rank");
    else if (elastic)
        json_unsigned(j, "rank", r->member);
    json_unsigned(j, "pid", r->pid);
    json_text(j, "state", r->state);
    json_bool(j, "ended", r->ended);
    json_real(j, "seconds", (double)r->run_ms / 1e3);
    json_real(j, "cpu_seconds", (double)r->cpu_ms / 1e3);
    json_unsigned(j, "memory_kib", r->memory_kib);
    json_bool(j, "initialized", r->initialized);
    json_bool(j, "shut_down", r->shut_down);
    if (r->lateness)
        lateness_json(j, r->lateness);
    json_end(j);
}

static void counters_json(struct json *j, const Hvd__Counters *c, uint64_t age_ms)
{
    json_object(j, "counters");
    json_real(j, "age_seconds", (double)age_ms / 1e3);
    json_unsigned(j, "link_bytes_sent", c->sent);
    json_unsigned(j, "link_bytes_received", c->received);
    json_array(j, "collectives");
    for (size_t i = 0; i < c->n_collective; i++) {
        const Hvd__Collective *k = c->collective[i];
        json_object(j, NULL);
        json_text(j, "kind", k->kind);
        json_unsigned(j, "operations", k->most);
        json_unsigned(j, "operations_of_all_ranks", k->operations);
        json_unsigned(j, "bytes", k->bytes);
        json_real(j, "seconds", (double)k->ns / 1e9);
        json_real(j, "bytes_per_second", divide_or_0(k->bytes, k->ns) * 1e9);
        json_end(j);
    }
    json_end(j);
    json_unsigned(j, "stalled_tensors", c->stalls);
    json_array(j, "stalls");
    for (size_t i = 0; i < c->n_stall; i++) {
        json_object(j, NULL);
        json_text(j, "tensor", c->stall[i]->tensor);
        json_text(j, "kind", c->stall[i]->kind);
        json_real(j, "seconds", (double)c->stall[i]->ms / 1e3);
        json_text(j, "missing", c->stall[i]->missing);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

static void time_json(struct json *j, const char *name, const Hvd__MembershipStatus *m, uint64_t ns)
{
    if (ns)
        json_real(j, name, (double)(m->decided_ns + ns) / 1e9);
    else
        json_null(j, name);
}

static void memberships_json(struct json *j, const Hvd__JobStatus *s)
{
    json_unsigned(j, "membership", s->membership);
    json_array(j, "memberships");
    for (size_t i = 0; i < s->n_change; i++) {
        const Hvd__MembershipStatus *m = s->change[i];
        json_object(j, NULL);
        json_unsigned(j, "number", m->number);
        json_unsigned(j, "size", m->size);
        json_unsigned(j, "left", m->left);
        json_unsigned(j, "came", m->came);
        json_text(j, "cause", m->reason);
        json_real(j, "age_seconds", (double)m->age_ms / 1e3);
        json_real(j, "decided_after", (double)m->decided_ns / 1e9);
        time_json(j, "entered_after", m, m->entered_ns);
        time_json(j, "state_after", m, m->state_ns);
        time_json(j, "step_after", m, m->step_ns);
        json_end(j);
    }
    json_end(j);
}

/* `others`: hosts of the same job. */
static void job_json(struct json *j, const struct ctl_seen *seen, size_t others)
{
    const Hvd__JobStatus *s = seen->answer->status;
    char user[40];
    json_object(j, NULL);
    json_text(j, "job", s->job);
    json_text(j, "user", show_user(seen->uid, user, sizeof user));
    json_unsigned(j, "uid", seen->uid);
    json_text(j, "phase", s->phase);
    json_text(j, "host", s->host);
    json_unsigned(j, "host_index", s->host_index);
    json_unsigned(j, "hosts", s->hosts);
    json_unsigned(j, "size", s->size);
    json_unsigned(j, "restarts", s->epoch);
    if (s->elastic)
        memberships_json(j, s);
    json_real(j, "seconds", (double)s->run_ms / 1e3);
    json_real(j, "cpu_seconds", (double)s->cpu_ms / 1e3);
    json_unsigned(j, "memory_kib", s->memory_kib);
    json_array(j, "command");
    for (size_t i = 0; i < s->n_argv; i++)
        json_text(j, NULL, s->argv[i]);
    json_end(j);
    json_text(j, "containment", s->containment);
    json_filled_text(j, "gpus", s->gpus);
    json_bool(j, "gpus_leased", s->leased);
    json_unsigned(j, "heat_events", s->heat ? s->heat->events : 0);
    json_real(j, "heat_seconds", s->heat ? (double)s->heat->ms / 1e3 : 0);
    json_unsigned(j, "session_pid", s->session_pid);
    json_unsigned(j, "guard_pid", s->guard_pid);
    json_unsigned(j, "engine_pid", s->engine_pid);
    json_array(j, "ranks");
    for (size_t i = 0; i < s->n_rank; i++)
        rank_json(j, s->rank[i], s->elastic);
    json_end(j);
    if (s->counters)
        counters_json(j, s->counters, s->counters_ms);
    if (others > 0) {
        json_array(j, "other_hosts");
        for (size_t i = 1; i <= others; i++)
            job_json(j, &seen[i], 0);
        json_end(j);
    }
    json_end(j);
}

void show_jobs_json(FILE *out, const struct ctl_seen *seen, size_t count)
{
    struct json j;
    json_begin(&j, out);
    json_array(&j, NULL);
    for (size_t i = 0; i < count; i++)
        job_json(&j, &seen[i], 0);
    json_end(&j);
}

void show_status_json(FILE *out, const struct ctl_seen *seen, size_t count)
{
    struct json j;
    json_begin(&j, out);
    job_json(&j, seen, count - 1);
}
