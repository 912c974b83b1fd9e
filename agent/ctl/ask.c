#include "agent/ctl/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"
#include "common/status/status_server.h"

#define READ_SIZE (64u << 10)
#define HOSTS_MAX 65536       /* of one job */
#define BYTES_MAX (32u << 20) /* of all answers about one job */

static const char *name_process(const struct ctl_job *job)
{
    return job->directory < 0 ? "hvdrun" : "the session";
}

static int tell_silence(const char *process, struct err *e)
{
    return err_set(e, ERR_TIMEOUT, "%s does not answer", process);
}

/* By the directory's descriptor: whatever its path names by now, it is the one that was looked at. */
static int find_address(const struct ctl_job *job, struct status_address *at, struct err *e)
{
    char directory[64];
    snprintf(directory, sizeof directory, "/proc/self/fd/%d", job->directory);
    if (job->directory >= 0)
        return status_address_in(at, directory, e);
    status_address_of(at, job->uid, job->name);
    return 0;
}

static int connect_to(const struct ctl_job *job, int timeout_ms, struct err *e)
{
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    struct status_address at;
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (find_address(job, &at, e) < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a socket");
    /* The limit of connect, too: a listener of another user may accept nothing. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&at.un, at.size) < 0) {
        int saved = errno;
        close(fd);
        if (saved == EAGAIN)
            return tell_silence(name_process(job), e);
        if (saved == ECONNREFUSED || saved == ENOENT)
            return err_set(e, ERR_CLOSED, "job %s has ended", job->name);
        return err_sys(e, saved, "cannot reach %s of job %s", name_process(job), job->name);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == job->uid)
        return fd;
    close(fd);
    return err_set(e, ERR_CLOSED, "what answers for job %s is not its user's", job->name);
}

int ctl_ask_open(struct ctl_ask *a, const struct ctl_job *job, const Hvd__Inquiry *inquiry, int timeout_ms,
                 struct err *e)
{
    uint8_t bytes[FRAME_HEADER_SIZE + INQUIRY_MAX];
    size_t size = hvd__inquiry__get_packed_size(inquiry);
    struct frame f = {.length = (uint32_t)size, .kind = FRAME_CONTROL};
    a->fd = -1;
    a->process = name_process(job);
    buf_init(&a->in, FRAME_HEADER_SIZE + ANSWER_MAX + READ_SIZE);
    if (size > INQUIRY_MAX - FRAME_HEADER_SIZE)
        return err_set(e, ERR_USAGE, "too many ranks are asked for");
    a->fd = connect_to(job, timeout_ms, e);
    if (a->fd < 0)
        return -1;
    frame_encode_header(&f, bytes);
    hvd__inquiry__pack(inquiry, bytes + FRAME_HEADER_SIZE);
    if (send(a->fd, bytes, FRAME_HEADER_SIZE + size, MSG_NOSIGNAL) == (ssize_t)(FRAME_HEADER_SIZE + size))
        return 0;
    err_sys(e, errno, "cannot ask %s of job %s", name_process(job), job->name);
    ctl_ask_close(a);
    return -1;
}

void ctl_ask_close(struct ctl_ask *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    buf_free(&a->in);
}

/* 1: more is there; 0: the other end has closed; -1 with *e. */
static int receive_bytes(struct ctl_ask *a, int timeout_ms, struct err *e)
{
    struct pollfd p = {.fd = a->fd, .events = POLLIN};
    int rc = poll(&p, 1, timeout_ms);
    if (rc == 0)
        return tell_silence(a->process, e);
    if (rc < 0)
        return errno == EINTR ? 1 : err_sys(e, errno, "cannot wait for an answer");
    uint8_t *room = buf_reserve(&a->in, READ_SIZE);
    if (!room)
        return err_set(e, ERR_MEMORY, "no memory for an answer");
    ssize_t n = recv(a->fd, room, READ_SIZE, 0);
    if (n > 0)
        buf_commit(&a->in, (size_t)n);
    if (n < 0 && errno != EINTR)
        return errno == ECONNRESET ? 0 : err_sys(e, errno, "cannot read an answer");
    return n != 0;
}

Hvd__Answer *ctl_ask_next(struct ctl_ask *a, int timeout_ms, struct err *e)
{
    struct frame f;
    uint64_t until = clock_now() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * NSEC_PER_MSEC;
    int rc = frame_decode(&a->in, &f, e);
    for (; rc == 0; rc = frame_decode(&a->in, &f, e)) {
        uint64_t now = clock_now();
        int left = timeout_ms < 0 ? -1 : now < until ? (int)((until - now) / NSEC_PER_MSEC) : 0;
        rc = receive_bytes(a, left, e);
        if (rc <= 0)
            return NULL;
    }
    Hvd__Answer *answer = rc > 0 ? message_unpack_answer(f.payload, f.length, e) : NULL;
    if (rc > 0)
        buf_consume(&a->in, FRAME_HEADER_SIZE + f.length);
    return answer;
}

void ctl_answers_free(struct ctl_answers *all)
{
    for (size_t i = 0; i < all->count; i++)
        message_free(all->item[i]);
    free(all->item);
    *all = (struct ctl_answers){NULL, 0};
}

/* Takes the answer. -1: there is no memory for the list. */
static int add_answer(struct ctl_answers *all, Hvd__Answer *answer)
{
    Hvd__Answer **grown = realloc(all->item, (all->count + 1) * sizeof(Hvd__Answer *));
    if (!grown) {
        message_free(answer);
        return -1;
    }
    all->item = grown;
    grown[all->count++] = answer;
    return 0;
}

/* A session has one answer. hvdrun closes the connection behind its last one. */
static void read_answers(struct ctl_ask *a, const struct ctl_job *job, int timeout_ms,
                         struct ctl_answers *all, struct err *e)
{
    uint64_t until = clock_now() + (uint64_t)timeout_ms * NSEC_PER_MSEC;
    size_t most = job->directory >= 0 ? 1 : HOSTS_MAX, bytes = 0;
    while (all->count < most && bytes < BYTES_MAX) {
        uint64_t now = clock_now();
        Hvd__Answer *answer = ctl_ask_next(a, now < until ? (int)((until - now) / NSEC_PER_MSEC) : 0, e);
        if (!answer)
            return;
        if (answer->body_case != HVD__ANSWER__BODY_STATUS) {
            message_free(answer);
            return;
        }
        bytes += hvd__answer__get_packed_size(answer);
        if (add_answer(all, answer) < 0) {
            err_set(e, ERR_MEMORY, "no memory for an answer");
            return;
        }
    }
}

int ctl_ask_status(const struct ctl_job *job, Hvd__Inquiry__Kind kind, int timeout_ms,
                   struct ctl_answers *all, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    struct ctl_ask a;
    *all = (struct ctl_answers){NULL, 0};
    inquiry.kind = kind;
    if (ctl_ask_open(&a, job, &inquiry, timeout_ms, e) < 0)
        return -1;
    read_answers(&a, job, timeout_ms, all, e);
    ctl_ask_close(&a);
    if (!e->code && all->count == 0)
        err_set(e, ERR_CLOSED, "job %s has ended", job->name);
    if (!e->code)
        return 0;
    ctl_answers_free(all);
    return -1;
}
