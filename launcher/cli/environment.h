/* The environment that workers start with: hvdrun's own, like horovodrun, less what would mislead them, then
 * what the user says.
 *
 *   1. everything in hvdrun's environment
 *   2. less the ranks and connections of another launcher, inside which hvdrun may run (PMI_*, RANK, ...)
 *   3. less what is true on one host only (CUDA_VISIBLE_DEVICES, SSH_*, ...), unless the job is all here
 *   4. less --unset
 *   5. plus -x: VAR and PREFIX* bring hvdrun's value back even when 2 to 4 took it away, VAR=value sets one
 *
 * The session then adds each rank's own variables, which win. The lists and the reason of each entry are in
 * environment.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/options/options.h"

struct environment {
    char **variable; /* NAME=value; count of them, then NULL */
    size_t count;
};

/* Builds it from envp (NULL at its end). `local_only`: all workers run on this host. ERR_USAGE names a
 * bad -x or --unset. */
int environment_build(struct environment *env, char *const envp[], const struct option_list *set,
                      const struct option_list *unset, bool local_only, struct err *e);
void environment_free(struct environment *env);
/* Adds a variable, or replaces one of the same name. */
int environment_set(struct environment *env, const char *name, const char *value, struct err *e);
/* The value of a variable, or NULL. */
const char *environment_get(const struct environment *env, const char *name);

/* ---- for reports --------------------------------------------------------------------------------------- */

/* The variables that matter for training, those of a list, as an object "environment". A name that sounds
 * like a secret is never in it. */
void environment_put(const struct environment *env, struct json *w);
/* A word of hvdrun's command line, with the word before it or NULL. A variable that -x sets stays without its
 * value, unless environment_put would show that variable, and --mpi-args without the arguments. */
void environment_put_word(const char *before, const char *word, struct json *w);
