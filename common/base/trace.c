/* The buffer is a ring of cells with a turn each: 2 x lap, the cell is free for that lap; 2 x lap + 1, it
 * holds an event. A producer claims a place by moving the tail, fills the cell, turns it; the writer takes
 * cells in order and turns them free. So a ring of zeros is an empty one.
 *
 * The writer sleeps when nothing comes: the first event rings it, and it gathers for a moment before it takes
 * that and what follows. */
#include "common/base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/json.h"

#define PAGE 4096u
#define END  "\n]\n" /* of the array, in one page */

struct cell {
    _Atomic uint64_t turn;
    struct trace_event event;
    char *text; /* not NULL: the name of a lane, the writer's to free */
};

struct trace {
    int fd, error; /* errno of the first write that failed */
    uint32_t pid;
    int64_t to_wall; /* nanoseconds from clock_now() to the wall clock */
    pthread_t writer;
    uint64_t head; /* the writer's */
    char page[PAGE];
    uint32_t filled, written; /* bytes of this page */
    uint64_t told;            /* dropped events that the file tells of */
    uint64_t most;            /* bytes, from which on events are dropped */
    uint64_t bytes;           /* of whole pages that were written */
    bool first;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint64_t dropped;
    _Atomic uint32_t bell; /* 1: the writer shall look */
    _Atomic bool stopping;
    struct cell cell[TRACE_EVENTS];
};

/* ---- the producers' side ------------------------------------------------------------------------------- */

