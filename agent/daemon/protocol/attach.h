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
#ifndef HVD_AGENT_DAEMON_PROTOCOL_ATTACH_H
#define HVD_AGENT_DAEMON_PROTOCOL_ATTACH_H

#include <stdbool.h>

/* `must_be_managed`: no managed agent is a refusal. */
int attach_main(bool must_be_managed, bool *managed);

#endif
