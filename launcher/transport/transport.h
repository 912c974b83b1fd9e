/* A transport carries one host's control channel: a byte stream to the stdin and stdout of a session there.
 *
 *   start() -> phase() ... -> opened() -> received()/noise()/writable() ... -> closed()
 *
 * Three kinds: local (fork and exec over a socketpair), exec (any ssh-like command), ssh (libssh2; a module,
 * opened on use). Everything happens on one libuv loop in one thread; no call blocks; callbacks never come
 * from inside start(), write() or close(), only from the loop. After closed() the transport is freed by its
 * owner with ops->destroy(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/base/err.h"

/* The phase of a host on its way; a failure is reported with its phase. */
enum transport_phase {
    TRANSPORT_RESOLVE,        /* name to addresses */
    TRANSPORT_CONNECT,        /* TCP, or the start of the carrying program */
    TRANSPORT_HOST_KEY,       /* key exchange and known_hosts */
    TRANSPORT_AUTHENTICATION, /* agent and key files */
    TRANSPORT_AGENT_START     /* the remote command was asked for */
};
const char *transport_phase_name(enum transport_phase phase);

/* Every pointer stays valid until closed(). */
struct transport_target {
    const char *host;          /* a name or an address, without user, port or brackets */
    const char *user;          /* NULL: the transport's default */
    uint16_t port;             /* 0: the transport's default */
    const char *identity_file; /* -i, or NULL */
    const char *rsh;           /* exec only: the template, with {host} {user} {port} */
    const char *agent_path;    /* local only: the hvdagent to execute */
    char *const *arguments;    /* local only: those of hvdagent, ended by NULL; NULL: `session` */
    const char *command;       /* exec and ssh: one shell command line that becomes the session */
};

/* How a transport ended. */
struct transport_end {
    int exit_status;       /* of the remote command; -1 when unknown */
    int term_signal;       /* of the remote command; 0 when none or unknown */
    const struct err *err; /* why the stream ended when it was not the command's end; NULL otherwise.
                              ERR_UNSUPPORTED: this library cannot, but the ssh program may */
};

struct transport_events {
    void (*phase)(void *ctx, enum transport_phase phase);
    /* The remote command was started; bytes may be written. */
    void (*opened)(void *ctx);
    /* Bytes of the session's stdout; valid during the call. */
    void (*received)(void *ctx, const uint8_t *bytes, size_t len);
    /* Bytes of the remote stderr (of the shell, of ssh, of the agent's log); valid during the call. */
    void (*noise)(void *ctx, const uint8_t *bytes, size_t len);
    /* write() accepted less than it was given; it will accept more now. */
    void (*writable)(void *ctx);
    /* The last callback. Everything that arrived was delivered before it. */
    void (*closed)(void *ctx, const struct transport_end *end);
    /* May be NULL: then that is a failure. The host's name has no address so far, because of `why` (valid for
     * ever); it is looked up again and again, until there is one or close(). Called for each look-up.
     * `unknown`: the resolver says that there is no such name. */
    void (*unresolved)(void *ctx, const char *why, bool unknown);
};

struct transport;

struct transport_ops {
    const char *name;
    /* NULL with *e filled when it cannot even begin. `events` must stay valid until destroy. */
    struct transport *(*start)(uv_loop_t *loop, const struct transport_target *target,
                               const struct transport_events *events, void *ctx, struct err *e);
    /* Takes as many bytes as it can without waiting; returns their number, 0 when none (writable follows).
     * After a failure it takes all and closed() follows. Reading never stops while writing is blocked. */
    size_t (*write)(struct transport *t, const void *bytes, size_t len);
    /* Ends it from our side, at once; closed() follows. Idempotent. */
    void (*close)(struct transport *t);
    /* The address that the stream goes to, numeric, for rendezvous; NULL when not known. Valid until destroy.
     */
    const char *(*peer_address)(struct transport *t);
    /* Frees it; only after closed(). */
    void (*destroy)(struct transport *t);
};

extern const struct transport_ops transport_local; /* local.c */
extern const struct transport_ops transport_exec;  /* exec.c */

/* The symbol that the ssh module exports; see common/process/module.h. */
#define TRANSPORT_SSH_MODULE "ssh"
#define TRANSPORT_SSH_SYMBOL "hvd_transport_ssh"
