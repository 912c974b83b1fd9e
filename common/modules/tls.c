/* Module `tls`: the operations of common/net/tls.h on OpenSSL.
 *
 * The handshake is TLS 1.3 of libssl, which sees a BIO of ours in place of the socket: what it writes is
 * gathered in `out`, and what it reads comes from `in`. Behind the handshake come records of our own, with
 * keys that TLS exports (RFC 8446, 7.5), a key for each direction and epoch:
 *
 *      0        4            4 + length   20 + length
 *      | length | ciphertext | tag        |                 (little endian)
 *
 * A record is AES-128-GCM; the length is authenticated with it. The nonce is the exported one, with the
 * number of the record in its last 8 bytes. TLS's records hold 16 KiB, and libssl copies the bytes twice at
 * either end. Ours are larger, and go from where they lie into `out`, and from `in` to their place. */
#include "common/net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/buf.h"
#include "common/process/module.h"

#define RECORD     (256u << 10) /* most plaintext in one record */
#define HEAD       4u
#define TAG        16u
#define SEALED_MAX (HEAD + RECORD + TAG)
#define ALONE_FROM 4096u /* a part as large as this shares no record with others */
#define GATHERED   (64u << 10)
#define READ_LEAST (16u << 10) /* asked of the socket at once, for small records */
#define IN_SIZE    (2 * SEALED_MAX + READ_LEAST)
#define OUT_FULL   (1u << 20) /* from here on nothing more is taken */
#define OUT_SIZE   (OUT_FULL + SEALED_MAX)
#define PUSH_FROM  (64u << 10) /* records are sent while they are in the cache */
/* AES-GCM may encrypt about 2^34.5 blocks with one key (RFC 8446, 5.5); these are 2^30. */
#define KEY_RECORDS (1u << 16)
#define FIRST_MAX   1024u

extern const char hvd_module_version[];
extern const struct tls_ops hvd_tls_ops;

MODULE_DEFINE_VERSION;

enum direction { FROM_CLIENT, FROM_SERVER };

/* The records of one direction. */
struct lane {
    EVP_CIPHER_CTX *cipher;
    enum direction direction;
    uint8_t nonce[12];
    uint64_t records; /* so far; the next one's number */
};

struct tls {
    SSL *ssl;
    int fd;
    bool ready; /* the handshake has ended, and the lanes have keys */
    uint8_t secret[TLS_SECRET_SIZE];
    struct lane sealing, opening;
    size_t in_at, in_len;
    size_t out_at, out_len;
    size_t plain_at, plain_len;
    uint8_t in[IN_SIZE];
    uint8_t out[OUT_SIZE];
    uint8_t gather[GATHERED]; /* small parts, together in one record */
    uint8_t plain[RECORD];    /* of a record that the caller had too little room for */
};

/* ---- the socket as OpenSSL sees it --------------------------------------------------------------------- */

