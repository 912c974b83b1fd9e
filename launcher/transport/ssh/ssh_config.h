/* The ssh configuration for one host: the defaults, or the output of `ssh -G`. Parsing is pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define SSH_PATHS_MAX 32
#define SSH_NAME_MAX  256
#define SSH_PATH_MAX  1024

struct ssh_paths {
    char *path[SSH_PATHS_MAX];
    size_t count;
};

enum ssh_strict { SSH_STRICT_YES, SSH_STRICT_ACCEPT_NEW, SSH_STRICT_NO };

struct ssh_config {
    char hostname[SSH_NAME_MAX];
    char user[SSH_NAME_MAX];
    char host_key_alias[SSH_NAME_MAX]; /* empty: none */
    uint16_t port;
    int family; /* AF_UNSPEC, AF_INET, AF_INET6 */
    enum ssh_strict strict;
    bool identities_only;
    bool no_public_key;
    char agent[SSH_PATH_MAX]; /* the agent's socket; empty: no agent */
    struct ssh_paths identity, user_known, global_known;
    char unsupported[SSH_NAME_MAX]; /* a setting that only the ssh program can follow; empty: none */
};

/* The user and the places of its files; every pointer outlives the call. */
struct ssh_user {
    const char *home;
    const char *name;
    const char *agent; /* SSH_AUTH_SOCK or NULL */
    bool moved;        /* HOME is not the one that ssh itself would take */
};

/* The user of this process. Found once. NULL with *e. */
const struct ssh_user *ssh_user_find(struct err *e);
/* The defaults without a configuration file. -1 with *e: a name is too long, or no memory. */
int ssh_config_defaults(struct ssh_config *c, const struct ssh_user *me, const char *host, const char *user,
                        uint16_t port, struct err *e);
/* Lays the output of `ssh -G` over the defaults. Lines that we do not know are passed over. */
int ssh_config_parse(struct ssh_config *c, const struct ssh_user *me, const char *text, size_t len,
                     struct err *e);
void ssh_config_free(struct ssh_config *c);
