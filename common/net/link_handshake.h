/* The handshake of a data link, the same between two sessions and between two engines. Sans I/O: bytes in,
 * bytes out.
 *
 *   connector                                   acceptor
 *     HELLO  ------------------------------------->      my index, the index I want, job and epoch, my nonce
 *            <------------------------------------- CHALLENGE   its nonce,
 *                                                               MAC(key, "acceptor", HELLO, its nonce)
 *     (the link is authenticated: the connector may compare it with others and drop it)
 *     PROOF  ------------------------------------->      MAC(key, "connector", HELLO, CHALLENGE)
 *     (chosen; both ends are ready)
 *
 * Every message has one fixed size, so nothing that a stranger sends is ever measured or stored beyond it.
 * The fields and their bytes, in their order, integers little endian:
 *
 *   HELLO      magic "HVDLINK\n" 8, version 2, kind 1, flags 1 (bit 0: TLS follows), epoch 4, from 4, to 4,
 *              nonce 32, job 64 (zero padded)
 *   CHALLENGE  magic 8, version 2, kind 1, flags 1, nonce 32, MAC 32
 *   PROOF      MAC 32
 *
 * Why it holds: both MACs cover both nonces, so nothing recorded can be played again; they cover role, job,
 * epoch, kind, flags and both host indexes, so nothing can be reflected, used for another link or made to go
 * unencrypted; a host never accepts itself. The limit: an attacker on the wire can change bytes that flow
 * after PROOF. TLS prevents that (--encrypt; both ends want it, or there is no link): it begins right after
 * PROOF, with a key of its own for this one connection (link_handshake_secret).
 *
 * Anything unexpected is an error; the owner closes the connection. Deadlines are the owner's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/auth.h"

#define LINK_VERSION        2
#define LINK_JOB_MAX        64
#define LINK_HELLO_SIZE     (8 + 2 + 1 + 1 + 4 + 4 + 4 + 32 + LINK_JOB_MAX)
#define LINK_CHALLENGE_SIZE (8 + 2 + 1 + 1 + 32 + AUTH_MAC_SIZE)
#define LINK_PROOF_SIZE     AUTH_MAC_SIZE

enum link_kind { LINK_SESSION = 1, LINK_ENGINE = 2, LINK_RANK = 3 };

/* This end; the pointers must stay valid as long as a handshake uses them. */
struct link_identity {
    const struct auth_ops *auth;
    const uint8_t *key; /* AUTH_KEY_SIZE bytes */
    const char *job;    /* at most LINK_JOB_MAX bytes */
    uint32_t epoch;
    enum link_kind kind;
    uint32_t self;  /* host index */
    uint32_t hosts; /* indexes lie below this */
    bool encrypt;   /* TLS follows */
};

enum link_handshake_state {
    LINK_HANDSHAKE_HELLO,         /* acceptor: waits for HELLO */
    LINK_HANDSHAKE_CHALLENGE,     /* connector: waits for CHALLENGE */
    LINK_HANDSHAKE_AUTHENTICATED, /* connector: the peer is who it should be; link_handshake_choose goes on */
    LINK_HANDSHAKE_PROOF,         /* acceptor: waits for PROOF */
    LINK_HANDSHAKE_READY,         /* the rest of the output still has to be sent */
    LINK_HANDSHAKE_FAILED
};

struct link_handshake {
    const struct link_identity *identity;
    enum link_handshake_state state;
    uint32_t peer; /* acceptor: known, and not yet authenticated, from PROOF on */
    uint8_t hello[LINK_HELLO_SIZE];
    uint8_t challenge[LINK_CHALLENGE_SIZE];
    uint8_t proof[LINK_PROOF_SIZE];
    size_t filled; /* bytes of the awaited message */
    const uint8_t *out;
    size_t out_size;
};

/* `nonce`: AUTH_KEY_SIZE fresh random bytes, copied. */
int link_handshake_connect(struct link_handshake *h, const struct link_identity *identity, uint32_t peer,
                           const uint8_t *nonce, struct err *e);
int link_handshake_accept(struct link_handshake *h, const struct link_identity *identity,
                          const uint8_t *nonce, struct err *e);
/* How many bytes may be read now: never more than the awaited message still lacks, so no byte of what follows
 * is taken. */
size_t link_handshake_wants(const struct link_handshake *h);
/* Takes `size` (at most link_handshake_wants) bytes of the peer. -1 with *e: close the connection. */
int link_handshake_receive(struct link_handshake *h, const void *data, size_t size, struct err *e);
/* Connector, AUTHENTICATED: this link is the one. */
int link_handshake_choose(struct link_handshake *h, struct err *e);
/* READY: the connection's own key for TLS. -1 with *e. */
int link_handshake_secret(const struct link_handshake *h, uint8_t secret[AUTH_MAC_SIZE], struct err *e);
/* Bytes to send, *size of them (0: none); `sent` of them were. */
const void *link_handshake_output(const struct link_handshake *h, size_t *size);
void link_handshake_sent(struct link_handshake *h, size_t sent);
