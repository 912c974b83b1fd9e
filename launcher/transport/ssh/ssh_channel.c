/* The remote command and its bytes.
 *
 * Reading comes first and never waits for writing: a command that writes while it is written to would
 * block otherwise. A turn delivers a bounded amount, then other hosts have theirs. Written bytes go
 * through libssh2 into t->wire.out. They are accepted while t->wire.out is short and the channel's window
 * is open, so memory per host stays small. The end: EOF, then the status or the signal, then CLOSE. A
 * command can end while a grandchild keeps its output open and so holds EOF back. Once the end is known,
 * the channel gets a second for bytes that are still on their way. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "launcher/transport/ssh/ssh_session.h"

#define READ_BYTES   (64 * 1024)
#define READS_A_TURN 16
#define CHUNK        (32 * 1024)
#define OUT_ENOUGH   (64 * 1024)
#define OUT_LOW      (16 * 1024)
#define KEEPALIVE_MS 15000
#define AFTER_END_MS 1000

enum { STDOUT_STREAM = 0, STDERR_STREAM = 1 };

enum ssh_result ssh_step_channel(struct transport *t)
{
    t->channel = libssh2_channel_open_session(t->session);
    if (t->channel)
        return SSH_DONE;
    if (libssh2_session_last_errno(t->session) == LIBSSH2_ERROR_EAGAIN)
        return SSH_AGAIN;
    ssh_library_failed(t, ERR_HOST, "the host opens no session");
    err_hint(&t->err, "sshd there may limit sessions (MaxSessions), or the account may not log in");
    return SSH_FAILED;
}

static void send_keepalive(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    int next;
    libssh2_keepalive_send(t->session, &next);
    ssh_advance(t);
}

enum ssh_result ssh_step_exec(struct transport *t)
{
    int rc = libssh2_channel_exec(t->channel, t->target->command);
    if (rc == LIBSSH2_ERROR_EAGAIN)
        return SSH_AGAIN;
    if (rc < 0)
        return ssh_library_failed(t, ERR_HOST, "the host refuses to execute a command");
    buf_init(&t->pending, CHUNK);
    /* Without a reply: libssh2 would keep every answer. It is there for middleboxes; the launcher has
     * heartbeats of its own. */
    libssh2_keepalive_config(t->session, 0, KEEPALIVE_MS / 1000);
    uv_timer_start(&t->timer, send_keepalive, KEEPALIVE_MS, KEEPALIVE_MS);
    t->events->opened(t->ctx);
    return SSH_DONE;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Sends the chunk that libssh2 put off; true when there is none any more. */
static bool write_pending(struct transport *t)
{
    while (t->pending.len) {
        ssize_t n = libssh2_channel_write(t->channel, (const char *)buf_data(&t->pending), t->pending.len);
        if (n == LIBSSH2_ERROR_EAGAIN || n == 0)
            return false;
        if (n < 0) {
            t->wire.write_failed = true;
            return false;
        }
        buf_consume(&t->pending, (size_t)n);
    }
    return true;
}

static bool may_write(struct transport *t)
{
    return t->wire.out.len < OUT_ENOUGH && libssh2_channel_window_write(t->channel) > 0;
}

/* One chunk; the number of bytes taken, 0 when none. */
static size_t write_chunk(struct transport *t, const uint8_t *bytes, size_t len)
{
    size_t window = libssh2_channel_window_write(t->channel);
    len = len < CHUNK ? len : CHUNK;
    len = len < window ? len : window;
    ssize_t n = libssh2_channel_write(t->channel, (const char *)bytes, len);
    if (n == LIBSSH2_ERROR_EAGAIN) {
        /* The window was open, so keys are being exchanged: libssh2 has begun with these bytes and wants to
         * see them again. */
        return buf_put(&t->pending, bytes, len) < 0 ? 0 : len;
    }
    if (n < 0)
        t->wire.write_failed = true;
    return n > 0 ? (size_t)n : 0;
}