static void ring_bell(struct trace *t)
{
    if (atomic_load(&t->bell) == 0 && atomic_exchange(&t->bell, 1) == 0)
        syscall(SYS_futex, &t->bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool put_event(struct trace *t, const struct trace_event *event, char *text)
{
    uint64_t at = atomic_load_explicit(&t->tail, memory_order_relaxed);
    for (;;) {
        struct cell *c = &t->cell[at % TRACE_EVENTS];
        uint64_t turn = atomic_load_explicit(&c->turn, memory_order_acquire),
                 free_turn = at / TRACE_EVENTS * 2;
        if (turn < free_turn) {
            atomic_fetch_add(&t->dropped, 1);
            return false;
        }
        if (turn > free_turn) { /* another one was faster */
            at = atomic_load_explicit(&t->tail, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak(&t->tail, &at, at + 1)) {
            c->event = *event;
            c->text = text;
            atomic_store(&c->turn, free_turn + 1);
            ring_bell(t);
            return true;
        }
    }
}

void trace_put(struct trace *t, const struct trace_event *event)
{
    put_event(t, event, NULL);
}

void trace_lane(struct trace *t, uint32_t lane, const char *name)
{
    struct trace_event event = {.lane = lane};
    char *text = strdup(name);
    if (text && !put_event(t, &event, text))
        free(text);
}

/* ---- the writer ---------------------------------------------------------------------------------------- */

static void write_page(struct trace *t)
{
    while (t->written < t->filled && t->error == 0) {
        ssize_t n = write(t->fd, t->page + t->written, t->filled - t->written);
        if (n > 0)
            t->written += (uint32_t)n;
        else if (n < 0 && errno != EINTR)
            t->error = errno;
    }
    if (t->filled == PAGE) {
        t->bytes += PAGE;
        t->filled = t->written = 0;
    }
}

/* A record that does not fit into the rest of the page begins the next page: blanks fill this one. */
static void make_room(struct trace *t, size_t size)
{
    if (size <= PAGE - t->filled)
        return;
    memset(t->page + t->filled, ' ', PAGE - t->filled);
    t->filled = PAGE;
    write_page(t);
}

static void append_record(struct trace *t, const char *record, size_t size)
{
    make_room(t, size + 2);
    memcpy(t->page + t->filled, t->first ? "[\n" : ",\n", 2);
    memcpy(t->page + t->filled + 2, record, size);
    t->filled += (uint32_t)size + 2;
    t->first = false;
}

static void append_format(struct trace *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void append_format(struct trace *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char record[PAGE / 2];
    int n = vsnprintf(record, sizeof record, fmt, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof record)
        append_record(t, record, (size_t)n);
}

/* "name" in quotes, escaped. */
static void append_name(struct trace *t, const char *what, uint32_t lane, const char *name)
{
    char quoted[PAGE / 2 - 256] = "";
    FILE *out = fmemopen(quoted, sizeof quoted, "w");
    if (!out)
        return;
    json_put_string(out, name);
    bool whole = fflush(out) == 0 && !ferror(out);
    fclose(out);
    append_format(
        t, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"args\":{\"name\":%s}}",
        what, t->pid, lane, whole ? quoted : "\"a long name\"");
}

static void append_event(struct trace *t, const struct trace_event *e)
{
    uint64_t at = e->at + (uint64_t)t->to_wall;
    char more[64] = "";
    if (t->bytes >= t->most) {
        atomic_fetch_add(&t->dropped, 1);
        return;
    }
    if (e->phase == TRACE_COMPLETE)
        snprintf(more, sizeof more, ",\"dur\":%" PRIu64 ".%03u", e->duration / 1000,
                 (unsigned)(e->duration % 1000));
    else if (e->phase == TRACE_INSTANT)
        snprintf(more, sizeof more, ",\"s\":\"t\"");
    append_format(t,
                  "{\"name\":\"%s%s\",\"ph\":\"%c\",\"ts\":%" PRIu64 ".%03u,\"pid\":%" PRIu32
                  ",\"tid\":%" PRIu32 "%s}",
                  e->prefix ? e->prefix : "", e->name, (char)e->phase, at / 1000, (unsigned)(at % 1000),
                  t->pid, e->lane, more);
}

static void tell_dropped(struct trace *t)
{
    uint64_t dropped = atomic_load(&t->dropped), at = clock_now() + (uint64_t)t->to_wall;
    bool full = t->bytes >= t->most; /* that is told once, at the end */
    if (dropped == t->told || (full && !atomic_load(&t->stopping)))
        return;
    append_format(t,
                  "{\"name\":\"dropped events\",\"ph\":\"i\",\"s\":\"p\",\"ts\":%" PRIu64
                  ".%03u,\"pid\":%" PRIu32 ",\"tid\":0,\"args\":{\"number\":%" PRIu64 "}}",
                  at / 1000, (unsigned)(at % 1000), t->pid, dropped - t->told);
    t->told = dropped;
}

/* true: something was there. */
static bool drain_cells(struct trace *t)
{
    bool some = false;
    for (;; t->head++) {
        struct cell *c = &t->cell[t->head % TRACE_EVENTS];
        uint64_t full = t->head / TRACE_EVENTS * 2 + 1;
        if (atomic_load(&c->turn) != full)
            break;
        some = true;
        if (c->text)
            append_name(t, "thread_name", c->event.lane, c->text);
        else
            append_event(t, &c->event);
        free(c->text);
        atomic_store_explicit(&c->turn, full + 1, memory_order_release);
    }
    tell_dropped(t);
    write_page(t);
    return some;
}

static void gather_events(struct trace *t)
{
    struct timespec moment = {0, TRACE_LINGER_MS * (long)NSEC_PER_MSEC};
    /* The bell stays 1, so no thread rings: only trace_stop, which sets it to 2, ends this early. */
    if (!atomic_load(&t->stopping))
        syscall(SYS_futex, &t->bell, FUTEX_WAIT_PRIVATE, 1, &moment, NULL, 0);
}

static void *write_events(void *arg)
{
    struct trace *t = arg;
    prctl(PR_SET_NAME, "hvd-timeline");
    while (!atomic_load(&t->stopping)) {
        gather_events(t);
        if (drain_cells(t))
            continue;
        uint32_t rung = 1;
        if (!atomic_compare_exchange_strong(&t->bell, &rung, 0))
            break;           /* by trace_stop */
        if (!drain_cells(t)) /* events that came before the bell was free to be rung */
            syscall(SYS_futex, &t->bell, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    drain_cells(t);
    return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------------------ */

static int start_writer(struct trace *t)
{
    sigset_t all;
    sigfillset(&all); /* signals are for the program's own threads */
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->writer, NULL, write_events, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Cuts the closing bracket off, so that events can follow. */
static void resume_file(struct trace *t)
{
    char end[sizeof END] = "";
    size_t tail = strlen(END);
    struct stat st;
    if (fstat(t->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    off_t size = st.st_size - (off_t)tail;
    bool whole = size > 0 && pread(t->fd, end, tail, size) == (ssize_t)tail && strcmp(end, END) == 0;
    if (ftruncate(t->fd, whole ? size : 0) < 0 || lseek(t->fd, whole ? size : 0, SEEK_SET) < 0) {
        t->error = errno;
    } else if (whole) {
        t->first = false;
        t->filled = t->written = (uint32_t)((uint64_t)size % PAGE);
        t->bytes = (uint64_t)size - t->filled;
    }
}

static struct trace *begin_trace(const char *path, uint32_t pid, const char *process, uint64_t most,
                                 bool resumes, struct err *e)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(e, ERR_MEMORY, "no memory for the timeline %s", path);
        return NULL;
    }
    t->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (resumes ? 0 : O_TRUNC), 0666);
    if (t->fd < 0) {
        err_sys(e, errno, "cannot write the timeline %s", path);
        free(t);
        return NULL;
    }
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    t->to_wall = (int64_t)wall.tv_sec * (int64_t)NSEC_PER_SEC + wall.tv_nsec - (int64_t)clock_now();
    t->pid = pid;
    t->most = most;
    t->first = true;
    if (resumes)
        resume_file(t);
    t->bell = 1;
    append_name(t, "process_name", 0, process);
    append_format(t,
                  "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%" PRIu32
                  ",\"tid\":0,\"args\":{\"sort_index\":%" PRIu32 "}}",
                  pid, pid);
    write_page(t);
    int error = start_writer(t);
    if (error != 0) {
        err_sys(e, error, "cannot start the writer of the timeline %s", path);
        close(t->fd);
        free(t);
        return NULL;
    }
    return t;
}

struct trace *trace_start(const char *path, uint32_t pid, const char *process, uint64_t most, struct err *e)
{
    return begin_trace(path, pid, process, most, false, e);
}

struct trace *trace_continue(const char *path, uint32_t pid, const char *process, uint64_t most,
                             struct err *e)
{
    return begin_trace(path, pid, process, most, true, e);
}

int trace_stop(struct trace *t, struct err *e)
{
    atomic_store(&t->stopping, true);
    atomic_store(&t->bell, 2);
    syscall(SYS_futex, &t->bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pthread_join(t->writer, NULL);
    make_room(t, strlen(END));
    memcpy(t->page + t->filled, END, strlen(END));
    t->filled += (uint32_t)strlen(END);
    write_page(t);
    int error = t->error;
    if (close(t->fd) != 0 && error == 0)
        error = errno;
    free(t);
    return error ? err_sys(e, error, "the timeline is not complete") : 0;
}

const char *trace_engine_who(const char *host, char who[TRACE_WHO_MAX])
{
    snprintf(who, TRACE_WHO_MAX, "engine.%.60s", host);
    for (char *c = who; *c; c++)
        *c = *c == '/' ? '_' : *c;
    return who;
}

int trace_path(const char *pattern, const char *who, char *path, size_t size, struct err *e)
{
    const char *mark = strstr(pattern, "%r"), *slash = strrchr(pattern, '/');
    const char *base = slash ? slash + 1 : pattern, *dot = strrchr(base, '.');
    const char *cut = mark ? mark : dot && dot > base ? dot : pattern + strlen(pattern);
    int n = snprintf(path, size, "%.*s%s%s%s", (int)(cut - pattern), pattern, mark ? "" : ".", who,
                     mark ? mark + 2 : cut);
    if (n < 0 || (size_t)n >= size)
        return err_set(e, ERR_USAGE, "the name of the timeline %.60s... is too long", pattern);
    return 0;
}
