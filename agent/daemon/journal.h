/* What the managed agent writes of jobs: one line of the journal each, with the fields JOB, JOB_USER, HOST,
 * HVD_UNIT and SLOTS beside it, so that `journalctl JOB=NAME` finds them. At most JOURNAL_BURST in a second;
 * the next one says how many were left out. Where there is no journal, they are lines of the log. */
#ifndef HVD_AGENT_DAEMON_JOURNAL_H
#define HVD_AGENT_DAEMON_JOURNAL_H

#include <stdint.h>

#include "agent/daemon/leases.h"

#define JOURNAL_BURST 50

struct daemon;

struct journal {
    uint64_t since; /* of the second that is counted */
    uint32_t lines, unsaid;
};

/* `what` it does: "gets 2 slots". */
void journal_job(struct daemon *d, const struct lease *lease, const char *what);

#endif
