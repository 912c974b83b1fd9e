#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/session.h"
#include "agent/session/session_legal.h"
#include "agent/worker/pty.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define BULK_BUSY (256u << 10) /* outlets stop reading here, */
#define BULK_FREE (128u << 10) /* and go on here */
/* The last resort. Lines that were held go out at once when they are due or their workers end, for thousands
 * of streams together; how much that can be the launcher's credit says. */
#define BULK_MAX (1u << 30)
/* Of answers to Inspect that the launcher has not read. */
#define WHERE_BUSY     (256u << 10)
#define INSPECT_MAX_MS 60000
#define SILENCE_MS     60000 /* until Hello says how long */
#define LAUNCHER       "the launcher"

/* ---- out ----------------------------------------------------------------------------------------------- */

/* The launcher will only see that we have gone; what is said on stderr reaches it beside the channel. */
static void starve(struct session *s, const char *what)
{
    if (s->fsm.state != SESSION_HELLO)
        log_error("%s", what);
    session_lose(s, true, "%s", what);
}

void session_flush(struct session *s)
{
    const uint8_t *bytes;
    size_t len, done;
    if (s->lost)
        return;
    do {
        len = channel_output(&s->channel, &bytes);
        done = len ? stream_write(&s->stream, bytes, len) : 0;
        channel_written(&s->channel, done);
    } while (len > 0 && done == len);
    if (channel_is_starved(&s->channel))
        starve(s, "no memory for a message to the launcher");
    if (channel_control_waiting(&s->channel) <= WHERE_BUSY)
        where_resume(&s->where);
    if (s->resume_later && channel_bulk_waiting(&s->channel) <= BULK_FREE) {
        s->resume_later = false;
        session_mark(s);
        stdio_resume(&s->stdio);
    }
    if (s->dismissed && channel_is_drained(&s->channel))
        fsm_post(&s->fsm, EV_BYE);
}

void session_send(struct session *s, const Hvd__Control *message)
{
    if (s->lost)
        return;
    if (channel_send(&s->channel, message) < 0)
        starve(s, "no memory for what the launcher does not read");
    session_mark(s);
}

void session_notice(struct session *s, uint32_t level, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.level = level;
    notice.text = text;
    CONTROL(m, NOTICE, notice, &notice);
    session_send(s, &m);
}

void session_fault(struct session *s, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    Hvd__Fault fault = HVD__FAULT__INIT;
    session_blame(s, HVD__CAUSE__CAUSE_FAULT);
    fault.text = text;
    fault.time = clock_now();
    CONTROL(m, FAULT, fault, &fault);
    session_send(s, &m);
}

static int send_output(void *ctx, uint32_t rank, enum frame_stream stream, uint8_t flags,
                       const uint8_t *bytes, size_t len)
{
    struct session *s = ctx;
    /* The end of a stream is not worth a write of its own: Exited, for which the launcher needs it, follows.
     */
    if (len > 0)
        session_mark(s);
    inquiries_output(&s->inquiries, rank, stream, bytes, len);
    return channel_send_data(&s->channel, rank, stream, flags, bytes, len);
}

static bool may_send(void *ctx)
{
    struct session *s = ctx;
    if (channel_bulk_waiting(&s->channel) < BULK_BUSY)
        return true;
    s->resume_later = true;
    return false;
}

static void grant(void *ctx, uint32_t rank, uint32_t bytes)
{
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.rank = rank;
    credit.stream = STREAM_STDIN;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    session_send(ctx, &m);
}

static void on_settled(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (w && !w->alive)
        session_mark(s);
}

static void on_output_failed(void *ctx, const struct err *e)
{
    session_lose(ctx, false, "%s", e->text);
}

const struct stdio_events session_stdio_events = {send_output, may_send, grant, on_settled, on_output_failed};

/* ---- in ------------------------------------------------------------------------------------------------ */

static const char NOT_HERE[] = "that rank is not here";

