/* One host's SSH connection: its state, its steps, its end. Shared by the files of the ssh module only. */
#pragma once

#include <libssh2.h>

#include "common/base/buf.h"
#include "launcher/transport/ssh/ssh_auth.h"
#include "launcher/transport/ssh/ssh_config.h"
#include "launcher/transport/ssh/ssh_connect.h"
#include "launcher/transport/ssh/ssh_known_hosts.h"
#include "launcher/transport/ssh/ssh_query.h"
#include "launcher/transport/transport.h"

enum ssh_state {
    SSH_START,
    SSH_CONFIG, /* ssh -G */
    SSH_RESOLVE,
    SSH_CONNECT,
    SSH_HANDSHAKE, /* key exchange; known_hosts is read before it, to ask for the key that it has */
    SSH_VERIFY,    /* the host's key */
    SSH_AUTHENTICATE,
    SSH_CHANNEL,
    SSH_EXEC,
    SSH_RUN,         /* bytes flow until the channel's EOF */
    SSH_AWAIT_CLOSE, /* exit status and signal come behind EOF */
    SSH_CLOSING,     /* handles are on their way out */
    SSH_STATE_COUNT
};

/* The result of a step. */
enum ssh_result {
    SSH_AGAIN, /* would block: come back when something happens */
    SSH_DONE,  /* on to the next state */
    SSH_FAILED /* t->err tells why */
};

/* The socket, which is ours and not libssh2's. */
struct ssh_wire {
    int fd; /* -1 until connected */
    uv_poll_t poll;
    bool poll_open;
    int interest;       /* the events that the poll waits for */
    struct buf out;     /* encrypted bytes that the socket did not take: libssh2 never sees a short write */
    bool peer_gone;     /* EOF or an error was read; bytes that libssh2 has queued are still delivered */
    bool unplugged;     /* at the end: libssh2 sees a dead socket, so that freeing never waits */
    bool got_bytes;     /* libssh2 took bytes off the socket outside of the pump */
    bool want_writable; /* the user of the transport waits for room */
    bool write_failed;
};

/* How the command ends, and who ended it. */
struct ssh_end {
    bool seen;          /* the command has ended while its output is still open */
    bool open_for_long; /* the output stayed open for as long as it may */
    bool requested;     /* close() was called */
    int exit_status, term_signal;
};

struct transport {
    uv_loop_t *loop;
    const struct transport_target *target;
    const struct transport_events *events;
    void *ctx;
    enum ssh_state state;
    uint64_t state_since;
    enum transport_phase phase;
    struct err err;

    struct ssh_config config;
    struct ssh_query query;
    struct ssh_connect connect;
    struct known_hosts known;       /* lines for "[host]:port", or for the alias */
    struct known_hosts known_plain; /* lines for the host without a port; read if the port is not 22 */
    struct ssh_auth auth;

    LIBSSH2_SESSION *session;
    LIBSSH2_CHANNEL *channel;
    struct ssh_wire wire;
    uv_timer_t kick;  /* 0 ms: come back from the loop */
    uv_timer_t timer; /* keepalive; at the end, how long a channel may outlive its command */
    int open_handles;
    bool query_open, connect_open;
    struct buf pending; /* a chunk that libssh2 put off (key re-exchange); it is offered again unchanged */
    struct ssh_end end;
};

/* Runs steps until one would block; the only driver. From loop callbacks only. */
void ssh_advance(struct transport *t);
/* Makes ssh_advance run from the loop soon. */
void ssh_kick(struct transport *t);
/* Fills t->err from libssh2's last error. Always SSH_FAILED. */
enum ssh_result ssh_library_failed(struct transport *t, enum err_code code, const char *attempted);
/* Makes t->session, which reads and writes through t->wire. */
enum ssh_result ssh_new_session(struct transport *t);
void ssh_handle_closed(uv_handle_t *handle);

/* Steps. */
enum ssh_result ssh_step_config(struct transport *t);
enum ssh_result ssh_step_resolve(struct transport *t);
enum ssh_result ssh_step_connect(struct transport *t);
enum ssh_result ssh_step_handshake(struct transport *t);
enum ssh_result ssh_step_verify(struct transport *t);
enum ssh_result ssh_step_authenticate(struct transport *t);
enum ssh_result ssh_step_channel(struct transport *t);
enum ssh_result ssh_step_exec(struct transport *t);
enum ssh_result ssh_step_run(struct transport *t);
enum ssh_result ssh_step_await_close(struct transport *t);

/* ssh_channel.c */
size_t ssh_channel_send(struct transport *t, const void *bytes, size_t len);
