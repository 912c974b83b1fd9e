/* Hosts whose names have no address yet, as those of pods that are being made: they are looked up until
 * --start-timeout, and the user is told at once, for it may be a slip of the pen.
 *
 * Many of them are told in one line. When something else is wrong with the job already, nobody waits for a
 * name any more: each is a fault of its host, to be told with the others. */
#ifndef HVD_LAUNCHER_PARTS_DNS_WAIT_H
#define HVD_LAUNCHER_PARTS_DNS_WAIT_H

#include <stdbool.h>

struct job;
struct host;

#define UNRESOLVED_HINT "check the spelling, DNS and /etc/hosts"

/* h->unresolved has come. */
void unresolved_add(struct job *j, struct host *h);
/* A host has failed or has a fault: gives those up that wait for an address, if so. */
void unresolved_settle(struct job *j);

#endif