static const char *on_signal_message(struct session *s, const Hvd__Signal *signal)
{
    int number = signal->number;
    if (number <= 0 || number >= NSIG)
        return "there is no such signal";
    log_debug("signal %d (%s) for the workers", number, strsignal(number));
    if (number == SIGTSTP || number == SIGCONT)
        heartbeat_suspend(&s->launcher, number == SIGTSTP, clock_now());
    /* A worker leads a session of its own, in which the kernel lets SIGTSTP stop nobody. */
    workers_signal(&s->workers, number == SIGTSTP ? SIGSTOP : number, signal->ours);
    return NULL;
}

static const char *on_credit(struct session *s, const Hvd__Credit *credit)
{
    struct worker *w = workers_by_rank(&s->workers, credit->rank);
    if (!w)
        return NOT_HERE;
    if (credit->stream == STREAM_STDOUT)
        outlet_credit(&w->out, credit->bytes);
    else if (credit->stream == STREAM_STDERR)
        outlet_credit(&w->err, credit->bytes);
    else
        return "no bytes of that stream are sent";
    return NULL;
}

static const char *on_window(struct session *s, const Hvd__Window *window)
{
    struct worker *w = workers_by_rank(&s->workers, window->rank);
    if (!w || !w->terminal)
        return "that rank has no terminal here";
    if (w->out.fd >= 0)
        pty_resize(w->out.fd, window);
    return NULL;
}

/* Of another host. */
static const char *on_rank_ended(struct session *s, Hvd__RankEnded *ended)
{
    if (!s->spawn || ended->rank >= s->spawn->size || workers_by_rank(&s->workers, ended->rank))
        return "that rank is here, or nowhere";
    engine_host_rank_ended(&s->engine, ended);
    rendezvous_rank_ended(&s->rendezvous, ended->rank, ended->cause);
    return NULL;
}

static const char *on_links(struct session *s, Hvd__Links *links)
{
    if (!s->spawn || links->n_link != s->spawn->n_host)
        return "it has not a link for each host";
    engine_host_links(&s->engine, links);
    return NULL;
}

static void on_ping(struct session *s, const Hvd__Ping *ping)
{
    Hvd__Pong pong = HVD__PONG__INIT;
    pong.nonce = ping->nonce;
    pong.now = clock_now();
    CONTROL(m, PONG, pong, &pong);
    session_send(s, &m);
}

/* ---- where the workers are ----------------------------------------------------------------------------- */

static void on_found(void *ctx, Hvd__Where *where)
{
    CONTROL(m, WHERE, where, where);
    session_send(ctx, &m);
}

static void on_all_found(void *ctx, const char *tool)
{
    Hvd__Inspected inspected = HVD__INSPECTED__INIT;
    inspected.tool = (char *)(uintptr_t)tool;
    CONTROL(m, INSPECTED, inspected, &inspected);
    session_send(ctx, &m);
}

static bool launcher_is_busy(void *ctx)
{
    struct session *s = ctx;
    return channel_control_waiting(&s->channel) > WHERE_BUSY;
}

static const struct where_events where_events = {on_found, on_all_found, launcher_is_busy};

static void on_inspect(struct session *s, const Hvd__Inspect *inspect)
{
    uint32_t limit = inspect->limit_ms < INSPECT_MAX_MS ? inspect->limit_ms : INSPECT_MAX_MS;
    if (s->fsm.state == SESSION_RUNNING)
        where_start(&s->where, &s->loop, &where_events, s, &s->workers, s->containment.fd, limit);
    else
        on_all_found(s, "");
}

