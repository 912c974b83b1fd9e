/* Public key authentication: the keys, the order of the attempts, and the outcome of each. */
#pragma once

#include "launcher/transport/ssh/ssh_agent.h"
#include "launcher/transport/ssh/ssh_key_file.h"

#define SSH_KEYS_MAX     64
#define SSH_KEY_NAME_MAX 256

struct ssh_key {
    char *name; /* the file, or the agent's comment */
    bool in_agent;
    uint8_t order; /* lower is tried first */
    struct ssh_key_info info;
    const char *outcome; /* for the error: "refused", "has a passphrase and is not in the agent", ... */
};

enum ssh_auth_state { SSH_AUTH_BEGIN, SSH_AUTH_LISTING, SSH_AUTH_TRYING, SSH_AUTH_EXPLAINING };

struct ssh_auth {
    enum ssh_auth_state state;
    struct ssh_agent agent;
    bool agent_open;
    bool asked;     /* a signature was asked of the agent */
    bool waiting;   /* for the agent, not for the host */
    bool ssh_could; /* a key was passed over or refused that the ssh program might have used */
    struct ssh_key key[SSH_KEYS_MAX];
    size_t count, current;
};

/* True when this libssh2 (1.11 or newer) knows RSA with SHA-2, the only RSA signatures that servers of today
 * take. */
bool ssh_rsa_has_sha2(void);
