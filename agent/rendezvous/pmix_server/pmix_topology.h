/* What processors, caches and devices this machine has, found out once: for the library, which would look
 * for itself, and through it for the clients of PMIx. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_TOPOLOGY_H
#define HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_TOPOLOGY_H

#include <pmix_common.h>

/* hwloc would load its plugins, which ask displays and drivers and cost more than all the rest. Sets the
 * environment, so before there are threads. `empty`: a directory without any. */
void pmix_topology_without_plugins(const char *empty);
/* Any thread. t->topology is NULL when it is not known, as always when this was built without hwloc. */
void pmix_topology_find(pmix_topology_t *t);
/* When the library has ended. */
void pmix_topology_free(pmix_topology_t *t);

#endif
