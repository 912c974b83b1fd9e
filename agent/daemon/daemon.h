/* The managed agent of a node: `hvdagent daemon`.
 *
 * It listens on a unix socket, decides who may run a part of a job here and with how many slots (leases.h),
 * and has systemd start the session as a transient service of that user, which gets the accepted connection.
 * The daemon is no parent of any job, runs no code of users and opens no path of theirs. All state that must
 * outlast the daemon is in the files of the leases and in systemd: the daemon may be killed, restarted or
 * replaced at any time.
 *
 *   start    configuration, socket (systemd's, or our own), leases, systemd's units: leases without a unit
 *            are dropped; READY
 *   SIGHUP   the configuration is read again; when it is wrong, the old one stays
 *   SIGTERM  the end; jobs go on
 *
 * It fails, with a status that makes systemd start it again, when the connection to systemd is lost. */
#pragma once

#include <stdbool.h>

/* `argv` begins at the word `daemon`. Returns the exit status. */
int daemon_main(int argc, char *const argv[]);

/* `hvdagent attach` (protocol/attach.c). `must_be_managed`: no managed agent is a refusal. */
int attach_main(bool must_be_managed, bool *managed);
