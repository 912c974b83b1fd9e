/* What is added up of all jobs of a node, by number: the same in the managed agent, in its file and in what
 * hvdctl asks it for. */
#ifndef HVD_AGENT_DAEMON_METRICS_METRIC_NAMES_H
#define HVD_AGENT_DAEMON_METRICS_METRIC_NAMES_H

#include "common/protocol/control.pb-c.h"

#define SUMS_LAYOUT 1 /* grows when a number changes its meaning */
#define SUM_KINDS   6 /* of collective operations */

enum sum_of_kind { SUM_OPERATIONS, SUM_BYTES, SUM_NS, SUM_OF_KIND };

enum sum {
    SUM_STARTED,  /* workers */
    SUM_RESTARTS, /* of jobs, as far as they came back here */
    SUM_MISSED,   /* heartbeats of launchers */
    SUM_KIND,     /* from here on SUM_OF_KIND of each kind */
    SUMS = SUM_KIND + SUM_KINDS * SUM_OF_KIND
};

#define SUM_CAUSES (HVD__CAUSE__CAUSE_SESSION_LOST + 1)

extern const char *const sum_kinds[SUM_KINDS];   /* "allreduce" */
extern const char *const sum_causes[SUM_CAUSES]; /* "exit_status" */

#define SUM_PEERS      64 /* hosts by name, */
#define SUM_PEERS_OF   32 /* of which one user's jobs may bring so many; */
#define SUM_PEER_NAME  64 /* longer names are cut */
#define SUM_PEER_OTHER "(others)"

#endif
