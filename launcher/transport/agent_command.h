/* The shell command line that runs hvdagent on a remote host. Pure. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

/* Tries `<dir>/hvdagent`, then hvdagent on PATH; only `agent_path` when that is not NULL. The line is the
 * same for every login shell (sh, bash, csh, fish, ...): all of it is one quoted argument of /bin/sh. -1 with
 * *e when `out` is too small or a path or an argument has a newline in it. `arguments` are hvdagent's, ended
 * by NULL. */
int agent_command(const char *dir, const char *agent_path, char *const *arguments, char *out, size_t size,
                  struct err *e);

/* `script` as a command line that reads alike in every login shell; -1 when it has a newline or `out` is too
 * small. */
int agent_command_wrap(const char *script, char *out, size_t size);
/* Appends `text` to `out`, a string, as one quoted word of /bin/sh. -1 when it does not fit. */
int agent_command_quote(const char *text, char *out, size_t size);
