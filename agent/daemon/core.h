/* The state of the managed agent, and the lowest services of its parts.
 *
 * The parts (admission/, gpu/, metrics/, sessions.h) call one another downward only, and this file never
 * calls a part that calls it. A call that must go up is an event: the part calls a function of `struct
 * daemon_events`, which daemon.c has filled. */
#pragma once

#include <limits.h>
#include <uv.h>

#include "agent/daemon/admission/leases.h"
#include "agent/daemon/admission/queue.h"
#include "agent/daemon/config.h"
#include "agent/daemon/gpu/gpu_watch.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/metrics/totals.h"
#include "agent/daemon/state_file.h"
#include "agent/daemon/units.h"
#include "common/base/journal.h"

struct client;

struct daemon_events {
    void (*serve_queue)(struct daemon *d);  /* from the loop: slots are free, or a wait is over */
    void (*gpus_changed)(struct daemon *d); /* other GPUs, or another number of GPUs */
    void (*gpus_checked)(struct daemon *d); /* the GPUs were asked, or could not be */
};

/* Lines of the log about one subject, bounded for each second. */
struct log_limit {
    uint64_t since; /* begin of the second that is counted; 0: none so far */
    unsigned said, unsaid;
};

struct listener {
    int fd;
    bool own; /* not passed by systemd */
    uv_poll_t poll;
    uv_timer_t pause;
    char path[108]; /* sessions report there */
};

struct daemon {
    uv_loop_t loop;
    const struct daemon_events *events;
    int argc; /* of `hvdagent daemon ...`, for the next reading of the configuration */
    char *const *argv;
    struct daemon_config config;
    struct lease_rules rules;
    struct leases leases;
    struct units units;
    struct metrics metrics;
    struct totals totals;
    uv_timer_t totals_timer; /* sessions that have left may still send their last report */
    struct journal journal;
    struct queue queue;
    uv_timer_t queue_timer;
    struct gpu_watch gpus;
    struct client *clients;
    size_t client_count;
    struct listener listener;
    int lock; /* the directory */
    uv_timer_t watchdog;
    uv_signal_t signals[3];
    char program[PATH_MAX];  /* our path at the start: sessions run the same program */
    char drained[DRAIN_MAX]; /* by root; empty: not */
    char node[NODE_ID_TEXT];
    struct log_limit complaints, refusals;
    int exit_status;
};

/* Sets up what the services below need. */
void daemon_core_init(struct daemon *d, const struct daemon_events *events);
/* Logs a line about a client that breaks the rules, or (c is NULL) about the socket: at most one a second. */
void daemon_complain(struct daemon *d, const struct client *c, const char *what);
/* True when one more line about `limit` may be logged in this second. */
bool daemon_may_log(struct log_limit *limit, unsigned lines_a_second);
/* Logs one line about a job: `what` it does, "gets 2 slots". In the journal the line has the fields JOB,
 * JOB_USER, HOST, HVD_UNIT and SLOTS, so that `journalctl JOB=NAME` finds it (common/base/journal.h). */
void daemon_log_job(struct daemon *d, const struct lease *lease, const char *what);
/* Why new jobs are not taken, by root's word or the configuration; empty: they are. */
const char *daemon_drained(const struct daemon *d);
/* Root's word; an empty reason takes it back. */
void daemon_drain(struct daemon *d, const char *reason, struct err *e);
/* The queue is served before the loop sleeps. */
void daemon_queue_changed(struct daemon *d);
/* The queue is served after so many milliseconds, or when something changes. */
void daemon_serve_queue_in(struct daemon *d, uint64_t ms);
