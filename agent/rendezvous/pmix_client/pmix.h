/* Between the PMIx contract (pmix.c, part of hvdagent) and its server (hvd-pmix, pmix/, which alone knows the
 * library): the names that both use.
 *
 * The contract opens the doorway and says beforehand what the server's library will tell its clients; the
 * server is started by pmix_host.h, says what the library wants, and answers its upcalls through tree.h.
 */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_PMIX_H

#include <stddef.h>
#include <stdint.h>

#include "agent/rendezvous/rendezvous.h"

#define PMIX_PROGRAM "hvd-pmix"

/* The name of the `host`-th host for the library: its own where that has no strange characters. */
void pmix_node_name(const struct rendezvous *r, uint32_t host, char *name, size_t size);
/* The server's name. */
void pmix_server_name(const struct rendezvous *r, char *name, size_t size);
/* Where it keeps its files. */
void pmix_server_directory(const struct rendezvous *r, char *path, size_t size);

#endif
