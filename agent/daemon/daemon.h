/* The managed agent of a node: `hvdagent daemon`.
 *
 * It waits on a unix socket, decides who may run his part of a job here and with how many slots (leases.h),
 * and has systemd start the session as a transient service of that user, which gets the accepted connection.
 * It is no parent of any job, runs none of the user's code and opens none of his paths. What must outlast it
 * is in the leases' files and in systemd: it may be killed, restarted or replaced at any time.
 *
 *   start    configuration, socket (systemd's, or our own), leases, systemd's units: those that have gone are
 *            dropped; READY
 *   SIGHUP   the configuration is read again; when it is wrong, the old one stays
 *   SIGTERM  the end; jobs go on
 *
 * It fails, with a status that makes systemd start it again, when the connection to systemd is lost. */
#ifndef HVD_AGENT_DAEMON_DAEMON_H
#define HVD_AGENT_DAEMON_DAEMON_H

#include <limits.h>
#include <uv.h>

#include "agent/daemon/admission/client.h"
#include "agent/daemon/config.h"
#include "agent/daemon/metrics/totals.h"
#include "agent/daemon/drain.h"
#include "agent/daemon/gpu/gpu_watch.h"
#include "agent/daemon/node_id.h"
#include "agent/daemon/journal.h"
#include "agent/daemon/admission/leases.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/units.h"
#include "common/base/journal.h"

struct refusals {   /* in the log */
    uint64_t since; /* of the second that is counted */
    unsigned said, unsaid;
};

struct daemon {
    uv_loop_t loop;
    int argc; /* of `hvdagent daemon ...`, for the next reading */
    char *const *argv;
    struct daemon_config config;
    struct lease_rules rules;
    struct leases leases;
    struct units units;
    struct metrics metrics;
    struct counted counted;
    uv_timer_t counted_timer; /* sessions that have left may have a last word */
    struct journal journal;
    struct queue queue;
    struct gpu_watch gpus;
    uv_timer_t queue_timer; /* somebody may have to wait no longer, or is to hear where he stands */
    struct client *clients;
    size_t client_count;
    int listener, lock;
    bool own_socket; /* nobody passed it */
    uv_poll_t listener_poll;
    uv_timer_t accept_timer, watchdog;
    uv_signal_t signals[3];
    char socket[108];        /* where we listen: sessions report there */
    char program[PATH_MAX];  /* our path when we started: what sessions are */
    char drained[DRAIN_MAX]; /* by root; empty: not */
    char node[IDENTITY_TEXT];
    uint64_t complained; /* when */
    unsigned unsaid;     /* complaints since */
    struct refusals refusals;
    int exit_status;
};

/* `argv` begins at the word `daemon`. Returns the exit status. */
int daemon_main(int argc, char *const argv[]);

/* For clients. A line in the log about one that does what it should not, but no more than one a second. */
void daemon_complain(struct daemon *d, const struct client *c, const char *what);
/* Why new jobs are not taken, as a refusal says it; NULL: they are. Valid until the next call. */
const char *daemon_refuses(struct daemon *d);
/* There are others or more of them. */
void daemon_gpus_changed(struct daemon *d);
/* Why new jobs are not taken, by root's word or the configuration; empty: they are. */
const char *daemon_drained(const struct daemon *d);
/* Root's word; an empty reason takes it back. */
void daemon_drain(struct daemon *d, const char *reason, struct err *e);
/* Before the loop sleeps those who wait are looked at: for what is free now, or has changed. */
void daemon_queue_changed(struct daemon *d);
void daemon_on_queue_timer(uv_timer_t *timer);
/* Its session runs. */
void daemon_session_began(struct daemon *d, const char *unit);
/* What a session of `uid` says of itself. -1 with *e: it has no business to. */
int daemon_session_reports(struct daemon *d, uid_t uid, const Hvd__SessionReport *report, struct err *e);
/* The lease of a session that never was, or has ended. */
void daemon_end_lease(struct daemon *d, const char *unit);

#endif
