/* `hvdagent attach`: what hvdrun starts on a host, over SSH or here.
 *
 *   no managed agent   there is no socket, or no daemon listens on it: *managed is false, and the caller
 *                      becomes the session of this job itself, with stdin and stdout untouched
 *   a managed agent    the launcher's Hello is read for what the job needs, and the daemon is asked. From
 *                      then on bytes go to and fro between stdin, stdout and the connection: its other end is
 *                      first the daemon, then the session
 *   a refusal          also a daemon that ends without a word: the launcher is told (LeaseRefusal), a line on
 *                      stderr says the same, AGENT_EXIT_REFUSED
 *
 * It ends when the connection has, as the session's guard has (the byte of wire.h): with its exit status, or
 * AGENT_EXIT_GUARD when the guard did not come to say it. When hvdrun has gone, or a signal asks for the end,
 * the connection is half closed, which makes the session end the job. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/async_close.h"
#include "agent/daemon/daemon.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/protocol/agent_exit.h"
#include "common/protocol/channel.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

#define STATUS_MS 15000 /* a guard's clean-up takes less */

#define HELLO_MS 60000 /* as a session waits */
#define READ_MAX (64u << 10)
#define TELL_MS  10000 /* a launcher that reads nothing for so long is lost; its channel shows that soon */

/* ---- from the launcher --------------------------------------------------------------------------------- */

/* Attach and the launcher talk before there is a session. All bytes of the launcher stay in `in`: they are
 * for the session. The messages of attach are about the lease and have a magic of their own
 * (FRAME_ATTACH_MAGIC of common/protocol/frame.h). */

/* More of what the launcher says; -1 with *e when nothing will come. */
static int read_more(struct buf *in, struct err *e)
{
    uint8_t *space = buf_reserve(in, READ_MAX);
    ssize_t n = space ? read(STDIN_FILENO, space, READ_MAX) : -1;
    if (n < 0 && space && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0)
        return err_set(e, ERR_CLOSED, space ? "the launcher has gone" : "what the launcher said is too long");
    buf_commit(in, (size_t)n);
    return 0;
}

/* The frame behind the first `skip` bytes, when it is whole: as frame_decode. */
static int decode_behind(const struct buf *in, size_t skip, struct frame *f, struct err *e)
{
    struct buf rest = *in;
    rest.head += skip;
    rest.len -= skip;
    return frame_decode(&rest, f, e);
}

static Hvd__Control *unpack_wanted(int rc, const struct frame *f, Hvd__Control__BodyCase wanted,
                                   const char *name, struct err *e)
{
    Hvd__Control *m = rc > 0 ? message_unpack_control(f->payload, f->length, e) : NULL;
    if (m && m->body_case == wanted)
        return m;
    err_set(e, ERR_PROTOCOL, "the launcher did not say %s", name);
    message_free(m);
    return NULL;
}

/* The launcher's first frame, whole: Hello, to be given to message_free. NULL with *e. */
static Hvd__Control *handshake_read_hello(struct buf *in, struct err *e)
{
    uint64_t deadline = clock_now() + HELLO_MS * NSEC_PER_MSEC;
    struct frame f;
    int rc = frame_decode(in, &f, e);
    for (; rc == 0; rc = frame_decode(in, &f, e)) {
        uint64_t now = clock_now();
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / NSEC_PER_MSEC) + 1) == 0) {
            err_set(e, ERR_TIMEOUT, "the launcher said nothing for %d s", HELLO_MS / 1000);
            return NULL;
        }
        if (read_more(in, e) < 0)
            return NULL;
    }
    Hvd__Control *m = unpack_wanted(rc, &f, HVD__CONTROL__BODY_HELLO, "Hello", e);
    if (m)
        explicit_bzero(m->hello->key.data, m->hello->key.len); /* not for us */
    return m;
}

/* ---- to the launcher ----------------------------------------------------------------------------------- */

/* A launcher that has gone, or does not read, is noticed elsewhere: nothing is left to do here then. */
static void send_message(const Hvd__Control *m)
{
    struct buf b;
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    buf_init(&b, 2 * FRAME_ATTACH_MAX);
    (void)channel_pack_attach(m, &b);
    while (b.len > 0) {
        ssize_t n = poll(&p, 1, TELL_MS) > 0 ? write(STDOUT_FILENO, buf_data(&b), b.len) : 0;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            break;
        buf_consume(&b, n > 0 ? (size_t)n : 0);
    }
    buf_free(&b);
}

/* Texts in a message are cut to this. */
#define TEXT_MAX 1024

/* Sends the launcher LeaseWaiting: `text` is the job's place in the queue, empty when the wait is over. */
static void handshake_tell_waiting(const char *text)
{
    char cut[TEXT_MAX];
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    CONTROL(m, LEASE_WAITING, lease_waiting, &waiting);
    snprintf(cut, sizeof cut, "%s", text);
    waiting.text = cut;
    send_message(&m);
}

