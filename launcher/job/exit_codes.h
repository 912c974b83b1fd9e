/* --print-exit-codes: how every rank ended, on stderr, ranks that ended alike together:
 *
 *   hvdrun: rank 3: exit status 7
 *   hvdrun: ranks 0-2,4-7: killed by signal 15 (Terminated), by hvdrun */
#ifndef HVD_LAUNCHER_JOB_EXIT_CODES_H
#define HVD_LAUNCHER_JOB_EXIT_CODES_H

struct job;

void exit_codes_say(const struct job *j);

#endif
