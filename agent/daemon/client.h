/* One connection to the daemon's socket, from its acceptance to the moment when it is the session's.
 *
 *   READING    the frame of wire.h comes, in a bounded time; not a byte behind it is read
 *   DECIDING   who the kernel says it is, may he, is there room: a lease is written, or he is refused
 *   WAITING    for slots, a moment: those of a job that has just ended are free when systemd has cleared it
 * away, which may be after its hvdrun has returned STARTING   systemd was asked for the session, which gets
 * the connection and the two descriptors CLOSED     the daemon's copies are closed; the connection lives on
 * in the session, or not at all
 *
 * Who hangs up, is late or sends anything else is closed, with one line in the log for all who do so within a
 * second. When systemd cannot start the session, its lease ends and the client is told. The identity is that
 * of the process that connected, as the kernel recorded it then (SO_PEERCRED, SO_PEERGROUPS): no number of a
 * process is looked up later. */
#ifndef HVD_AGENT_DAEMON_CLIENT_H
#define HVD_AGENT_DAEMON_CLIENT_H

#include <sys/types.h>
#include <uv.h>

#include "agent/daemon/leases.h"
#include "agent/daemon/wire.h"
#include "common/fsm.h"

struct daemon;

struct client {
    struct daemon *daemon;
    struct client *next;
    struct fsm fsm;
    uv_poll_t poll;
    uv_timer_t timer;
    int handles; /* that are not closed yet */
    int fd;
    int passed[DAEMON_DESCRIPTORS]; /* -1: not there */
    uid_t uid;
    pid_t pid;                 /* for the log */
    char user[LEASE_USER_MAX]; /* its name */
    gid_t *groups;
    size_t group_count;
    uint8_t frame[DAEMON_FRAME_MAX];
    size_t have;
    uint64_t busy_since;       /* when it first found too few slots; 0: never */
    char unit[LEASE_UNIT_MAX]; /* of its lease; empty before there is one */
    struct err refusal;
};

/* Takes the connection over; closes it when there is no memory. */
void client_open(struct daemon *d, int fd);
/* What systemd says of the unit of one of the clients; false when it is nobody's. */
bool client_unit_started(struct daemon *d, const char *unit, const char *failure);
/* Slots have become free: those who wait are decided about again, the first who came first. */
void clients_slots_freed(struct daemon *d);
/* Closes it without a word. */
void client_drop(struct client *c);

#endif