/* Sends the launcher LeaseRefusal with the text of `why`; its code is BUSY for ERR_BUSY. */
static void handshake_tell_refusal(const struct err *why)
{
    char cut[TEXT_MAX];
    Hvd__LeaseRefusal refusal = HVD__LEASE_REFUSAL__INIT;
    CONTROL(m, LEASE_REFUSAL, lease_refusal, &refusal);
    snprintf(cut, sizeof cut, "%s", why->text);
    refusal.text = cut;
    refusal.code = why->code == ERR_BUSY ? HVD__LEASE_REFUSAL__CODE__BUSY : HVD__LEASE_REFUSAL__CODE__OTHER;
    send_message(&m);
}

/* ---- one host after the other -------------------------------------------------------------------------- */

static int tell_node(struct err *e)
{
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    Hvd__Daemon *answer = daemon_ask(&question, e);
    if (!answer)
        return -1;
    Hvd__LeaseHeld held = HVD__LEASE_HELD__INIT;
    CONTROL(m, LEASE_HELD, lease_held, &held);
    held.node = answer->status->node;
    send_message(&m);
    message_free(answer);
    return 0;
}

/* Hello.hold: tells the launcher which node this is, and waits for its Go, as long as it lives and no signal
 * comes to `signals`, a signalfd. No connection to the daemon is kept meanwhile: the daemon closes silent
 * clients. */
static int handshake_hold(struct buf *in, int signals, struct err *e)
{
    struct frame f;
    int rc = frame_decode(in, &f, e);
    size_t hello = FRAME_HEADER_SIZE + (rc > 0 ? f.length : 0);
    if (rc <= 0 || tell_node(e) < 0)
        return -1;
    for (rc = decode_behind(in, hello, &f, e); rc == 0; rc = decode_behind(in, hello, &f, e)) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_sys(e, errno, "cannot wait for the launcher");
        if (p[1].revents)
            return err_set(e, ERR_CLOSED, "ended by a signal while other hosts were asked");
        if (p[0].revents && read_more(in, e) < 0)
            return -1;
    }
    Hvd__Control *go = unpack_wanted(rc, &f, HVD__CONTROL__BODY_GO, "Go", e);
    message_free(go);
    return go ? 0 : -1;
}

/* ---- the bytes ----------------------------------------------------------------------------------------- */

/* The bytes between hvdrun (our stdin and stdout) and the connection to a managed agent.
 *
 * Both directions have a buffer of their own and go on by themselves: one that is full stops only its
 * reading. The first bytes of the connection say who speaks. All bytes of a session are passed on. Of the
 * daemon only the job's place in the queue is passed on. The connection is half closed towards the session
 * when the launcher closes its end, or a signal comes. The proxy ends when the connection has ended and all
 * bytes were passed on, or cannot be. */

enum proxy_answer { PROXY_SILENCE, PROXY_SESSION, PROXY_DAEMON };

struct proxy {
    int fd;      /* the connection; not ours */
    int signals; /* a signalfd: what comes there asks for the end; ours */
    struct buf up, down;
    bool up_over, up_closed; /* nothing more comes from the launcher; the session knows */
    bool down_over;          /* nothing more comes from the connection */
    bool waited;             /* in the daemon's queue */
    enum proxy_answer answer;
};

#define PIECE (64u << 10)

static void proxy_init(struct proxy *b, int fd, int signals)
{
    *b = (struct proxy){.fd = fd, .signals = signals};
    buf_init(&b->up,
             FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX + PIECE); /* the launcher's Hello is in it, whole */
    buf_secret(&b->up, true);                                /* with the job's key */
    buf_init(&b->down, 4 * PIECE);
}

static void proxy_close(struct proxy *b)
{
    buf_free(&b->up);
    buf_free(&b->down);
    if (b->signals >= 0)
        close(b->signals);
    if (b->fd >= 0)
        close(b->fd);
}

