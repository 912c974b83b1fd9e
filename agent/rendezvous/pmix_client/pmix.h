/* Names that the PMIx method (pmix.c, part of hvdagent) and its server (hvd-pmix, pmix_server/) both use.
 * Only the server knows the library.
 *
 * The method opens the listener, and computes beforehand the environment that the server's library will want
 * for its clients. pmix_host.h starts the server, which reports that environment and serves the library
 * through tree.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "agent/rendezvous/rendezvous.h"

#define PMIX_PROGRAM "hvd-pmix"

/* The name of the `host`-th host for the library: the host's own name, unless it has strange characters. */
void pmix_node_name(const struct rendezvous *r, uint32_t host, char *name, size_t size);
/* The server's name. */
void pmix_server_name(const struct rendezvous *r, char *name, size_t size);
/* The directory of the server's files. */
void pmix_server_directory(const struct rendezvous *r, char *path, size_t size);
