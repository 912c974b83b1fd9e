/* A key file by its first bytes: its type, whether it is encrypted, its public half. Pure. */
#pragma once

#include "launcher/transport/ssh/ssh_known_hosts.h"

enum ssh_key_kind {
    SSH_KEY_USABLE,
    SSH_KEY_RSA,         /* only servers that still take SHA-1 signatures accept it from this library */
    SSH_KEY_ENCRYPTED,   /* needs a passphrase, so an agent */
    SSH_KEY_PUBLIC,      /* the public half: names a key of the agent */
    SSH_KEY_UNSUPPORTED, /* a certificate or a hardware key: the ssh program can */
    SSH_KEY_MISSING,
    SSH_KEY_UNREADABLE
};

struct ssh_key_info {
    enum ssh_key_kind kind;
    uint8_t *blob; /* public half, or NULL when not known; free it */
    size_t blob_len;
};

/* USABLE, RSA or UNSUPPORTED for a public key. */
enum ssh_key_kind ssh_key_kind_of(const uint8_t *blob, size_t len);
void ssh_key_classify(const char *text, size_t len, struct ssh_key_info *info);
/* Reads `path`, and `path`.pub when the file itself does not tell the public half. */
void ssh_key_read(const char *path, struct ssh_key_info *info);
