/* The address at which the other hosts of a job reach this one, when ranks run here beside ranks elsewhere.
 * Of the addresses that its session offers the first may lead nowhere (a bridge, a network of its own), so it
 * is the one that the way to another host begins with. */
#ifndef HVD_LAUNCHER_JOB_LOCAL_ADDRESS_H
#define HVD_LAUNCHER_JOB_LOCAL_ADDRESS_H

struct job;

/* Once all hosts are ready. With --network-interfaces the user has chosen. */
void local_address_settle(struct job *j);

#endif
