/* Encryption of a connection whose two ends share a secret (module `tls`, OpenSSL): what --encrypt puts under
 * data links. The handshake is TLS 1.3; the records behind it are AES-128-GCM with keys that TLS exports.
 *
 * Sans waiting: the handshake runs inside of the first sends and receives, the ciphertext that the socket
 * does not take waits here. The secret is an external pre-shared key (RFC 8446, 4.2.11) that both ends
 * derived from the job key and from this connection's own nonces; with it goes an ephemeral key exchange, so
 * a job key that leaks later opens nothing that was recorded. No certificates, no resumption. One cipher,
 * with new keys every 2^16 records of 256 KiB, long before what one key may encrypt. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "common/base/err.h"

#define TLS_SECRET_SIZE 32

struct tls;

/* All calls on one connection from one thread. */
struct tls_ops {
    /* For the connected, nonblocking socket `fd`, which stays the caller's. `first` (copied) goes out before,
     * in the clear. NULL with *e. */
    struct tls *(*open)(int fd, const uint8_t secret[TLS_SECRET_SIZE], bool client, const void *first,
                        size_t first_size, struct err *e);
    void (*close)(struct tls *t);
    /* Takes what fits, and sends as much of that as the socket takes. Returns the bytes taken (of any part,
     * in order): the caller may change them. 0: nothing fits, or the handshake has not ended. -1 with *e: the
     * connection is lost. With no parts: sends what waits. */
    ssize_t (*send)(struct tls *t, const struct iovec *part, int parts, struct err *e);
    /* Puts decrypted bytes into the parts, in order, and returns their number; 0: there are none now. -1 with
     * *e: the connection is lost or has ended (ERR_CLOSED), or the bytes were not from the other end. Then
     * anything may lie in the parts, and the connection is to be closed. */
    ssize_t (*receive)(struct tls *t, const struct iovec *part, int parts, struct err *e);
    bool (*unsent)(const struct tls *t); /* ciphertext waits for room in the socket */
    bool (*unread)(const struct tls *t); /* bytes that the socket has already given wait for receive() */
};

/* The operations of module `tls`; opened by the first call, static afterwards. NULL with *e. */
const struct tls_ops *tls_open(struct err *e);
