/* Will a command use PMIx? Asked before it is started, from what its files say: libraries that a program is
 * linked to, words in a script.
 *
 * A guess decides when something is started, never whether: who is wrong is slower. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_DETECT_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_DETECT_H

#include <stdbool.h>

/* `search`: the command's PATH; `wdir`: the directory that it will run in. */
bool guess_uses_pmix(char *const *argv, const char *search, const char *wdir);

/* Is this file one that does? False when it cannot be read. */
bool guess_file_uses_pmix(const char *path);

#endif
