/* Connections to a server of ours in the name of ranks that have ended before they made one.
 *
 * The server would wait for such a rank in all that others of its host have begun. It learns of a rank's end
 * by the end of its connection: so it gets one that greets, and ends. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_SURROGATE_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_SURROGATE_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct stand_ins {
    uv_loop_t *loop;
    struct stand_in *first;
};

/* Greets the server at this port of loopback, and ends when it has closed the connection. The bytes are
 * copied. */
void stand_in_add(struct stand_ins *all, uint16_t port, const uint8_t *greeting, size_t len);
/* The handles are done with when the loop has run again. */
void stand_in_close_all(struct stand_ins *all);

#endif
