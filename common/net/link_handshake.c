#include "common/net/link_handshake.h"

#include <string.h>

#include "common/base/cursor.h"

static const uint8_t magic[8] = {'H', 'V', 'D', 'L', 'I', 'N', 'K', '\n'};

/* The purpose of each MAC. The MAC covers its purpose, so that none serves as another. */
static const char label_acceptor[] = "hvd link 1 acceptor";
static const char label_connector[] = "hvd link 1 connector";
static const char label_secret[] = "hvd link 1 tls";

#define PREFIX_SIZE (8 + 2 + 1 + 1)
#define FLAG_TLS    1
/* The part of CHALLENGE that its own MAC covers. */
#define CHALLENGE_OPEN (PREFIX_SIZE + AUTH_KEY_SIZE)

static int fail_handshake(struct link_handshake *h)
{
    h->state = LINK_HANDSHAKE_FAILED;
    h->out_size = 0;
    return -1;
}

static void write_prefix(struct writer *w, const struct link_identity *identity)
{
    write_bytes(w, magic, sizeof magic);
    write_u16(w, LINK_VERSION);
    write_u8(w, (uint8_t)identity->kind);
    write_u8(w, identity->encrypt ? FLAG_TLS : 0);
}

static int read_prefix(struct reader *r, const struct link_identity *identity, struct err *e)
{
    const uint8_t *m = read_bytes(r, sizeof magic);
    uint16_t version = read_u16(r);
    uint8_t kind = read_u8(r), flags = read_u8(r);
    if (!m || memcmp(m, magic, sizeof magic) != 0)
        return err_set(e, ERR_PROTOCOL, "the peer does not speak the link protocol");
    if (version != LINK_VERSION)
        return err_set(e, ERR_VERSION, "the peer speaks link protocol %u, this end %u", version,
                       LINK_VERSION);
    if (kind == identity->kind && flags == (identity->encrypt ? 0 : FLAG_TLS))
        return err_set(e, ERR_PROTOCOL, "the peer wants an %sencrypted link, this end does not",
                       identity->encrypt ? "un" : "");
    if (kind != identity->kind || flags != (identity->encrypt ? FLAG_TLS : 0))
        return err_set(e, ERR_PROTOCOL, "the peer wants a link of another kind (%u, flags %u)", kind, flags);
    return 0;
}

static int mac_acceptor(const struct link_handshake *h, uint8_t *mac, struct err *e)
{
    const struct auth_part part[] = {
        {label_acceptor, sizeof label_acceptor}, {h->hello, sizeof h->hello}, {h->challenge, CHALLENGE_OPEN}};
    if (h->identity->auth->hmac(h->identity->key, part, 3, mac) < 0)
        return err_set(e, ERR_SYSTEM, "cannot compute a link's MAC");
    return 0;
}

static int mac_connector(const struct link_handshake *h, uint8_t *mac, struct err *e)
{
    const struct auth_part part[] = {{label_connector, sizeof label_connector},
                                     {h->hello, sizeof h->hello},
                                     {h->challenge, sizeof h->challenge}};
    if (h->identity->auth->hmac(h->identity->key, part, 3, mac) < 0)
        return err_set(e, ERR_SYSTEM, "cannot compute a link's MAC");
    return 0;
}

static int init_handshake(struct link_handshake *h, const struct link_identity *identity, struct err *e)
{
    memset(h, 0, sizeof *h);
    h->identity = identity;
    if (identity->self >= identity->hosts || strlen(identity->job) > LINK_JOB_MAX)
        return err_set(e, ERR_PROTOCOL, "host %u of %u, job '%.80s' cannot make links", identity->self,
                       identity->hosts, identity->job);
    return 0;
}

int link_handshake_connect(struct link_handshake *h, const struct link_identity *identity, uint32_t peer,
                           const uint8_t *nonce, struct err *e)
{
    char job[LINK_JOB_MAX] = {0};
    if (init_handshake(h, identity, e) < 0)
        return fail_handshake(h);
    if (peer >= identity->hosts || peer == identity->self) {
        err_set(e, ERR_PROTOCOL, "host %u of %u cannot make a link to host %u", identity->self,
                identity->hosts, peer);
        return fail_handshake(h);
    }
    memcpy(job, identity->job, strlen(identity->job));
    struct writer w = writer_of(h->hello, sizeof h->hello);
    write_prefix(&w, identity);
    write_u32(&w, identity->epoch);
    write_u32(&w, identity->self);
    write_u32(&w, peer);
    write_bytes(&w, nonce, AUTH_KEY_SIZE);
    write_bytes(&w, job, sizeof job);
    h->peer = peer;
    h->out = h->hello;
    h->out_size = sizeof h->hello;
    h->state = LINK_HANDSHAKE_CHALLENGE;
    return 0;
}

int link_handshake_accept(struct link_handshake *h, const struct link_identity *identity,
                          const uint8_t *nonce, struct err *e)
{
    if (init_handshake(h, identity, e) < 0)
        return fail_handshake(h);
    struct writer w = writer_of(h->challenge, sizeof h->challenge);
    write_prefix(&w, identity);
    write_bytes(&w, nonce, AUTH_KEY_SIZE);
    h->state = LINK_HANDSHAKE_HELLO;
    return 0;
}

