/* Hosts that were lost while they ran workers: when everything else has ended, each is reached again by the
 * same transport and `hvdagent sweep JOB` runs there.
 *
 * A host that cannot be reached is tried again until its session's lease has surely run out: heartbeat
 * time-out + grace + 1 s after we stopped sending to it (not after it was last heard: while only one
 * direction is cut, the session still hears our pings). Then it is named in the report. */
#ifndef HVD_LAUNCHER_PARTS_SWEEP_H
#define HVD_LAUNCHER_PARTS_SWEEP_H

struct job;

/* Posts JOB_EV_SWEPT when every lost host is swept or given up; at once when none was lost. A user who has
 * insisted before gets one attempt a host and no waiting. */
void sweep_start(struct job *j);
/* Ends the waiting: attempts under way are dropped. A host that was reached gets one more attempt, in which
 * leftovers get no grace; called again, that attempt is dropped too. */
void sweep_skip(struct job *j);

#endif
