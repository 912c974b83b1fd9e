/* What hvdrun says at the end of a job: the first cause, and what followed from it. */
#ifndef HVD_LAUNCHER_JOB_REPORT_H
#define HVD_LAUNCHER_JOB_REPORT_H

struct job;

/* The sentences for the user, on stderr; nothing when all went well. */
void report_say(const struct job *j);
/* The file of --report. When it cannot be written that is said, and nothing else changes. */
void report_write(const struct job *j, int exit_status);

#endif