/* HELLO is here: answer it when it is meant for us. */
static int take_hello(struct link_handshake *h, struct err *e)
{
    const struct link_identity *identity = h->identity;
    struct reader r = reader_of(h->hello, sizeof h->hello);
    if (read_prefix(&r, identity, e) < 0)
        return -1;
    uint32_t epoch = read_u32(&r), from = read_u32(&r), to = read_u32(&r);
    read_bytes(&r, AUTH_KEY_SIZE);
    const uint8_t *job = read_bytes(&r, LINK_JOB_MAX);
    char own[LINK_JOB_MAX] = {0};
    memcpy(own, identity->job, strlen(identity->job));
    if (r.bad || memcmp(job, own, sizeof own) != 0)
        return err_set(e, ERR_PROTOCOL, "the peer belongs to another job");
    if (epoch != identity->epoch)
        return err_set(e, ERR_PROTOCOL, "the peer belongs to epoch %u, this is %u", epoch, identity->epoch);
    if (to != identity->self || from >= identity->hosts || from == identity->self)
        return err_set(e, ERR_PROTOCOL, "a link from host %u to host %u does not belong to host %u", from, to,
                       identity->self);
    if (mac_acceptor(h, h->challenge + CHALLENGE_OPEN, e) < 0)
        return -1;
    h->peer = from;
    h->out = h->challenge;
    h->out_size = sizeof h->challenge;
    h->state = LINK_HANDSHAKE_PROOF;
    return 0;
}

static int take_challenge(struct link_handshake *h, struct err *e)
{
    uint8_t mac[AUTH_MAC_SIZE];
    struct reader r = reader_of(h->challenge, sizeof h->challenge);
    if (read_prefix(&r, h->identity, e) < 0 || mac_acceptor(h, mac, e) < 0)
        return -1;
    if (!h->identity->auth->equal(mac, h->challenge + CHALLENGE_OPEN, sizeof mac))
        return err_set(e, ERR_PROTOCOL, "the peer does not have this job's key");
    h->state = LINK_HANDSHAKE_AUTHENTICATED;
    return 0;
}

static int take_proof(struct link_handshake *h, struct err *e)
{
    uint8_t mac[AUTH_MAC_SIZE];
    if (mac_connector(h, mac, e) < 0)
        return -1;
    if (!h->identity->auth->equal(mac, h->proof, sizeof mac))
        return err_set(e, ERR_PROTOCOL, "the peer does not have this job's key");
    h->state = LINK_HANDSHAKE_READY;
    return 0;
}

/* The message that each state waits for. */
static uint8_t *awaited_part(struct link_handshake *h, size_t *size)
{
    switch (h->state) {
    case LINK_HANDSHAKE_HELLO:
        *size = sizeof h->hello;
        return h->hello;
    case LINK_HANDSHAKE_CHALLENGE:
        *size = sizeof h->challenge;
        return h->challenge;
    case LINK_HANDSHAKE_PROOF:
        *size = sizeof h->proof;
        return h->proof;
    default:
        *size = 0;
        return NULL;
    }
}

size_t link_handshake_wants(const struct link_handshake *h)
{
    size_t size;
    awaited_part((struct link_handshake *)h, &size);
    return size - (size ? h->filled : 0);
}

int link_handshake_receive(struct link_handshake *h, const void *data, size_t size, struct err *e)
{
    size_t whole;
    uint8_t *message = awaited_part(h, &whole);
    if (!message || size > whole - h->filled) {
        err_set(e, ERR_PROTOCOL, "the peer sent more than the handshake allows");
        return fail_handshake(h);
    }
    memcpy(message + h->filled, data, size);
    h->filled += size;
    if (h->filled < whole)
        return 0;
    h->filled = 0;
    int rc = h->state == LINK_HANDSHAKE_HELLO       ? take_hello(h, e)
             : h->state == LINK_HANDSHAKE_CHALLENGE ? take_challenge(h, e)
                                                    : take_proof(h, e);
    return rc < 0 ? fail_handshake(h) : 0;
}

int link_handshake_choose(struct link_handshake *h, struct err *e)
{
    if (h->state != LINK_HANDSHAKE_AUTHENTICATED) {
        err_set(e, ERR_PROTOCOL, "a link that is not authenticated cannot be chosen");
        return fail_handshake(h);
    }
    if (mac_connector(h, h->proof, e) < 0)
        return fail_handshake(h);
    h->out = h->proof;
    h->out_size = sizeof h->proof;
    h->state = LINK_HANDSHAKE_READY;
    return 0;
}

int link_handshake_secret(const struct link_handshake *h, uint8_t secret[AUTH_MAC_SIZE], struct err *e)
{
    const struct auth_part part[] = {{label_secret, sizeof label_secret},
                                     {h->hello, sizeof h->hello},
                                     {h->challenge, sizeof h->challenge}};
    if (h->state != LINK_HANDSHAKE_READY || h->identity->auth->hmac(h->identity->key, part, 3, secret) < 0)
        return err_set(e, ERR_SYSTEM, "cannot compute a link's key");
    return 0;
}

const void *link_handshake_output(const struct link_handshake *h, size_t *size)
{
    *size = h->out_size;
    return h->out;
}

void link_handshake_sent(struct link_handshake *h, size_t sent)
{
    if (sent == 0)
        return;
    h->out += sent;
    h->out_size -= sent;
}
