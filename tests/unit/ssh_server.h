/* A real sshd on a loopback port with keys, configuration and home directory of its own in a temporary
 * directory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ssh_server {
    char dir[64];  /* holds home/.ssh, host_ed25519, host_ecdsa, user, other, ... */
    char user[64]; /* our own user: runs sshd, and may log in */
    pid_t pid;
    uint16_t port;
};

/* Makes the directory, keys `user` (accepted) and `other` (not), a known_hosts with the host's key; sets HOME
 * and takes SSH_AUTH_SOCK away. Then starts sshd; `extra` lines are appended to its configuration. host_key:
 * host_ed25519, host_ecdsa or host_rsa. Fails the test when it cannot. */
void ssh_server_start(struct ssh_server *s, const char *host_key, const char *extra);
/* Ends sshd. */
void ssh_server_stop(struct ssh_server *s);

/* Runs a shell command line in the server's directory; fails the test unless it ends with 0. */
void shell(const struct ssh_server *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The first `size` - 1 bytes of what it prints, without the newline at the end. */
void shell_output(const struct ssh_server *s, char *out, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* An ssh-agent that listens at `path`; ends with the test. */
void ssh_agent_start(const struct ssh_server *s, const char *path);

/* The port of a listener that says this to its first client, and that is all. */
uint16_t fake_server(const char *says);

/* Once, in main: false, with a message, when this machine has no sshd. Makes the directory that all of it
 * lies in. */
bool ssh_server_possible(void);
/* Removes it, also after failed tests. */
void ssh_server_clean(void);
