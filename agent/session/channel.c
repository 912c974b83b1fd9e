/* The control channel: a table says for each message of the launcher in which states it is legal and which
 * function handles it. The table knows the session's state alone; a handler refuses a message for other
 * reasons. The workers' output and input pass through here as well. */
#include "common/protocol/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/worker/pty.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define BULK_BUSY (256u << 10) /* outlets stop reading here, */
#define BULK_FREE (128u << 10) /* and go on here */
/* The last resort for the bulk queue. Held lines go out at once when they are due or their workers end, for
 * thousands of streams together; the launcher's credit bounds their sum. */
#define BULK_MAX (1u << 30)
#define LAUNCHER "the launcher"

/* ---- the workers' output ------------------------------------------------------------------------------- */

static int send_output(void *ctx, uint32_t rank, enum frame_stream stream, uint8_t flags,
                       const uint8_t *bytes, size_t len)
{
    struct session *s = ctx;
    /* The end of a stream causes no write of its own: Exited follows, and the launcher needs both
     * together. */
    if (len > 0)
        session_schedule_check(s);
    session_status_output(s, rank, stream, bytes, len);
    return channel_send_data(&s->launcher.channel, rank, stream, flags, bytes, len);
}

static bool may_send(void *ctx)
{
    struct session *s = ctx;
    if (channel_bulk_waiting(&s->launcher.channel) < BULK_BUSY)
        return true;
    s->launcher.output_waits = true;
    return false;
}

static void grant_input(void *ctx, uint32_t rank, uint32_t bytes)
{
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.rank = rank;
    credit.stream = STREAM_STDIN;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    session_send_control(ctx, &m);
}

static void on_settled(void *ctx, uint32_t rank)
{
    struct session *s = ctx;
    struct worker *w = workers_by_rank(&s->workers, rank);
    if (w && !w->alive)
        session_schedule_check(s);
}

static void on_output_failed(void *ctx, const struct err *e)
{
    session_abort_job(ctx, false, "%s", e->text);
}

const struct stdio_events session_stdio_events = {send_output, may_send, grant_input, on_settled,
                                                  on_output_failed};

void session_resume_output(struct session *s)
{
    struct session_launcher *l = &s->launcher;
    if (l->lost || !l->output_waits || channel_bulk_waiting(&l->channel) > BULK_FREE)
        return;
    l->output_waits = false;
    session_schedule_check(s);
    stdio_resume(&s->stdio);
}

/* ---- the launcher's messages: NULL, or the reason why a message is refused although it is legal -------- */

static const char NOT_HERE[] = "that rank is not here";

static const char *on_signal_message(struct session *s, const Hvd__Control *m)
{
    int number = m->signal->number;
    if (number <= 0 || number >= NSIG)
        return "there is no such signal";
    for (size_t i = 0; i < m->signal->n_rank; i++) {
        struct worker *w = workers_by_rank(&s->workers, m->signal->rank[i]);
        if (w)
            worker_signal(w, number, m->signal->ours);
    }
    if (m->signal->n_rank > 0)
        return NULL;
    log_debug("signal %d (%s) for the workers", number, strsignal(number));
    if (number == SIGTSTP || number == SIGCONT)
        heartbeat_suspend(&s->launcher.heartbeat, number == SIGTSTP, clock_now());
    /* A worker leads a session of its own, in which the kernel ignores SIGTSTP. */
    workers_signal(&s->workers, number == SIGTSTP ? SIGSTOP : number, m->signal->ours);
    return NULL;
}

