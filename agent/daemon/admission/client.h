/* One connection to the daemon's socket, from its acceptance to the moment when it is the session's.
 *
 *   READING    the frame of wire.h comes, in a bounded time; not a byte behind it is read
 *   DECIDING   identity by the kernel, permission, room: a lease is written, or the client is refused
 *   WAITING    for slots, in the queue (queue.h); a client that goes loses its place
 *   CHECKING   it asks for the GPUs, and they are being asked
 *   STARTING   systemd was asked for the session, which gets the connection and the two descriptors
 *   CLOSED     a thread closes the daemon's copies (async_close.h); the connection may live on in the session
 *
 * A client that disconnects, times out or sends anything else is closed. At most one such line a second is
 * logged. When systemd cannot start the session, its lease ends and the client is told. The identity is that
 * of the process that connected, as the kernel recorded it then (SO_PEERCRED, SO_PEERGROUPS): no number of a
 * process is looked up later. Until its descriptors are closed a connection counts as one of its user's.
 * A client that passes descriptors other than two pipes or unix sockets is refused: neither the daemon nor
 * systemd shall have to close anything else. */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "agent/daemon/admission/queue.h"
#include "agent/daemon/async_close.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/fsm.h"

#define DESCRIPTORS_MAX 253 /* that the kernel takes beside one message (SCM_MAX_FD) */

struct daemon;

#define CLIENT_STATES(X)                                                                                     \
    X(READING, "reading")                                                                                    \
    X(DECIDING, "deciding")                                                                                  \
    X(WAITING, "waiting")                                                                                    \
    X(STARTING, "starting")                                                                                  \
    X(CHECKING, "checking")                                                                                  \
    X(CLOSED, "closed")
#define CLIENT_EVENTS(X)                                                                                     \
    X(REQUEST, "request")                                                                                    \
    X(BROKEN, "broken")                                                                                      \
    X(LATE, "late")                                                                                          \
    X(ADMITTED, "admitted")                                                                                  \
    X(QUEUED, "queued")                                                                                      \
    X(REFUSED, "refused")                                                                                    \
    X(ASKED, "asked")                                                                                        \
    X(STARTED, "started")                                                                                    \
    X(FAILED, "failed")                                                                                      \
    X(CHECK, "check")

#define CLIENT_STATE(name, text) CLIENT_##name,
#define CLIENT_EVENT(name, text) EV_##name,
enum client_state { CLIENT_STATES(CLIENT_STATE) };
enum client_event { CLIENT_EVENTS(CLIENT_EVENT) };

enum client_about { CLIENT_ASKS_NODE, CLIENT_ASKS_GPUS, CLIENT_ACCEPTS_GPUS }; /* without a lease */

struct client {
    struct daemon *daemon;
    struct client *next;
    struct fsm fsm;
    uv_poll_t poll;
    uv_timer_t timer;
    int handles; /* that are not closed yet */
    /* The connection, and what came beside the request: DAEMON_STDERR and so on from 1 on. More than
     * these are wrong. */
    int fd[1 + DAEMON_DESCRIPTORS + DESCRIPTORS_MAX];
    size_t fds;
    struct async_close closing;
    uid_t uid;
    pid_t pid;                 /* for the log */
    char user[LEASE_USER_MAX]; /* its name */
    gid_t *groups;
    size_t group_count;
    uint8_t frame[DAEMON_FRAME_MAX];
    size_t have;
    char job[LEASE_JOB_MAX + 1];
    enum client_about about;
    struct queue_entry entry;  /* the request; in the queue when the client is WAITING */
    char unit[LEASE_UNIT_MAX]; /* of its lease; empty before there is one */
    struct err refusal;
};

/* Takes the connection over; closes it when there is no memory. */
void client_open(struct daemon *d, int fd);
/* Takes the word of systemd about a unit; false when it is the unit of no client. */
bool client_unit_started(struct daemon *d, const char *unit, const char *failure);
/* The GPUs were asked, or could not be: whoever waits for that is told. */
void clients_checked(struct daemon *d);
/* Lets requests in that need wait no longer, and tells the others their places. */
void clients_serve_queue(struct daemon *d);
/* Closes it without a word. */
void client_drop(struct client *c);
