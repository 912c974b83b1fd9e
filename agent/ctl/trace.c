/* hvdctl trace JOB: what the ranks of a running job do, for Perfetto or chrome://tracing, from the flight
 * recorders of its hosts. These keep the last operations of each rank, so that a few looks a second see all
 * operations of most jobs. Operations that came too fast are counted.
 *
 * The file is a JSON object of the Trace Event Format. A host is a process there, and a rank or the
 * engine a thread; one with operations at one time has further threads. An arrow goes from the rank that came
 * to an operation last to the rank that came first. Counters of a host are the processors of its ranks and
 * its traffic. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "common/base/clock.h"
#include "common/base/json.h"

#define LOOK_MS        100
#define OPERATIONS_MAX 2000000u
#define REPEATS        65536u
#define READING_NS     3000
#define ENGINE_THREADS 0xfffff000u
#define LANES          16 /* operations of a rank at one time that are shown */

/* An operation of one rank. */
struct seen {
    uint32_t host, rank, pid, thread, number, operation;
    int32_t set, status;
    uint64_t count, bytes, began, ended;
    char *tensor, *kind, *type; /* owned */
    uint32_t lane;
};

/* The sums of a host at a time. */
struct counted {
    uint32_t host;
    bool has_links;
    uint64_t at, sent, received, cpu_ms;
};

struct traced {
    struct seen *item;
    size_t count, room, distinct; /* distinct: after the last drop_repeats */
    struct counted *counted;
    size_t counts, count_room;
    struct traced_host {
        char *name; /* NULL: not seen */
        int64_t clock_offset;
    } * host; /* by index in the job */
    size_t hosts;
    uint64_t from;     /* operations that ended before are left out; at last, the beginning of the trace */
    uint32_t expected; /* hosts of the job */
    uint64_t lost;     /* that came too fast */
    bool full;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_places(const struct seen *x, const struct seen *y)
{
    int order = compare_numbers(x->host, y->host);
    if (order == 0)
        order = compare_numbers(x->rank, y->rank);
    return order ? order : compare_numbers(x->pid, y->pid);
}

/* By process and thread, in the order of numbers; of two looks at one operation the one that saw its end is
 * first. */
static int compare_identities(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    int order = compare_places(x, y);
    if (order == 0)
        order = compare_numbers(x->thread, y->thread);
    if (order == 0)
        order = compare_numbers(x->number, y->number);
    return order ? order : compare_numbers(x->status > 0, y->status > 0);
}

static int compare_beginnings(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    int order = compare_places(x, y);
    if (order == 0)
        order = compare_numbers(x->began, y->began);
    return order ? order : compare_numbers(y->ended, x->ended);
}

/* The same operation of all ranks together. */
static int compare_operations(const void *a, const void *b)
{
    const struct seen *const *x = a, *const *y = b;
    int order = compare_numbers((uint32_t)(*x)->set, (uint32_t)(*y)->set);
    if (order == 0)
        order = strcmp((*x)->tensor, (*y)->tensor);
    if (order == 0)
        order = compare_numbers((*x)->operation, (*y)->operation);
    return order ? order : compare_numbers((*x)->began, (*y)->began);
}

static void free_seen(struct seen *s)
{
    free(s->tensor);
    free(s->kind);
    free(s->type);
}

static int add_operation(struct traced *t, const Hvd__JobStatus *host, const Hvd__Flight *w,
                         const Hvd__FlightOperation *o)
{
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 4096;
        struct seen *grown = realloc(t->item, room * sizeof *grown);
        if (!grown)
            return -1;
        t->item = grown;
        t->room = room;
    }
    struct seen *s = &t->item[t->count];
    *s = (struct seen){.host = host->host_index,
                       .rank = w->rank,
                       .pid = w->pid,
                       .thread = o->thread,
                       .number = o->number,
                       .operation = o->operation,
                       .set = o->set,
                       .status = o->status,
                       .count = o->count,
                       .bytes = o->bytes,
                       .began = o->began,
                       .ended = o->status > 0 ? w->time : o->ended,
                       .tensor = strdup(o->tensor),
                       .kind = strdup(o->kind),
                       .type = strdup(o->type)};
    if (!s->tensor || !s->kind || !s->type) {
        free_seen(s);
        return -1;
    }
    t->count++;
    return 0;
}

