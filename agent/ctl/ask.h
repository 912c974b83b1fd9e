/* Questions of hvdctl to a session, or to the hvdrun of a job (common/status/status_server.h). */
#pragma once

#include <stddef.h>

#include "agent/ctl/jobs.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

#define CTL_ANSWER_MS 5000 /* an answer comes within that, or the process is stopped */

/* One inquiry, and its answers as they come. */
struct ctl_ask {
    int fd;
    const char *process; /* that is asked, for messages */
    struct buf in;
};

/* Connects and asks. -1 with *e: ERR_CLOSED, the job has gone. */
int ctl_ask_open(struct ctl_ask *a, const struct ctl_job *job, const Hvd__Inquiry *inquiry, int timeout_ms,
                 struct err *e);
/* The next answer, freed by message_free. NULL with *e, or when the other end has closed the connection (no
 * code in *e). `timeout_ms` -1: waits for as long as the job lives. */
Hvd__Answer *ctl_ask_next(struct ctl_ask *a, int timeout_ms, struct err *e);
void ctl_ask_close(struct ctl_ask *a);

/* The state of a job: an answer for each host, of a session one. */
struct ctl_answers {
    Hvd__Answer **item; /* each has a status */
    size_t count;
};

/* At least one answer, within timeout_ms for all. `kind`: STATUS, WHY or FLIGHT. -1 with *e. */
int ctl_ask_status(const struct ctl_job *job, Hvd__Inquiry__Kind kind, int timeout_ms,
                   struct ctl_answers *all, struct err *e);
void ctl_answers_free(struct ctl_answers *all);
