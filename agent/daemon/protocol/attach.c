#include "agent/daemon/protocol/attach.h"

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
#include "agent/daemon/protocol/handshake.h"
#include "agent/daemon/protocol/proxy.h"
#include "agent/daemon/protocol/query.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/protocol/agent_exit.h"
#include "common/protocol/message.h"

#define STATUS_MS 15000 /* a guard's clean-up takes less */

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
