/* `hvdagent sweep JOB`: ends what is left of a job of this user on this host when neither its session nor its
 * guard is there to do it. */
#ifndef HVD_AGENT_SWEEP_H
#define HVD_AGENT_SWEEP_H

/* The exit status: 0 when nothing is left, 1 when processes cannot be killed (they are named), 2 for a bad
 * name. */
int sweep_job(const char *job);

#endif
