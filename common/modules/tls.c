/* Module `tls`: the operations of common/net/tls.h on OpenSSL's libssl.
 *
 * OpenSSL sees a BIO of ours in place of the socket: what it writes is gathered in `out`, so that many
 * records leave in one send, and what it reads comes from `in`, filled by one recv. So it never has to wait
 * for room, and a record is never half written. */
#include "common/net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/process/module.h"

#define RECORD       (16u << 10) /* most plaintext in one record */
#define RECORD_EXTRA 256u        /* bytes that a record adds, with room to spare */
#define IN_SIZE      (256u << 10)
#define OUT_FULL     (256u << 10) /* from here on nothing more is taken */
#define OUT_SIZE     (OUT_FULL + 4 * (RECORD + RECORD_EXTRA))
#define KEY_RECORDS                                                                                          \
    (1u << 22) /* AES-GCM may encrypt about 2^24.5 full records with one key (RFC 8446, 5.5) */
#define FIRST_MAX 1024u

extern const char hvd_module_version[];
extern const struct tls_ops hvd_tls_ops;

MODULE_DEFINE_VERSION;

struct tls {
    SSL *ssl;
    int fd;
    uint8_t secret[TLS_SECRET_SIZE];
    uint32_t records; /* sent with the current key */
    size_t in_at, in_len;
    size_t out_at, out_len;
    uint8_t in[IN_SIZE];
    uint8_t out[OUT_SIZE];
    uint8_t gather[RECORD]; /* small parts, together in one record */
};

/* ---- the socket as OpenSSL sees it --------------------------------------------------------------------- */

static int bio_write(BIO *bio, const char *data, size_t size, size_t *taken)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (size >
        OUT_SIZE - t->out_at - t->out_len) { /* never more than one record and an alert: see OUT_SIZE */
        memmove(t->out, t->out + t->out_at, t->out_len);
        t->out_at = 0;
    }
    if (size > OUT_SIZE - t->out_at - t->out_len)
        return 0;
    memcpy(t->out + t->out_at + t->out_len, data, size);
    t->out_len += size;
    *taken = size;
    return 1;
}