/* Without memory, a look has no sums. */
static void add_sums(struct traced *t, const Hvd__JobStatus *host)
{
    const Hvd__Counters *c = host->counters;
    if (t->counts == t->count_room) {
        size_t room = t->count_room ? 2 * t->count_room : 256;
        struct counted *grown = realloc(t->counted, room * sizeof *grown);
        if (!grown)
            return;
        t->counted = grown;
        t->count_room = room;
    }
    t->counted[t->counts++] = (struct counted){.host = host->host_index,
                                               .at = clock_now(),
                                               .has_links = c && c->sent + c->received > 0,
                                               .sent = c ? c->sent : 0,
                                               .received = c ? c->received : 0,
                                               .cpu_ms = host->cpu_ms};
}

static int add_host(struct traced *t, const Hvd__JobStatus *host)
{
    add_sums(t, host);
    if (host->host_index >= t->hosts) {
        size_t hosts = (size_t)host->host_index + 1;
        struct traced_host *grown = realloc(t->host, hosts * sizeof *grown);
        if (!grown)
            return -1;
        while (t->hosts < hosts)
            grown[t->hosts++] = (struct traced_host){.name = NULL};
        t->host = grown;
    }
    struct traced_host *of = &t->host[host->host_index];
    t->expected = host->hosts > t->expected ? host->hosts : t->expected;
    of->clock_offset = host->clock_offset;
    if (!of->name)
        of->name = strdup(host->host);
    for (size_t i = 0; i < host->n_flight; i++) {
        const Hvd__Flight *w = host->flight[i];
        for (size_t k = 0; k < w->n_operation; k++) {
            const Hvd__FlightOperation *o = w->operation[k];
            bool before = o->status <= 0 && o->ended + (uint64_t)host->clock_offset < t->from;
            if (!before && add_operation(t, host, w, o) < 0)
                return -1;
        }
    }
    return 0;
}

/* Each operation once, as it was seen last. */
static void drop_repeats(struct traced *t)
{
    size_t kept = 0;
    if (t->count > 0)
        qsort(t->item, t->count, sizeof *t->item, compare_identities);
    for (size_t i = 0; i < t->count; i++) {
        struct seen *s = &t->item[i], *last = kept ? &t->item[kept - 1] : NULL;
        if (last && compare_places(s, last) == 0 && s->thread == last->thread && s->number == last->number) {
            if (s->status > 0 && last->status > 0)
                last->ended = s->ended > last->ended ? s->ended : last->ended;
            free_seen(s);
        } else {
            t->item[kept++] = *s;
        }
    }
    t->count = t->distinct = kept;
    t->full = t->count > OPERATIONS_MAX;
}

/* The times of each host go on our clock, by what is known of its own clock at the end. */
static void convert_times(struct traced *t)
{
    for (size_t i = 0; i < t->count; i++) {
        struct seen *s = &t->item[i];
        uint64_t offset = (uint64_t)t->host[s->host].clock_offset;
        s->began += offset;
        s->ended += offset;
    }
}

/* The trace begins with its first operation: tools drop times before zero. */
static void find_beginning(struct traced *t)
{
    t->from = UINT64_MAX;
    for (size_t i = 0; i < t->count; i++)
        t->from = t->item[i].began < t->from ? t->item[i].began : t->from;
}

static void count_lost(struct traced *t)
{
    for (size_t i = 1; i < t->count; i++) {
        const struct seen *a = &t->item[i - 1], *b = &t->item[i];
        if (compare_places(a, b) == 0 && a->thread == b->thread)
            t->lost += b->number - a->number - 1;
    }
}

