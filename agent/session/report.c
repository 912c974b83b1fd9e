/* Reports to the managed agent that had the session started: sums, every few seconds and at the end. Each
 * report has a connection of its own without an answer, so that neither process waits for the other. The
 * session also writes lines into the journal, with JOB=, HOST= and, about a rank, RANK=. A session that
 * hvdrun started does neither. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/protocol/wire.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/base/journal.h"
#include "common/base/log.h"

#define REPORT_MS 5000
#define LAST_US   200000 /* the last one may wait for a place in the agent's queue */

struct session_report {
    uint32_t started; /* workers */
    uint32_t slots;   /* of the lease that the job needs; 0: all */
    bool waits;       /* for the engine's counters */
    uv_timer_t timer;
};

/* ---- the journal --------------------------------------------------------------------------------------- */

/* The log calls log_line without a context, and a process has one log: so this is static. */
static struct {
    struct journal journal;
    char job[72], host[HOST_NAME_MAX + 8], unit[128];
    const char *fields[4];
} our = {.journal = JOURNAL_INIT};

static void log_line(enum log_level level, const char *text)
{
    static const int priorities[] = {7, 7, JOURNAL_INFO, JOURNAL_WARN, JOURNAL_ERROR, 2};
    (void)journal_line(&our.journal, priorities[level], text, NULL);
}

static void rank_line(uint32_t rank, int priority, const char *text)
{
    char number[24];
    const char *fields[] = {number, NULL};
    log_debug("%s", text);
    if (!our.journal.fields)
        return;
    snprintf(number, sizeof number, "RANK=%u", rank);
    (void)journal_line(&our.journal, priority, text, fields);
}

static void open_journal(struct session *s)
{
    char name[HOST_NAME_MAX + 1] = "";
    if (!s->guard->lease.slots)
        return;
    (void)gethostname(name, sizeof name - 1);
    snprintf(our.job, sizeof our.job, "JOB=%s", s->job.name);
    snprintf(our.host, sizeof our.host, "HOST=%s", name);
    snprintf(our.unit, sizeof our.unit, "HVD_UNIT=%.100s", s->guard->lease.unit);
    our.fields[0] = our.job;
    our.fields[1] = our.host;
    our.fields[2] = our.unit;
    our.journal.fields = our.fields;
    log_also(log_line, log_level());
}

static void note_rank_end(struct session *s, const struct worker *w, const Hvd__Exited *told)
{
    char how[128], text[256];
    bool failed = worker_describe_end(w, how, sizeof how), ours = told->by_us || told->told_peer;
    snprintf(text, sizeof text, "rank %u (pid %d) of job %s ended: %s%s%s", w->rank, (int)w->pid, s->job.name,
             failed ? how : "exit status 0", w->oom ? ", out of memory" : "", ours ? ", with its job" : "");
    rank_line(w->rank, failed && !ours ? JOURNAL_WARN : JOURNAL_INFO, text);
}

static void note_started(struct session *s)
{
    char text[160];
    for (size_t i = 0; i < s->workers.count; i++) {
        const struct worker *w = &s->workers.item[i];
        snprintf(text, sizeof text, "rank %u (pid %d) of job %s has started", w->rank, (int)w->pid,
                 s->job.name);
        rank_line(w->rank, JOURNAL_INFO, text);
    }
}

/* ---- reports ------------------------------------------------------------------------------------------- */

/* A socket that takes all of it at once, or is too busy. */
static void send_frame(const char *path, const uint8_t *frame, size_t len, bool last)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_usec = LAST_US};
    int fd = strlen(path) < sizeof name.sun_path
                 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (last ? 0 : SOCK_NONBLOCK), 0)
                 : -1;
    if (fd < 0)
        return;
    memcpy(name.sun_path, path, strlen(path) + 1);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect, too */
    if (connect(fd, (struct sockaddr *)&name, sizeof name) < 0 ||
        send(fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        log_debug("the managed agent does not hear of this job: %s", strerror(errno));
    close(fd);
}

static void fill_report(const struct session *s, Hvd__SessionReport *r, bool last)
{
    const struct heartbeat *launcher = &s->launcher.heartbeat;
    uint64_t ignored, silence = clock_now() - launcher->last;
    const Hvd__Counters *c = session_engine_counters(s, &ignored);
    r->unit = (char *)(uintptr_t)s->guard->lease.unit;
    r->over = last;
    r->cause = s->end.cause;
    r->ranks = (uint32_t)s->workers.alive;
    r->slots = s->report->slots;
    r->started = s->report->started;
    r->epoch = s->spawn ? s->spawn->epoch : 0;
    r->silence_ms = s->launcher.lost || launcher->suspended ? 0 : (uint32_t)(silence / NSEC_PER_MSEC);
    r->heartbeats_missed = s->launcher.heartbeats_missed;
    if (!c)
        return;
    r->stalls = c->stalls;
    r->collective = c->collective;
    r->n_collective = c->n_collective;
    r->peer = c->peer;
    r->n_peer = c->n_peer;
}

static void send_report(struct session *s, bool last)
{
    Hvd__SessionReport r = HVD__SESSION_REPORT__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    uint8_t frame[DAEMON_FRAME_MAX];
    struct err e = ERR_INIT;
    fill_report(s, &r, last);
    m.body_case = HVD__DAEMON__BODY_REPORT;
    m.report = &r;
    ptrdiff_t len = daemon_pack(&m, frame, sizeof frame, &e);
    if (len < 0) { /* the names of its hosts are long: without them */
        r.n_peer = 0;
        len = daemon_pack(&m, frame, sizeof frame, &e);
    }
    if (len > 0)
        send_frame(s->guard->lease.socket, frame, (size_t)len, last);
}

static void send_awaited(struct session *s)
{
    if (s->report->waits)
        send_report(s, false);
    s->report->waits = false;
}

/* The report follows with the engine's new counters, if there is an engine. An engine that has not answered
 * since the last time does not delay this report. */
static void on_time(uv_timer_t *timer)
{
    struct session *s = timer->data;
    send_awaited(s);
    s->report->waits = session_engine_count(s, false);
    if (!s->report->waits)
        send_report(s, false);
}

static void begin_reports(struct session *s)
{
    s->report->started = (uint32_t)s->workers.count;
    note_started(s);
    if (!s->guard->lease.slots)
        return;
    send_report(s, false);
    uv_timer_start(&s->report->timer, on_time, REPORT_MS, REPORT_MS);
}

const char *session_shrink(struct session *s, const Hvd__Control *m)
{
    if (m->shrink->slots == 0)
        return "a session has one slot at least";
    s->report->slots = m->shrink->slots;
    if (s->guard->lease.slots)
        send_report(s, false);
    return NULL;
}

static int open_report(struct session *s, struct err *e)
{
    uv_timer_init(&s->loop, &s->report->timer);
    s->report->timer.data = s;
    return 0;
}

static void end_reports(struct session *s)
{
    if (s->guard->lease.slots)
        send_report(s, true);
    uv_close((uv_handle_t *)&s->report->timer, NULL);
}

const struct session_part session_part_report = {
    .name = "report",
    .state = SESSION_STATE(report),
    .open = open_report,
    .accepted = open_journal,
    .running = begin_reports,
    .reported = note_rank_end,
    .counted = send_awaited,
    .close = end_reports,
};
