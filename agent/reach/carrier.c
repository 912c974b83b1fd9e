#include "agent/reach/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/secret.h"
#include "common/net/auth.h"

#define HEAD        5u
#define KEY_LEAST   16u
#define KEY_MOST    4096u
#define QUEUE_MAX   (4u * (CARRIER_BYTES_MAX + HEAD))
#define READ_AT_ONE (64u << 10)

/* ---- the key ------------------------------------------------------------------------------------------- */

static int check_key_file(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "cannot read the key %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, "the key %s is no file", path);
    if (st.st_mode & S_IWOTH)
        return err_set(e, ERR_USAGE, "everybody may write the key %s", path);
    return 0;
}

static int digest_key(const uint8_t *key, size_t size, uint8_t secret[TLS_SECRET_SIZE], struct err *e)
{
    static const char label[] = "hvdrun reach 1";
    const struct auth_ops *auth = auth_open(e);
    void *digest = auth ? auth->digest_begin() : NULL;
    if (!auth)
        return -1;
    bool good = digest && auth->digest_add(digest, label, sizeof label) == 0 &&
                auth->digest_add(digest, key, size) == 0;
    good = digest && auth->digest_end(digest, secret) == 0 && good;
    return good ? 0 : err_set(e, ERR_SYSTEM, "OpenSSL cannot make a digest of the key");
}

int carrier_read_key(const char *path, uint8_t secret[TLS_SECRET_SIZE], struct err *e)
{
    _Static_assert(TLS_SECRET_SIZE == AUTH_DIGEST_SIZE, "the digest is the secret");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, errno, "cannot read the key %s", path);
    uint8_t *key = secret_new(KEY_MOST);
    int rc = key ? check_key_file(fd, path, e) : err_set(e, ERR_MEMORY, "no memory for a key");
    ssize_t n = rc == 0 ? read(fd, key, KEY_MOST) : 0;
    bool whole = n < (ssize_t)KEY_MOST;
    while (n > 0 && strchr(" \t\r\n", key[n - 1])) /* a Secret may be made with or without a line's end */
        n--;
    if (n < 0)
        rc = err_sys(e, errno, "cannot read the key %s", path);
    else if (rc == 0 && !whole)
        rc = err_set(e, ERR_USAGE, "the key %s has more than %u bytes", path, KEY_MOST - 1);
    else if (rc == 0 && n < (ssize_t)KEY_LEAST)
        rc = err_set(e, ERR_USAGE, "the key %s has less than %u bytes", path, KEY_LEAST);
    else if (rc == 0)
        rc = digest_key(key, (size_t)n, secret, e);
    secret_free(key, KEY_MOST);
    secret_wipe_stack();
    close(fd);
    return rc;
}

/* ---- the connection ------------------------------------------------------------------------------------ */

int carrier_open(struct carrier *c, int fd, const uint8_t secret[TLS_SECRET_SIZE], bool client, struct err *e)
{
    *c = (struct carrier){.fd = fd, .ops = tls_open(e)};
    buf_init(&c->in, QUEUE_MAX);
    buf_init(&c->out, QUEUE_MAX);
    c->tls = c->ops ? c->ops->open(fd, secret, client, NULL, 0, e) : NULL;
    if (c->tls)
        return 0;
    carrier_close(c);
    return -1;
}

void carrier_close(struct carrier *c)
{
    if (c->tls)
        c->ops->close(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    buf_free(&c->in);
    buf_free(&c->out);
}

/* Before the handshake has ended nothing waits for room: the other end has to say something. */
short carrier_events(const struct carrier *c)
{
    bool reads = buf_room(&c->in) >= READ_AT_ONE;
    return (short)((reads ? POLLIN : 0) | (c->ops->unsent(c->tls) ? POLLOUT : 0));
}

bool carrier_has_room(const struct carrier *c)
{
    return buf_room(&c->out) >= HEAD + CARRIER_BYTES_MAX;
}

void carrier_put(struct carrier *c, enum carrier_kind kind, const void *bytes, uint32_t length)
{
    uint8_t *to = buf_reserve(&c->out, HEAD + length);
    if (!to)
        return; /* the caller has asked for room; without memory the other end sees a silent connection */
    to[0] = (uint8_t)kind;
    put_u32(to + 1, length);
    if (length > 0)
        memcpy(to + HEAD, bytes, length);
    buf_commit(&c->out, HEAD + length);
}

static int receive_bytes(struct carrier *c, struct err *e)
{
    while (buf_room(&c->in) >= READ_AT_ONE) {
        struct iovec part = {buf_reserve(&c->in, READ_AT_ONE), READ_AT_ONE};
        if (!part.iov_base)
            return err_set(e, ERR_MEMORY, "no memory for what comes over a connection");
        ssize_t n = c->ops->receive(c->tls, &part, 1, e);
        if (n <= 0)
            return (int)n;
        buf_commit(&c->in, (size_t)n);
    }
    return 0;
}

static int send_bytes(struct carrier *c, struct err *e)
{
    ssize_t n;
    do {
        struct iovec part = {(void *)(uintptr_t)buf_data(&c->out), c->out.len};
        n = c->ops->send(c->tls, &part, c->out.len > 0 ? 1 : 0, e);
        if (n > 0)
            buf_consume(&c->out, (size_t)n);
    } while (n > 0 && c->out.len > 0);
    return n < 0 ? -1 : 0;
}

int carrier_move(struct carrier *c, struct err *e)
{
    return receive_bytes(c, e) < 0 || send_bytes(c, e) < 0 ? -1 : 0;
}

int carrier_next(const struct carrier *c, struct carrier_frame *frame, struct err *e)
{
    const uint8_t *at = buf_data(&c->in);
    if (c->in.len < HEAD)
        return 0;
    frame->kind = at[0];
    frame->length = get_u32(at + 1);
    frame->bytes = at + HEAD;
    if (frame->kind < CARRIER_COMMAND || frame->kind > CARRIER_STATUS || frame->length > CARRIER_BYTES_MAX)
        return err_set(e, ERR_PROTOCOL, "the other end sends what hvdagent does not (another version?)");
    return c->in.len >= HEAD + frame->length;
}

void carrier_drop(struct carrier *c, const struct carrier_frame *frame)
{
    buf_consume(&c->in, HEAD + frame->length);
}

bool carrier_is_empty(const struct carrier *c)
{
    return c->out.len == 0 && !c->ops->unsent(c->tls);
}