static int bio_read(BIO *bio, char *data, size_t size, size_t *got)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    *got = size < t->in_len ? size : t->in_len;
    if (*got == 0) {
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(data, t->in + t->in_at, *got);
    t->in_at += *got;
    t->in_len -= *got;
    return 1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

/* ---- the pre-shared key -------------------------------------------------------------------------------- */

static const unsigned char identity[] = "hvd link 1";
static const unsigned char cipher_id[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

static SSL_SESSION *session_of(SSL *ssl)
{
    const struct tls *t = SSL_get_app_data(ssl);
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);
    if (session && cipher && SSL_SESSION_set1_master_key(session, t->secret, sizeof t->secret) &&
        SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int psk_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_size,
                   SSL_SESSION **session)
{
    *id = identity;
    *id_size = sizeof identity - 1;
    *session = session_of(ssl);
    return *session != NULL;
}

static int psk_find(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **session)
{
    bool ours = id_size == sizeof identity - 1 && memcmp(id, identity, id_size) == 0;
    *session = ours ? session_of(ssl) : NULL;
    return 1; /* without a session the handshake ends, as there is no certificate */
}

/* ---- making and ending --------------------------------------------------------------------------------- */

static int openssl_error(struct err *e, const char *what)
{
    unsigned long code = ERR_peek_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return err_set(e, ERR_PROTOCOL, "%s: %s", what, reason ? reason : "OpenSSL does not say why");
}

static SSL_CTX *new_context(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    if (!c)
        return NULL;
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
    SSL_CTX_set_psk_use_session_callback(c, psk_use);
    SSL_CTX_set_psk_find_session_callback(c, psk_find);
    if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(c, 0) &&
        SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256"))
        return c;
    SSL_CTX_free(c);
    return NULL;
}

/* Kept for the life of the process. */
static BIO_METHOD *bio_method(void)
{
    static BIO_METHOD *method;
    if (method)
        return method;
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hvd link");
    if (method) {
        BIO_meth_set_write_ex(method, bio_write);
        BIO_meth_set_read_ex(method, bio_read);
        BIO_meth_set_ctrl(method, bio_ctrl);
    }
    return method;
}

static int new_ssl(struct tls *t, bool client)
{
    SSL_CTX *context = new_context();
    BIO *bio = bio_method() ? BIO_new(bio_method()) : NULL;
    t->ssl = context ? SSL_new(context) : NULL;
    SSL_CTX_free(context);
    if (!t->ssl || !bio) {
        BIO_free(bio);
        return -1;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_app_data(t->ssl, t);
    if (!client) {
        SSL_set_accept_state(t->ssl);
        return 0;
    }
    /* A server that shows a certificate in place of the key is refused. */
    SSL_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
    SSL_set_connect_state(t->ssl);
    return 0;
}

static void tls_close(struct tls *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    OPENSSL_cleanse(t->secret, sizeof t->secret);
    OPENSSL_cleanse(t->gather, sizeof t->gather);
    free(t);
}

static struct tls *tls_new(int fd, const uint8_t secret[TLS_SECRET_SIZE], bool client, const void *first,
                           size_t first_size, struct err *e)
{
    struct tls *t = malloc(sizeof *t);
    if (!t || first_size > FIRST_MAX) {
        free(t);
        err_set(e, ERR_MEMORY, "no memory for an encrypted link");
        return NULL;
    }
    memset(t, 0, offsetof(struct tls, in));
    t->fd = fd;
    memcpy(t->secret, secret, sizeof t->secret);
    if (first_size)
        memcpy(t->out, first, first_size);
    t->out_len = first_size;
    if (new_ssl(t, client) < 0) {
        openssl_error(e, "cannot encrypt a link");
        tls_close(t);
        return NULL;
    }
    return t;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* Sends the records that wait, as far as the socket takes them. */
static int push_out(struct tls *t, struct err *e)
{
    while (t->out_len > 0) {
        ssize_t n = send(t->fd, t->out + t->out_at, t->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : err_sys(e, errno, "cannot send");
        t->out_at += (size_t)n;
        t->out_len -= (size_t)n;
    }
    t->out_at = 0;
    return 0;
}

/* Explains an SSL call that gave nothing: 0 when it waits for the other end, -1 with *e. */
static int explain_refusal(struct tls *t, int rc, struct err *e)
{
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return err_set(e, ERR_CLOSED, "it closed the connection");
    default:
        /* An alert that tells the other end why goes out if the socket takes it. */
        (void)push_out(t, NULL);
        return openssl_error(e, SSL_is_init_finished(t->ssl) ? "the encrypted link broke"
                                                             : "the link's TLS handshake failed");
    }
}

static int do_handshake(struct tls *t, struct err *e)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    return rc == 1 ? 1 : explain_refusal(t, rc, e);
}

/* Up to RECORD bytes from here on: from where they lie, or gathered. */
static const void *next_record(struct tls *t, const struct iovec *part, int parts, size_t skip, size_t *size)
{
    size_t here = part->iov_len - skip;
    if (here >= RECORD || parts == 1) {
        *size = here < RECORD ? here : RECORD;
        return (const uint8_t *)part->iov_base + skip;
    }
    for (*size = 0; parts > 0 && *size < RECORD; part++, parts--, skip = 0) {
        size_t n = part->iov_len - skip < RECORD - *size ? part->iov_len - skip : RECORD - *size;
        if (n > 0)
            memcpy(t->gather + *size, (const uint8_t *)part->iov_base + skip, n);
        *size += n;
    }
    return t->gather;
}

static int encrypt_bytes(struct tls *t, const void *data, size_t size, struct err *e)
{
    if (++t->records == KEY_RECORDS) {
        t->records = 0;
        SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    ERR_clear_error();
    size_t written;
    int rc = SSL_write_ex(t->ssl, data, size, &written);
    if (rc != 1)
        return explain_refusal(t, rc, e) < 0
                   ? -1
                   : err_set(e, ERR_PROTOCOL, "the encrypted link takes nothing more");
    return 0;
}

static ssize_t tls_send(struct tls *t, const struct iovec *part, int parts, struct err *e)
{
    size_t skip = 0;
    ssize_t taken = 0;
    int ready = SSL_is_init_finished(t->ssl) ? 1 : do_handshake(t, e);
    if (ready < 0 || push_out(t, e) < 0)
        return -1;
    while (ready && parts > 0 && t->out_len < OUT_FULL) {
        size_t size;
        const void *data = next_record(t, part, parts, skip, &size);
        if (size > 0 && encrypt_bytes(t, data, size, e) < 0)
            return -1;
        taken += (ssize_t)size;
        for (skip += size; parts > 0 && skip >= part->iov_len; parts--)
            skip -= part++->iov_len;
        if ((parts == 0 || t->out_len >= OUT_FULL) && push_out(t, e) < 0)
            return -1;
    }
    return taken;
}

/* 1: more ciphertext is here; 0: the socket has none. */
static int pull_out(struct tls *t, struct err *e)
{
    ssize_t n = recv(t->fd, t->in, sizeof t->in, MSG_DONTWAIT);
    if (n == 0)
        return err_set(e, ERR_CLOSED, "it closed the connection");
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR
                   ? 0
                   : err_sys(e, errno, "the connection broke");
    t->in_at = 0;
    t->in_len = (size_t)n;
    return 1;
}

/* One read of OpenSSL's: bytes; 0 when the socket has no more, with *dry. */
static ssize_t decrypt_bytes(struct tls *t, void *data, size_t size, bool may_pull, bool *dry, struct err *e)
{
    size_t got;
    for (;;) {
        ERR_clear_error();
        int rc = SSL_read_ex(t->ssl, data, size, &got);
        if (rc == 1)
            return (ssize_t)got;
        if (explain_refusal(t, rc, e) < 0)
            return -1;
        rc = may_pull ? pull_out(t, e) : 0;
        *dry = rc == 0;
        if (rc <= 0)
            return rc;
    }
}

static ssize_t tls_receive(struct tls *t, const struct iovec *part, int parts, struct err *e)
{
    ssize_t total = 0;
    bool dry = false;
    for (int i = 0; i < parts && !dry; i++) {
        for (size_t at = 0; at < part[i].iov_len && !dry;) {
            /* One recv at most in a call that has something to give: the caller decides how much is its
             * share. */
            ssize_t n =
                decrypt_bytes(t, (uint8_t *)part[i].iov_base + at, part[i].iov_len - at, total == 0, &dry, e);
            if (n < 0)
                return -1;
            at += (size_t)n;
            total += n;
        }
    }
    /* The handshake answers what it reads. */
    return t->out_len > 0 && push_out(t, e) < 0 ? -1 : total;
}

static bool has_unsent(const struct tls *t)
{
    return t->out_len > 0;
}

static bool has_unread(const struct tls *t)
{
    return t->in_len > 0 || SSL_pending(t->ssl) > 0;
}

const struct tls_ops hvd_tls_ops = {.open = tls_new,
                                    .close = tls_close,
                                    .send = tls_send,
                                    .receive = tls_receive,
                                    .unsent = has_unsent,
                                    .unread = has_unread};
