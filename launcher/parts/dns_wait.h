/* Hosts whose names have no address yet, as those of pods that are being made: they are looked up until
 * --start-timeout. The user is told at once, because the name may be misspelt; many hosts are told in one line.
 * When something else is wrong with the job, the wait ends and each such host is a fault. */
#ifndef HVD_LAUNCHER_PARTS_DNS_WAIT_H
#define HVD_LAUNCHER_PARTS_DNS_WAIT_H

struct job;
struct host;

#define UNRESOLVED_HINT "check the spelling, DNS and /etc/hosts"

/* h->unresolved is set now. */
void dns_wait_add(struct job *j, struct host *h);

#endif
