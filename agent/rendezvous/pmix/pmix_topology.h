/* What processors, caches and devices this machine has, for the clients of PMIx. */
#ifndef HVD_AGENT_PMIX_TOPOLOGY_H
#define HVD_AGENT_PMIX_TOPOLOGY_H

/* In hwloc's XML, malloc'd; NULL when it cannot be found out, or this was built without hwloc. Any thread. */
char *pmix_topology(void);

#endif