static int look_once(const struct ctl_job *job, struct traced *t, struct err *e)
{
    struct ctl_answers all;
    if (ctl_ask_status(job, HVD__INQUIRY__KIND__FLIGHT, CTL_ANSWER_MS, &all, e) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < all.count && rc == 0; i++)
        if (all.item[i]->status->host_index < UINT16_MAX)
            rc = add_host(t, all.item[i]->status);
    ctl_answers_free(&all);
    if (rc < 0)
        return err_set(e, ERR_MEMORY, "no memory for %zu operations", t->count);
    if (t->count > 2 * t->distinct + REPEATS) /* not at each look: that would cost more and more */
        drop_repeats(t);
    return 0;
}

/* Many hosts take long to answer: they are not asked all the time. */
static void pause_after(uint64_t took)
{
    uint64_t ns = LOOK_MS * NSEC_PER_MSEC > 4 * took ? LOOK_MS * NSEC_PER_MSEC : 4 * took;
    const struct timespec pause = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    nanosleep(&pause, NULL);
}

/* Until the time is over, the user interrupts, or the job ends, which is no error when something was seen. */
static int look_often(const struct ctl_config *c, const struct ctl_job *job, struct traced *t, struct err *e)
{
    uint64_t now = clock_now(), until = now + (uint64_t)c->seconds_ms * NSEC_PER_MSEC;
    t->from = c->seconds_ms > 0 ? now : 0;
    do {
        uint64_t began = clock_now();
        if (look_once(job, t, e) < 0) {
            if (e->code != ERR_CLOSED || t->count == 0)
                return -1;
            err_clear(e);
            break;
        }
        now = clock_now();
        if (now < until)
            pause_after(now - began);
    } while (clock_now() < until && !interrupted && !t->full);
    drop_repeats(t);
    return 0;
}

/* ---- lanes --------------------------------------------------------------------------------------------- */

/* The first lane of the rank that is free when the operation begins. The last one takes what finds none. Two
 * looks read a clock twice, so that one operation may seem to begin before the end of the one before. */
static void choose_lanes(struct traced *t)
{
    uint64_t free_at[LANES] = {0};
    if (t->count > 0)
        qsort(t->item, t->count, sizeof *t->item, compare_beginnings);
    for (size_t i = 0; i < t->count; i++) {
        struct seen *s = &t->item[i];
        if (i == 0 || compare_places(&t->item[i - 1], s) != 0)
            memset(free_at, 0, sizeof free_at);
        while (s->lane + 1 < LANES && free_at[s->lane] > s->began + READING_NS)
            s->lane++;
        if (free_at[s->lane] > s->began && free_at[s->lane] < s->ended)
            s->began = free_at[s->lane];
        free_at[s->lane] = s->ended;
    }
}

static bool is_engine(const struct seen *s)
{
    return s->rank == UINT32_MAX;
}

static uint32_t thread_of(const struct seen *s)
{
    return (is_engine(s) ? ENGINE_THREADS : s->rank * LANES) + s->lane;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static double to_microseconds(const struct traced *t, uint64_t at)
{
    return (double)(int64_t)(at - t->from) / 1e3;
}

static void write_event(FILE *out, const char *what, uint32_t host, uint32_t thread, const char *kind)
{
    fprintf(out, ",\n{\"ph\": \"%s\", \"pid\": %u, \"tid\": %u, ", what, host, thread);
    fprintf(out, "\"name\": ");
    json_put_string(out, kind);
}

/* Names and order of hosts and ranks. */
static void write_names(FILE *out, const struct traced *t)
{
    for (uint32_t h = 0; h < t->hosts; h++) {
        if (!t->host[h].name)
            continue;
        write_event(out, "M", h, 0, "process_name");
        fprintf(out, ", \"args\": {\"name\": ");
        json_put_string(out, t->host[h].name);
        fprintf(out, "}}");
        write_event(out, "M", h, 0, "process_sort_index");
        fprintf(out, ", \"args\": {\"sort_index\": %u}}", h);
    }
    uint32_t lanes = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct seen *s = &t->item[i];
        if (i == 0 || compare_places(&t->item[i - 1], s) != 0)
            lanes = 0;
        for (; lanes <= s->lane; lanes++) {
            uint32_t thread = thread_of(s) - s->lane + lanes;
            write_event(out, "M", s->host, thread, "thread_name");
            fprintf(out, ", \"args\": {\"name\": \"");
            if (is_engine(s))
                fprintf(out, "engine");
            else
                fprintf(out, "rank %u", s->rank);
            fprintf(out, "%s\"}}", lanes ? ", beside" : "");
            write_event(out, "M", s->host, thread, "thread_sort_index");
            fprintf(out, ", \"args\": {\"sort_index\": %u}}", thread);
        }
    }
}

