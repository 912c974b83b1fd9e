/* The report at the end of a job: the first cause, and its consequences. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

struct job;

/* Whether the file of --report can be written, before the job. */
int report_check(const char *path, struct err *e);

/* Says the outcome on stderr; says nothing when all went well. */
void report_say_outcome(const struct job *j);
/* --print-exit-codes: says on stderr how each rank ended. */
void report_say_exit_codes(const struct job *j);
/* timeline.c: makes one timeline of those of ranks and engines, and says where the rest lies. */
void timeline_collect(const struct job *j);
/* The JSON of --report as the job is now, for hvdctl page; the caller frees it. NULL: no memory. */
char *report_now(const struct job *j, size_t *size);
/* Writes the file of --report, if there is one. A failure is logged and changes nothing else. */
void report_write_json(const struct job *j, int exit_status);
