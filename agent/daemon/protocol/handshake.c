#include "agent/daemon/protocol/handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/protocol/query.h"
#include "common/protocol/agent_exit.h"
#include "common/base/clock.h"
#include "common/protocol/frame.h"
#include "common/base/log.h"

#define HELLO_MS 60000 /* as a session waits */
#define READ_MAX (64u << 10)

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

static Hvd__Control *unpack(int rc, const struct frame *f, Hvd__Control__BodyCase wanted, const char *name,
                            struct err *e)
{
    Hvd__Control *m = rc > 0 ? message_unpack_control(f->payload, f->length, e) : NULL;
    if (m && m->body_case == wanted)
        return m;
    err_set(e, ERR_PROTOCOL, "the launcher did not say %s", name);
    message_free(m);
    return NULL;
}

Hvd__Control *greeting_read_hello(struct buf *in, struct err *e)
{
    uint64_t deadline = clock_now() + HELLO_MS * NSEC_PER_MSEC;
    struct frame f;
    int rc;
    while ((rc = frame_decode(in, &f, e)) == 0) {
        uint64_t now = clock_now();
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / NSEC_PER_MSEC) + 1) == 0) {
            err_set(e, ERR_TIMEOUT, "the launcher said nothing for %d s", HELLO_MS / 1000);
            return NULL;
        }
        if (read_more(in, e) < 0)
            return NULL;
    }
    Hvd__Control *m = unpack(rc, &f, HVD__CONTROL__BODY_HELLO, "Hello", e);
    if (m)
        explicit_bzero(m->hello->key.data, m->hello->key.len); /* not for us */
    return m;
}

static int say_node(struct err *e)
{
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    Hvd__Daemon *answer = daemon_ask(&question, e);
    if (!answer)
        return -1;
    log_printable(answer->status->node);
    log_say(AGENT_HELD "%s\n", answer->status->node);
    message_free(answer);
    return 0;
}

int greeting_hold(struct buf *in, int signals, struct err *e)
{
    struct frame f;
    int rc = frame_decode(in, &f, e);
    size_t hello = FRAME_HEADER_SIZE + (rc > 0 ? f.length : 0);
    if (rc <= 0 || say_node(e) < 0)
        return -1;
    while ((rc = decode_behind(in, hello, &f, e)) == 0) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_sys(e, errno, "cannot wait for the launcher");
        if (p[1].revents)
            return err_set(e, ERR_CLOSED, "ended by a signal while other hosts were asked");
        if (p[0].revents && read_more(in, e) < 0)
            return -1;
    }
    Hvd__Control *go = unpack(rc, &f, HVD__CONTROL__BODY_GO, "Go", e);
    message_free(go);
    return go ? 0 : -1;
}
