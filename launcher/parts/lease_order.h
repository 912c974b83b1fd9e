/* --wait: the order in which the hosts of a job ask for their leases. */
#ifndef HVD_LAUNCHER_PARTS_LEASE_ORDER_H
#define HVD_LAUNCHER_PARTS_LEASE_ORDER_H

struct job;
struct host;

/* h->lease.waiting says where the job stands in the host's queue. */
void lease_order_waiting(struct job *j, struct host *h);
/* h->lease.node is known now. */
void lease_order_held(struct job *j, struct host *h);

#endif
