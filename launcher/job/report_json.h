/* --report: how a job went, as JSON. */
#ifndef HVD_LAUNCHER_JOB_REPORT_JSON_H
#define HVD_LAUNCHER_JOB_REPORT_JSON_H

#include <stdint.h>

#include "common/base/err.h"

struct job;

/* Writes it beside `path` and renames it, so that nobody ever reads half a report. `over` is the launcher's
 * time at the job's end. */
int report_json_write(const struct job *j, int exit_status, uint64_t over, const char *path, struct err *e);

#endif
