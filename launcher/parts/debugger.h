/* What a job does for debuggers: the MPIR table when all ranks run, and --stop-on-exec. */
#ifndef HVD_LAUNCHER_PARTS_DEBUGGER_H
#define HVD_LAUNCHER_PARTS_DEBUGGER_H

#include "launcher/job/job_internal.h"

/* Before Spawn. Returns whether workers are to stop at their first instruction. */
bool job_debug_begin(struct job *j, struct err *e);
/* All ranks run. */
void job_debug_started(struct job *j);
void job_debug_end(struct job *j);

#endif
