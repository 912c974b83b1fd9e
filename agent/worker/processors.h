/* Decides whether this host's ranks have a processor each. Some libraries wait by polling: where processors
 * are shared, they keep the rank that they wait for from running, so they have to be told.
 *
 * The processors of the session's affinity (a cpuset limits it, too) count, the quotas of its cgroups, and
 * the processors that each rank is bound to. */
#pragma once

#include "agent/worker/cpus.h"

#define PROCESSORS_UNLIMITED UINT64_MAX

/* bound: [ranks], the processors that each is bound to; empty: it is not bound; NULL: none is. A file that
 * cannot be read limits nothing. */
bool processors_are_short(const struct cpus *bound, size_t ranks);

/* ---- pure parts ---- */

/* The text of cpu.max, or of cpu.cfs_quota_us and cpu.cfs_period_us: thousandths of a processor. */
uint64_t processors_quota(const char *max);
uint64_t processors_quota_v1(const char *quota, const char *period);
/* True when some ranks together have fewer processors than ranks. A rank that is not bound has `allowed`. */
bool processors_overlap(const struct cpus *allowed, const struct cpus *bound, size_t ranks);
