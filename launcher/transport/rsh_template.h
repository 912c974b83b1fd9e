/* --rsh: a command line such as `ssh -J gateway` or `ssh -p {port} {user}@{host}`, turned into an argument
 * vector. Pure. */
#pragma once

#include <stdbool.h>

#include "launcher/plan/hosts.h"
#include "launcher/transport/transport.h"

#define RSH_WORDS_MAX 256

struct rsh_argv {
    char *word[RSH_WORDS_MAX + 1]; /* NULL-terminated, each allocated */
    size_t count;
};

/* Checks a template without a host: -1 with *e (ERR_USAGE) when it has an open quote, an unknown placeholder
 * or no word. */
int rsh_template_check(const char *rsh, struct err *e);
/* The same for these hosts: ERR_USAGE when one has a user and the program takes none. */
int rsh_template_check_hosts(const char *rsh, const struct host_list *hosts, struct err *e);
/* The words of target->rsh (NULL: "ssh") with the placeholders filled, the host appended when none named it,
 * the options that ssh needs, and target->command as one last argument. Free with rsh_argv_free, also after a
 * failure. */
int rsh_template_expand(const struct transport_target *target, struct rsh_argv *argv, struct err *e);
void rsh_argv_free(struct rsh_argv *argv);

/* True for a line in which srun or kubectl says that the remote command ended with a status. Their own exit
 * status says so as well, and the line must not hide the command's last line. */
bool rsh_tells_status(const char *line);
