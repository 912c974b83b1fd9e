/* An elastic job: ranks die, hosts come and go, and the others train on.
 *
 * The launcher alone names memberships (collectives/engine/membership.h has what engines do with them). The
 * files, each on top of those below:
 *
 *   elastic.c     the part of the job: what has happened, and what follows
 *   changes.c     the next membership: named, sent, entered in time; what the user hears of it
 *   growth.c      hosts that are wanted or not any more; workers for free slots
 *   roster.c, blacklist.c (pure), discovery.c
 *
 * Each event is noted at once. The loop considers the events a moment later, so deaths at one time make one
 * membership:
 *
 *   a member has gone, enough are left    the next membership, at once
 *   too few are left                      wait for slots, at most --elastic-timeout
 *   workers are ready, or are to leave    the next membership, when the present one is complete
 *   all members wait in hvd_init          the next membership, with the same ranks
 *   a member has ended well               nobody comes any more: the job is about to finish */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/job/core.h"

/* The job outlives the end of a rank. Never of a job that is not elastic. */
bool elastic_goes_on(const struct job *j);
/* The workers that the job has ever had on that host of the plan, by number; the caller frees them. NULL: no
 * memory. */
uint32_t *elastic_workers_of(const struct job *j, uint32_t host, uint32_t *count);
/* The record for the end of that rank: the job's outcome, or another one because the job outlives the end. */
struct outcome *elastic_outcome(struct job *j, uint32_t rank);
/* The host has closed with an error. true: the job outlives that, and the user knows. */
bool elastic_survives_host(struct job *j, struct host *h);
/* Changes the number of ranks for the user `by`. NULL: the change begins. Otherwise returns a sentence with
 * the reason against it, which may lie in `why`. */
const char *elastic_ask_resize(struct job *j, uint32_t ranks, const char *by, char *why, size_t size);
