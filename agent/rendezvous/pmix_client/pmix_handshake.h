/* The first message of a PMIx client, which the library (of this version) believes without looking twice: a
 * rank that it does not know ends its process. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_HANDSHAKE_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "agent/rendezvous/pmix_client/proxy.h"

struct pmix_handshake {
    size_t len; /* of the whole message */
    uint32_t rank;
    bool tool;      /* not good, because it is none of the job's ranks */
    size_t rank_at; /* offset of the rank in the message, in network order */
};

/* Is it whole, one that the library can read, and of the name space? */
enum proxy_handshake pmix_handshake_read(const uint8_t *bytes, size_t len, const char *space,
                                         struct pmix_handshake *g);

#endif
