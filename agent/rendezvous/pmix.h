/* Between the PMIx contract (pmix.c, part of hvdagent) and its server (the module pmix, pmix/pmix_*.c, which
 * alone knows the library).
 *
 * The contract opens the doorway and says beforehand what the server's library will tell its clients; the
 * module starts the server, compares, and answers the library's upcalls through exchange.h. */
#ifndef HVD_AGENT_PMIX_H
#define HVD_AGENT_PMIX_H

#include <stddef.h>
#include <stdint.h>

#include "agent/rendezvous/rendezvous.h"

#define PMIX_MODULE        "pmix"
#define PMIX_MODULE_SYMBOL "pmix_module"

/* The name of the `host`-th host for the library: its own where that has no strange characters. */
void pmix_node_name(const struct rendezvous *r, uint32_t host, char *name, size_t size);
/* The server's name. */
void pmix_server_name(const struct rendezvous *r, char *name, size_t size);
/* Where it keeps its files. */
void pmix_server_directory(const struct rendezvous *r, char *path, size_t size);

/* What the server says of itself, once. `why` NULL: it listens on loopback at `port`, and `environment` is
 * what the library wants its clients to have (valid during the call). Else it will never be. */
typedef void pmix_started(void *ctx, const struct err *why, uint16_t port, char *const *environment);

/* The module's functions; all on the loop's thread. */
struct pmix_module {
    /* NULL with *e. `now`: `started` is called before it returns, else from the loop. */
    void *(*start)(struct rendezvous *r, bool now, pmix_started *started, void *ctx, struct err *e);
    void (*rank_ended)(void *server, uint32_t rank);
    struct exchange_handler handler; /* its ctx is the server */
    /* Its handles are closed when the loop has run again, in bounded time; `server` is freed then. */
    void (*stop)(void *server);
};

#endif
