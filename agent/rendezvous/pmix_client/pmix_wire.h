/* Messages that a PMIx client sends, checked before the library reads them.
 *
 * The first message is the handshake: 16 bytes, of which the last 8 are the length of the rest. The rest: the
 * name of a security module, its credential (length, bytes), 0 for a client, name space, rank; then the names
 * of the client's version and modules. Lengths and the rank are in network order, the first length is not.
 * The library (of this version) believes a handshake unchecked: a rank that it does not know ends its
 * process.
 *
 * Later messages of a client of version 4 or 5 are 16 bytes (sender, tag, length: 4 bytes each in network
 * order, and 4 zeros), then as many bytes as the length says. The library makes room for whatever a length
 * says, and keeps messages whose tag nothing awaits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDSHAKE_MAX (64u << 10)

enum handshake_verdict { HANDSHAKE_MORE, HANDSHAKE_GOOD, HANDSHAKE_BAD };

struct pmix_handshake {
    size_t len; /* of the whole message */
    uint32_t rank;
    bool tool;      /* not good, because it is none of the job's ranks */
    size_t rank_at; /* offset of the rank in the message, in network order */
};

/* GOOD: the message is whole, the library can read it, and it names the name space `space`. */
enum handshake_verdict pmix_handshake_read(const uint8_t *bytes, size_t len, const char *space,
                                           struct pmix_handshake *g);

#define PMIX_STREAM_HEAD 16
#define PMIX_STREAM_MAX  (256u << 20) /* of one message: the tree takes no more */

struct pmix_stream { /* all zeros at the begin */
    uint8_t head[PMIX_STREAM_HEAD];
    size_t have;
    uint32_t left; /* of a message's body */
    uint32_t who;
    bool known; /* `who` has been read */
};

/* NULL, or what no client's library says; nothing after that is understood. */
const char *pmix_stream_follow(struct pmix_stream *s, const uint8_t *bytes, size_t len);