/* True at the end of what can be read there. */
static bool read_into(struct buf *b, int fd)
{
    uint8_t *space = buf_reserve(b, PIECE);
    ssize_t n = space ? read(fd, space, PIECE) : 0;
    if (n > 0)
        buf_commit(b, (size_t)n);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* False when the reader has gone. */
static bool write_from(struct buf *b, int fd)
{
    size_t len = b->len < PIECE ? b->len : PIECE;
    ssize_t n = write(fd, buf_data(b), len);
    if (n > 0)
        buf_consume(b, (size_t)n);
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

/* Passes the daemon's frame behind its magic on to the launcher, when it is whole and says that we wait. */
static bool take_waiting(struct proxy *b)
{
    struct err e = ERR_INIT;
    const uint8_t *frame = buf_data(&b->down) + FRAME_MAGIC_SIZE;
    size_t len;
    Hvd__Daemon *m = daemon_unpack_answer(frame, b->down.len - FRAME_MAGIC_SIZE, &len, &e);
    bool waits = m && m->body_case == HVD__DAEMON__BODY_WAITING;
    if (waits) {
        b->waited = true;
        handshake_tell_waiting(m->waiting->text);
        buf_consume(&b->down, FRAME_MAGIC_SIZE + len);
    }
    message_free(m);
    return waits;
}

/* Tells by the first bytes whether the daemon or a session speaks. */
static void recognise_peer(struct proxy *b)
{
    while (b->answer == PROXY_SILENCE && b->down.len >= FRAME_MAGIC_SIZE) {
        if (memcmp(buf_data(&b->down), FRAME_MAGIC, FRAME_MAGIC_SIZE) == 0)
            b->answer = PROXY_SESSION;
        else if (!take_waiting(b))
            break;
    }
    if (b->answer == PROXY_SILENCE && b->down_over && b->down.len >= FRAME_MAGIC_SIZE) {
        b->answer = PROXY_DAEMON;
        buf_consume(&b->down, FRAME_MAGIC_SIZE);
    }
}

static bool may_show(const struct proxy *b)
{
    return b->answer == PROXY_SESSION && b->down.len > 0;
}

static void end_up(struct proxy *b)
{
    if (b->up_closed || !b->up_over || b->up.len > 0)
        return;
    b->up_closed = true;
    (void)shutdown(b->fd, SHUT_WR);
}

static void drop_up(struct proxy *b)
{
    b->up_over = true;
    buf_consume(&b->up, b->up.len);
}

static void handle_events(struct proxy *b, const struct pollfd p[4])
{
    if (p[0].revents && read_into(&b->up, STDIN_FILENO))
        b->up_over = true;
    if (p[3].revents)
        drop_up(b);
    if (p[2].revents & (POLLOUT | POLLERR) && b->up.len > 0 && !write_from(&b->up, b->fd))
        drop_up(b);
    if (p[2].revents & (POLLIN | POLLHUP | POLLERR) && buf_room(&b->down) >= PIECE)
        b->down_over = read_into(&b->down, b->fd) || b->down_over;
    recognise_peer(b);
    if (p[1].revents && may_show(b) && !write_from(&b->down, STDOUT_FILENO)) {
        buf_consume(&b->down, b->down.len); /* the launcher has gone */
        drop_up(b);
    }
    if (b->up_over && b->waited && b->answer == PROXY_SILENCE)
        drop_up(b); /* no session reads it: the daemon hears the end of the connection all the same */
    end_up(b);
}

/* Until the end. In `down` is then what the daemon said behind its magic. */
static void proxy_run(struct proxy *b)
{
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    while (!b->down_over || may_show(b)) {
        bool take_up = !b->up_over && b->up.len < PIECE;
        bool take_down = !b->down_over && buf_room(&b->down) >= PIECE;
        short socket = (short)((take_down ? POLLIN : 0) | (b->up.len > 0 && !b->down_over ? POLLOUT : 0));
        struct pollfd p[4] = {{.fd = take_up ? STDIN_FILENO : -1, .events = POLLIN},
                              {.fd = may_show(b) ? STDOUT_FILENO : -1, .events = POLLOUT},
                              {.fd = socket ? b->fd : -1, .events = socket},
                              {.fd = b->up_over ? -1 : b->signals, .events = POLLIN}};
        if (poll(p, 4, -1) < 0 && errno != EINTR)
            return;
        handle_events(b, p);
    }
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

/* The request and the descriptors beside it: one message, into an empty socket. */
static int send_request(int fd, const Hvd__Hello *hello, int status, struct err *e)
{
    Hvd__LeaseRequest request = HVD__LEASE_REQUEST__INIT;
    Hvd__Daemon m = HVD__DAEMON__INIT;
    uint8_t frame[DAEMON_FRAME_MAX];
    int descriptors[DAEMON_DESCRIPTORS] = {[DAEMON_STDERR] = STDERR_FILENO, [DAEMON_STATUS] = status};
    union {
        char bytes[CMSG_SPACE(sizeof descriptors)];
        struct cmsghdr align;
    } control = {{0}};
    request.protocol = DAEMON_PROTOCOL;
    request.job = hello->job;
    request.slots = hello->ranks;
    request.fewer = hello->count_slots;
    request.wait = hello->wait;
    request.priority = hello->priority;
    m.body_case = HVD__DAEMON__BODY_REQUEST;
    m.request = &request;
    ptrdiff_t len = daemon_pack(&m, frame, sizeof frame, e);
    if (len < 0)
        return -1;
    struct iovec part = {frame, (size_t)len};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&message);
    *h = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof descriptors)};
    memcpy(CMSG_DATA(h), descriptors, sizeof descriptors);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)len && errno != EPIPE) /* it has answered */
        return err_sys(e, errno, "cannot ask the managed agent");
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Why no session came: what the daemon says, in *e. */
static void explain_refusal(const struct buf *answer, bool waited, struct err *e)
{
    struct err broken = ERR_INIT;
    size_t len;
    Hvd__Daemon *m = daemon_unpack_answer(buf_data(answer), answer->len, &len, &broken);
    if (m && m->body_case == HVD__DAEMON__BODY_REFUSAL) {
        bool is_busy = m->refusal->code == HVD__LEASE_REFUSAL__CODE__BUSY;
        log_printable(m->refusal->text);
        err_set(e, is_busy ? ERR_BUSY : ERR_HOST, "the managed agent refuses: %s", m->refusal->text);
    } else {
        err_set(e, ERR_CLOSED,
                waited ? "the managed agent ended while the job waited for it: start it again"
                       : "the managed agent ended without an answer (journalctl -u hvdagent says more)");
    }
    message_free(m);
}

