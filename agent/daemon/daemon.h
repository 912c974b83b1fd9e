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
#ifndef HVD_AGENT_DAEMON_DAEMON_H
#define HVD_AGENT_DAEMON_DAEMON_H

#include <stdbool.h>

/* `argv` begins at the word `daemon`. Returns the exit status. */
int daemon_main(int argc, char *const argv[]);

/* ---- attach -------------------------------------------------------------------------------------------- */

/* `hvdagent attach`: what hvdrun starts on a host, over SSH or here.
 *
 *   no managed agent   there is no socket, or no daemon listens on it: *managed is false, and the caller
 *                      becomes the session of this job itself, with stdin and stdout untouched
 *   a managed agent    the launcher's Hello is read for what the job needs, and the daemon is asked. From
 *                      then on bytes go to and fro between stdin, stdout and the connection: its other end is
 *                      first the daemon, then the session
 *   a refusal          also a daemon that ends without a word: the launcher is told (LeaseRefusal), a line on
 *                      stderr says the same, AGENT_EXIT_REFUSED
 *
 * It ends when the connection has, as the session's guard has (the byte of wire.h): with its exit status, or
 * AGENT_EXIT_GUARD when the guard did not come to say it. When hvdrun has gone, or a signal asks for the end,
 * the connection is half closed, which makes the session end the job. */

/* `must_be_managed`: no managed agent is a refusal. */
int attach_main(bool must_be_managed, bool *managed);

#endif
