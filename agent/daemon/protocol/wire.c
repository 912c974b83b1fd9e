#include "agent/daemon/protocol/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

ptrdiff_t daemon_pack(const Hvd__Daemon *message, uint8_t *out, size_t size, struct err *e)
{
    size_t length = hvd__daemon__get_packed_size(message);
    if (length + FRAME_HEADER_SIZE > size)
        return err_set(e, ERR_PROTOCOL, "a message of %zu bytes for the managed agent is too long", length);
    struct frame f = {.length = (uint32_t)length, .kind = FRAME_CONTROL};
    frame_encode_header(&f, out);
    hvd__daemon__pack(message, out + FRAME_HEADER_SIZE);
    return (ptrdiff_t)(FRAME_HEADER_SIZE + length);
}

ptrdiff_t daemon_frame_length(const uint8_t header[FRAME_HEADER_SIZE], size_t most, struct err *e)
{
    static const uint8_t rest[FRAME_HEADER_SIZE - 5];
    uint32_t length = get_u32(header);
    if (header[4] != FRAME_CONTROL || memcmp(header + 5, rest, sizeof rest) != 0)
        return err_set(e, ERR_PROTOCOL, "what came is no message of ours");
    if (length > most)
        return err_set(e, ERR_PROTOCOL, "a message of %u bytes is over the limit", length);
    return (ptrdiff_t)(FRAME_HEADER_SIZE + length);
}

Hvd__Daemon *daemon_unpack(const uint8_t *frame, size_t len, struct err *e)
{
    return message_unpack_daemon(frame + FRAME_HEADER_SIZE, len - FRAME_HEADER_SIZE, e);
}

Hvd__Daemon *daemon_unpack_answer(const uint8_t *bytes, size_t have, size_t *len, struct err *e)
{
    ptrdiff_t whole = have < FRAME_HEADER_SIZE ? -1 : daemon_frame_length(bytes, DAEMON_ANSWER_MAX, e);
    *len = whole > 0 ? (size_t)whole : 0;
    return whole > 0 && *len <= have ? daemon_unpack(bytes, *len, e) : NULL;
}

/* ---- a question ---------------------------------------------------------------------------------------- */

#define CONNECT_S 10
#define ANSWER_MS 10000

int daemon_connect(struct err *e)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = CONNECT_S};
    const char *asked = getenv(DAEMON_SOCKET_VARIABLE);
    const char *path = asked && asked[0] ? asked : DAEMON_DIRECTORY "/" DAEMON_SOCKET;
    if (strlen(path) >= sizeof name.sun_path)
        return err_set(e, ERR_USAGE, DAEMON_SOCKET_VARIABLE ": the path is too long");
    memcpy(name.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect, too */
    if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        return fd;
    }
    int saved = errno;
    close(fd);
    if (saved == ENOENT || saved == ENOTDIR || saved == ECONNREFUSED)
        return -1;
    return err_sys(e, saved, "the managed agent cannot be reached at %s", path);
}

/* All that it says, until it closes. */
static int read_answer(int fd, struct buf *answer, struct err *e)
{
    uint64_t deadline = clock_now() + ANSWER_MS * NSEC_PER_MSEC;
    for (;;) {
        uint64_t now = clock_now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / NSEC_PER_MSEC) + 1) == 0)
            return err_set(e, ERR_TIMEOUT, "the managed agent did not answer within %d s", ANSWER_MS / 1000);
        uint8_t *space = buf_reserve(answer, 4096);
        if (!space)
            return err_set(e, ERR_PROTOCOL, "the managed agent says too much");
        ssize_t n = read(fd, space, 4096);
        if (n > 0)
            buf_commit(answer, (size_t)n);
        else if (n == 0 || (errno != EINTR && errno != EAGAIN))
            return 0;
    }
}

static Hvd__Daemon *decode_answer(const struct buf *answer, Hvd__Daemon__BodyCase wanted, struct err *e)
{
    const uint8_t *frame = buf_data(answer) + FRAME_MAGIC_SIZE;
    size_t len, have = answer->len > FRAME_MAGIC_SIZE ? answer->len - FRAME_MAGIC_SIZE : 0;
    Hvd__Daemon *m = daemon_unpack_answer(frame, have, &len, e);
    if (m && m->body_case == wanted)
        return m;
    if (m && m->body_case == HVD__DAEMON__BODY_STATUS)
        err_set(e, ERR_VERSION, "the managed agent is older than this hvdctl, and knows no GPUs");
    if (m && m->body_case == HVD__DAEMON__BODY_REFUSAL) {
        log_printable(m->refusal->text);
        err_set(e, ERR_HOST, "the managed agent refuses: %s", m->refusal->text);
    }
    message_free(m);
    err_set(e, ERR_CLOSED, "the managed agent ended without an answer");
    return NULL;
}

static Hvd__Daemon__BodyCase answer_to(const Hvd__Daemon *question)
{
    bool gpus = question->body_case == HVD__DAEMON__BODY_ACCEPT ||
                (question->body_case == HVD__DAEMON__BODY_QUERY && question->query->gpus);
    return gpus ? HVD__DAEMON__BODY_GPUS : HVD__DAEMON__BODY_STATUS;
}

Hvd__Daemon *daemon_ask(const Hvd__Daemon *question, struct err *e)
{
    uint8_t frame[DAEMON_FRAME_MAX];
    struct buf answer;
    Hvd__Daemon *m = NULL;
    int fd = daemon_connect(e);
    if (fd < 0) {
        err_set(e, ERR_HOST, "there is no managed agent on this host");
        return NULL;
    }
    buf_init(&answer, FRAME_MAGIC_SIZE + FRAME_HEADER_SIZE + DAEMON_ANSWER_MAX + 4096);
    ptrdiff_t len = daemon_pack(question, frame, sizeof frame, e);
    if (len > 0 && send(fd, frame, (size_t)len, MSG_NOSIGNAL) != len && errno != EPIPE) /* it has answered */
        err_sys(e, errno, "cannot ask the managed agent");
    if (e->code == 0 && read_answer(fd, &answer, e) == 0)
        m = decode_answer(&answer, answer_to(question), e);
    buf_free(&answer);
    close(fd);
    return m;
}
