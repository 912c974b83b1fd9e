/* All faults of all hosts at once, before the first worker is started anywhere: hosts that cannot be reached,
 * and what their sessions found missing (Welcome.problem) or too low (Welcome.limit).
 *
 * The first host that fails does not end the job at once. The other hosts get a moment to answer, so that a
 * user with four broken hosts reads of four. One fault is said as any other. More faults are a table of host,
 * what, why and fix, in the order of the hosts. */
#ifndef HVD_LAUNCHER_PARTS_PREFLIGHT_H
#define HVD_LAUNCHER_PARTS_PREFLIGHT_H

#include <stdbool.h>

struct job;

/* A host has failed, or has answered after another had: ends the job once all hosts have answered, or soon. */
void preflight_settle(struct job *j);
/* Says what is known; -1 when there is a fault, which is then in the outcome. */
int preflight_conclude(struct job *j);
/* Has a session named a problem of its host? */
bool preflight_has_problem(const struct job *j);

#endif
