/* The protocol of `hvdagent attach` and the daemon on the daemon's socket.
 *
 *      attach                              daemon
 *      LeaseRequest + 2 descriptors  ->    identity, permission, room
 *      bytes of the launcher         ->    (not read: they are for the session)
 *                                    <-    DAEMON_MAGIC, LeaseWaiting; any number of times
 *                                    <-    DAEMON_MAGIC, LeaseRefusal; closed
 *      or:                           <-    FRAME_MAGIC of the session, which has the connection now
 *
 *      any process (daemon_ask)
 *      AgentQuery or AgentDrain      ->
 *                                    <-    DAEMON_MAGIC, AgentStatus or LeaseRefusal; closed
 *
 * Each message is a frame (common/protocol/frame.h) that holds a Daemon of control.proto. Nothing follows
 * a refusal or a status. The request costs no round trip: the launcher's bytes are sent right behind it.
 *
 * The descriptors beside the request are attach's stderr, for the session's log, and the end of a pipe into
 * which the session's guard writes one byte, its exit status, at its end. They belong to the user as much as
 * the connection does: the daemon passes them on and neither reads nor writes them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"
#include "common/protocol/frame.h"

#define DAEMON_DIRECTORY "/run/hvd"
#define DAEMON_SOCKET    "agent.sock" /* in it */
#define DAEMON_SOCKET_VARIABLE                                                                               \
    "HVD_AGENT_SOCKET"    /* names another socket to a client; read from the client's own environment */
#define DAEMON_PROTOCOL 1 /* grows when a field changes its meaning */

#define DAEMON_MAGIC "\177hvd-daemon\001\n\n" /* as long as FRAME_MAGIC */
_Static_assert(sizeof DAEMON_MAGIC == sizeof FRAME_MAGIC, "one length serves for both");

#define DAEMON_MESSAGE_MAX (4u << 10)  /* of a Daemon, packed, to the daemon */
#define DAEMON_ANSWER_MAX  (64u << 10) /* and from it: an empty socket takes as much at once */
#define DAEMON_FRAME_MAX   (FRAME_HEADER_SIZE + DAEMON_MESSAGE_MAX)

enum daemon_descriptor { DAEMON_STDERR, DAEMON_STATUS, DAEMON_DESCRIPTORS };

/* The message as a frame into `out`; its length, or -1 with *e when it is longer than `size`. */
ptrdiff_t daemon_pack(const Hvd__Daemon *message, uint8_t *out, size_t size, struct err *e);
/* The length in bytes of the frame that begins with this header. -1 with *e: the header is not ours, or the
 * message is longer than `most`. */
ptrdiff_t daemon_frame_length(const uint8_t header[FRAME_HEADER_SIZE], size_t most, struct err *e);
/* The message in a whole frame; freed by message_free. */
Hvd__Daemon *daemon_unpack(const uint8_t *frame, size_t len, struct err *e);
/* The message of an answer at the beginning of what has come, and *len, how long its frame is; NULL when it
 * is not whole yet, or with *e. */
Hvd__Daemon *daemon_unpack_answer(const uint8_t *bytes, size_t have, size_t *len, struct err *e);

/* ---- a question ---------------------------------------------------------------------------------------- */

/* A question to the managed agent of this host: what it gives to whom (AgentQuery), or root's word that it is
 * to take no new jobs (AgentDrain). For programs; waits for the answer, at most some seconds. */

/* A connection to the daemon's socket, non-blocking. -1 with an empty *e when there is no managed agent on
 * this host, else with what is wrong. */
int daemon_connect(struct err *e);
/* Its AgentStatus, or its Gpus where they are asked for, in an answer that message_free frees; NULL with *e,
 * also when it refuses or there is none.
 */
Hvd__Daemon *daemon_ask(const Hvd__Daemon *question, struct err *e);