static void write_operation(FILE *out, const struct traced *t, const struct seen *s)
{
    write_event(out, "X", s->host, thread_of(s), s->tensor[0] ? s->tensor : "(a forgotten name)");
    fprintf(out, ", \"cat\": ");
    json_put_string(out, s->kind);
    fprintf(out, ", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"kind\": ", to_microseconds(t, s->began),
            (double)(s->ended > s->began ? s->ended - s->began : 0) / 1e3);
    json_put_string(out, s->kind);
    fprintf(out, ", \"type\": ");
    json_put_string(out, s->type);
    fprintf(out, ", \"operation\": %u, \"set\": %d, \"count\": %llu, \"bytes\": %llu, \"status\": %d%s}}",
            s->operation, s->set, (unsigned long long)s->count, (unsigned long long)s->bytes,
            s->status > 0 ? 0 : s->status, s->status > 0 ? ", \"pending\": true" : "");
}

/* An arrow begins and ends within its operations. */
static void write_arrow(FILE *out, const struct traced *t, const struct seen *first, const struct seen *last,
                        size_t number)
{
    if (last->began > first->ended || last == first)
        return;
    write_event(out, "s", last->host, thread_of(last), "last arrival");
    fprintf(out, ", \"cat\": \"arrival\", \"id\": %zu, \"ts\": %.3f}", number,
            to_microseconds(t, last->began));
    write_event(out, "f", first->host, thread_of(first), "last arrival");
    fprintf(out, ", \"cat\": \"arrival\", \"bp\": \"e\", \"id\": %zu, \"ts\": %.3f}", number,
            to_microseconds(t, last->began));
}

static void write_arrows(FILE *out, struct traced *t)
{
    struct seen **all = calloc(t->count ? t->count : 1, sizeof(struct seen *));
    size_t count = 0;
    for (size_t i = 0; all && i < t->count; i++)
        if (!is_engine(&t->item[i]))
            all[count++] = &t->item[i];
    if (count > 0)
        qsort(all, count, sizeof *all, compare_operations);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && all[next]->set == all[i]->set &&
                           all[next]->operation == all[i]->operation &&
                           strcmp(all[next]->tensor, all[i]->tensor) == 0;)
            next++;
        if (all[i]->tensor[0])
            write_arrow(out, t, all[i], all[next - 1], i + 1);
    }
    free(all);
}

/* Rates of a host between two looks: processors of its ranks, and bytes to and from other hosts. */
static void write_rates(FILE *out, const struct traced *t, const struct counted *from,
                        const struct counted *to)
{
    double seconds = (double)(to->at - from->at) / 1e9, ts = to_microseconds(t, from->at);
    if (seconds < 1e-3 || ts < 0)
        return;
    if (to->cpu_ms >= from->cpu_ms) {
        write_event(out, "C", to->host, 0, "processors in use");
        fprintf(out, ", \"ts\": %.3f, \"args\": {\"ranks\": %.2f}}", ts,
                (double)(to->cpu_ms - from->cpu_ms) / 1e3 / seconds);
    }
    if (!to->has_links || to->sent < from->sent || to->received < from->received)
        return;
    write_event(out, "C", to->host, 0, "MiB/s between hosts");
    fprintf(out, ", \"ts\": %.3f, \"args\": {\"sent\": %.3f, \"received\": %.3f}}", ts,
            (double)(to->sent - from->sent) / 1048576 / seconds,
            (double)(to->received - from->received) / 1048576 / seconds);
}