size_t ssh_channel_send(struct transport *t, const void *bytes, size_t len)
{
    size_t taken = 0;
    t->wire.got_bytes = false;
    if (write_pending(t))
        while (taken < len && !t->wire.write_failed && may_write(t)) {
            size_t n = write_chunk(t, (const uint8_t *)bytes + taken, len - taken);
            taken += n;
            if (n == 0 || t->pending.len)
                break;
        }
    /* Writing reads as well: the socket may now be empty while bytes wait in libssh2, and the poll must learn
     * of t->wire.out. */
    if (t->wire.got_bytes || t->wire.write_failed || t->wire.out.len || t->wire.peer_gone)
        ssh_kick(t);
    if (t->wire.write_failed)
        return len; /* reading finds the end, and what came before it */
    t->wire.want_writable = taken < len;
    return taken;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Delivers what one stream has, at most a buffer full. 1: some, 0: nothing now, -1: failed. */
static int deliver_bytes(struct transport *t, int stream)
{
    static uint8_t bytes[READ_BYTES]; /* one thread; the callbacks see it during their call only */
    ssize_t n = libssh2_channel_read_ex(t->channel, stream, (char *)bytes, sizeof bytes);
    if (n == LIBSSH2_ERROR_EAGAIN || n == 0)
        return 0;
    if (n < 0)
        return -1;
    if (stream == STDOUT_STREAM)
        t->events->received(t->ctx, bytes, (size_t)n);
    else
        t->events->noise(t->ctx, bytes, (size_t)n);
    return 1;
}

/* 1: there may be more, 0: all read, -1: failed. */
static int deliver_turn(struct transport *t)
{
    for (int i = 0; i < READS_A_TURN; i++) {
        int out = deliver_bytes(t, STDOUT_STREAM);
        int err = out >= 0 && !t->end.requested ? deliver_bytes(t, STDERR_STREAM) : 0;
        if (out < 0 || err < 0)
            return -1;
        if (t->end.requested || (out == 0 && err == 0))
            return 0;
    }
    return 1;
}

static void learn_end(struct transport *t)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"ABRT", 6},  {"ALRM", 14}, {"BUS", 7},   {"FPE", 8},   {"HUP", 1},   {"ILL", 4},
                   {"INT", 2},   {"KILL", 9},  {"PIPE", 13}, {"QUIT", 3},  {"SEGV", 11}, {"SYS", 31},
                   {"TERM", 15}, {"TRAP", 5},  {"USR1", 10}, {"USR2", 12}, {"XCPU", 24}, {"XFSZ", 25}};
    char *name = NULL;
    size_t len = 0;
    /* The signal first: the status of a command that a signal ended is 0. */
    libssh2_channel_get_exit_signal(t->channel, &name, &len, NULL, NULL, NULL, NULL);
    if (!name) {
        t->end.exit_status = libssh2_channel_get_exit_status(t->channel);
        return;
    }
    const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name; /* SIGSYS@openssh.com */
    size_t bare_len = strcspn(bare, "@");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strlen(signals[i].name) == bare_len && memcmp(bare, signals[i].name, bare_len) == 0)
            t->end.term_signal = signals[i].number;
    if (!t->end.term_signal)
        err_set(&t->err, ERR_HOST, "%s: the remote command was ended by signal %.32s", t->config.hostname,
                name);
    libssh2_free(t->session, name);
}

static bool end_is_known(struct transport *t)
{
    char *name = NULL;
    size_t len;
    if (libssh2_channel_get_exit_status(t->channel) != 0)
        return true;
    libssh2_channel_get_exit_signal(t->channel, &name, &len, NULL, NULL, NULL, NULL);
    if (!name)
        return false;
    libssh2_free(t->session, name);
    return true;
}

static void held_open(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    t->end.open_for_long = true;
    ssh_advance(t);
}

static enum ssh_result note_loss(struct transport *t)
{
    char *why = NULL;
    if (!t->wire.peer_gone && libssh2_session_last_error(t->session, &why, NULL, 0) != 0)
        log_info("%s: %s", t->config.hostname, why);
    err_set(&t->err, ERR_CLOSED, "the connection to %s was lost", t->config.hostname);
    return SSH_FAILED;
}

static void offer_writing(struct transport *t)
{
    if (!write_pending(t) || !t->wire.want_writable || t->wire.out.len > OUT_LOW || !may_write(t))
        return;
    t->wire.want_writable = false;
    t->events->writable(t->ctx);
}

enum ssh_result ssh_step_run(struct transport *t)
{
    int more = deliver_turn(t);
    if (t->end.requested)
        return SSH_AGAIN;
    if (more < 0)
        return note_loss(t);
    offer_writing(t);
    if (t->end.requested)
        return SSH_AGAIN;
    if (more > 0) {
        ssh_kick(t);
        return SSH_AGAIN;
    }
    if (libssh2_channel_eof(t->channel) == 1 || t->end.open_for_long)
        return SSH_DONE;
    if (t->wire.peer_gone || t->wire.write_failed)
        return note_loss(t);
    if (!t->end.seen && end_is_known(t)) {
        t->end.seen = true;
        uv_timer_start(&t->timer, held_open, AFTER_END_MS, 0);
    }
    return SSH_AGAIN;
}

enum ssh_result ssh_step_await_close(struct transport *t)
{
    /* Bytes that arrived between the last read and EOF. */
    if (deliver_turn(t) > 0) {
        ssh_kick(t);
        return SSH_AGAIN;
    }
    int rc = t->end.open_for_long || t->end.requested ? 0 : libssh2_channel_wait_closed(t->channel);
    if (rc == LIBSSH2_ERROR_EAGAIN && !t->wire.peer_gone)
        return SSH_AGAIN;
    if (rc == 0 || end_is_known(t))
        learn_end(t);
    else
        return note_loss(t);
    return SSH_DONE;
}