static int bio_write(BIO *bio, const char *data, size_t size, size_t *taken)
{
    struct tls *t = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
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
    EVP_CIPHER_CTX_free(t->sealing.cipher);
    EVP_CIPHER_CTX_free(t->opening.cipher);
    OPENSSL_cleanse(t->secret, sizeof t->secret);
    OPENSSL_cleanse(t->gather, sizeof t->gather);
    OPENSSL_cleanse(t->plain, sizeof t->plain);
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
    t->sealing.direction = client ? FROM_CLIENT : FROM_SERVER;
    t->opening.direction = client ? FROM_SERVER : FROM_CLIENT;
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

/* ---- the socket ---------------------------------------------------------------------------------------- */

/* Sends what waits, as far as the socket takes it. */
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

/* One recv, with room for `wanted` bytes in all. 1: bytes came; 0: the socket has none; -1 with *e. */
static int pull_in(struct tls *t, size_t wanted, struct err *e)
{
    size_t room = wanted > t->in_len + READ_LEAST ? wanted - t->in_len : READ_LEAST;
    if (room > IN_SIZE - t->in_at - t->in_len) {
        memmove(t->in, t->in + t->in_at, t->in_len);
        t->in_at = 0;
    }
    ssize_t n = recv(t->fd, t->in + t->in_at + t->in_len, room, MSG_DONTWAIT);
    if (n == 0)
        return err_set(e, ERR_CLOSED, "it closed the connection");
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR
                   ? 0
                   : err_sys(e, errno, "the connection broke");
    t->in_len += (size_t)n;
    return 1;
}

static void consume_in(struct tls *t, size_t size)
{
    t->in_at += size;
    t->in_len -= size;
    if (t->in_len == 0)
        t->in_at = 0;
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* The key and the nonce of the lane's next records. */
static int set_key(struct tls *t, struct lane *lane, struct err *e)
{
    static const char label[] = "EXPERIMENTAL hvd link 1";
    uint8_t context[5] = {(uint8_t)lane->direction}, key[16 + sizeof lane->nonce];
    put_u32(context + 1, (uint32_t)(lane->records / KEY_RECORDS));
    if (!lane->cipher)
        lane->cipher = EVP_CIPHER_CTX_new();
    bool sealing = lane == &t->sealing;
    bool done = lane->cipher &&
                SSL_export_keying_material(t->ssl, key, sizeof key, label, sizeof label - 1, context,
                                           sizeof context, 1) == 1 &&
                EVP_CipherInit_ex(lane->cipher, EVP_aes_128_gcm(), NULL, key, NULL, sealing) == 1;
    memcpy(lane->nonce, key + 16, sizeof lane->nonce);
    OPENSSL_cleanse(key, sizeof key);
    return done ? 0 : openssl_error(e, "cannot make the keys of an encrypted link");
}

/* Before each record. */
static int start_record(struct tls *t, struct lane *lane, const uint8_t head[HEAD], struct err *e)
{
    uint8_t nonce[sizeof lane->nonce], number[8];
    int n;
    if (lane->records > 0 && lane->records % KEY_RECORDS == 0 && set_key(t, lane, e) < 0)
        return -1;
    put_u32(number, (uint32_t)lane->records);
    put_u32(number + 4, (uint32_t)(lane->records >> 32));
    memcpy(nonce, lane->nonce, sizeof nonce);
    for (size_t i = 0; i < sizeof number; i++)
        nonce[sizeof nonce - sizeof number + i] ^= number[i];
    lane->records++;
    if (EVP_CipherInit_ex(lane->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
        EVP_CipherUpdate(lane->cipher, NULL, &n, head, HEAD) == 1)
        return 0;
    return openssl_error(e, "the encrypted link broke");
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
        return openssl_error(e, "the link's TLS handshake failed");
    }
}

/* With what is here. -1 with *e; else t->ready says whether it has ended. */
static int do_handshake(struct tls *t, struct err *e)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(t->ssl);
    if (rc != 1)
        return explain_refusal(t, rc, e);
    t->ready = true;
    return set_key(t, &t->sealing, e) < 0 || set_key(t, &t->opening, e) < 0 ? -1 : 0;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* The bytes of the next record: from where they lie, or small parts gathered. */
static const void *next_record(struct tls *t, const struct iovec *part, int parts, size_t skip, size_t *size)
{
    size_t here = part->iov_len - skip;
    if (here >= ALONE_FROM || parts == 1) {
        *size = here < RECORD ? here : RECORD;
        return (const uint8_t *)part->iov_base + skip;
    }
    for (*size = 0; parts > 0 && *size < GATHERED; part++, parts--, skip = 0) {
        size_t left = part->iov_len - skip, n = left < GATHERED - *size ? left : GATHERED - *size;
        if (left >= ALONE_FROM)
            break;
        if (n > 0)
            memcpy(t->gather + *size, (const uint8_t *)part->iov_base + skip, n);
        *size += n;
    }
    return t->gather;
}

static int seal_record(struct tls *t, const void *data, size_t size, struct err *e)
{
    EVP_CIPHER_CTX *cipher = t->sealing.cipher;
    uint8_t *at = t->out + t->out_at + t->out_len;
    int n, last;
    put_u32(at, (uint32_t)size);
    if (start_record(t, &t->sealing, at, e) < 0)
        return -1;
    if (EVP_EncryptUpdate(cipher, at + HEAD, &n, data, (int)size) != 1 ||
        EVP_EncryptFinal_ex(cipher, at + HEAD + n, &last) != 1 ||
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, TAG, at + HEAD + size) != 1)
        return openssl_error(e, "the encrypted link broke");
    t->out_len += HEAD + size + TAG;
    return 0;
}

/* There is room for a record behind what waits. */
static bool has_room(struct tls *t)
{
    if (t->out_len >= OUT_FULL)
        return false;
    if (SEALED_MAX > OUT_SIZE - t->out_at - t->out_len) {
        memmove(t->out, t->out + t->out_at, t->out_len);
        t->out_at = 0;
    }
    return true;
}

static ssize_t tls_send(struct tls *t, const struct iovec *part, int parts, struct err *e)
{
    size_t skip = 0;
    ssize_t taken = 0;
    if ((!t->ready && do_handshake(t, e) < 0) || push_out(t, e) < 0)
        return -1;
    while (t->ready && parts > 0 && has_room(t)) {
        size_t size;
        const void *data = next_record(t, part, parts, skip, &size);
        if (size > 0 && seal_record(t, data, size, e) < 0)
            return -1;
        taken += (ssize_t)size;
        for (skip += size; parts > 0 && skip >= part->iov_len; parts--)
            skip -= part++->iov_len;
        if ((parts == 0 || t->out_len >= PUSH_FROM) && push_out(t, e) < 0)
            return -1;
    }
    return taken;
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

/* The place of decrypted bytes: the rest of the caller's parts. */
struct room {
    const struct iovec *part;
    int parts;
    size_t at; /* in the first of them */
};

static size_t count_room(const struct room *r)
{
    size_t n = 0;
    for (int i = 0; i < r->parts; i++)
        n += r->part[i].iov_len;
    return n - r->at;
}

/* The next place, of `size` bytes at most; NULL: there is none. */
static uint8_t *next_place(struct room *r, size_t *size)
{
    while (r->parts > 0 && r->at == r->part->iov_len) {
        r->part++;
        r->parts--;
        r->at = 0;
    }
    if (r->parts == 0)
        return NULL;
    size_t left = r->part->iov_len - r->at;
    *size = *size < left ? *size : left;
    uint8_t *place = (uint8_t *)r->part->iov_base + r->at;
    r->at += *size;
    return place;
}

/* Decrypts the record at the front of `in` into the room, and the rest of it into `plain`. Returns the bytes
 * in the room. After -1 the room may hold bytes that were not authenticated: the link is to be closed. */
static ssize_t open_record(struct tls *t, struct room *r, size_t size, struct err *e)
{
    EVP_CIPHER_CTX *cipher = t->opening.cipher;
    uint8_t *head = t->in + t->in_at, *text = head + HEAD;
    size_t done = 0, placed = 0;
    int n;
    if (start_record(t, &t->opening, head, e) < 0)
        return -1;
    while (done < size) {
        size_t piece = size - done;
        uint8_t *place = next_place(r, &piece);
        if (place)
            placed += piece;
        else
            t->plain_len = piece; /* all the rest */
        if (EVP_DecryptUpdate(cipher, place ? place : t->plain, &n, text + done, (int)piece) != 1)
            return openssl_error(e, "the encrypted link broke");
        done += piece;
    }
    uint8_t none[TAG];
    if (EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, TAG, text + size) != 1 ||
        EVP_DecryptFinal_ex(cipher, none, &n) != 1) {
        t->plain_len = 0;
        return err_set(e, ERR_PROTOCOL, "the encrypted link broke: other bytes came than were sent");
    }
    t->plain_at = 0;
    consume_in(t, HEAD + size + TAG);
    return (ssize_t)placed;
}

/* Bytes of the next record with head and tag; of its head alone when no more is known. 0 with *e: it cannot
 * be. */
static size_t count_next(const struct tls *t, struct err *e)
{
    if (t->in_len < HEAD)
        return HEAD;
    size_t size = get_u32(t->in + t->in_at);
    if (size > 0 && size <= RECORD)
        return HEAD + size + TAG;
    err_set(e, ERR_PROTOCOL, "the encrypted link broke: a record of %zu bytes", size);
    return 0;
}

static bool has_record(const struct tls *t, size_t whole)
{
    return whole > HEAD && t->in_len >= whole;
}

static ssize_t take_plain(struct tls *t, struct room *r)
{
    size_t total = 0;
    while (t->plain_len > 0) {
        size_t n = t->plain_len;
        uint8_t *place = next_place(r, &n);
        if (!place)
            break;
        memcpy(place, t->plain + t->plain_at, n);
        t->plain_at += n;
        t->plain_len -= n;
        total += n;
    }
    return (ssize_t)total;
}

/* 1: a whole record is here, of *whole bytes; 0: the socket has no more. */
static int await_record(struct tls *t, bool may_pull, size_t *whole, struct err *e)
{
    for (;;) {
        *whole = count_next(t, e);
        if (*whole == 0)
            return -1;
        if (has_record(t, *whole))
            return 1;
        int rc = may_pull ? pull_in(t, *whole + HEAD, e) : 0;
        if (rc <= 0)
            return rc;
    }
}

static int advance_handshake(struct tls *t, struct err *e)
{
    int rc = 1;
    while (rc > 0) {
        if (do_handshake(t, e) < 0)
            return -1;
        rc = t->ready ? 0 : pull_in(t, 0, e);
    }
    /* The handshake answers what it reads. */
    return rc < 0 || push_out(t, e) < 0 ? -1 : 0;
}

/* The socket is asked only in a call that has nothing else to give: the caller decides how much is its
 * share. */
static ssize_t tls_receive(struct tls *t, const struct iovec *part, int parts, struct err *e)
{
    struct room r = {part, parts, 0};
    if (!t->ready && advance_handshake(t, e) < 0)
        return -1;
    ssize_t total = take_plain(t, &r);
    while (t->ready && count_room(&r) > 0) {
        size_t whole;
        int rc = await_record(t, total == 0, &whole, e);
        if (rc < 0)
            return -1;
        size_t size = whole - HEAD - TAG;
        if (rc == 0 || (total > 0 && size > count_room(&r)))
            break;
        ssize_t n = open_record(t, &r, size, e);
        if (n < 0)
            return -1;
        total += n;
    }
    return total;
}

static bool has_unsent(const struct tls *t)
{
    return t->out_len > 0;
}

static bool has_unread(const struct tls *t)
{
    return t->plain_len > 0 || t->in_len > 0;
}

const struct tls_ops hvd_tls_ops = {.open = tls_new,
                                    .close = tls_close,
                                    .send = tls_send,
                                    .receive = tls_receive,
                                    .unsent = has_unsent,
                                    .unread = has_unread};
