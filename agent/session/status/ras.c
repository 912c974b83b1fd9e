/* The question to NCCL's RAS service (agent/inspect/ras.c), when somebody asks why the job does not go on.
 *
 * A worker's process listens at a port of the loopback interface. We say CLIENT PROTOCOL, TIMEOUT and STATUS,
 * each after the answer to the one before, and read until the process closes the connection. After ASK_MS or
 * SAID_MAX bytes we close it. A process that is not of this job is never asked. */
#include "agent/inspect/stacks_proc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/buf.h"
#include "common/protocol/spawn_programs.h"

#define ASK_MS   2000
#define SAID_MAX ((size_t)256 << 10)
#define PIECE    4096

enum ras_state { RAS_CONNECTING, RAS_GREETED, RAS_LIMITED, RAS_ASKED };

struct ras_ask {
    struct session *session;
    uv_timer_t timer;
    uv_poll_t poll;
    int fd;
    bool open;    /* the poll and the socket are */
    bool closing; /* they were */
    enum ras_state state;
    struct buf said;
    pid_t pid; /* that tells */
    char *text;
    char *line[RAS_LINES_MAX];
    size_t lines;
};

struct ras_ask *ras_ask_open(struct session *s)
{
    struct ras_ask *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->session = s;
    uv_timer_init(&s->loop, &r->timer);
    r->timer.data = r;
    return r;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct ras_ask *r = handle->data;
    close(r->fd);
    r->closing = false;
}

static void end_asking(struct ras_ask *r)
{
    if (!r->open)
        return;
    r->open = false;
    r->closing = true;
    uv_timer_stop(&r->timer);
    uv_poll_stop(&r->poll);
    uv_close((uv_handle_t *)&r->poll, on_poll_closed);
}

void ras_ask_close(struct ras_ask *r)
{
    if (!r)
        return;
    end_asking(r);
    uv_close((uv_handle_t *)&r->timer, NULL);
}

static void forget_answer(struct ras_ask *r)
{
    free(r->text);
    buf_free(&r->said);
    r->text = NULL;
    r->lines = 0;
}

void ras_ask_free(struct ras_ask *r)
{
    if (r)
        forget_answer(r);
    free(r);
}

/* The bytes that have come until now count. */
static void keep_answer(struct ras_ask *r)
{
    if (r->state == RAS_ASKED && r->said.len > 0)
        r->text = strndup((const char *)buf_data(&r->said), r->said.len);
    r->lines = r->text ? ras_lines(r->text, r->line) : 0;
    end_asking(r);
    session_ras_known(r->session);
}

static void on_late(uv_timer_t *timer)
{
    keep_answer(timer->data);
}

/* A few bytes, for which a new connection has room. */
static bool say_next(struct ras_ask *r)
{
    static const char *const words[] = {"CLIENT PROTOCOL 2\n", "TIMEOUT 1\n", "STATUS\n"};
    const char *word = words[r->state++];
    buf_free(&r->said);
    buf_init(&r->said, SAID_MAX);
    return send(r->fd, word, strlen(word), MSG_NOSIGNAL) == (ssize_t)strlen(word);
}

/* Is the answer to the last word here, and the right one? 0: not yet; -1: it is another. */
static int check_answer(const struct ras_ask *r)
{
    static const char *const answers[] = {"", "SERVER PROTOCOL ", "OK"};
    const char *said = (const char *)buf_data(&r->said), *wanted = answers[r->state];
    if (r->state == RAS_ASKED || r->said.len == 0 || !memchr(said, '\n', r->said.len))
        return 0;
    return r->said.len >= strlen(wanted) && strncmp(said, wanted, strlen(wanted)) == 0 ? 1 : -1;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct ras_ask *r = poll->data;
    bool well = status == 0;
    if (well && r->state == RAS_CONNECTING) {
        well = say_next(r) && uv_poll_start(&r->poll, UV_READABLE, on_ready) == 0;
    } else if (well && events & UV_READABLE) {
        uint8_t *space = buf_reserve(&r->said, PIECE);
        ssize_t n = space ? recv(r->fd, space, PIECE, MSG_DONTWAIT) : 0;
        if (n > 0)
            buf_commit(&r->said, (size_t)n);
        int answer = n > 0 ? check_answer(r) : -1;
        well = answer == 0 || (answer > 0 && say_next(r));
    }
    if (!well)
        keep_answer(r);
}

/* Of the job's workers; 0: none holds it. */
static pid_t find_holder(const struct session *s, unsigned long inode)
{
    pid_t pid = 0;
    for (size_t i = 0; i < s->workers.count && !pid; i++)
        if (s->workers.item[i].alive)
            pid = ras_holder(s->workers.item[i].pid, inode);
    return pid;
}

bool ras_ask_start(struct ras_ask *r)
{
    struct session *s = r->session;
    struct ras_listener at;
    if (r->open || r->closing)
        return r->open;
    forget_answer(r);
    if (s->fsm.state != SESSION_RUNNING ||
        !ras_find(ras_port(worker_env_given(s->spawn, 0, "NCCL_RAS_ADDR")), &at) ||
        (r->pid = find_holder(s, at.inode)) == 0)
        return false;
    r->fd = socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (r->fd < 0)
        return false;
    (void)connect(r->fd, (struct sockaddr *)&at.address, at.size); /* the poll tells how that went */
    uv_poll_init(&s->loop, &r->poll, r->fd);
    r->poll.data = r;
    r->open = true;
    r->state = RAS_CONNECTING;
    buf_init(&r->said, SAID_MAX);
    uv_poll_start(&r->poll, UV_WRITABLE, on_ready);
    uv_timer_start(&r->timer, on_late, ASK_MS, 0);
    return true;
}

void ras_ask_tell(struct ras_ask *r, Hvd__JobStatus *out)
{
    out->nccl = r->line;
    out->n_nccl = r->lines;
    out->nccl_pid = r->lines ? (uint32_t)r->pid : 0;
}
