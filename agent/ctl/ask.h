/* One inquiry of hvdctl: asked, and its answers read. */
#ifndef HVD_AGENT_CTL_ASK_H
#define HVD_AGENT_CTL_ASK_H

#include "agent/ctl/jobs.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

#define CTL_ANSWER_MS 5000 /* a session answers within that, or it is stopped */

struct ctl_ask {
    int fd;
    struct buf in;
};

/* Connects to the job's session and asks. -1 with *e: ERR_CLOSED, the session has gone. */
int ctl_ask_open(struct ctl_ask *a, const struct ctl_job *job, const Hvd__Inquiry *inquiry, int timeout_ms,
                 struct err *e);
/* The next answer, freed by message_free. NULL with *e, or when the session has closed the connection (no
 * code in *e). `timeout_ms` -1: waits for as long as the job lives. */
Hvd__Answer *ctl_ask_next(struct ctl_ask *a, int timeout_ms, struct err *e);
void ctl_ask_close(struct ctl_ask *a);
/* The one answer about the state of a job. */
Hvd__Answer *ctl_ask_status(const struct ctl_job *job, int timeout_ms, struct err *e);

#endif
