#include "agent/daemon/protocol/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/protocol/query.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/channel.h"

#define HELLO_MS 60000 /* as a session waits */
#define READ_MAX (64u << 10)
#define TELL_MS  10000 /* a launcher that reads nothing for so long is lost; its channel shows that soon */

/* ---- from the launcher --------------------------------------------------------------------------------- */

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

Hvd__Control *handshake_read_hello(struct buf *in, struct err *e)
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

void handshake_tell_waiting(const char *text)
{
    char cut[TEXT_MAX];
    Hvd__LeaseWaiting waiting = HVD__LEASE_WAITING__INIT;
    CONTROL(m, LEASE_WAITING, lease_waiting, &waiting);
    snprintf(cut, sizeof cut, "%s", text);
    waiting.text = cut;
    send_message(&m);
}

void handshake_tell_refusal(const struct err *why)
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

int handshake_hold(struct buf *in, int signals, struct err *e)
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
