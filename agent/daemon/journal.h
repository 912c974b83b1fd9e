/* What the managed agent writes of jobs: one line of the journal each, with the fields JOB, JOB_USER, HOST,
 * HVD_UNIT and SLOTS beside it, so that `journalctl JOB=NAME` finds them (common/base/journal.h). Where
 * there is no journal, they are lines of the log. */
#ifndef HVD_AGENT_DAEMON_JOURNAL_H
#define HVD_AGENT_DAEMON_JOURNAL_H

#include "agent/daemon/admission/leases.h"

struct daemon;

/* `what` it does: "gets 2 slots". */
void journal_job(struct daemon *d, const struct lease *lease, const char *what);

#endif
