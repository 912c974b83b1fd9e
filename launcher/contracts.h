/* --rendezvous: words into the bits of common/contracts.h. Pure. */
#ifndef HVD_LAUNCHER_CONTRACTS_H
#define HVD_LAUNCHER_CONTRACTS_H

#include "common/contracts.h"
#include "common/err.h"

/* `text`: none, or some of auto, env, pmix, pmi1, gloo, jax, tf and paddle by comma. pmix by name starts its
 * server before the workers. -1 with *e (ERR_USAGE). */
int contracts_parse(const char *text, unsigned *contracts, struct err *e);

#endif
