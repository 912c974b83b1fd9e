/* Detects before a command starts whether it will use PMIx, from its files: libraries that a program is
 * linked to, words in a script.
 *
 * The answer of detect_pmix decides when the server is started, never whether: a wrong answer costs time.
 * The answer of detect_mpi decides whether an elastic job begins. */
#pragma once

#include <stdbool.h>

/* `search`: the command's PATH; `wdir`: the directory that it will run in. */
bool detect_pmix(char *const *argv, const char *search, const char *wdir);

/* The same for MPI as well, also of those that do not use PMIx. */
bool detect_mpi(char *const *argv, const char *search, const char *wdir);

/* detect_pmix for one file. False when the file cannot be read. */
bool detect_pmix_in_file(const char *path);
