/* Do this host's ranks have a processor each? Where they have not, libraries that wait by looking again and
 * again keep away the rank that they wait for: they have to be told.
 *
 * What may be used is what our affinity (a cpuset shows in it) and the quotas of our cgroups leave, and of
 * each rank what it is bound to. */
#ifndef HVD_SUPERVISOR_PROCESSORS_H
#define HVD_SUPERVISOR_PROCESSORS_H

#include "agent/supervisor/cpus.h"

#define PROCESSORS_UNLIMITED UINT64_MAX

/* Of `ranks` ranks; bound: [ranks], what each is bound to, where an empty set says that it is not; NULL: none
 * is. What cannot be read limits nothing. */
bool processors_are_short(const struct cpus *bound, size_t ranks);

/* ---- pure parts ---- */

/* The text of cpu.max, or of cpu.cfs_quota_us and cpu.cfs_period_us: thousandths of a processor. */
uint64_t processors_quota(const char *max);
uint64_t processors_quota_v1(const char *quota, const char *period);
/* Are there ranks that have fewer processors together than they are? Whoever is not bound has `allowed`. */
bool processors_overlap(const struct cpus *allowed, const struct cpus *bound, size_t ranks);

#endif
