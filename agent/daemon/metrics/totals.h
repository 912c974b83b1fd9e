/* Totals of all jobs of a node, added up from the reports of their sessions (SessionReport), for Prometheus.
 *
 * A session runs as its user and may say anything. So its figures count for units of its user only; a figure
 * is known by number or by a name of metric_table.h, and at most SUM_PEERS hosts are named; a figure only
 * grows (less than before is no news), and no faster than a host could work.
 *
 * The sums never go backwards, also when the agent is killed: a sum is in the file (SUMS_FILE in the agent's
 * directory, in memory like all of /run) before anybody is told it. The file also says how much came from
 * which session, so that later reports are counted once. The sums begin anew with the host. A file that is
 * not whole is as none.
 *
 *   totals_began     systemd has started the session of a lease
 *   totals_report    its figures, again and again; the last with how it ended
 *   totals_left      its unit has gone. Its last report may still be on its way; when none has come after
 *                    TOTALS_LAST_MS the session was lost (totals_settle) */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/daemon/admission/leases.h"
#include "agent/daemon/metrics/metric_table.h"
#include "common/base/err.h"

#define SUMS_FILE      "sums"
#define TOTALS_LAST_MS 1000

struct totals_peer {
    char host[SUM_PEER_NAME];
    uid_t uid; /* of the job that named it first */
    uint64_t sent, received;
};

struct totals_session {
    char unit[LEASE_UNIT_MAX];
    uid_t uid;
    uint64_t since;    /* of its lease */
    uint64_t began_ms; /* monotonic, as all that ends in _ms */
    bool over;
    uint64_t left_ms; /* when its unit went; 0: it is there */
    uint64_t heard_ms;
    uint32_t ranks, stalls, silence_ms;
    uint64_t sum[SUMS];
    struct totals_peer *peer; /* by its own names */
    size_t peers;
};

struct totals {
    struct totals_session *session;
    size_t sessions;
    uint64_t sum[SUMS], ended[SUM_CAUSES];
    struct totals_peer peer[1 + SUM_PEERS]; /* the first: the others */
    size_t peers;
    bool dirty; /* the file does not say so yet */
    char directory[256];
};

/* Reads the file, if there is one. */
void totals_open(struct totals *c, const char *directory, uint64_t now_ms);
void totals_close(struct totals *c);
void totals_began(struct totals *c, const struct lease *lease, uint64_t now_ms);
/* -1 with *e: it is none of this user's sessions. */
int totals_report(struct totals *c, uid_t uid, const Hvd__SessionReport *report, uint64_t now_ms,
                  struct err *e);
void totals_left(struct totals *c, const char *unit, uint64_t now_ms);
/* Forgets those that are over. Milliseconds until it is due again; 0: no session is waited for. */
uint64_t totals_settle(struct totals *c, uint64_t now_ms);
/* Into the file, when something has changed. Failures are logged. */
void totals_save(struct totals *c);

/* For a message or the file; valid until c changes. */
struct totals_message {
    Hvd__NodeSums sums;
    Hvd__NodeNow now;
    Hvd__PeerTraffic peer[1 + SUM_PEERS], *list[1 + SUM_PEERS];
};
void totals_tell(struct totals *c, uint32_t waiting, uint64_t now_ms, struct totals_message *told);

/* For totals_file.c. */
struct totals_session *totals_new(struct totals *c, const char *unit, uid_t uid, uint64_t since,
                                  uint64_t now_ms);
/* A name that can stand in a label, cut to its length. */
void totals_name(char out[SUM_PEER_NAME], const char *host);
struct totals_peer *totals_peer_of(struct totals_session *s, const char *host);