/* As the guard ended. */
static int await_status(int status)
{
    uint8_t code;
    struct pollfd p = {.fd = status, .events = POLLIN};
    if (poll(&p, 1, STATUS_MS) > 0 && read(status, &code, 1) == 1)
        return code;
    return AGENT_EXIT_GUARD;
}

/* Asked to end, we let the session end the job in order. */
static int open_signals(void)
{
    static const int taken[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Copies until the end of the input. */
static void copy_to_stderr(int from)
{
    char piece[4096];
    for (;;) {
        ssize_t n = read(from, piece, sizeof piece);
        if (n == 0 || (n < 0 && errno != EINTR))
            return;
        if (n > 0 && write(STDERR_FILENO, piece, (size_t)n) < 0 && errno != EAGAIN && errno != EINTR)
            return;
    }
}

/* The managed agent takes only pipes and unix sockets (client.h). When our stderr is something else, a
 * process of its own copies the session's log there. The process lives as long as the other end of its pipe
 * is open. */
static int pass_stderr_on(struct err *e)
{
    int log[2];
    if (close_is_harmless(STDERR_FILENO))
        return 0;
    if (pipe2(log, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "cannot fork");
    if (pid == 0) {
        dup2(log[0], STDIN_FILENO);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        (void)close_range(STDERR_FILENO + 1, ~0u, 0);
        copy_to_stderr(STDIN_FILENO);
        _exit(0);
    }
    dup2(log[1], STDERR_FILENO);
    close(log[0]);
    close(log[1]);
    return 0;
}

/* With a connection of its own afterwards. */
static int hold_lease(struct proxy *b, struct err *e)
{
    close(b->fd);
    b->fd = -1;
    if (handshake_hold(&b->up, b->signals, e) < 0)
        return -1;
    b->fd = daemon_connect(e);
    return b->fd >= 0 || e->code ? b->fd : err_set(e, ERR_CLOSED, "the managed agent is not there any more");
}

static int run_proxy(int fd, struct err *e)
{
    int status[2], code = -1;
    if (pass_stderr_on(e) < 0) {
        close(fd);
        return -1;
    }
    struct proxy b;
    proxy_init(&b, fd, open_signals());
    Hvd__Control *m = handshake_read_hello(&b.up, e);
    secret_wipe_stack();
    if (m && m->hello->hold)
        (void)hold_lease(&b, e);
    if (m && e->code == 0 && pipe2(status, O_CLOEXEC) < 0)
        err_sys(e, errno, "cannot make a pipe");
    if (m && e->code == 0) {
        int rc = send_request(b.fd, m->hello, status[1], e);
        close(status[1]);
        if (rc == 0) {
            proxy_run(&b);
            if (b.answer == PROXY_SESSION)
                code = await_status(status[0]);
            else
                explain_refusal(&b.down, b.waited, e);
        }
        close(status[0]);
    }
    message_free(m);
    proxy_close(&b);
    return code;
}

int attach_main(bool must_be_managed, bool *managed)
{
    struct err e = ERR_INIT;
    int fd = daemon_connect(&e), code = -1;
    *managed = fd >= 0 || e.code || must_be_managed;
    if (!*managed)
        return 0;
    if (fd >= 0)
        code = run_proxy(fd, &e);
    else
        err_set(&e, ERR_HOST, "there is no managed agent on this host");
    if (!e.code)
        return code;
    log_error("%s", e.text);
    handshake_tell_refusal(&e);
    return AGENT_EXIT_REFUSED;
}
