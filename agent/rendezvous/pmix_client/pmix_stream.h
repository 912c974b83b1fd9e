/* Messages of a connected PMIx client of version 4 or 5: 16 bytes (sender, tag, length: 4 bytes each in
 * network order, and 4 zeros), then as many bytes as the length says. The library makes room for
 * whatever a length says, and keeps what has a tag that nobody awaits. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_STREAM_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
