/* Detects before a command starts whether it will use PMIx, from its files: libraries that a program is
 * linked to, words in a script.
 *
 * The answer decides when the server is started, never whether: a wrong answer costs time only. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_DETECT_H
#define HVD_AGENT_RENDEZVOUS_PMIX_CLIENT_DETECT_H

#include <stdbool.h>

/* `search`: the command's PATH; `wdir`: the directory that it will run in. */
bool detect_pmix(char *const *argv, const char *search, const char *wdir);

/* The same for one file. False when the file cannot be read. */
bool detect_pmix_in_file(const char *path);

#endif