static const char *on_credit(struct session *s, const Hvd__Control *m)
{
    const Hvd__Credit *credit = m->credit;
    if (credit->stream == STREAM_FILE) {
        session_timeline_credit(s, credit->bytes);
        return NULL;
    }
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

static const char *on_window(struct session *s, const Hvd__Control *m)
{
    struct worker *w = workers_by_rank(&s->workers, m->window->rank);
    if (!w || !w->terminal)
        return "that rank has no terminal here";
    if (w->out.fd >= 0)
        pty_resize(w->out.fd, m->window);
    return NULL;
}

static const char *on_rank_ended(struct session *s, const Hvd__Control *m)
{
    uint32_t rank = m->rank_ended->rank;
    if (!s->spawn || (rank >= s->spawn->size && !s->spawn->elastic) || workers_by_rank(&s->workers, rank))
        return "that rank is here, or nowhere";
    session_parts_rank_ended(s, m->rank_ended);
    return NULL;
}

static const char *on_links(struct session *s, const Hvd__Control *m)
{
    if (!s->spawn || m->links->n_link != s->spawn->n_host)
        return "it has not a link for each host";
    session_engine_links(s, m->links);
    return NULL;
}

static const char *on_ping(struct session *s, const Hvd__Control *m)
{
    Hvd__Pong pong = HVD__PONG__INIT;
    pong.nonce = m->ping->nonce;
    pong.now = clock_now();
    CONTROL(answer, PONG, pong, &pong);
    session_send_control(s, &answer);
    return NULL;
}

static const char *on_teardown(struct session *s, const Hvd__Control *m)
{
    const Hvd__Teardown *teardown = m->teardown;
    bool known = protobuf_c_enum_descriptor_get_value(&hvd__cause__descriptor, (int)teardown->cause);
    session_set_cause(s, known ? teardown->cause : HVD__CAUSE__CAUSE_FAULT);
    log_info("ending the job%s%s", teardown->reason[0] ? ": " : "", teardown->reason);
    s->job.grace_ms = teardown->grace_ms;
    s->job.no_grace = teardown->grace_ms == 0;
    session_timeline_want(s, teardown->timeline_mark);
    fsm_post(&s->fsm, EV_TEARDOWN);
    return NULL;
}

static const char *on_bye(struct session *s, const Hvd__Control *m)
{
    s->launcher.dismissed = true;
    session_schedule_check(s);
    return NULL;
}

/* The message has no content, or none for a session: its arrival is all that counts. */
static const char *on_arrival(struct session *s, const Hvd__Control *m)
{
    return NULL;
}

/* ---- the table of messages ----------------------------------------------------------------------------- */

#define IN(state)      (1u << SESSION_##state)
#define FROM(from, to) LEGAL_STATES(SESSION_##from, SESSION_##to)
#define ENDS           FROM(ENDING, LEAVING)
#define FAILS          (IN(REFUSING) | ENDS)
#define WORKS          (FROM(WAITING, SPAWNING) | FROM(RUNNING, DONE))

/* Message, states in which it is legal, states in which it may arrive late, at most one, handler. A session
 * that begins to end by itself makes late what is on its way. Go is for hvdagent attach, and may follow a
 * Hello that was refused. */
#define MESSAGES(X)                                                                                          \
    X(HELLO, IN(HELLO), 0, true, session_hello)                                                              \
    X(GO, 0, FROM(HELLO, OVER), true, on_arrival)                                                            \
    X(PRELOAD, IN(READY), FAILS, true, session_preload_begin)                                                \
    X(SPAWN, IN(READY), FAILS, true, session_spawn)                                                          \
    X(SIGNAL, FROM(READY, KILLING), IN(LEAVING), false, on_signal_message)                                   \
    X(WINDOW, WORKS, FAILS, false, on_window)                                                                \
    X(CREDIT, FROM(WAITING, KILLING), IN(LEAVING), false, on_credit)                                         \
    X(PING, FROM(READY, LEAVING), 0, false, on_ping)                                                         \
    X(PONG, FROM(READY, LEAVING), 0, false, on_arrival)                                                      \
    X(LINKS, WORKS, FAILS, true, on_links)                                                                   \
    X(MEMBERSHIP, WORKS, FAILS, false, session_membership)                                                   \
    X(RECRUIT, WORKS, FAILS, false, session_recruit)                                                         \
    X(SHRINK, WORKS, FAILS, false, session_shrink)                                                           \
    X(LINK_ORDER, WORKS, FAILS, true, session_links_order)                                                   \
    X(SESSION_LINKS, WORKS, FAILS, true, session_links_told)                                                 \
    X(RANK_ENDED, FROM(WAITING, KILLING), IN(LEAVING), false, on_rank_ended)                                 \
    X(TEARDOWN, FROM(READY, KILLING), IN(LEAVING), false, on_teardown)                                       \
    X(INSPECT, FROM(WAITING, KILLING), IN(LEAVING), true, session_inspect)                                   \
    X(STATUS_WANTED, FROM(READY, KILLING), IN(LEAVING), false, session_tell_status)                          \
    X(FLIGHT_WANTED, FROM(READY, KILLING), IN(LEAVING), false, session_tell_flight)                          \
    X(TIMELINE_TAKEN, FROM(ENDING, KILLING), IN(LEAVING), true, session_timeline_taken)                      \
    X(BYE, IN(LEAVING), IN(OVER), true, on_bye)

#define LEGAL_ROW(body, heard, late, once, handler) {HVD__CONTROL__BODY_##body, heard, late, once},
#define HANDLER(body, heard, late, once, handler)   {HVD__CONTROL__BODY_##body, handler},

static const struct legal_row legal_rows[] = {MESSAGES(LEGAL_ROW)};
const struct legal_table session_legal = LEGAL_TABLE(legal_rows, legal_control_name);

static const struct {
    Hvd__Control__BodyCase body;
    const char *(*handle)(struct session *s, const Hvd__Control *m);
} handlers[] = {MESSAGES(HANDLER)};

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct session *s = ctx;
    struct legal *legal = &s->launcher.legal;
    const char *why = NULL;
    if (!legal_hears(legal, &session_legal, m->body_case, s->fsm.state, LAUNCHER, fsm_state_name(&s->fsm)))
        return;
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        if (handlers[i].body == m->body_case)
            why = handlers[i].handle(s, m);
    if (why)
        legal_refuse(legal, LAUNCHER, legal_control_name(m->body_case), why);
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
        session_starve(s, "no memory for the workers' input");
    else
        session_abort_job(s, true, "the launcher sent more input for rank %u than it was granted", f->rank);
}

