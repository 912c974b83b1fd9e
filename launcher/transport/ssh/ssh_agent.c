/* draft-miller-ssh-agent: a question and an answer are a 32-bit length, a type byte and strings. One question
 * at a time. The socket is local: connecting and sending a few hundred bytes do not wait; a full socket means
 * a stuck agent, which counts as failed and costs the host only its agent's keys. */
#include "launcher/transport/ssh/ssh_agent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ASK_IDENTITIES = 11, ANSWER_IDENTITIES = 12, ASK_SIGNATURE = 13, ANSWER_SIGNATURE = 14 };
enum { AGENT_RSA_SHA2_256 = 2, AGENT_RSA_SHA2_512 = 4 }; /* flags of ASK_SIGNATURE */

static void put_be32(uint8_t *p, size_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static size_t get_be32(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

static bool take_string(const uint8_t **p, size_t *left, const uint8_t **string, size_t *len)
{
    if (*left < 4)
        return false;
    size_t n = get_be32(*p);
    if (n > *left - 4)
        return false;
    *string = *p + 4;
    *len = n;
    *p += 4 + n;
    *left -= 4 + n;
    return true;
}

static void answer_failed(struct ssh_agent *a)
{
    uv_poll_stop(&a->poll);
    a->failed = true;
    a->busy = false;
    a->answered(a->ctx);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct ssh_agent *a = poll->data;
    uint8_t *room = status < 0 ? NULL : buf_reserve(&a->in, 4096);
    ssize_t n = room ? read(a->fd, room, 4096) : -1;
    if (room && n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !a->busy) { /* gone, or a word that nobody asked for */
        answer_failed(a);
        return;
    }
    buf_commit(&a->in, (size_t)n);
    if (a->in.len < 4)
        return;
    size_t want = get_be32(buf_data(&a->in));
    if (want == 0 || want > SSH_AGENT_MESSAGE_MAX || a->in.len > 4 + want) {
        answer_failed(a);
        return;
    }
    if (a->in.len < 4 + want)
        return;
    uv_poll_stop(&a->poll);
    a->busy = false;
    a->answered(a->ctx);
}

int ssh_agent_open(struct ssh_agent *a, uv_loop_t *loop, const char *path, void (*answered)(void *ctx),
                   void *ctx)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    *a = (struct ssh_agent){.fd = -1, .answered = answered, .ctx = ctx};
    if (n <= 0 || (size_t)n >= sizeof address.sun_path)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        uv_poll_init(loop, &a->poll, fd) < 0) {
        close(fd);
        return -1;
    }
    a->fd = fd;
    a->poll.data = a;
    buf_init(&a->out, SSH_AGENT_MESSAGE_MAX);
    buf_init(&a->in, SSH_AGENT_MESSAGE_MAX + 4096 + 4);
    return 0;
}

void ssh_agent_close(struct ssh_agent *a, uv_close_cb closed, void *data)
{
    uv_poll_stop(&a->poll);
    close(a->fd);
    a->fd = -1;
    buf_free(&a->in);
    buf_free(&a->out);
    a->poll.data = data;
    uv_close((uv_handle_t *)&a->poll, closed);
}

static void put_string(struct ssh_agent *a, const uint8_t *bytes, size_t len)
{
    uint8_t head[4];
    put_be32(head, len);
    if (buf_put(&a->out, head, sizeof head) < 0 || buf_put(&a->out, bytes, len) < 0)
        a->failed = true;
}

/* Sends what is in `out`. A failure is found by the reader: the question stays without an answer, the socket
 * is at its end. */
static void ask_agent(struct ssh_agent *a)
{
    buf_consume(&a->in, a->in.len);
    ssize_t n = a->failed ? -1 : send(a->fd, buf_data(&a->out), a->out.len, MSG_NOSIGNAL);
    if (n < 0 || (size_t)n < a->out.len)
        shutdown(a->fd, SHUT_RDWR);
    buf_consume(&a->out, a->out.len);
    a->busy = true;
    uv_poll_start(&a->poll, UV_READABLE, on_ready);
}

void ssh_agent_ask_identities(struct ssh_agent *a)
{
    uint8_t question[5] = {0, 0, 0, 1, ASK_IDENTITIES};
    if (buf_put(&a->out, question, sizeof question) < 0)
        a->failed = true;
    ask_agent(a);
}

/* The agent signs with an RSA key by SHA-1 unless flags say otherwise (RFC 8332 and the agent's protocol).
 * The algorithm stands in the request that is signed (RFC 4252, 7): session, byte, user, service,
 * "publickey", byte, algorithm. */
static uint32_t signature_flags(const uint8_t *data, size_t len)
{
    const uint8_t *part;
    size_t part_len;
    for (int k = 0; k < 5; k++) {
        if (!take_string(&data, &len, &part, &part_len))
            return 0;
        if (k == 0 || k == 3) {
            if (len == 0)
                return 0;
            data++;
            len--;
        }
    }
    if (part_len == strlen("rsa-sha2-512") && memcmp(part, "rsa-sha2-512", part_len) == 0)
        return AGENT_RSA_SHA2_512;
    if (part_len == strlen("rsa-sha2-256") && memcmp(part, "rsa-sha2-256", part_len) == 0)
        return AGENT_RSA_SHA2_256;
    return 0;
}

void ssh_agent_ask_signature(struct ssh_agent *a, const uint8_t *blob, size_t blob_len, const uint8_t *data,
                             size_t len)
{
    uint8_t head[5], flags[4];
    put_be32(flags, signature_flags(data, len));
    put_be32(head, 1 + 4 + blob_len + 4 + len + sizeof flags);
    head[4] = ASK_SIGNATURE;
    if (buf_put(&a->out, head, sizeof head) < 0)
        a->failed = true;
    put_string(a, blob, blob_len);
    put_string(a, data, len);
    if (buf_put(&a->out, flags, sizeof flags) < 0)
        a->failed = true;
    ask_agent(a);
}

const uint8_t *ssh_agent_answer(const struct ssh_agent *a, size_t *len)
{
    if (a->failed || a->busy || a->in.len < 5)
        return NULL;
    *len = a->in.len - 4;
    return buf_data(&a->in) + 4;
}

bool ssh_agent_identities(const uint8_t *answer, size_t len,
                          void (*each)(void *ctx, const uint8_t *blob, size_t blob_len,
                                       const uint8_t *comment, size_t comment_len),
                          void *ctx)
{
    if (len < 5 || answer[0] != ANSWER_IDENTITIES)
        return false;
    size_t count = get_be32(answer + 1), left = len - 5;
    const uint8_t *p = answer + 5, *blob, *comment;
    size_t blob_len, comment_len;
    for (size_t i = 0; i < count; i++) {
        if (!take_string(&p, &left, &blob, &blob_len) || !take_string(&p, &left, &comment, &comment_len))
            return false;
        each(ctx, blob, blob_len, comment, comment_len);
    }
    return true;
}

bool ssh_agent_signature(const uint8_t *answer, size_t len, const uint8_t **signature, size_t *signature_len)
{
    const uint8_t *p = answer + 1, *whole, *algorithm;
    size_t left = len ? len - 1 : 0, whole_len, algorithm_len;
    if (!len || answer[0] != ANSWER_SIGNATURE || !take_string(&p, &left, &whole, &whole_len))
        return false;
    return take_string(&whole, &whole_len, &algorithm, &algorithm_len) &&
           take_string(&whole, &whole_len, signature, signature_len);
}
