/* What hvdrun says at the end of a job: the first cause, and what followed from it. */
#ifndef HVD_LAUNCHER_REPORT_H
#define HVD_LAUNCHER_REPORT_H

struct job;

/* The sentences for the user, on stderr; nothing when all went well. */
void report_say(const struct job *j);

#endif