static void write_counters(FILE *out, const struct traced *t)
{
    for (size_t i = 0; i < t->counts; i++)
        for (size_t k = i + 1; k < t->counts; k++)
            if (t->counted[k].host == t->counted[i].host) {
                write_rates(out, t, &t->counted[i], &t->counted[k]);
                break;
            }
}

static void write_trace(FILE *out, struct traced *t, const char *job)
{
    fprintf(out, "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"job\": ");
    json_put_string(out, job);
    fprintf(out,
            ", \"lost operations\": \"%llu\"}, \"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"name\": "
            "\"process_labels\", \"args\": {\"labels\": \"hvdrun %s\"}}",
            (unsigned long long)t->lost, HVD_VERSION);
    write_names(out, t);
    for (size_t i = 0; i < t->count; i++)
        write_operation(out, t, &t->item[i]);
    write_arrows(out, t);
    write_counters(out, t);
    fprintf(out, "\n]}\n");
}

/* ---- the command --------------------------------------------------------------------------------------- */

static uint32_t count_ranks(const struct traced *t)
{
    uint32_t ranks = 0;
    for (size_t i = 0; i < t->count; i++)
        ranks += !is_engine(&t->item[i]) && (i == 0 || compare_places(&t->item[i - 1], &t->item[i]) != 0);
    return ranks;
}

static uint32_t count_hosts(const struct traced *t)
{
    uint32_t hosts = 0;
    for (size_t i = 0; i < t->hosts; i++)
        hosts += t->host[i].name != NULL;
    return hosts;
}

static int save_trace(struct traced *t, const struct ctl_job *job, const char *path, struct err *e)
{
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : ctl_create_file(path);
    if (!out)
        return err_sys(e, errno, "cannot write %s", path);
    write_trace(out, t, job->name);
    bool failed = ferror(out) != 0;
    int closed = is_stdout ? fflush(out) : fclose(out);
    if (failed || closed != 0)
        return err_sys(e, errno ? errno : EIO, "cannot write %s", path);
    if (is_stdout)
        return 0;
    printf("%s: %zu operations of %u ranks; ui.perfetto.dev opens it\n", path, t->count, count_ranks(t));
    if (count_hosts(t) < t->expected)
        printf("%u of %u hosts have answered\n", count_hosts(t), t->expected);
    if (t->lost > 0)
        printf("%llu operations came too fast to be seen\n", (unsigned long long)t->lost);
    if (t->full)
        printf("the trace is full: it ends before its time\n");
    return 0;
}

static void free_traced(struct traced *t)
{
    for (size_t i = 0; i < t->count; i++)
        free_seen(&t->item[i]);
    for (size_t i = 0; i < t->hosts; i++)
        free(t->host[i].name);
    free(t->item);
    free(t->counted);
    free(t->host);
}

int ctl_trace(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    char path[PATH_MAX];
    struct traced t = {.from = 0};
    signal(SIGINT, on_interrupt);
    snprintf(path, sizeof path, "%s.trace.json", job->name);
    int rc = look_often(c, job, &t, e);
    if (rc == 0 && t.count == 0)
        rc = err_set(e, ERR_HOST, "job %s has recorded no operations%s", job->name,
                     c->seconds_ms > 0 ? " meanwhile" : "");
    if (rc == 0) {
        convert_times(&t);
        count_lost(&t);
        choose_lanes(&t);
        find_beginning(&t);
        rc = save_trace(&t, job, c->file ? c->file : path, e);
    }
    free_traced(&t);
    return rc == 0 ? 0 : EXIT_REFUSED;
}