/* NULL, or why the message is not legal although its kind is. */
static const char *handle(struct session *s, const Hvd__Control *m)
{
    switch (m->body_case) {
    case HVD__CONTROL__BODY_HELLO:
        session_hello(s, m->hello);
        return NULL;
    case HVD__CONTROL__BODY_PRELOAD:
        session_preload(s, m->preload);
        return NULL;
    case HVD__CONTROL__BODY_SPAWN:
        session_spawn(s, m->spawn);
        return NULL;
    case HVD__CONTROL__BODY_WINDOW:
        return on_window(s, m->window);
    case HVD__CONTROL__BODY_SIGNAL:
        return on_signal_message(s, m->signal);
    case HVD__CONTROL__BODY_CREDIT:
        return on_credit(s, m->credit);
    case HVD__CONTROL__BODY_PING:
        on_ping(s, m->ping);
        return NULL;
    case HVD__CONTROL__BODY_LINKS:
        return on_links(s, m->links);
    case HVD__CONTROL__BODY_LINK_ORDER:
        session_links_listen(&s->links);
        return NULL;
    case HVD__CONTROL__BODY_SESSION_LINKS:
        session_links_connect(&s->links, m->session_links);
        return NULL;
    case HVD__CONTROL__BODY_RANK_ENDED:
        return on_rank_ended(s, m->rank_ended);
    case HVD__CONTROL__BODY_TEARDOWN:
        session_teardown(s, m->teardown);
        return NULL;
    case HVD__CONTROL__BODY_INSPECT:
        on_inspect(s, m->inspect);
        return NULL;
    case HVD__CONTROL__BODY_BYE:
        s->dismissed = true;
        session_mark(s);
        return NULL;
    default:
        return NULL; /* Pong: that it came is all we want to know */
    }
}

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct session *s = ctx;
    if (!legal_hears(&s->legal, &session_legal, m->body_case, s->fsm.state, LAUNCHER,
                     fsm_state_name(&s->fsm)))
        return;
    const char *why = handle(s, m);
    if (why)
        legal_refuse(&s->legal, LAUNCHER, legal_control_name(m->body_case), why);
}

static void on_data(void *ctx, const struct frame *f)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, f->rank);
    if (f->stream == STREAM_FILE)
        session_preload_data(s, f);
    if (f->stream != STREAM_STDIN || !w || !w->has_stdin)
        return;
    bool granted = f->length <= w->in.granted;
    if (inlet_put(&w->in, f->payload, f->length, f->flags & FRAME_FLAG_EOF) == 0)
        return;
    if (granted)
        starve(s, "no memory for the workers' input");
    else
        session_lose(s, true, "the launcher sent more input for rank %u than it was granted", f->rank);
}

static const struct channel_events channel_events = {on_control, on_data, NULL};

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct session *s = ctx;
    struct err e = ERR_INIT;
    if (s->lost)
        return;
    heartbeat_seen(&s->launcher, clock_now());
    if (channel_receive(&s->channel, bytes, len, &e) == 0)
        return;
    if (e.code == ERR_MEMORY)
        starve(s, e.text);
    else
        session_lose(s, true, "the launcher broke the protocol: %s", e.text);
}

static void on_writable(void *ctx)
{
    session_mark(ctx);
}

static void on_ended(void *ctx, int errnum)
{
    session_blame(ctx, HVD__CAUSE__CAUSE_LAUNCHER_LOST);
    session_lose(ctx, true, errnum ? "the channel to the launcher broke: %s" : "the launcher has gone%s",
                 errnum ? strerror(errnum) : "");
}

static const struct stream_events stream_events = {on_received, on_writable, on_ended};

/* ---- heartbeats ---------------------------------------------------------------------------------------- */

/* A guard that was stopped goes on, and the job with it; one that still does not move cannot end what we
 * would leave. */
