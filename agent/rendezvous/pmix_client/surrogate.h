/* Connections to the PMIx server in the name of ranks that have ended before they made one.
 *
 * The server would wait for such a rank in operations that other ranks of its host have begun. The server
 * learns of a rank's end by the end of its connection: so a surrogate connects for the rank, sends its
 * handshake, and ends. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_SURROGATE_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_SURROGATE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct surrogates {
    uv_loop_t *loop;
    struct surrogate *first;
};

/* Sends the handshake (copied) to the server at this port of loopback, and ends when the server has closed
 * the connection. */
void surrogates_add(struct surrogates *all, uint16_t port, const uint8_t *handshake, size_t len);
/* The handles are closed when the loop has run again. */
void surrogates_close(struct surrogates *all);

#endif
