#include "agent/daemon/protocol/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/protocol/handshake.h"
#include "agent/daemon/protocol/wire.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

#define PIECE (64u << 10)

void proxy_init(struct proxy *b, int fd, int signals)
{
    *b = (struct proxy){.fd = fd, .signals = signals};
    buf_init(&b->up,
             FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX + PIECE); /* the launcher's Hello is in it, whole */
    buf_secret(&b->up, true);                                /* with the job's key */
    buf_init(&b->down, 4 * PIECE);
}

void proxy_close(struct proxy *b)
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

void proxy_run(struct proxy *b)
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