static void look_at_guard(struct session *s)
{
    uint64_t moved = guard_moves(s->guard), now = clock_now();
    if (moved != s->guard_moved) {
        s->guard_moved = moved;
        s->guard_woken = false;
        heartbeat_seen(&s->guard_heart, now);
    }
    if (heartbeat_look(&s->guard_heart, now) != HEARTBEAT_DEAD)
        return;
    heartbeat_seen(&s->guard_heart, now);
    if (s->guard_woken) {
        session_lose(s, false, "the guard of the job (pid %d) does not move", (int)s->guard->pid);
        return;
    }
    session_notice(s, LOG_WARNING, "the guard of the job (pid %d) was stopped: it goes on",
                   (int)s->guard->pid);
    s->guard_woken = true;
    guard_wake(s->guard);
}

static void show_life(struct session *s)
{
    Hvd__Ping ping = HVD__PING__INIT;
    s->beat_at = clock_now();
    guard_beat(s->guard);
    if (s->fsm.state > SESSION_HELLO) {
        CONTROL(m, PING, ping, &ping);
        session_send(s, &m);
    }
}

void session_heartbeat_busy(struct session *s)
{
    if (clock_now() - s->beat_at < heartbeat_interval(&s->launcher))
        return;
    show_life(s);
    session_flush(s);
}

/* Shows the guard and the launcher that we live, and looks whether the launcher does. */
static void on_heart(uv_timer_t *timer)
{
    struct session *s = timer->data;
    show_life(s);
    look_at_guard(s);
    if (s->lost)
        return;
    switch (heartbeat_look(&s->launcher, clock_now())) {
    case HEARTBEAT_ALIVE:
        /* The launcher counts on it that a lease ends in time. */
        uv_timer_start(timer, on_heart, heartbeat_next_ms(&s->launcher, clock_now()),
                       heartbeat_interval(&s->launcher) / NSEC_PER_MSEC);
        break;
    case HEARTBEAT_DOUBT:
        s->heartbeats_missed++;
        /* the loop reads what waits before this timer comes again */
        uv_timer_start(timer, on_heart, 1, heartbeat_interval(&s->launcher) / NSEC_PER_MSEC);
        break;
    case HEARTBEAT_DEAD:
        session_blame(s, HVD__CAUSE__CAUSE_HEARTBEAT);
        session_lose(s, true, "the launcher has been silent for %u ms: ending the job", s->heartbeat_ms);
        break;
    }
}

void session_heartbeat_start(struct session *s, uint32_t heartbeat_ms)
{
    s->heartbeat_ms = heartbeat_ms;
    heartbeat_start(&s->launcher, heartbeat_ms * NSEC_PER_MSEC, clock_now());
    uint64_t interval = heartbeat_interval(&s->launcher) / NSEC_PER_MSEC;
    uv_timer_start(&s->heart, on_heart, interval, interval);
    guard_beat(s->guard);
    heartbeat_start(&s->guard_heart, heartbeat_ms * NSEC_PER_MSEC, clock_now());
    /* It notices our silence before the launcher does, and can say what was wrong. */
    guard_limit(s->guard, heartbeat_ms - heartbeat_ms / 4);
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino &&
           S_ISSOCK(sa.st_mode);
}

/* The channel leaves 0 and 1, so that nothing which prints by mistake can break it. */
static int move_away(int *in, int *out, struct err *e)
{
    *in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    *out =
        *in >= 0 && same_file(STDIN_FILENO, STDOUT_FILENO) ? *in : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (*in < 0 || *out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return err_sys(e, errno, "cannot take over stdin and stdout");
    if (null > STDERR_FILENO)
        close(null);
    return 0;
}

int session_channel_open(struct session *s, struct err *e)
{
    int in, out;
    if (move_away(&in, &out, e) < 0 || stream_open(&s->stream, &s->loop, in, out, &stream_events, s, e) < 0)
        return err_wrap(e, "the control channel");
    channel_init(&s->channel, &channel_events, s, false, BULK_MAX);
    session_heartbeat_start(s, SILENCE_MS);
    session_flush(s); /* the magic */
    return 0;
}

void session_channel_close(struct session *s)
{
    stream_close(&s->stream, NULL);
    channel_free(&s->channel);
}
