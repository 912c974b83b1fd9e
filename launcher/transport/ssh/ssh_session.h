/* One host's SSH connection: its state, its steps, its end. Shared by the files of the ssh module only. */
#ifndef HVD_LAUNCHER_TRANSPORT_SSH_SSH_SESSION_H
#define HVD_LAUNCHER_TRANSPORT_SSH_SSH_SESSION_H

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

/* What every step returns. */
enum ssh_result {
    SSH_AGAIN, /* would block: come back when something happens */
    SSH_DONE,  /* on to the next state */
    SSH_FAILED /* t->err tells why */
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
    struct known_hosts known_plain; /* lines for the host alone; only with another port than 22 */
    struct ssh_auth auth;

    LIBSSH2_SESSION *session;
    LIBSSH2_CHANNEL *channel;
    uv_poll_t poll;
    uv_timer_t kick;  /* 0 ms: come back from the loop */
    uv_timer_t timer; /* keepalive; at the end, how long a channel may outlive its command */
    int fd;           /* -1 until connected */
    int interest;     /* what the poll waits for */
    int open_handles;
    struct buf out; /* encrypted bytes that the socket did not take: libssh2 never sees a short write */
    struct buf
        pending;    /* a chunk that libssh2 put off (key re-exchange); it must be offered again as it was */
    bool peer_gone; /* EOF or an error was read; what libssh2 has queued is still to be delivered */
    bool unplugged; /* at the end: the socket is shown to libssh2 as dead, so that freeing never waits */
    bool query_open, connect_open, poll_open;
    bool got_bytes; /* libssh2 took bytes off the socket outside of the pump */
    bool want_writable;
    bool write_failed;
    bool end_seen;   /* the command has ended while its output is still open */
    bool ended_open; /* and was so for long enough */
    bool close_requested;
    int exit_status, term_signal;
};

/* Runs steps until one would block; the only driver. From loop callbacks only. */
void ssh_advance(struct transport *t);
/* Makes ssh_advance run from the loop soon. */
void ssh_kick(struct transport *t);
/* Fills t->err from libssh2's last error. Always SSH_FAILED. */
enum ssh_result ssh_library_failed(struct transport *t, enum err_code code, const char *attempted);
void ssh_handle_closed(uv_handle_t *handle);
bool ssh_flush(struct transport *t);

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

/* ssh_hostkey.c: reads known_hosts and fills `list` with the key types to ask for; empty: no preference. */
int ssh_hostkey_prepare(struct transport *t, char *list, size_t size);

/* ssh_channel.c */
size_t ssh_channel_send(struct transport *t, const void *bytes, size_t len);

/* Who we are: home, name, agent. Found once. NULL with *e. */
const struct ssh_user *ssh_me(struct err *e);

#endif
