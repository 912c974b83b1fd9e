/* The stack of each rank, asked of the sessions when the time limit is over and shown before the job is ended.
 * Hosts have STACK_DUMP_MS to answer; a host that is late is named and not waited for. The answers are kept for
 * --report, up to WHERE_KEPT_MAX bytes of memory. */
#ifndef HVD_LAUNCHER_PARTS_STACK_DUMP_H
#define HVD_LAUNCHER_PARTS_STACK_DUMP_H

struct job;

#define STACK_DUMP_MS  5000
#define WHERE_KEPT_MAX ((size_t)16 << 20)

/* Asks. Posts JOB_EV_INSPECTED when all hosts have answered. */
void stack_dump_start(struct job *j);
/* Shows the answers that have come, once. */
void stack_dump_say(struct job *j);

#endif
