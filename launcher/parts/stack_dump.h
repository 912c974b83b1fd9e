/* Where each rank is, asked of the sessions when the time limit is over and told before the job is ended. The
 * hosts have JOB_WHERE_MS; who has not answered by then is named and not waited for. What was told is kept
 * for --report, up to WHERE_KEPT_MAX bytes of memory. */
#ifndef HVD_LAUNCHER_PARTS_STACK_DUMP_H
#define HVD_LAUNCHER_PARTS_STACK_DUMP_H

#include <stdint.h>

#include "common/protocol/control.pb-c.h"

struct job;
struct host;

#define JOB_WHERE_MS   5000
#define WHERE_KEPT_MAX ((size_t)16 << 20)

/* Asks. Posts JOB_EV_INSPECTED when all have answered. */
void job_where_start(struct job *j);
/* A host's answers; `rank` is one of its own. NULL, or why they are none. */
const char *job_where_found(struct job *j, const struct host *h, const Hvd__Where *where);
const char *job_where_done(struct job *j, const struct host *h, const Hvd__Inspected *inspected);
/* Says what has come, once. */
void job_where_say(struct job *j);
/* What rank `rank` does, or NULL. */
const Hvd__Where *job_where_of(const struct job *j, uint32_t rank);
void job_where_free(struct job *j);

#endif
