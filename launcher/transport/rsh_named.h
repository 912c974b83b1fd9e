/* Programs that --rsh knows by name: srun and kubectl. Pure. */
#ifndef HVD_LAUNCHER_TRANSPORT_RSH_NAMED_H
#define HVD_LAUNCHER_TRANSPORT_RSH_NAMED_H

#include <stdbool.h>

#include "launcher/transport/rsh_template.h"

/* True when `word`, a name or a path, is this program. */
bool rsh_is_program(const char *word, const char *program);
/* The template that `rsh` stands for: another one for `srun`, else itself. */
const char *rsh_named(const char *rsh);
/* Adds what kubectl's words lack. ERR_USAGE when they cannot carry a byte stream. */
int rsh_named_complete(struct rsh_argv *words, struct err *e);
/* srun and kubectl reach a host as they are: `user@` means nothing to them. */
bool rsh_named_knows_no_user(const char *rsh, const struct rsh_argv *words);
/* True for a line in which a carrier says that the remote command ended with a status, which its own exit
 * status says as well: it must not hide the command's last words. */
bool rsh_tells_status(const char *line);

#endif
