/* --rendezvous: words into the bits of common/protocol/contracts.h. Pure. */
#ifndef HVD_LAUNCHER_CLI_RENDEZVOUS_OPTION_H
#define HVD_LAUNCHER_CLI_RENDEZVOUS_OPTION_H

#include "common/base/err.h"
#include "common/protocol/contracts.h"

/* `text`: none, or some of auto, env, pmix, pmi1, gloo, jax, tf and paddle by comma. pmix by name starts its
 * server before the workers. -1 with *e (ERR_USAGE). */
int contracts_parse(const char *text, unsigned *contracts, struct err *e);

#endif
