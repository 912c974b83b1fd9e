/* Addresses of the data links of a job's hosts: collected from the hosts, told to all hosts when the last one
 * listens. There are two sets: the links of the engines (collectives) and of the sessions (rendezvous). */
#ifndef HVD_LAUNCHER_PARTS_LINKS_H
#define HVD_LAUNCHER_PARTS_LINKS_H

#include <stdbool.h>

struct job;

/* A session needs links to the others: all sessions are told to listen, once. */
void links_order(struct job *j);
/* Were the sessions told to listen? */
bool links_are_ordered(const struct job *j);

#endif