static const struct channel_events channel_events = {on_control, on_data, NULL};

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct session *s = ctx;
    struct err e = ERR_INIT;
    if (s->launcher.lost)
        return;
    heartbeat_seen(&s->launcher.heartbeat, clock_now());
    if (channel_receive(&s->launcher.channel, bytes, len, &e) == 0)
        return;
    if (e.code == ERR_MEMORY)
        session_starve(s, e.text);
    else
        session_abort_job(s, true, "the launcher broke the protocol: %s", e.text);
}

static void on_writable(void *ctx)
{
    session_schedule_check(ctx);
}

static void on_ended(void *ctx, int errnum)
{
    session_set_cause(ctx, HVD__CAUSE__CAUSE_LAUNCHER_LOST);
    session_abort_job(ctx, true, errnum ? "the channel to the launcher broke: %s" : "the launcher has gone%s",
                      errnum ? strerror(errnum) : "");
}

static const struct stream_events stream_events = {on_received, on_writable, on_ended};

/* ---- open and close ------------------------------------------------------------------------------------ */

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino &&
           S_ISSOCK(sa.st_mode);
}

/* The channel leaves descriptors 0 and 1, so that a library that prints by mistake cannot break it. */
static int move_channel(int *in, int *out, struct err *e)
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
    if (move_channel(&in, &out, e) < 0 ||
        stream_open(&s->launcher.stream, &s->loop, in, out, &stream_events, s, e) < 0)
        return err_wrap(e, "the control channel");
    channel_init(&s->launcher.channel, &channel_events, s, false, BULK_MAX);
    session_flush(s); /* the magic */
    return 0;
}

void session_channel_close(struct session *s)
{
    stream_close(&s->launcher.stream, NULL);
    channel_free(&s->launcher.channel);
}
