/* The shell command line that runs hvdagent on a remote host. Pure. */
#ifndef HVD_LAUNCHER_AGENT_COMMAND_H
#define HVD_LAUNCHER_AGENT_COMMAND_H

#include <stddef.h>

#include "common/err.h"

/* Tries `<dir>/hvdagent`, then hvdagent on PATH; only `agent_path` when that is not NULL. The line is the
 * same for every login shell (sh, bash, csh, fish, ...): all of it is one quoted argument of /bin/sh. -1 with
 * *e when `out` is too small or a path or an argument has a newline in it. `arguments` are hvdagent's, ended
 * by NULL. */
int agent_command(const char *dir, const char *agent_path, char *const *arguments, char *out, size_t size,
                  struct err *e);

#endif
